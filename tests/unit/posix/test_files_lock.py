"""The lock on a directory, where others take it and leave it between two looks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness_backends.posix.files.shell_library import library

# mkdir that fails so many times as another writer makes it fail, whose lock is gone again when one looks.
_MKDIR = r"""
mkdir() {
  echo x >>"$counted"
  if [ "$(wc -l <"$counted")" -le "$failures" ]; then
    echo "mkdir: $1: $words" >&2
    return 1
  fi
  command mkdir "$@"
}
stage=$dir/.hx-tmp-1 hxf_locked=
hxf_acquire
printf %s "$hxf_locked"
"""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(
    ("failures", "words", "code"),
    [(0, "", 0), (1, "File exists", 0), (5, "File exists", 0), (1000, "Input/output error", 1)],
)
def test_a_lock_that_was_left_meanwhile_is_taken(tmp_path: Path, failures: int, words: str, code: int) -> None:
    settings = f"dir={tmp_path} counted={tmp_path}/counted failures={failures} words='{words}'; : >$counted\n"
    script = f"{library('/')}\n{settings}{_MKDIR}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stdout == (f"{tmp_path}/.hx-lock" if code == 0 else "")
    assert (tmp_path / ".hx-lock").is_dir() == (code == 0)
    assert done.stderr == (f"mkdir: {tmp_path}/.hx-lock: {words}\n" if code else "")
