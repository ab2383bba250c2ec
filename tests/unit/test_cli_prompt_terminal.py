"""What the prompt writes to its terminal, and what it takes from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest

from harness.cli.prompt import terminal as terminals
from harness.cli.prompt.inputs import Inputs
from harness.cli.prompt.surface import Ended, Entered, Input, Interrupted
from harness.cli.prompt.terminal import Terminal

FLOOD = "".join(f"line {number} 広\n" for number in range(50_000))


@contextmanager
def non_blocking_pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        yield reader, writer
    finally:
        for end in (reader, writer):
            with suppress(OSError):
                os.close(end)


def test_a_terminal_that_somebody_made_non_blocking_gets_all_of_a_flood() -> None:
    gone: list[str] = []
    got: list[bytes] = []

    def read() -> None:
        while data := os.read(reader, 4096):
            got.append(data)

    with non_blocking_pipe() as (reader, writer):
        thread = threading.Thread(target=read)
        thread.start()
        stream = Terminal(writer, lambda: gone.append("gone"))
        stream.write(FLOOD)
        stream.write("and more")
        os.close(writer)
        thread.join()
    assert b"".join(got).decode() == FLOOD + "and more"
    assert gone == []


def test_a_terminal_that_takes_nothing_is_not_waited_for_once_we_are_to_stop() -> None:
    gone: list[str] = []
    with non_blocking_pipe() as (_, writer):
        stream = Terminal(writer, lambda: gone.append("gone"), stopped=lambda: True)
        stream.write(FLOOD)
        stream.write("and more")
    assert gone == ["gone"]


def test_a_terminal_that_blocks_is_not_waited_for_once_we_are_to_stop() -> None:
    gone: list[str] = []
    person, side = os.openpty()
    try:
        stream = Terminal(side, lambda: gone.append("gone"), stopped=lambda: True)
        stream.write("shown\n")
        assert os.read(person, 100) == b"shown\r\n"
        stream.write(FLOOD)
        assert os.get_blocking(side)
    finally:
        os.close(person)
        os.close(side)
    assert gone == ["gone"]


def test_a_terminal_that_takes_nothing_for_long_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "PATIENCE", 0.3)
    gone: list[str] = []
    with non_blocking_pipe() as (_, writer):
        Terminal(writer, lambda: gone.append("gone")).write(FLOOD)
    assert gone == ["gone"]


async def test_what_is_done_before_anybody_listens_is_kept_in_order() -> None:
    inputs, taken = Inputs(), list[Input]()
    inputs.put(Entered("one"))
    inputs.put(Interrupted())

    async def take() -> None:
        async for what in inputs.taken():
            taken.append(what)
            if isinstance(what, Ended):
                return

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await anyio.lowlevel.checkpoint()
            inputs.put(Ended(gone=True))
    assert taken == [Entered("one"), Interrupted(), Ended(gone=True)]
