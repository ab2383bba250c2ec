"""What is sent to the workers of Dask, and what is not."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from harness import errors
from harness.config import Config
from harness.errors import ConfigError, HarnessError
from harness.fleets import Host, HostOutcome
from harness.fleets.dask_executor import _worker_options, connect_scheduler
from harness.fleets.dask_worker import WorkerRequest
from harness.fleets.executor import ConnectOptions
from harness.fleets.host_commands import HostCommand
from harness.results import ShellResult, Status
from harness.target import Target


async def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"needs the extra dask \(pip install .*dask"):
        async with connect_scheduler("tcp://127.0.0.1:1", 1.0):
            pytest.fail("it connected")


def test_a_request_has_the_paths_of_keys_and_never_their_content(tmp_path: Path) -> None:
    identity = tmp_path / "key"
    identity.write_text("PRIVATE KEY")
    options = ConnectOptions(Config(identity=str(identity)))
    host = Host("web1", Target.parse("ssh://root@web1:2222"))
    request = WorkerRequest("call", host, options, HostCommand("true", "key", b"input", {"timeout": 1.0}), 0)
    data = pickle.dumps(request)
    assert b"PRIVATE" not in data
    assert pickle.loads(data) == request


@pytest.mark.parametrize("name", errors.__all__)
def test_outcomes_come_back_whole(name: str) -> None:
    error: HarnessError = getattr(errors, name)("message", target="ssh://web1", hint="hint")
    back = pickle.loads(pickle.dumps(HostOutcome("web1", "ssh://web1", error=error, started=False)))
    assert type(back.error) is type(error)
    assert (back.error.message, back.error.target, back.error.hint) == ("message", "ssh://web1", "hint")
    result = HostOutcome("web1", "ssh://web1", ShellResult("\udcff", Status.COMPLETED, 0, b"\xff", notices=("a",)))
    assert pickle.loads(pickle.dumps(result)) == result


def test_tmux_runs_on_the_hosts_and_never_on_the_workers() -> None:
    assert _worker_options(ConnectOptions(Config(), tmux=True)).config.tmux_host == "target"
    with pytest.raises(ConfigError, match="tmux would run on their machines"):
        _worker_options(ConnectOptions(Config(tmux_host="local"), tmux=True))
