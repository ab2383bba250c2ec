"""What watchers of a pane see is redacted, in whatever pieces it comes; what is typed is shown letter by letter."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.toolkit.test_redaction import KNOWN, NAMED, SECRET, TOKENS, key
from tests.unit.toolkit.test_redaction_stream import LINES

from harness.pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen
from harness.toolkit.redaction.pane_stream import HELD_SECONDS, RedactedPaneEvents, redact_screen
from harness.toolkit.redaction.redactor import MARK, PatternRedactor

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Events(AsyncIterator[PaneEvent]):
    """Events that come one by one; after the last one nothing comes, or with ``end`` the iterator ends."""

    def __init__(self, events: Iterable[PaneEvent], *, end: bool = True) -> None:
        self._events = iter(events)
        self._end = end

    async def __anext__(self) -> PaneEvent:
        event = next(self._events, None)
        if event is None:
            if self._end:
                raise StopAsyncIteration
            await anyio.sleep_forever()
        assert event is not None
        return event


async def redacted(redactor: PatternRedactor, *events: PaneEvent) -> list[PaneEvent]:
    return [event async for event in RedactedPaneEvents(Events(events), redactor)]


async def shown(redactor: PatternRedactor, *pieces: str) -> str:
    """What a watcher has seen in the end, of output in these pieces."""
    outputs = [Output(0.0, piece.encode()) for piece in pieces]
    return text_of(await redacted(redactor, *outputs, Closed(0.0)))


def text_of(events: list[PaneEvent]) -> str:
    return b"".join(event.data for event in events if isinstance(event, Output)).decode()


async def test_what_is_typed_is_shown_at_once() -> None:
    line = "ls -la /etc && sudo systemctl restart nginx; tail -f /var/log/syslog"
    events = RedactedPaneEvents(Events([Output(0.0, letter.encode()) for letter in line]), PatternRedactor([KNOWN]))
    assert [event.data async for event in events if isinstance(event, Output)] == [letter.encode() for letter in line]


@pytest.mark.parametrize("between", ["", "\x1b[31m", "\x1b[0m\x1b[1C", "\x1b]0;title\x07"])
async def test_a_known_secret_is_hidden_that_comes_letter_by_letter(between: str) -> None:
    seen = ESCAPE.sub("", await shown(PatternRedactor([KNOWN]), *(f"{letter}{between}" for letter in KNOWN), "\n"))
    assert MARK in seen
    assert KNOWN[:3] not in seen
    assert not any(KNOWN[place : place + 3] in seen for place in range(len(KNOWN) - 2))


@pytest.mark.parametrize("text", [*TOKENS, *(text.replace("{}", SECRET) for text, _ in NAMED), key()])
async def test_no_secret_is_shown_that_comes_letter_by_letter(text: str) -> None:
    redactor = PatternRedactor([KNOWN])
    whole = f"a {text} b\nc"
    seen = await shown(redactor, *whole)
    assert MARK in seen
    hidden = [word for word in whole.split() if word not in redactor.text(whole) and len(word) > 8]
    assert not [word for word in hidden if word in seen]
    assert SECRET not in seen


@given(st.lists(LINES, max_size=6).map("\n".join), st.lists(st.integers(0, 10_000), max_size=12))
def test_wherever_it_is_cut_no_secret_is_shown(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[one:other] for one, other in pairwise(places)]
    redactor = PatternRedactor([KNOWN])

    async def work() -> str:
        events = [Output(0.0, piece.encode("utf-8", "surrogatepass")) for piece in pieces]
        return b"".join(
            event.data for event in await redacted(redactor, *events, Closed(0.0)) if isinstance(event, Output)
        ).decode("utf-8", "surrogatepass")

    seen = anyio.run(work)
    assert KNOWN not in seen
    assert not [token for token in TOKENS if token in seen and token not in redactor.text(text)]


async def test_text_after_a_name_is_shown_after_a_moment_redacted() -> None:
    events = RedactedPaneEvents(
        Events([Output(0.0, b"Password: "), Output(0.0, b"hunter2-x")], end=False), PatternRedactor()
    )
    with anyio.fail_after(10):
        assert await anext(events) == Output(0.0, b"Password: ")
        begin = anyio.current_time()
        assert await anext(events) == Output(0.0, MARK.encode())
    assert anyio.current_time() - begin > HELD_SECONDS / 2


async def test_nothing_is_lost_when_a_caller_stops_waiting() -> None:
    long = b"text without secrets " * 2000
    events = RedactedPaneEvents(Events([Output(0.0, long)] * 3), PatternRedactor())
    seen = b""
    with anyio.fail_after(60):
        while len(seen) < 3 * len(long):
            with anyio.move_on_after(0.01):
                event = await anext(events)
                assert isinstance(event, Output)
                seen += event.data
    assert seen == long * 3


async def test_a_screen_replaces_what_was_held() -> None:
    redactor = PatternRedactor([KNOWN])
    picture = Screen(1.0, 40, 5, f"\x1b[1;1H$ echo {KNOWN}\x1b[2;1H{KNOWN}\x1b[3;1H$ \x1b[3;3H".encode())
    found = await redacted(redactor, Output(0.0, KNOWN[:6].encode()), picture, Output(2.0, b"x\r\n"))
    assert found == [
        Screen(1.0, 40, 5, f"\x1b[1;1H$ echo {MARK}\x1b[2;1H{MARK}\x1b[3;1H$ \x1b[3;3H".encode()),
        Output(2.0, b"x\r\n"),
    ]


async def test_text_after_a_name_does_not_wait_for_the_end_of_the_typing() -> None:
    class Typing(AsyncIterator[PaneEvent]):
        async def __anext__(self) -> PaneEvent:
            await anyio.sleep(HELD_SECONDS / 5)
            return Output(0.0, b"x ")

    events = RedactedPaneEvents(Typing(), PatternRedactor())
    events._show(events._text.feed(b"echo "))
    with anyio.fail_after(10):
        assert await anext(events) == Output(0.0, b"echo ")
        begin = anyio.current_time()
        assert (await anext(events)) is not None
    assert anyio.current_time() - begin < HELD_SECONDS * 3


def test_a_secret_that_continues_in_the_next_row_is_hidden() -> None:
    redactor = PatternRedactor([KNOWN])
    half = len(KNOWN) // 2
    row = f"{'x' * (40 - half)}{KNOWN[:half]}"
    content = f"\x1b[1;1Htext\x1b[2;1H{row}\x1b[3;1H{KNOWN[half:]} rest\x1b[4;1Hbelow\x1b[0m"
    clean = redact_screen(redactor, content.encode(), 40).decode()
    assert clean == f"\x1b[1;1Htext\x1b[2;1H{'x' * (40 - half)}{MARK} rest\x1b[3;1H\x1b[4;1Hbelow\x1b[0m"


def test_a_screen_without_secrets_is_unchanged() -> None:
    rows = "".join(f"\x1b[{number};1H\x1b[3{number % 8}m{'─' * 80}" for number in range(1, 25))
    assert redact_screen(PatternRedactor([KNOWN]), rows.encode(), 80) == rows.encode()


def test_a_private_key_on_a_screen_is_hidden() -> None:
    rows = "".join(f"\x1b[{number};1H{line}" for number, line in enumerate(["before", *key().split("\n"), "after"], 1))
    clean = redact_screen(PatternRedactor(), rows.encode(), 80).decode()
    assert "before" in clean
    assert "after" in clean
    assert MARK in clean
    assert not [line for line in key().split("\n") if len(line) > 30 and line in clean]


async def test_other_events_keep_their_place() -> None:
    redactor = PatternRedactor([KNOWN])
    found = await redacted(
        redactor,
        JobStarted(0.0, "7", f"curl -H 'X: {KNOWN}'"),
        Output(1.0, b"token=abc123def"),
        JobEnded(2.0, "7", 0, "completed"),
        Resized(3.0, 80, 24),
        Closed(4.0),
    )
    assert found == [
        JobStarted(0.0, "7", f"curl -H 'X: {MARK}'"),
        Output(2.0, f"token={MARK}".encode()),
        JobEnded(2.0, "7", 0, "completed"),
        Resized(3.0, 80, 24),
        Closed(4.0),
    ]


async def test_bytes_that_are_no_text_are_kept() -> None:
    data = bytes(range(128, 256)) + "漢".encode()[:2]
    found = await redacted(PatternRedactor(), Output(0.0, data), Output(0.0, "漢".encode()[2:] + b" "), Closed(0.0))
    assert b"".join(event.data for event in found if isinstance(event, Output)) == data + "漢".encode()[2:] + b" "


def screen_with(*rows: str, place: tuple[int, int]) -> Screen:
    drawn = "".join(f"\x1b[{number};1H{row}" for number, row in enumerate(rows, 1))
    return Screen(0.0, 20, 6, f"{drawn}\x1b[0m\x1b[{place[0]};{place[1]}H".encode())


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("secret", [KNOWN, f"password={SECRET}", TOKENS[0]])
async def test_a_secret_is_hidden_whose_start_the_screen_shows(secret: str, live: bool) -> None:
    redactor = PatternRedactor([KNOWN])
    for cut in range(3, len(secret)):
        begun = f"> {secret[:cut]}"
        rows = [begun[start : start + 20] for start in range(0, len(begun), 20)]
        screen = screen_with("first", *rows, place=(len(rows) + 1, len(rows[-1]) + 1))
        events = Events([screen, *(Output(0.0, letter.encode()) for letter in f"{secret[cut:]}\n"), Closed(0.0)])
        seen = text_of([event async for event in RedactedPaneEvents(events, redactor, live=live)])
        assert secret[cut:][3:] == "" or secret[cut:] not in seen


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("style", ["", "\x1b[31m"])
async def test_a_screen_masks_the_start_of_a_known_secret_before_its_cursor(style: str, live: bool) -> None:
    redactor = PatternRedactor([KNOWN])
    for cut in range(3, len(KNOWN)):
        begun = f"> {'x' * 8}{KNOWN[:cut]}"
        rows = [begun[start : start + 20] for start in range(0, len(begun), 20)]
        styled = [style.join(row) + " after" * (len(row) < 14) for row in rows]
        screen = screen_with("first", *styled, place=(len(rows) + 1, len(rows[-1]) + 1))
        events = Events([screen, Output(0.0, f"{KNOWN[cut:]}\r\n".encode()), Closed(0.0)])
        first, *rest = [event async for event in RedactedPaneEvents(events, redactor, live=live)]
        assert isinstance(first, Screen)
        shown = screen_with("first", *styled, place=(len(rows) + 1, len(rows[-1]) + 1)).content.decode()
        plain = ESCAPE.sub("", first.content.decode())
        assert plain == ESCAPE.sub("", shown).replace(KNOWN[:cut], "*" * cut)
        assert text_of(rest) == f"{MARK}\r\n"


def test_a_screen_masks_a_full_row_that_is_drawn_twice() -> None:
    row = f"{'x' * (20 - 6)}{KNOWN[:6]}"
    content = f"\x1b[1;1Hfirst\x1b[2;1H{row}\x1b[3;1H{KNOWN[:6]}dred\x1b[0m\x0f\x1b[2;1H{row}\x1b[0m\x0f"
    clean = redact_screen(PatternRedactor([KNOWN]), content.encode(), 20).decode()
    assert clean == content.replace(row, "x" * 14 + "*" * 6)


@pytest.mark.parametrize(
    ("known", "shown"),
    [("hunter-hunt", "> hunter-hunt"), ("0a1b2c-lamp", "> ghp_A1b2C3d4E5f6G7h0a1b2")],
    ids=["ends as it starts", "token"],
)
def test_a_screen_hides_the_rest_of_a_secret_whose_end_may_start_a_known_one(known: str, shown: str) -> None:
    screen = screen_with(shown, place=(1, len(shown) + 1))
    clean = redact_screen(PatternRedactor([known]), screen.content, 200).decode()
    secret = shown.removeprefix("> ")
    assert not [part for place in range(len(secret) - 3) if (part := secret[place : place + 4]) in clean]


def test_a_screen_masks_wide_letters_in_their_width() -> None:
    known = "秘密の鍵-hundred"
    row = f"漢字{'x' * 10}秘密の"
    content = f"\x1b[1;1H{row}\x1b[2;1H鍵-hu\x1b[2;6H"
    clean = redact_screen(PatternRedactor([known]), content.encode(), 20).decode()
    assert clean == f"\x1b[1;1H漢字{'x' * 10}{'*' * 6}\x1b[2;1H{'*' * 5}\x1b[2;6H"


def test_a_screen_masks_only_what_its_cursor_follows_on_an_alternate_screen() -> None:
    content = f"\x1b[1;1H> {KNOWN[:6]}\x1b[1;9H\x1b[?1049h\x1b[1;1H~ {KNOWN[:6]}\x1b[2;1H{KNOWN[:6]}\x1b[1;9H"
    clean = redact_screen(PatternRedactor([KNOWN]), content.encode(), 20).decode()
    assert clean == content.replace(f"~ {KNOWN[:6]}", f"~ {'*' * 6}")


@pytest.mark.usefixtures("needs_time")
def test_a_large_screen_is_masked_within_a_moment() -> None:
    rows = "".join(f"\x1b[{number};1H{'─é' * 500}" for number in range(1, 300))
    content = f"{rows}\x1b[300;1H{KNOWN[:6]}\x1b[300;7H"
    before = time.process_time()
    clean = redact_screen(PatternRedactor([KNOWN]), content.encode(), 1000).decode()
    assert time.process_time() - before < 5
    assert clean == content.replace(KNOWN[:6], "*" * 6)


async def test_a_private_key_is_hidden_whose_start_the_screen_shows() -> None:
    first, *rest = key().split("\n")
    screen = screen_with("$ cat key", first, place=(3, 1))
    seen = text_of(await redacted(PatternRedactor(), screen, Output(0.0, "\n".join(rest).encode()), Closed(0.0)))
    assert not [line for line in rest if len(line) > 20 and line in seen]


async def test_what_follows_a_screen_is_shown_at_once() -> None:
    screen = screen_with("$ ls", "one  two", "$ ", place=(3, 3))
    assert (
        text_of(await redacted(PatternRedactor([KNOWN]), screen, Output(0.0, b"l"), Output(0.0, b"s\r\n"))) == "ls\r\n"
    )


async def test_a_secret_is_hidden_that_a_screen_splits_in_an_escape_sequence() -> None:
    screen = screen_with(f"> {KNOWN[:4]}", place=(1, 7))
    begun = Screen(0.0, 20, 6, screen.content + b"\x1b[3")
    seen = text_of(await redacted(PatternRedactor([KNOWN]), begun, Output(0.0, f"1m{KNOWN[4:]}\r\n".encode())))
    assert KNOWN[4:] not in seen


async def test_a_value_that_continues_after_a_color_ends_no_stream() -> None:
    pieces = ("mail.example.com:587 me:pw1x2y\x1b[0m", "z", "\r\nnext\r\n")
    assert await shown(PatternRedactor(), *pieces) == f"mail.example.com:587 me:{MARK}\x1b[0m\r\nnext\r\n"
