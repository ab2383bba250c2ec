"""Checks of transports: exact streams, exact exit status, safe cancellation, complete cleanup."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from ...errors import UnsupportedOperation
from ...transport import Process, Transport
from ._registry import CHECK_TIMEOUT

__all__ = ["TransportCheck", "run_program", "run_transport_check", "transport_checks"]

Run = Callable[[Transport], Awaitable[None]]

ARGUMENTS = [
    *(
        "",
        "a b",
        "it's",
        '"quoted"',
        "back\\slash\\",
        "$HOME $(id) `id`",
        "!! !1",
        "line\nline\n",
        "tab\t",
        "%d %%",
        "*",
    ),
    *("~", "-n", "é漢😀", "\udcff\udc80", "\x01\x1b\x7f", ";&|<>()", "{a,b}", "#c", "=x", "\\0101", "\n"),
]


@dataclass(frozen=True, slots=True)
class TransportCheck:
    """One requirement of the :class:`~harness.transport.Transport` contract and the program that proves it."""

    name: str
    requirement: str
    run: Run


_registry: list[TransportCheck] = []


def _check(requirement: str) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        _registry.append(TransportCheck(run.__name__, requirement, run))
        return run

    return register


def transport_checks() -> tuple[TransportCheck, ...]:
    """Return every check of a transport, in the order of definition."""
    return tuple(_registry)


async def run_transport_check(item: TransportCheck, transport: Transport) -> None:
    """Run one check within a time limit; it raises if the requirement is not met."""
    with anyio.fail_after(CHECK_TIMEOUT):
        await item.run(transport)


async def run_program(transport: Transport, argv: Sequence[str], data: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run a program with input to its end, and return its exit status and its two streams."""
    streams = {"stdout": b"", "stderr": b""}

    async def drain(name: str, receive: Callable[[], Awaitable[bytes]]) -> None:
        chunks = []
        while chunk := await receive():
            chunks.append(chunk)
        streams[name] = b"".join(chunks)

    async def feed(process: Process) -> None:
        try:
            await process.send(data)
        except BrokenPipeError:
            return
        await process.send_eof()

    async with await transport.open_process(argv) as process:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain, "stdout", process.receive)
            tasks.start_soon(drain, "stderr", process.receive_stderr)
            tasks.start_soon(feed, process)
        return await process.wait(), streams["stdout"], streams["stderr"]


@_check("Both streams are exact and separate, and the exit status is the program's.")
async def streams_and_status_are_exact(transport: Transport) -> None:
    script = "printf 'a\\000b\\377'; printf err >&2; exit 42"
    assert await run_program(transport, ["sh", "-c", script]) == (42, b"a\0b\xff", b"err")
    for code in (0, 1, 127, 255):
        assert await run_program(transport, ["sh", "-c", f"exit {code}"]) == (code, b"", b"")


@_check("Death by signal N is status 128 + N.")
async def death_by_signal_is_reported(transport: Transport) -> None:
    for number in (1, 2, 9, 15):
        assert (await run_program(transport, ["sh", "-c", f"kill -{number} $$"]))[0] == 128 + number


@_check("Arguments arrive exactly, whatever characters they hold.")
async def arguments_are_exact(transport: Transport) -> None:
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in ARGUMENTS)
    assert await run_program(transport, ["printf", "%s\\0", *ARGUMENTS]) == (0, expected, b"")


@_check("Megabytes pass unchanged in both directions at once.")
async def bulk_data_passes(transport: Transport) -> None:
    data = random.Random(4).randbytes(8_000_000)
    assert await run_program(transport, ["cat"], data) == (0, data, b"")
    assert await run_program(transport, ["sh", "-c", "cat >&2"], data) == (0, b"", data)


@_check(
    "Reads are partial: what is there is returned at once, at most max_bytes of it, and b'' for ever after the end."
)
async def reads_are_partial(transport: Transport) -> None:
    async with await transport.open_process(["sh", "-c", "printf 0123456789; read x; printf more"]) as process:
        data = b""
        while len(data) < 10:
            part = await process.receive(4)
            assert 0 < len(part) <= 4, part
            data += part
        assert data == b"0123456789"
        await process.send(b"go\n")
        assert await process.receive() == b"more"
        for _ in range(3):
            assert await process.receive() == b""
            assert await process.receive_stderr() == b""
        assert await process.wait() == await process.wait() == 0


