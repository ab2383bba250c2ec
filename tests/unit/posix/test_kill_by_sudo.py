"""How processes of other users are signalled: with a stand-in for ``sudo``, as a mistake would signal the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness_backends.posix.jobs.launch import kill_rights
from harness_backends.posix.jobs.shell_library import WATCH

_DENIED = "kill() { echo 'Operation not permitted'; return 1; }\n"
_FAKE = 'printf \'%s|\' "$@" "${SUDO_ASKPASS-unset}" >>"$0.log"\n'


@pytest.mark.usefixtures("needs_process")
def test_a_process_group_is_signalled_by_the_kill_of_a_shell_and_looked_at_without_sudo(tmp_path: Path) -> None:
    """The program ``kill`` of procps-ng 4.0.2 takes ``-TERM -123`` for ``-TERM -1``."""
    fake = tmp_path / "sudo"
    fake.write_text(f"#!/bin/sh\n{_FAKE}")
    fake.chmod(0o755)
    rights = kill_rights((str(fake), "-A", "-u", "root", "--"), "/run/askpass")
    calls = f"hx_kill -0 -12345\nhx_kill -TERM -12345\n{rights}hx_kill -TERM -12345"
    script = f"PATH={tmp_path}:$PATH; hx_sh=sh\n{WATCH}{_DENIED}{calls}"
    subprocess.run(["sh", "-c", script], check=True, timeout=20)
    end = 'sh|-c|kill "$@"|sh|-TERM|-12345|'
    assert Path(f"{fake}.log").read_text() == f"-n|--|{end}unset|-A|-u|root|--|{end}/run/askpass|"
