"""What the file library finds out about a target's programs, and how processes of their own get it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.file_targets import FLAVOURS, Flavour, FlavouredTransport, open_file_target

from harness.transport import Process
from harness_backends.posix.files.shell_library import FACTS, library, standalone

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
async def test_a_process_for_a_file_is_told_what_the_shell_has_found_out(
    flavour: Flavour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[str] = []
    plain = FlavouredTransport.open_process

    async def note(self: FlavouredTransport, argv: Sequence[str]) -> Process:
        scripts.append(argv[-1])
        return await plain(self, argv)

    monkeypatch.setattr(FlavouredTransport, "open_process", note)
    source = tmp_path / "source"
    source.write_bytes(b"\xff" * 100_000)
    async with open_file_target(flavour, tmp_path) as target:
        await target.files.upload(str(source), "one")
        assert (target.home / "one").read_bytes() == source.read_bytes()
    told = next(line for line in scripts[-1].splitlines() if "hxf_facts='" in line)
    assert FACTS.fullmatch(told.partition("hxf_facts='")[2].rstrip("'")), told


def facts_with(path: Path, facts: str, facts_path: str) -> str:
    argv = standalone(library("/", facts, facts_path), 'printf %s "$hxf_facts"')
    done = subprocess.run(["/bin/sh", *argv[1:]], env={"PATH": str(path), "hxf_facts": "evil"}, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_facts_hold_only_for_the_same_path(tmp_path: Path) -> None:
    """No program is found in it: whatever is asked anew is the least."""
    facts = "gnu %.9Y printf head new 1000"
    assert facts_with(tmp_path, facts, str(tmp_path)) == facts
    for known, path in ((facts, "/bin"), ("", "")):
        assert facts_with(tmp_path, known, path) == "ls - - - plain "
