"""A write that is told to end while it removes what it has made."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.file_targets import BASH, BUSYBOX, DASH, MKSH, Flavour

from harness_backends.posix.files.content import FLUSHED
from harness_backends.posix.files.shell_library import call, library

TOLD = "told=1; kill -TERM 0"
IN_RM = "rm() { " + TOLD + '; command rm "$@"; }\n'
RECEIVE = 'hxf_into() { (umask 077; set -C; exec cat >"$stage"); }\n'


def told_first(functions: str) -> str:
    """The library, where the signal comes when it begins to tidy up."""
    head = "hxf_drop() {\n"
    assert head in functions
    return functions.replace(head, f'{head}[ -n "$told" ] || {{ {TOLD}; }}\n')


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("flavour", [DASH, BASH, MKSH, BUSYBOX], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("first", [True, False], ids=["before", "meanwhile"])
def test_a_signal_does_not_keep_it_from_tidying_up(first: bool, flavour: Flavour, tmp_path: Path) -> None:
    functions = told_first(library("/")) if first else library("/") + IN_RM
    path = str(tmp_path / "new" / "f")
    write = call("hxf_write", path, "overwrite", "any", 1, "", ".hx-tmp-1", 9, "", "", "staged", 0)
    script = f"told=\n{functions}\n{RECEIVE}{write}\n"
    done = subprocess.run(
        [*flavour.shell, "-c", script], input=b"not all", capture_output=True, timeout=60, start_new_session=True
    )
    assert done.returncode == (143 if first else 84), done.stderr
    assert list(tmp_path.iterdir()) == []


OFTEN = """
hxf_receive() { :; }
hxf_begin f overwrite any 1 .hx-tmp-1
: >"$stage"
n=0
while [ "$n" -lt 300 ]; do n=$((n + 1)); hxf_into; done
rm "$stage"
"""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("flavour", [DASH, BASH, MKSH, BUSYBOX], ids=lambda flavour: flavour.name)
def test_what_flushes_a_large_file_ends_also_when_the_content_ends_at_once(flavour: Flavour, tmp_path: Path) -> None:
    script = f"{library(str(tmp_path))}\n{FLUSHED}\n{OFTEN}"
    environ = {**os.environ, "HOME": str(tmp_path)}
    process = subprocess.Popen([*flavour.shell, "-c", script], env=environ, start_new_session=True)
    try:
        assert process.wait(30) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert list(tmp_path.iterdir()) == []
