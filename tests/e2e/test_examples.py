"""The programs in the documentation do what the documentation says, on this machine and over SSH."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.model_server import call, model_server, say

import harness
from harness.discovery import find_backend

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PEERS = Path(__file__).parents[1] / "peers" / "test_inspect_sandbox.py"
"""The tests of examples that need another project's package."""
FRAMEWORKS = Path(__file__).with_name("test_frameworks.py")


@pytest.fixture
def home(needs_tmux: None) -> Iterator[Path]:
    """A home of its own, with a tmux server of its own; short, because socket paths are."""
    with TemporaryDirectory(prefix="hx-", dir="/tmp") as folder:
        yield Path(folder)
        kill = ["tmux", "-L", "harness", "kill-server"]
        subprocess.run(kill, env=environment(Path(folder)), capture_output=True, timeout=20)


def environment(home: Path) -> dict[str, str]:
    here = {"HOME": str(home), "TMUX_TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home), "SHELL": "/bin/bash"}
    return here | {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}


def run(home: Path, name: str, *arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    environ = environment(home) | variables
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_quickstart(home: Path) -> None:
    size, failed = run(home, "quickstart.py")
    assert size.startswith("completed 0 ")
    assert size.endswith("\t.")
    assert failed == "a failed command is a result: 1"


def test_files(home: Path) -> None:
    refused, entry = run(home, "files.py")
    assert refused.startswith("refused: ")
    assert entry == "file 9 limits.conf"


def test_jobs(home: Path) -> None:
    assert run(home, "jobs.py") == ["running", "step 1", "step 2", "step 3", "completed 4"]


def test_interactive(home: Path) -> None:
    asking, done, attach = run(home, "interactive.py")
    assert asking == "running and the screen ends with: Remove it?"
    assert done == "completed 0"
    assert attach.startswith("An operator types: tmux ")


def test_many_hosts(home: Path) -> None:
    assert run(home, "many_hosts.py") == ["local: ready"]


def test_script_tmux(home: Path) -> None:
    window, *screen = run(home, "script_tmux.py")
    assert window == "log ['%1']"
    assert "ready" in screen


def test_free_tool(home: Path) -> None:
    free, missing, mistake = run(home, "free_tool.py")
    assert free.removeprefix("ok ").isdecimal()
    assert missing.startswith("error df: ")
    assert mistake == "error free: pth: no such argument; did you mean 'path'?"


def test_profile(home: Path) -> None:
    opened, text, *_, failed = run(home, "profile.py")
    assert (opened, text.split("\t")[0]) == ("/etc/hostname:", "     1")
    assert failed.startswith("ERROR ")


def test_model_turn(home: Path) -> None:
    (message,) = [json.loads("".join(run(home, "model_turn.py")))]
    (block,) = message["content"]
    assert (message["role"], block["tool_use_id"], block["is_error"]) == ("user", "toolu_1", True)
    assert "no such file" in block["content"][0]["text"]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("path", "said"), [("/srv/x", ""), ("/etc/x", '"reason": "/etc/x is not below /srv"')])
def test_only_srv(path: str, said: str) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "only_srv.py")]
    done = subprocess.run(command, input=json.dumps({"paths": [path]}), capture_output=True, text=True, check=True)
    assert said in done.stdout
    assert bool(said) == bool(done.stdout)


def test_announced(home: Path) -> None:
    assert run(home, "announced.py") == ["denied"]


def test_own_hooks(home: Path) -> None:
    assert run(home, "own_hooks.py") == ["denied /etc/shadow", "ok /etc/passwd", "the end"]


def test_own_stores(home: Path) -> None:
    assert run(home, "own_stores.py") == ["['restart nginx']", "m1 (session): nginx serves port 8080"]
    assert not (home / ".local/state/harness/notebook").exists()


def test_set_option_tool(home: Path) -> None:
    asked = f"asked: write example.conf (that is {home}/example.conf)"
    assert run(home, "set_option_tool.py") == [
        asked,
        "error example.conf exists and you have not read it: read it before changing it",
        "ok max = 10",
        asked,
        f"ok set max in {home}/example.conf",
    ]


def exported(*seqs: int) -> str:
    """Records in a chain, as an export has them."""
    lines, before = [], "0" * 64
    for seq in seqs:
        record = {"prev": before, "seq": seq}
        before = hashlib.sha256(json.dumps(record, separators=(",", ":")).encode()).hexdigest()
        lines.append(json.dumps({**record, "hash": before}))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (exported(1, 2), 0, "whole, up to 2:"),
        (exported(1, 2).replace('"seq": 1', '"seq": 7'), 1, "record 7 was changed"),
        (exported(1) + "\n" + exported(2), 1, "record 2 does not follow"),
    ],
)
def test_check_export(home: Path, text: str, code: int, said: str) -> None:
    command = [sys.executable, str(EXAMPLES / "check_export.py")]
    done = subprocess.run(command, input=text, env=environment(home), capture_output=True, text=True, timeout=60)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)


@pytest.mark.usefixtures("needs_root")
async def test_backend() -> None:
    open_backend = runpy.run_path(str(EXAMPLES / "backend.py"))["open_backend"]
    config = harness.Config()
    here, nobody = harness.Target.parse("local:"), harness.Target.parse("local:+as://nobody")
    async with (
        find_backend("local")(here, config, None) as base,
        open_backend(nobody, config, base.transport) as backend,
    ):
        try:
            result = await harness.ExecutionContext(backend, None, config).run_shell("id -un")
        finally:
            await backend.files.remove(backend.capabilities.state_dir, recursive=True)
    assert (result.stdout, result.exit_code) == ("nobody\n", 0)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_is_tested(name: str) -> None:
    test = f"test_{Path(name).stem}"
    assert test in globals() or f"def {test}(" in PEERS.read_text() or name in FRAMEWORKS.read_text()


def test_agent(home: Path) -> None:
    with model_server([call("run_shell", {"command": "df -P / | tail -1"}), say("It is not full.")]) as server:
        settings = home / ".config" / "harness" / "config.toml"
        settings.parent.mkdir(parents=True)
        table = f'[models.own]\nprovider = "ollama"\nmodel = "own"\nbase_url = "{server.ollama_url}"\n'
        settings.write_text(table + "context_window = 32768\n")
        answer, ended = run(home, "agent.py")
        assert server.refused == []
    assert (answer, ended.partition(",")[0]) == ("It is not full.", "completed 2 answers")


def test_pydantic_ai_agent(home: Path) -> None:
    with model_server([call("run_shell", {"command": "df -P / | tail -1"}), say("It is not full.")]) as server:
        keys = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        assert run(home, "pydantic_ai_agent.py", "openai-chat:own", **keys) == ["It is not full."]
        assert server.refused == []
        (result,) = [one for one in server.asked[1].body["messages"] if one["role"] == "tool"]
    assert "[untrusted output " in result["content"]
