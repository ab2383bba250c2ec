"""Plain tmux commands: what the shell is given, what comes back, and how waits on the target end."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_backends.tmux.channel.control_protocol import Block
from harness_backends.tmux.channel.single_commands import parse_answers, plain_script, until_script
from harness_backends.tmux.sources.job_output import PaneFacts, WaitResult, parse_ended, parse_facts


@pytest.fixture
def tmux(needs_tmux: None, tmp_path: Path) -> Iterator[str]:
    """The command line of a tmux server of its own, with one pane."""
    command = f"{shutil.which('tmux')} -u -L hx-{secrets.token_hex(4)}"
    subprocess.run([*command.split(), "-f", "/dev/null", "new-session", "-d", "cat"], check=True, cwd=tmp_path)
    yield command
    subprocess.run([*command.split(), "kill-server"], check=False)


def ask(tmux: str, *commands: tuple[str, ...], shell: str = "dash") -> tuple[int, list[Block]]:
    script = plain_script(tmux, commands, "hx-token")
    done = subprocess.run([shell, "-c", script], capture_output=True, timeout=20)
    return done.returncode, parse_answers(done.stdout, "hx-token")


def test_each_command_has_its_answer(tmux: str) -> None:
    code, blocks = ask(
        tmux,
        ("display-message", "-p", "one"),
        ("set-option", "-g", "@x", "a;"),
        ("display-message", "-p", "#{@x} 'q' $HOME \\"),
        ("show-buffer", "-b", "none"),
        ("display-message", "-p", "never"),
    )
    assert code != 0
    assert blocks[:3] == [Block((b"one",)), Block(()), Block((b"a; 'q' $HOME \\",))]
    assert len(blocks) == 3


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    "text", ["x", "a;", ";", "x" * 5000 + ";", "é\n$HOME `id` 'q' \"d\" \\" * 3000, "%s\\n", "#{pane_id}", "-n" * 2000]
)
def test_a_text_of_any_length_arrives_as_it_is(tmux: str, text: str, shell: str) -> None:
    between = ("display-message", "-p", "between")
    code, blocks = ask(tmux, ("set-buffer", "-b", "b", text), between, shell=shell)
    kept = subprocess.run([*tmux.split(), "show-buffer", "-b", "b"], capture_output=True, timeout=10).stdout
    assert (code, kept.decode()) == (0, text)
    assert blocks == [Block(()), Block((b"between",))]


def test_many_commands_are_cut_into_several_calls() -> None:
    script = plain_script("tmux", [("send-keys", "-l", "x" * 1500)] * 20, "hx-token")
    lines = script.splitlines()
    assert len(lines) > 3
    assert all(len(line) < 12_000 and line.endswith("|| exit") for line in lines)
    assert script.count("hx-token") == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n0nce 42 3 1000\n", PaneFacts("n0nce", 42, 3, 1000)),
        ("n0nce 42 0 -\n", PaneFacts("n0nce", 42, 0, None)),
        ("n0nce 0 0 -\n", PaneFacts("n0nce", 0, 0, None)),
        ("- 0 0 -\n", None),
        ("", None),
    ],
)
def test_the_facts_of_a_pane_are_read(text: str, expected: PaneFacts | None) -> None:
    assert parse_facts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit 3\n", WaitResult("exit", "3")),
        ("exit 3 shell_exited", WaitResult("exit", "3 shell_exited")),
        ("mark -1", WaitResult("mark", "-1")),
        ("tag", WaitResult("tag")),
        ("gone", WaitResult("gone")),
        ("", None),
    ],
)
def test_the_end_of_a_wait_is_read(text: str, expected: WaitResult | None) -> None:
    assert parse_ended(text) == expected


@pytest.mark.usefixtures("needs_process")
def test_a_wait_ends_with_its_condition_or_its_time(tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert subprocess.run(["sh", "-c", until_script(f"[ -e {there} ]", 0.2)], timeout=10).returncode == 1
    there.touch()
    assert subprocess.run(["sh", "-c", until_script(f"[ -e {there} ]", 300)], timeout=30).returncode == 0
