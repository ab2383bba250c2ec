"""``harness`` without a subcommand: the prompt, from the connection to the last word."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ...agent.provider_keys import withhold_keys
from ...context import ExecutionContext
from ...errors import ConfigError, HarnessError
from ...extras import install_extra
from ...login import LoginQuestion, TerminalPrompter, use_prompter
from ...system.background_tasks import open_background_tasks
from ..output import note, readable
from ..runtime import CliSession, TargetRequirements, logs_shown
from ..streams import Interruption, run_async
from .surface import Span, Surface, SurfaceQuestion, line

if TYPE_CHECKING:
    from .facing import PromptUI

__all__ = [
    "PromptOptions",
    "PromptPrompter",
    "run_prompt",
]


# -- Questions of logins while the prompt is there: a link that was lost may ask for the password again.


class PromptPrompter:
    """Asks at the terminal, and on the surface of the prompt as long as that has the terminal."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self._has_terminal = anyio.Lock()
        self._asking: set[anyio.CancelScope] = set()
        self._leaving = False
        self._surface: Surface | None = None
        self.has_asked = False
        """A question was asked at the terminal: what is typed after it may be an answer that came too late."""

    async def answer(self, question: LoginQuestion) -> str | None:
        """The answer; None gives up."""
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                return None if self._leaving else await self._answer(question)
            finally:
                self._asking.discard(scope)
        return None

    async def _answer(self, question: LoginQuestion) -> str | None:
        async with self._has_terminal:
            surface = self._surface
            if surface is None:
                return await self._at_terminal(question)
        return await _on(surface, question)

    async def _at_terminal(self, question: LoginQuestion) -> str | None:
        if not self._terminal.usable():
            return None
        self.has_asked = True
        return await self._terminal.answer(question)

    async def give_terminal_to(self, surface: Surface) -> None:
        """Ask on that surface from now on, which may have the terminal as soon as this returns.

        A question that is asked at the terminal is answered first.
        """
        async with self._has_terminal:
            self._surface = surface

    def leave(self) -> None:
        """Give up what is asked, and ask no more: a link that is down must not hold up who leaves."""
        self._leaving = True
        for scope in self._asking:
            scope.cancel()

    async def leave_when_cancelled(self) -> None:
        """Wait until we are cancelled, and ask no more from then on, whatever is to be closed."""
        try:
            await anyio.sleep_forever()
        finally:
            self.leave()


async def _on(surface: Surface, question: LoginQuestion) -> str | None:
    *above, label = question.text.rstrip().split("\n")
    heading = f"{readable(question.target)} asks:"
    if question.refusal:
        heading = f"{readable(question.target)}: {question.refusal}"
    lines = (line(Span(heading, "warn")), *(line(readable(one)) for one in above))
    return await surface.ask(SurfaceQuestion(lines, readable(label), secret=question.secret, kind="login"))


# -- ``harness`` without a subcommand: the prompt, from the connection to the last word.
#
# The prompt is there as soon as the target is. The toolkit, the settings of models and the model's own libraries
# are loaded behind it; what is entered before they are there waits for them.


NO_TERMINAL = "the prompt needs a terminal"
EXEC = "'harness exec PROMPT' takes one prompt, also from a pipe, and prints the answer"
DUMB = frozenset({"", "dumb", "unknown", "emacs", "network"})
"""Kinds of terminals (TERM) that can only print."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How the prompt begins. ``session_id`` is a stored conversation to go on with; ``plain`` only prints lines."""

    model: str = ""
    session_id: str = ""
    plain: bool = False
    here: bool = False
    """The stored conversation goes on on this target, whichever it was with."""


def run_prompt(session: CliSession, wanted: PromptOptions | None = None) -> int:
    """Open the prompt on the session's target, until the operator leaves; returns the exit code.

    Raises:
        HarnessError: there is no terminal, or the target cannot be reached.
    """
    prompt = _Prompt(session, wanted or PromptOptions(), _terminal())
    withhold_keys(session.invocation.choices)
    try:
        code = run_async(prompt.main)
    except Exception as error:
        if library := _library_missing(error):
            raise _missing(library) from error
        raise
    for text in prompt.last_words:
        if _takes_words():
            note(text)
    return code