@_check("Cancelling a read loses nothing.")
async def cancelled_reads_lose_nothing(transport: Transport) -> None:
    async with await transport.open_process(["sh", "-c", "while read x; do echo $x; done"]) as process:
        received = b""
        for number in range(30):
            with anyio.move_on_after(0):
                received += await process.receive()
            await process.send(b"%d\n" % number)
            with anyio.move_on_after(0.001):
                received += await process.receive()
        await process.send_eof()
        while data := await process.receive():
            received += data
        assert received == b"".join(b"%d\n" % number for number in range(30)), received


@_check("A program that reads slowly makes send wait; one that is not read waits itself, and nothing is lost.")
async def streams_have_back_pressure(transport: Transport) -> None:
    data = bytes(12_000_000)
    async with await transport.open_process(["sh", "-c", "read go; exec wc -c"]) as process:
        with anyio.move_on_after(0.5) as scope:
            await process.send(data)
        assert scope.cancelled_caught, "12 MB were taken for a program that does not read"
    async with await transport.open_process(["sh", "-c", "head -c 12000000 /dev/zero; echo end >&2"]) as process:
        with anyio.move_on_after(0.5) as scope:
            await process.receive_stderr()
        assert scope.cancelled_caught, "12 MB were taken from a program whose output is not read"
        size = 0
        while chunk := await process.receive():
            size += len(chunk)
        assert size == 12_000_000
        assert await process.receive_stderr() == b"end\n"


@_check("After the program's end, send is BrokenPipeError and send_eof does nothing.")
async def sending_to_an_ended_program(transport: Transport) -> None:
    async with await transport.open_process(["sh", "-c", "exit 3"]) as process:
        assert await process.wait() == 3
        while await process.receive():
            pass
        try:
            for _ in range(100):
                await process.send(b"x" * 65536)
        except BrokenPipeError:
            pass
        else:
            raise AssertionError("6 MB were sent to a program that has ended")
        await process.send_eof()
        await process.send_eof()


@_check("The status is known when the program has ended, also while a child of it holds the streams open.")
async def status_does_not_wait_for_grandchildren(transport: Transport) -> None:
    script = "(read x <&3; echo late) 3<&0 & exit 7"
    async with await transport.open_process(["sh", "-c", script]) as process:
        with anyio.fail_after(10):
            assert await process.wait() == 7


@_check("Closing a process is bounded, may be done twice, and leaves the transport usable.")
async def closing_is_bounded(transport: Transport) -> None:
    async with await transport.open_process(
        ["sh", "-c", "trap '' TERM HUP; echo up; n=0; while [ $n -lt 30 ]; do n=$((n + 1)); sleep 1; done"]
    ) as process:
        assert await process.receive() == b"up\n"
        with anyio.fail_after(10):
            await process.aclose()
            await process.aclose()
    assert await run_program(transport, ["echo", "on"]) == (0, b"on\n", b"")


@_check("A cancelled open_process leaves nothing open.")
async def cancelled_opens_leave_nothing(transport: Transport) -> None:
    for number in range(25):
        with anyio.move_on_after(number * 0.002):
            async with await transport.open_process(["cat"]):
                pass
    assert await run_program(transport, ["echo", "on"]) == (0, b"on\n", b"")


@_check("Many processes at once do not mix, also when there are more of them than channels.")
async def processes_side_by_side(transport: Transport) -> None:
    results: dict[int, tuple[int, bytes, bytes]] = {}

    async def run(number: int) -> None:
        results[number] = await run_program(
            transport, ["sh", "-c", f"cat; echo {number}; exit {number}"], b"%d:" % number
        )

    async with anyio.create_task_group() as tasks:
        for number in range(25):
            tasks.start_soon(run, number)
    assert results == {number: (number, b"%d:%d\n" % (number, number), b"") for number in range(25)}


@_check("The environment of programs is the login's, their input is empty until something is sent.")
async def programs_start_clean(transport: Transport) -> None:
    code, stdout, stderr = await run_program(transport, ["sh", "-c", 'cat; test -n "$PATH" && ! test -t 0 && echo ok'])
    assert (code, stdout, stderr) == (0, b"ok\n", b"")


@_check("The command that people type for a terminal is a list of words for this machine.")
async def people_can_type_it(transport: Transport) -> None:
    words = transport.interactive_argv(["sh", "-c", "echo it's"])
    assert words, words
    assert all(words), words
    assert transport.describe()


@_check("The command for a program that reconnects is a list of words, or the error says what to do instead.")
async def programs_can_start_it_again(transport: Transport) -> None:
    try:
        words = transport.supervised_argv(["sh", "-c", "echo it's"])
    except UnsupportedOperation as error:
        assert error.hint, error
        return
    assert words, words
    assert all(words), words
