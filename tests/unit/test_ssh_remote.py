"""The remote command line reaches its program unchanged through every login shell, and start-up noise is dropped."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UnsupportedOperation
from harness_backends.ssh.remote import MAX_NOISE, NoiseFilter, new_nonce, remote_command

SHELLS = (["sh"], ["bash"], ["zsh"], ["mksh"], ["busybox", "sh"], ["fish", "--no-config"], ["tcsh", "-f"])
ARGUMENTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)

HOSTILE = [
    "",
    "a b",
    "it's",
    '"quoted"',
    "back\\slash \\n \\0101 \\",
    "$HOME $(id) `id` ${x}",
    "!! !1 !$ ^a^b",
    "line\nline\n\n",
    "tab\tand\rreturn",
    "*?[a-z]{a,b}~ # %s %% %d",
    "-n",
    "ünïcödé \U0001f600",
    "\udcff\udc80",
    "\x01\x1b[31m\x7f",
    ";&|<>()",
]


def started_by(shell: list[str], argv: list[str]) -> tuple[bytes, bytes]:
    nonce = new_nonce()
    done = subprocess.run([*shell, "-c", remote_command(argv, nonce)], capture_output=True, timeout=20, check=False)
    stdout, stderr = NoiseFilter(nonce), NoiseFilter(nonce)
    result = stdout.feed(done.stdout), stderr.feed(done.stderr)
    assert (stdout.passed, stderr.passed) == (True, True), done
    return result


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_arguments_arrive_exactly_from_every_login_shell(shell: list[str]) -> None:
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in HOSTILE)
    assert started_by(shell, ["printf", "%s\\0", *HOSTILE]) == (expected, b"")


@settings(max_examples=60, deadline=None)
@given(st.lists(ARGUMENTS, max_size=5))
def test_any_arguments_arrive_exactly(words: list[str]) -> None:
    argv = ["sh", "-c", 'for word; do printf "%s\\0" "$word"; done >&2', "sh", *words]
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)
    assert started_by(["sh"], argv) == (b"", expected)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_a_plain_program_starts_from_every_login_shell(shell: list[str]) -> None:
    assert started_by(shell, ["printf", "ok"]) == (b"ok", b"")


def test_a_plain_program_costs_no_extra_process() -> None:
    assert "eval" not in remote_command(["sh"], new_nonce())


def test_a_shell_that_shows_what_it_runs_does_not_imitate_the_mark(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/bash")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SHELLOPTS": "xtrace:verbose"}
    nonce = new_nonce()
    argv = ["bash", "-c", remote_command(["printf", "it's"], nonce)]
    done = subprocess.run(argv, capture_output=True, timeout=20, check=False, env=env)
    reader = NoiseFilter(nonce)
    reader.feed(done.stderr)
    assert b"+ printf" in reader.noise
    assert done.stderr.count(nonce.encode()) == 1


def test_the_text_of_the_command_does_not_hold_the_nonce() -> None:
    nonce = new_nonce()
    assert nonce not in remote_command(["true"], nonce)


def test_a_command_line_that_cannot_be_started_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="bytes long"):
        remote_command(["true", "x" * 130_000], "n" * 24)


@given(st.binary(max_size=200), st.binary(max_size=200), st.lists(st.integers(1, 30)))
def test_noise_is_dropped_however_the_stream_is_cut(noise: bytes, body: bytes, cuts: list[int]) -> None:
    stream = noise + b"0123456789abcdef:" + body
    reader = NoiseFilter("0123456789abcdef")
    out = b""
    for cut in cuts:
        out += reader.feed(stream[:cut])
        stream = stream[cut:]
    out += reader.feed(stream)
    assert (out, reader.passed, reader.noise) == (body, True, noise)


def test_endless_noise_takes_no_memory() -> None:
    reader = NoiseFilter("nonce")
    for _ in range(1000):
        assert reader.feed(b"n" * 10_000) == b""
    assert not reader.passed
    assert len(reader.noise) == MAX_NOISE
    assert len(reader._held) < 10