def _takes_words() -> bool:
    """Whether standard error takes something at once: a terminal that takes nothing must not keep us."""
    try:
        return bool(select.select([], [2], [], 0)[1])
    except OSError:  # it is closed
        return False


def _library_missing(error: Exception) -> str:
    """The library that is not installed, if that is the error; what is missing of ourselves is a mistake of ours."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    return "" if name.partition(".")[0] == __package__.partition(".")[0] else name


def _missing(library: str) -> ConfigError:
    return ConfigError(f"the prompt needs a library that is not installed: {library}", hint=install_extra("agent"))


def _terminal() -> int:
    """The descriptor of the terminal that is drawn on: standard output, or standard error when that is a pipe.

    Raises:
        HarnessError: there is none, or no keyboard.
    """
    found = next((number for number in (1, 2) if os.isatty(number)), None)
    if sys.stdin is None or not sys.stdin.isatty() or found is None:
        raise HarnessError(NO_TERMINAL, hint=EXEC)
    return found


class _Prompt:
    """One run of the prompt."""

    def __init__(self, session: CliSession, wanted: PromptOptions, terminal: int) -> None:
        self._session = session
        self._wanted = wanted
        self._terminal = terminal
        self._prompter = PromptPrompter()
        self.last_words: list[str] = []

    async def main(self, interruption: Interruption) -> int:
        """Connect and serve; what draws is loaded meanwhile."""
        batch = self._session.invocation.batch
        async with AsyncExitStack() as stack:
            stack.enter_context(nullcontext() if batch else use_prompter(self._prompter))
            loading = await stack.enter_async_context(_loading())
            execution = await stack.enter_async_context(self._session.open(TargetRequirements(create=True)))
            with interruption.reaches():
                await loading.wait()
                await self._serve(execution)
        return 0

    async def _serve(self, execution: ExecutionContext) -> None:
        facing = self._facing(execution)
        await self._prompter.give_terminal_to(facing.surface)  # a link may be lost while it is drawn
        try:
            with logs_shown(facing.warned):
                facing.greet()
                async with facing.surface.serve(), anyio.create_task_group() as tasks:
                    tasks.start_soon(self._prompter.leave_when_cancelled)
                    await self._work(execution, facing)
                    tasks.cancel_scope.cancel()
        finally:
            self._prompter.leave()

    def _facing(self, execution: ExecutionContext) -> PromptUI:
        from .facing import PromptUI

        return PromptUI(
            execution,
            self._terminal,
            plain=self._wanted.plain or os.environ.get("TERM", "") in DUMB,
            color=self._session.invocation.color is not False,
            accepts_typeahead=lambda: not self._prompter.has_asked,
        )

    async def _work(self, execution: ExecutionContext, facing: PromptUI) -> None:
        """Load what works behind the surface, which takes in meanwhile what is entered."""
        await to_thread.run_sync(import_module, ".serving", __package__)
        from .serving import PromptSession

        serving = PromptSession(self._session, self._wanted, execution, facing, self._prompter.leave)
        try:
            await serving.run()
        finally:
            self.last_words = serving.last_words


@asynccontextmanager
async def _loading() -> AsyncIterator[anyio.Event]:
    """Import what draws the prompt, in a thread, while the target is connected."""
    loaded = anyio.Event()

    async def load() -> None:
        await to_thread.run_sync(_load)
        loaded.set()

    async with open_background_tasks() as tasks:
        tasks.start_soon(load)
        yield loaded


def _load() -> None:
    """Import it.

    Raises:
        ConfigError: a library is not installed.
    """
    import_module(".screen", __package__)
    if not (find_spec("rich") and find_spec("markdown_it")):
        raise _missing("rich")
