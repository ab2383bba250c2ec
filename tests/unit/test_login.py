"""Questions reach the operator's terminal, and secrets are not shown there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import replace

import anyio
import pexpect
import pytest

from harness.login import LoginQuestion, TerminalPrompter, current_prompter, use_prompter

PASSWORD = LoginQuestion("password", "deploy@web1's password: ", True, "ssh://deploy@web1")
HOST_KEY = LoginQuestion("hostkey", "Continue connecting (yes/no)? ", False, "ssh://deploy@web1")

PROGRAM = """
import anyio
from harness.login import LoginQuestion, current_prompter
async def main():
    question = LoginQuestion("password", "deploy@web1's password: ", True, "ssh://deploy@web1")
    answer = await current_prompter().answer(question)
    print(f"got {len(answer)} characters")
anyio.run(main)
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """The operator's end of a terminal, and the name of the other end."""
    operator, program = pty.openpty()
    yield operator, os.ttyname(program)
    os.close(program)
    os.close(operator)


async def shown(operator: int, text: bytes) -> bytes:
    """What the operator sees, up to ``text``."""
    seen = b""
    with anyio.fail_after(5):
        while text not in seen:
            await anyio.wait_readable(operator)
            seen += os.read(operator, 1024)
    return seen


async def ask(terminal: tuple[int, str], question: LoginQuestion, typed: bytes) -> tuple[str | None, bytes]:
    operator, path = terminal
    answers: list[str | None] = []

    async def answer() -> None:
        answers.append(await TerminalPrompter(path).answer(question))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            seen = await shown(operator, question.text.encode())
            os.write(operator, typed)
    seen += await shown(operator, b"\n")
    return answers[0], seen


async def test_a_secret_is_read_without_echo(terminal: tuple[int, str]) -> None:
    answer, seen = await ask(terminal, PASSWORD, "pässword ".encode() + b"\n")
    assert answer == "pässword "
    assert b"ssword " not in seen.replace(PASSWORD.text.encode(), b"")


async def test_a_wrong_answer_is_called_wrong_before_the_question_comes_again(terminal: tuple[int, str]) -> None:
    _, seen = await ask(terminal, replace(PASSWORD, attempt=2), b"second\n")
    assert seen.startswith(b"wrong password, try again\r\n" + PASSWORD.text.encode())


async def test_an_open_question_is_echoed(terminal: tuple[int, str]) -> None:
    answer, seen = await ask(terminal, HOST_KEY, b"yes\n")
    assert answer == "yes"
    assert b"yes\r\n" in seen


async def test_an_end_of_file_gives_up(terminal: tuple[int, str]) -> None:
    assert (await ask(terminal, PASSWORD, b"\x04"))[0] is None


async def test_a_cancelled_question_restores_the_terminal(terminal: tuple[int, str]) -> None:
    operator, path = terminal
    before = termios.tcgetattr(operator)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(TerminalPrompter(path).answer, PASSWORD)
            await shown(operator, b"password: ")
            tasks.cancel_scope.cancel()
    assert termios.tcgetattr(operator) == before


async def test_what_was_typed_for_a_cancelled_question_is_left_to_nobody(terminal: tuple[int, str]) -> None:
    operator, path = terminal
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(TerminalPrompter(path).answer, PASSWORD)
            await shown(operator, b"password: ")
            os.write(operator, b"hunt")
            tasks.cancel_scope.cancel()
        os.write(operator, b"er2\n")
        shell = os.open(path, os.O_RDONLY | os.O_NOCTTY)
        try:
            assert os.read(shell, 100) == b"er2\n"
        finally:
            os.close(shell)


async def test_what_is_said_after_an_unanswered_question_begins_a_line(terminal: tuple[int, str]) -> None:
    operator, path = terminal
    assert (await ask(terminal, HOST_KEY, b"\x04"))[0] is None
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(TerminalPrompter(path).answer, HOST_KEY)
            await shown(operator, HOST_KEY.text.encode())
            tasks.cancel_scope.cancel()
        await shown(operator, b"\n")


@pytest.mark.usefixtures("needs_process")
def test_a_program_with_a_terminal_asks_there() -> None:
    child = pexpect.spawn(sys.executable, ["-c", PROGRAM], timeout=20, encoding="utf-8")
    child.expect_exact("password: ")
    child.sendline("hunter22")
    child.expect_exact("got 8 characters")
    assert "hunter22" not in (child.before or "")
    child.expect(pexpect.EOF)
    child.close()


@pytest.mark.usefixtures("needs_process")
def test_a_program_without_a_terminal_asks_nobody() -> None:
    code = "from harness.login import current_prompter; assert current_prompter() is None"
    subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True, timeout=20)


def test_a_prompter_holds_inside_its_block_only() -> None:
    outside = current_prompter()
    prompter = TerminalPrompter("/dev/null")
    with use_prompter(prompter):
        assert current_prompter() is prompter
        with use_prompter(None):
            assert current_prompter() is None
        assert current_prompter() is prompter
    assert current_prompter() is outside


def test_a_path_that_is_no_terminal_is_not_usable() -> None:
    assert not TerminalPrompter("/dev/null").usable()
    assert not TerminalPrompter("/nonexistent").usable()
