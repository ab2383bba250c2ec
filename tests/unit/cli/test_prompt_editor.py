"""The editor of the prompt: what its keys do, without a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from harness.cli.prompt.editor import Editor, InputFocus
from harness.cli.prompt.surface import NONE, Choice, Input, Interrupted, SurfaceQuestion, TextEntered

PASSWORD = SurfaceQuestion((), "Password:", secret=True, kind="login")


@dataclass
class Typist:
    """Types into an editor, and waits until it has taken what was typed."""

    keys: PipeInput
    happened: list[Input] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    more: anyio.Event = field(default_factory=anyio.Event)

    def did(self, what: Input) -> None:
        self.happened.append(what)
        self.more.set()

    def answered(self, text: str | None) -> None:
        self.answers.append(text)
        self.more.set()

    async def types(self, text: str) -> None:
        """Type keys, the last of which enters something."""
        self.more = anyio.Event()
        self.keys.send_text(text)
        with anyio.fail_after(60):
            await self.more.wait()


@asynccontextmanager
async def editor() -> AsyncIterator[tuple[Editor, Typist]]:
    with create_pipe_input() as keys:
        typist = Typist(keys)
        made = Editor(
            keys,
            DummyOutput(),
            history=InMemoryHistory(),
            completer=DummyCompleter(),
            theme=lambda: NONE,
            happened=typist.did,
            answered=typist.answered,
            keyboard=InputFocus(),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.app.run_async)
            while not made.app.is_running:  # the library has no event for it
                await anyio.lowlevel.checkpoint()
            yield made, typist
            made.app.exit()


async def test_what_was_cut_out_of_a_password_cannot_be_put_into_the_line() -> None:
    async with editor() as (made, typist):
        await typist.types("one two\x17\r")  # Ctrl-W
        made.question(PASSWORD)
        await typist.types("hunter2\x15right\r")  # Ctrl-U
        made.question(None)
        await typist.types("x\x19\r")  # Ctrl-Y
        assert typist.answers == ["right"]
        assert typist.happened == [TextEntered("one "), TextEntered("x")]


MENU = SurfaceQuestion(
    (),
    "answer:",
    kind="approval",
    choices=(Choice("y", "yes", at_once=True), Choice("n", "no", at_once=True), Choice("s", "EVERYTHING")),
)


async def test_a_key_answers_at_once_and_the_rest_of_its_word_is_dropped() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        await typist.types("yes\r")
        assert typist.answers == ["y"]
        made.question(None)
        await typist.types("ls\r")
        assert typist.happened == [TextEntered("ls")]


async def test_what_is_typed_right_after_an_answer_is_entered() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        await typist.types("y")
        made.question(None)
        await typist.types("/quit\r")
        assert (typist.answers, typist.happened) == (["y"], [TextEntered("/quit")])


async def test_what_lasts_needs_enter_and_an_empty_line_answers_nothing() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        await typist.types("s\r")
        assert typist.answers == ["s"]
        made.question(MENU)
        await typist.types("\r")
        assert typist.answers == ["s", ""]


async def test_tab_marks_an_answer_that_enter_takes() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        await typist.types("\t\t\r")
        assert typist.answers == ["n"]


async def test_what_is_typed_for_a_question_that_ends_unanswered_is_no_line() -> None:
    async with editor() as (made, typist):
        made.question(SurfaceQuestion((), "why not:", kind="approval"))
        typist.keys.send_text("because it is da")
        while made.app.current_buffer.text != "because it is da":  # the library has no event for it
            await anyio.lowlevel.checkpoint()
        made.question(None)  # its time is over
        typist.keys.send_text("ngerous\x04\r")
        await typist.types("/quit\r")
        assert (typist.answers, typist.happened) == ([], [TextEntered("/quit")])


async def test_a_key_for_a_question_that_ended_unanswered_does_not_answer_the_next_one() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        made.question(None)
        made.question(MENU)
        typist.keys.send_text("y\r")
        await typist.types("n")
        assert typist.answers == ["n"]


async def test_a_line_that_is_typed_after_an_answer_or_a_cancel_is_entered() -> None:
    async with editor() as (made, typist):
        made.question(MENU)
        await typist.types("\x04")  # Ctrl-D: no answer
        made.question(None)
        await typist.types("one\r")
        made.question(MENU)
        await typist.types("\x03")
        made.question(None)
        await typist.types("two\r")
        assert typist.answers == [None]
        assert typist.happened == [TextEntered("one"), Interrupted(), TextEntered("two")]
