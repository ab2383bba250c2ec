"""Commands reach their program exactly, whatever the login shell and whatever ``sh`` is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples

from harness.errors import UnsupportedOperation
from harness_backends.posix.output_noise import NoiseFilter
from harness_backends.ssh.remote_command import MAX_COMMAND, interactive_command, remote_command

NONCE = "0123456789abcdef"
LOGIN_SHELLS = ["sh", "bash", "dash", "zsh", "fish", "tcsh", "csh", "mksh", "busybox sh"]
INNER_SHELLS = ["dash", "bash", "busybox", "mksh", "zsh"]
NASTY = [
    *("a b", "it's", "!x !! !", "back\\slash\\\\", "new\nline\n", "tab\t", "%d %%", "$HOME `id` $(id)", '"dq"', "é漢"),
    *(
        "\udcff",
        "*",
        "~",
        "",
        "-x",
        "a;b&c|d",
        "\x01\x7f\x1b",
        "\r\n",
        "{a,b}",
        "^a^b",
        "\\'",
        "#c",
        "\n",
        "=ls",
        "\\0101",
    ),
]

arguments = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=0, max_size=5)


def run(shell: str, command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [*shell.split(), "-c", command]
    return subprocess.run(argv, capture_output=True, timeout=30, check=False, input=b"IN", env=env)


def expected(argv: list[str]) -> tuple[int, bytes, bytes]:
    done = subprocess.run(argv, capture_output=True, timeout=30, check=False, input=b"IN")
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, f"{NONCE}o\n".encode() + done.stdout, f"{NONCE}e\n".encode() + done.stderr


CASES = [
    ["printf", "%s|", *NASTY],
    ["sh", "-c", "kill -9 $$"],
    ["sh", "-c", "kill -15 $$"],
    ["sh", "-c", "exit 42"],
    ["sh", "-c", "exit 255"],
    ["sh", "-c", "echo err >&2; cat"],
    ["true"],
    ["false"],
    ["printf", "%s", "x" * 90_000],
    ["printf", "%s|", *["word"] * 2_000],
]


@pytest.mark.usefixtures("needs_process")
def test_every_login_shell_passes_the_arguments_streams_and_status() -> None:
    for argv in CASES:
        for shell in LOGIN_SHELLS:
            done = run(shell, remote_command(argv, NONCE))
            assert (done.returncode, done.stdout, done.stderr) == expected(argv)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("inner", INNER_SHELLS)
@pytest.mark.parametrize("argv", CASES[:6], ids=lambda argv: " ".join(argv)[:12])
def test_every_sh_passes_the_arguments_streams_and_status(inner: str, argv: list[str], tmp_path: Path) -> None:
    program = shutil.which(inner)
    assert program is not None
    (tmp_path / "sh").symlink_to(program)
    done = run("dash", remote_command(argv, NONCE).replace("exec sh", f"exec {tmp_path}/sh", 1))
    assert (done.returncode, done.stdout, done.stderr) == expected(argv)


@pytest.mark.usefixtures("needs_process")
@few_examples()
@given(arguments)
def test_any_text_arrives_through_the_strangest_shells(words: list[str]) -> None:
    argv = ["printf", "%s|", *words]
    wanted = expected(argv)
    for shell in ("dash", "tcsh"):
        done = run(shell, remote_command(argv, NONCE))
        assert (done.returncode, done.stdout, done.stderr) == wanted


@given(arguments)
def test_the_command_holds_only_characters_that_mean_the_same_everywhere(words: list[str]) -> None:
    command = remote_command(["p", *words], NONCE)
    body = command.removeprefix("exec sh -c '").removesuffix("'")
    assert not set(body) & set("'!\n\r\0")
    assert command.isascii()
    assert all(body[i + 1 : i + 4].isdigit() for i, char in enumerate(body) if char == "\\")


@pytest.mark.usefixtures("needs_process")
def test_a_missing_program_is_status_127_with_the_shells_words() -> None:
    done = run("sh", remote_command(["no-such-program-here"], NONCE))
    assert done.returncode == 127
    assert b"no-such-program-here" in done.stderr


@pytest.mark.usefixtures("needs_process")
def test_a_program_is_started_even_when_a_builtin_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "cd").write_text("#!/bin/sh\necho the program\n")
    (tmp_path / "cd").chmod(0o755)
    done = run("sh", remote_command(["cd", "/"], NONCE), env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == f"{NONCE}o\nthe program\n".encode()


@pytest.mark.usefixtures("needs_process")
def test_nothing_runs_when_nobody_reads_any_more(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    process = subprocess.Popen(
        ["sh", "-c", f"read go; {remote_command(['touch', str(ran)], NONCE)}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        restore_signals=False,  # keep SIGPIPE ignored, the harder case: no signal ends the shell
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.wait(10) == 125
    assert not ran.exists()


@pytest.mark.usefixtures("needs_process")
def test_a_shell_that_shows_its_input_does_not_imitate_the_nonce() -> None:
    done = run("sh -v", "\n" + remote_command(["true"], NONCE))
    assert done.stderr.count(NONCE.encode()) == 1


def test_plain_interactive_commands_stay_readable() -> None:
    attach = ["tmux", "-L", "harness", "attach", "-t", "=harness"]
    assert interactive_command(attach) == r"exec tmux -L harness attach -t \=harness"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_readable_interactive_commands_mean_the_same_in_every_shell(shell: str) -> None:
    assert run(shell, interactive_command(["printf", "%s|", "=ls", "a=b", "-t"])).stdout == b"=ls|a=b|-t|"
    assert run(shell, interactive_command(["echo", "=ls", "-t"])).stdout == b"=ls -t\n"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_interactive_commands_pass_any_argument(shell: str) -> None:
    done = run(shell, interactive_command(["printf", "%s|", *NASTY]))
    assert done.stdout == b"".join(word.encode("utf-8", "surrogateescape") + b"|" for word in NASTY)


def test_a_command_that_sshd_cannot_pass_on_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="standard input"):
        remote_command(["printf", "%s", "x" * MAX_COMMAND], NONCE)


@pytest.mark.parametrize("argv", [[], [""], ["a", "b\0c"]])
def test_impossible_arguments_are_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"program|NUL"):
        remote_command(argv, NONCE)


@given(noise=st.binary(max_size=2000), output=st.binary(max_size=100), sizes=st.lists(st.integers(1, 50)))
def test_noise_is_dropped_and_output_kept_however_the_bytes_arrive(
    noise: bytes, output: bytes, sizes: list[int]
) -> None:
    data = noise + f"{NONCE}o\n".encode() + output
    noise_filter, got = NoiseFilter(NONCE, "stdout"), b""
    for size in sizes:
        got += noise_filter.feed(data[:size])
        data = data[size:]
    got += noise_filter.feed(data)
    assert noise_filter.passed
    assert got == output


def test_the_streams_have_lines_of_their_own() -> None:
    merged = f"{NONCE}e\n{NONCE}o\nout".encode()  # a start-up file did `exec 2>&1`
    assert NoiseFilter(NONCE, "stdout").feed(merged) == b"out"


def test_endless_noise_takes_no_memory() -> None:
    noise_filter = NoiseFilter(NONCE, "stdout")
    for _ in range(1000):
        assert noise_filter.feed(b"y\n" * 5000) == b""
    assert not noise_filter.passed
    assert len(noise_filter.noise) < 500
