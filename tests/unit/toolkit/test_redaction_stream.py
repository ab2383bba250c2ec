"""Progress is redacted while it comes, wherever its pieces are cut."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import toolbox
from tests.unit.toolkit.test_redaction import KNOWN, NAMED, ORDINARY, SECRET, TOKENS, key
from tests.unit.toolkit.test_redaction_cases import ORDINARY as STAYS
from tests.unit.toolkit.test_redaction_cases import PARAMETERS, REDACTED

import harness
from harness.errors import ToolError
from harness.toolkit import Arguments, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.events import ToolCallCompleted, ToolCallProgress
from harness.toolkit.redaction.redactor import MARK, PatternRedactor
from harness.toolkit.redaction.stream import StreamRedactor

WIDE = "芝麻开门吧"
LINES = st.one_of(
    st.sampled_from([text.replace("{}", SECRET) for text in [*REDACTED, *PARAMETERS]]),
    st.sampled_from(STAYS),
    st.sampled_from([text.replace("{}", SECRET) for text, _ in NAMED]),
    st.sampled_from([*TOKENS, *(text for text in ORDINARY if len(text) < 2_000), key()]),
    st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=40),
    st.just(f"said {KNOWN} twice"),
    st.sampled_from([f"令牌是{TOKENS[0]}。请不要外传", f"密码{KNOWN}在https://bob:密码x@h/里", f"口令是{WIDE}。完"]),
    st.text(alphabet="磁盘满。a1_-:/@='\" ", max_size=40),
)


def streamed(redactor: PatternRedactor, text: str, cuts: list[int]) -> str:
    stream = StreamRedactor(redactor)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    shown = [stream.feed(text[one:other]) for one, other in pairwise(places)]
    return "".join([*shown, stream.flush()])


@given(st.lists(LINES, max_size=6).map("\n".join), st.lists(st.integers(0, 10_000), max_size=12))
def test_wherever_it_is_cut_the_same_is_shown(text: str, cuts: list[int]) -> None:
    redactor = PatternRedactor([KNOWN, WIDE])
    assert streamed(redactor, text, cuts) == redactor.text(text)


@pytest.mark.parametrize("text", [*TOKENS, *(text.replace("{}", SECRET) for text, _ in NAMED), key(), KNOWN])
def test_one_character_at_a_time_shows_no_secret(text: str) -> None:
    redactor = PatternRedactor([KNOWN])
    assert streamed(redactor, f"a {text} b\nc", list(range(len(text) + 10))) == redactor.text(f"a {text} b\nc")


def test_ordinary_lines_and_prompts_are_shown_at_once() -> None:
    stream = StreamRedactor(PatternRedactor())
    assert stream.feed("compiling\n50% ") == "compiling\n50% "
    assert stream.feed("done\nContinue? [y/N] ") == "done\nContinue? [y/N] "
    assert stream.feed("Password: ") == "Password: "
    assert stream.feed("hunter2-x") == ""
    assert stream.feed("\n") == f"{MARK}\n"
    assert stream.flush() == ""


@pytest.mark.parametrize("text", ["磁盘已满。正在清理", "ディスクが一杯です。", "ดิสก์เต็ม", "디스크가", "运行docker命令"])
def test_scripts_without_spaces_are_shown_as_they_come(text: str) -> None:
    stream = StreamRedactor(PatternRedactor([WIDE]))
    assert "".join(stream.feed(letter) for letter in text) == text
    assert "".join(stream.feed(letter) for letter in f"口令{WIDE}。") == f"口令{MARK}。"
    assert stream.feed("://bob:密") == ""


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    stream = StreamRedactor(PatternRedactor())
    shown = "".join(stream.feed("x" * 1_000) for _ in range(100))
    assert len(shown) > 90_000
    assert len(shown + stream.flush()) == 100_000


class Counted(PatternRedactor):
    """Counts the characters that it looks at."""

    seen = 0

    def text(self, text: str) -> str:
        self.seen += len(text)
        return super().text(text)

    def complete(self, text: str) -> int:
        self.seen += len(text)
        return super().complete(text)


def test_a_word_of_any_length_is_looked_at_in_linear_time() -> None:
    for begin in ("", "password=", "https://bob:", "-----BEGIN "):
        redactor = Counted([KNOWN])
        stream = StreamRedactor(redactor)
        shown = "".join([stream.feed(begin), *(stream.feed("aB3/") for _ in range(20_000)), stream.flush()])
        assert len(shown) >= 80_000 or begin == "password="
        assert redactor.seen < 80_000 * 100  # with a look at each piece it is 1,000 times as many and more


def test_a_secret_that_is_longer_than_what_is_held_leaves_nothing() -> None:
    stream = StreamRedactor(PatternRedactor())
    text = "ghp_" + "aB3" * 20_000 + " end\n"
    pieces = [text[at : at + 997] for at in range(0, len(text), 997)]
    shown = "".join([*(stream.feed(piece) for piece in pieces), stream.flush()])
    assert "aB3" not in shown
    assert shown.endswith(" end\n")


# -- in a call


class Nothing(Arguments):
    """Nothing."""


class Talk(Tool[Nothing]):
    """Says a secret in two pieces, on each of its streams, and then fails or not."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("talk", "Talk.", Nothing, Traits())
        self.fails = fails

    async def run(self, args: Nothing, ctx: ToolContext) -> ToolResult:
        ctx.progress("working\nhun")
        ctx.progress("on stderr hun", "stderr")
        ctx.progress("ter2 and hun")
        ctx.progress("ter2\n", "stderr")
        ctx.progress("a note of hunter2", "note")
        if self.fails:
            raise ToolError("it broke")
        return ToolResult.of("done")


