"""What a model gets of a long result: head and tail, exact numbers, nothing broken at the cut."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import anyio
from hypothesis import given
from hypothesis import strategies as st

from harness.results import ShellResult, Status
from harness.toolkit import Image, OutputLimit, Text, ToolResult
from harness.toolkit.results import BLOCK_LIMIT, cut, cut_result, fit_items, shell_result, size_of
from harness.toolkit.values import Omitted

NOTICE = re.compile(r"\[\.\.\. (\d+) of (\d+) characters left out(?:; the whole is (\S+))? \.\.\.\]")
LIMITS = st.integers(0, 200).flatmap(lambda room: st.builds(OutputLimit, st.just(room), st.integers(0, room + 5)))
TEXTS = st.text(alphabet=st.sampled_from("ab \n\r\u20ac\U0001f600\ud83d\ude00\udcff\x1b[31m"), max_size=400)


def parts(text: str, shown: str) -> tuple[str, str]:
    """Head and tail of what is shown."""
    notice = NOTICE.search(shown)
    assert notice is not None
    head, tail = shown[: notice.start()], shown[notice.end() :]
    return (head if text.startswith(head) else head.removesuffix("\n")), tail.removeprefix("\n")


@given(TEXTS, LIMITS)
def test_a_text_is_whole_or_its_head_and_tail_and_the_number_between_them(text: str, limit: OutputLimit) -> None:
    shown = cut(text, limit, "output:1")
    if len(text) <= limit.characters:
        assert shown == text
        return
    head, tail = parts(text, shown)
    notice = NOTICE.search(shown)
    assert notice is not None
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) <= limit.characters
    assert int(notice[1]) == len(text) - len(head) - len(tail) > 0
    assert int(notice[2]) == len(text)
    assert notice[3] == "output:1"


@given(TEXTS, LIMITS)
def test_no_pair_of_surrogates_is_split(text: str, limit: OutputLimit) -> None:
    if len(text) <= limit.characters:
        return
    head, tail = parts(text, cut(text, limit))
    assert not (re.search("[\ud800-\udbff]\\Z", head) and re.match("[\udc00-\udfff]", text[len(head) :]))
    assert not (re.match("[\udc00-\udfff]", tail) and re.search("[\ud800-\udbff]\\Z", text[: len(text) - len(tail)]))


def test_no_escape_sequence_is_split() -> None:
    for room in range(20, 60):
        text = "\x1b[1;31mred\x1b[0m" * 20
        head, tail = parts(text, cut(text, OutputLimit(room, room // 2)))
        assert re.sub(r"\x1b\[[0-9;]*m|red", "", head + tail).strip("red") == ""


def test_a_cut_is_at_the_end_of_a_line_where_one_is_near() -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    head, tail = parts(text, cut(text, OutputLimit(100, 50)))
    assert head.endswith("\n")
    assert re.fullmatch(r"(line \d+\n)+", tail)


def test_reading_keeps_the_head_and_a_shell_mostly_the_tail() -> None:
    text = "a" * 500 + "b" * 500
    assert parts(text, cut(text, OutputLimit(100, 0))) == ("a" * 100, "")
    assert parts(text, cut(text, OutputLimit(100, 90))) == ("a" * 10, "b" * 90)
    assert parts(text, cut(text, OutputLimit(100, 100))) == ("", "b" * 100)


async def test_no_block_is_longer_than_the_engine_allows_and_pictures_stay() -> None:
    picture = Image(b"x", "image/png")
    result = ToolResult((Text("x" * (BLOCK_LIMIT + 1)), picture, Text("short")))
    shown = await cut_result(result, OutputLimit(10 * BLOCK_LIMIT, 10), None, "c1")
    assert isinstance(shown.content[0], Text)
    assert len(shown.content[0].text) < BLOCK_LIMIT + 200
    assert shown.content[1:] == (picture, Text("short"))
    assert shown.metadata == {"truncated": True, "full_output": ""}


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(2, 300))
def test_items_are_dropped_until_the_json_fits_and_is_whole(items: list[int], room: int) -> None:
    def render(some: object) -> str:
        return json.dumps(some)

    kept, dropped = fit_items(items, render, OutputLimit(room))
    assert kept == items[: len(kept)]
    assert len(kept) + dropped == len(items)
    assert len(render(kept)) <= room
    assert dropped == 0 or len(render(items[: len(kept) + 1])) > room


async def test_a_command_whose_output_was_too_long_names_the_job_that_has_it() -> None:
    done = ShellResult("c", Status.COMPLETED, 0, b"first\n", truncated=7, job_id="12")
    shown = await cut_result(shell_result(done), OutputLimit(), None, "c1")
    assert shown.text == "exit code: 0\nstdout:\nfirst\n[7 of 33 bytes left out; job 12 has all of it]"
    assert (await cut_result(shown, OutputLimit(), None, "c1")).text == shown.text


@given(TEXTS, LIMITS, LIMITS, st.integers(0, 50))
def test_a_second_cut_counts_from_the_whole_and_is_told_with_the_first(
    text: str, first: OutputLimit, second: OutputLimit, kept_back: int
) -> None:
    async def cut_twice() -> tuple[ToolResult, ToolResult]:
        result = ToolResult.of(text)
        if kept_back:
            result = replace(result, omitted=Omitted(kept_back, "; job 1 has all of it"))
        once = await cut_result(result, first, None, "c1")
        return once, await cut_result(once, second, None, "c1")

    once, twice = anyio.run(cut_twice)
    if once.cut is None or twice.text == once.text:
        return
    [(missing, total, unit)] = re.findall(r"\[\.\.\. (\d+) of (\d+) (\w+) left out", twice.text)
    notice = re.search(r"\[\.\.\. \d[^\n]* \.\.\.\]", twice.text)
    assert notice is not None
    head, tail = twice.text[: notice.start()], twice.text[notice.end() :].removeprefix("\n")
    assert text.startswith(head.removesuffix("\n"))
    assert text.endswith(tail)
    head = head if text.startswith(head) else head.removesuffix("\n")
    shown, whole = (len, len(text)) if unit == "characters" else (size_of, size_of(text) + kept_back)
    assert (int(total), int(missing)) == (whole, whole - shown(head) - shown(tail))


async def test_two_texts_are_cut_again_without_a_count_of_both() -> None:
    result = ToolResult((Text("x" * 500), Text("y" * 500)))
    once = await cut_result(result, OutputLimit(100, 50), None, "c1")
    assert (once.cut, len(NOTICE.findall(once.text))) == (None, 2)
