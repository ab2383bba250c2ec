"""What the prompt writes to its terminal, and what it takes from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest

from harness.cli.prompt import surface as terminals
from harness.cli.prompt.surface import Input, InputEnded, Inputs, Interrupted, TerminalWriter, TextEntered

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


async def taken_from(stream: TerminalWriter, reader: int, writer: int) -> str:
    """All that the terminal gets once it takes something."""
    got: list[bytes] = []

    def read() -> None:
        while data := os.read(reader, 4096):
            got.append(data)

    thread = threading.Thread(target=read)
    thread.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run)
        with anyio.fail_after(30):
            await stream.drained()
        tasks.cancel_scope.cancel()
    os.close(writer)
    thread.join()
    return b"".join(got).decode()


async def test_a_terminal_that_somebody_made_non_blocking_gets_all_of_a_flood() -> None:
    gone: list[str] = []
    with non_blocking_pipe() as (reader, writer):
        stream = TerminalWriter(writer, lambda: gone.append("gone"))
        stream.write(FLOOD)
        stream.write("and more")
        assert await taken_from(stream, reader, writer) == FLOOD + "and more"
    assert (gone, stream.behind) == ([], False)


async def test_a_terminal_that_takes_nothing_is_waited_for_by_nobody() -> None:
    gone: list[str] = []
    person, side = os.openpty()
    try:
        stream = TerminalWriter(side, lambda: gone.append("gone"))
        stream.write("shown\n")
        assert os.read(person, 100) == b"shown\r\n"
        with anyio.fail_after(10):
            for _ in range(10):
                stream.write(FLOOD)
            await stream.finish()  # it is given up
        assert os.get_blocking(side)
        assert not stream.behind
    finally:
        os.close(person)
        os.close(side)
    assert gone == []


async def test_what_was_too_much_to_keep_is_counted_when_the_terminal_takes_something_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminals, "MAX_BUFFERED_BYTES", 100)
    with non_blocking_pipe() as (reader, writer):
        stream = TerminalWriter(writer, lambda: None)
        stream.write(FLOOD)
        stream.write("lost\nlost\n")
        assert stream.behind
        text = await taken_from(stream, reader, writer)
    assert text == FLOOD + "· 2 lines are not shown: the terminal was unresponsive\r\n"


async def test_who_waits_for_the_terminal_may_give_up() -> None:
    with non_blocking_pipe() as (_, writer):
        stream = TerminalWriter(writer, lambda: None)
        stream.write(FLOOD)
        given_up = anyio.Event()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.drained, given_up.is_set)
                tasks.start_soon(stream.drained, given_up.is_set)
                await anyio.lowlevel.checkpoint()
                given_up.set()
                stream.look()
        assert stream.behind


async def test_a_terminal_that_is_gone_is_told_once() -> None:
    gone: list[str] = []
    with non_blocking_pipe() as (reader, writer):
        os.close(reader)
        stream = TerminalWriter(writer, lambda: gone.append("gone"))
        stream.write("one")
        stream.write("two")
        await stream.finish()
    assert (gone, stream.behind) == (["gone"], False)


async def test_what_is_done_before_anybody_listens_is_kept_in_order() -> None:
    inputs, taken = Inputs(), list[Input]()
    inputs.put(TextEntered("one"))
    inputs.put(Interrupted())

    async def take() -> None:
        async for what in inputs.taken():
            taken.append(what)
            if isinstance(what, InputEnded):
                return

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await anyio.lowlevel.checkpoint()
            inputs.put(InputEnded(gone=True))
    assert taken == [TextEntered("one"), Interrupted(), InputEnded(gone=True)]