async def test_a_secret_in_two_pieces_of_progress_is_not_shown() -> None:
    box = toolbox([Talk()])
    with box.events.subscribe() as events:
        await box.executor.call(ToolCall("talk"))
        shown = [event for event in events.drain() if isinstance(event, ToolCallProgress)]
    by_stream = {
        stream: "".join(event.text for event in shown if event.stream == stream)
        for stream in ("stdout", "stderr", "note")
    }
    assert by_stream == {
        "stdout": "working\n[redacted] and hun",
        "stderr": "on stderr [redacted]\n",
        "note": "a note of [redacted]",
    }


async def test_what_was_held_is_part_of_what_a_failed_call_leaves() -> None:
    outcome = await toolbox([Talk(fails=True)]).executor.call(ToolCall("talk"))
    assert "it broke\nworking\n" in outcome.result.text
    assert outcome.result.text.count(MARK) == 3
    assert outcome.result.text.endswith("hun")
    assert "hunter2" not in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_output_of_a_real_command_that_writes_a_secret_in_two_pieces_is_redacted(tmp_path: Path) -> None:
    half, rest = "ghp_" + "aB3" * 4, "cD4" * 8
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f"printf 'ready\\nsay {half}'; cat {gate} >/dev/null; echo {rest}; echo fine"
    run_shell = load_catalogue().registry.lookup("run_shell")
    shown: list[ToolCallProgress] = []
    async with harness.connect("local:") as execution:
        box = toolbox([run_shell], execution=execution)
        services = replace(box.executor.services, redactor=PatternRedactor())
        executor = replace(box.executor, services=services)
        with anyio.fail_after(30), box.events.subscribe() as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(executor.call, ToolCall("run_shell", {"command": command}))
                async for event in events:
                    if isinstance(event, ToolCallProgress):
                        shown.append(event)
                        if "ready" in event.text:
                            await anyio.Path(gate).write_text("on\n")
                    if isinstance(event, ToolCallCompleted):
                        result = event.outcome.result
                        break
    assert [shown[0].text, "".join(event.text for event in shown)] == ["ready\nsay ", f"ready\nsay {MARK}\nfine\n"]
    assert f"say {MARK}\nfine" in result.text
    assert half not in str(box.ledger.ended)
