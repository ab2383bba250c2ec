"""``sig`` and ``imports`` in a real terminal, over SSH, and with the shells and programs that targets have."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.desk import Desk, desk, everywhere, open_desk
from tests.support.job_targets import SHELLS, path_of
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness_tools.dev import tools
from harness_tools.dev.imports import Listing, listing_command, parse_listing, parse_stream, stream_script

__all__ = ["desk", "open_desk"]

pytestmark = pytest.mark.usefixtures("needs_process")

MARK = "0123456789abcdef01234567"
TREE = {
    "go.mod": b"module shop.example/app\n",
    "main.go": b'package main\nimport (\n\t"fmt"\n\t"shop.example/app/store"\n)\nfunc Main() {}\n',
    "store/store.go": b"package store\n",
    "py/a.py": b"import os\nfrom . import b\n",
    "py/b.py": b"import yaml\n",
    "py/two\nlines.py": b"import one\n",
    "-dash 'quote' $(touch x).py": b"import two\n",
    "vendor/c.py": b"import nothing\n",
    "d.sh": b". ./e.sh\n",
    "e.sh": b"\n",
}


def plant(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


async def called(made: Toolbox, tool: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(110):
        return await made.executor.call(ToolCall(tool, arguments))


@everywhere
async def test_they_work_beside_a_terminal_that_is_not_touched(desk: Desk) -> None:
    plant(desk.home / "the tree", TREE)
    made = toolbox(tools(), execution=desk.ctx)
    before = await desk.ctx.capture_pane(start="-")
    outcome = await called(made, "imports", dir=f"{desk.home}/the tree", recursive=True)
    data: Any = outcome.result.data
    found = {
        one["file"]: [(item["module"], item["type"], *item["files"]) for item in one["imports"]]
        for one in data["files"]
    }
    assert found == {
        "-dash 'quote' $(touch x).py": [("two", "external")],
        "d.sh": [("./e.sh", "relative", "e.sh")],
        "e.sh": [],
        "main.go": [("fmt", "stdlib"), ("shop.example/app/store", "local", "store")],
        "py/a.py": [("os", "stdlib"), (".", "relative", "py/b.py")],
        "py/b.py": [("yaml", "external")],
        "py/two\nlines.py": [("one", "external")],
        "store/store.go": [],
    }
    assert data["skipped"] == ["vendor"]
    assert not (desk.home / "the tree" / "x").exists()
    outcome = await called(made, "sig", file=f"{desk.home}/the tree/main.go")
    assert outcome.result.text.endswith("(go, package main)\n6  func Main()")
    assert await desk.ctx.capture_pane(start="-") == before


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_lists_and_streams_the_same(shell: str, tmp_path: Path) -> None:
    root = tmp_path / "the 'tree'"
    plant(root, TREE)
    (root / "link.py").symlink_to("py/a.py")
    (root / "loop").symlink_to(root)

    def run(command: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": path_of(shell), "HOME": str(tmp_path)}
        words = [f"{path_of(shell).partition(':')[0]}/sh", "-c", command]
        return subprocess.run(words, input=sent, env=environment, capture_output=True, check=True, timeout=100)

    patterns = ("*.py", "*.go", "*.sh", "go.mod")
    for recursive in (True, False):
        done = run(listing_command(str(root), patterns, recursive=recursive))
        files = sorted(name for name in TREE if "vendor" not in name and (recursive or "/" not in name))
        assert parse_listing(done.stdout, done.stderr.decode()) == Listing(
            tuple(files), ("vendor",) if recursive else ()
        )
    names = [*TREE, "gone.py", "py"]
    done = run(f"cd {shlex.quote(str(root))} && sh | head -c 1000000", stream_script(names, MARK))
    fetched = parse_stream(done.stdout, MARK, names)
    assert (fetched.contents, fetched.unreadable, fetched.late) == (TREE, ("gone.py", "py"), ())


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:") as opened:
        yield opened


async def test_of_what_the_policy_keeps_back_nothing_is_shown(here: ExecutionContext, tmp_path: Path) -> None:
    plant(
        tmp_path / "tree",
        {
            ".aiexclude": b"kept/\n",
            "a.py": b"import os\n",
            "kept/b.py": b"import tiger\n",
            "deep/.aiexclude": b"*.go\n",
            "deep/c.py": b"import re\n",
            "deep/d.go": b'package d\nimport "tiger"\n',
        },
    )
    made = toolbox(tools(), execution=here)
    made.executor = replace(made.executor, services=replace(made.executor.services, policy=RulePolicy()))
    outcome = await called(made, "imports", dir=f"{tmp_path}/tree", recursive=True)
    data: Any = outcome.result.data
    assert [one["file"] for one in data["files"]] == ["a.py", "deep/c.py"]
    assert (data["files_withheld"], "tiger" in outcome.result.text + str(data)) == (2, False)
    assert "[2 files denied by the policy]" in outcome.result.text
    outcome = await called(made, "sig", file=f"{tmp_path}/tree/kept/b.py")
    assert outcome.result.error_code == "denied"
