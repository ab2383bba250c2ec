"""``harness`` without a subcommand: open the prompt on the target until the operator leaves."""

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
from ...system.background_tasks import open_background_tasks, single_error
from ..commands.fleet.conversation_hosts import options_to_store
from ..commands.fleet.session import SessionTarget
from ..output import note, readable
from ..runtime import CliSession, announced, logs_shown
from ..streams import Interruption, run_async
from .surface import Span, Surface, SurfaceQuestion, line

if TYPE_CHECKING:
    from .early_ui import PromptUI

__all__ = [
    "PromptOptions",
    "PromptPrompter",
    "run_prompt",
]


# -- Login questions at the prompt: a reconnect may ask for the password again.


class PromptPrompter:
    """Asker of login questions: at the terminal, or on the prompt's surface while that has the terminal."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self._has_terminal = anyio.Lock()
        self._asking: set[anyio.CancelScope] = set()
        self._leaving = False
        self._surface: Surface | None = None
        self.has_asked = False
        """Whether a question was asked at the terminal, so that later input may be a late answer."""

    async def answer(self, question: LoginQuestion) -> str | None:
        """Ask a question and return the answer; None cancels the login."""
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
        """Ask on that surface from now on; the surface may use the terminal once this returns.

        An open question at the terminal is answered first.
        """
        async with self._has_terminal:
            self._surface = surface

    def leave(self) -> None:
        """Cancel open questions and refuse further ones, so that a lost connection does not delay leaving."""
        self._leaving = True
        for scope in self._asking:
            scope.cancel()

    async def leave_when_cancelled(self) -> None:
        """Wait for cancellation, then cancel open questions and refuse further ones."""
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


# -- The prompt.
#
# It appears as soon as the target is connected. The toolkit, the model settings and the model's libraries are loaded in
# the background; input that needs them waits.


NO_TERMINAL = "the prompt needs a terminal"
EXEC = "'harness exec PROMPT' runs one prompt, even in a pipe, and prints the answer"
DUMB = frozenset({"", "dumb", "unknown", "emacs", "network"})
"""Values of TERM for terminals that can only print lines."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The options of the prompt."""

    model: str = ""
    session_id: str = ""
    """The ID of the conversation to resume; empty for a new one."""
    plain: bool = False
    """Whether to use line mode."""
    here: bool = False
    """Whether to resume the conversation on this target, even if it belongs to another one."""


def run_prompt(session: CliSession, wanted: PromptOptions | None = None, where: SessionTarget | None = None) -> int:
    """Open the prompt until the operator leaves, and return the exit code.

    Args:
        session: The program's settings.
        wanted: The options of the prompt.
        where: The target or the hosts; None is the target of the settings.

    Raises:
        HarnessError: No terminal is available, or the target cannot be reached.
    """
    prompt = _Prompt(session, wanted or PromptOptions(), where or SessionTarget(session), _terminal())
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
    """Return whether standard error is writable now, as an unresponsive terminal must not block the exit."""
    try:
        return bool(select.select([], [2], [], 0)[1])
    except OSError:  # standard error is closed
        return False


def _library_missing(error: Exception) -> str:
    """Return the name of the missing library; empty for other errors, and if a module of harness is missing."""
    error = single_error(error)
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    return "" if name.partition(".")[0] == __package__.partition(".")[0] else name


def _missing(library: str) -> ConfigError:
    return ConfigError(f"the prompt needs a library that is not installed: {library}", hint=install_extra("agent"))


def _terminal() -> int:
    """Return the descriptor of the terminal to draw on: standard output, or standard error if that is a pipe.

    Raises:
        HarnessError: Neither is a terminal, or standard input is not one.
    """
    found = next((number for number in (1, 2) if os.isatty(number)), None)
    if sys.stdin is None or not sys.stdin.isatty() or found is None:
        raise HarnessError(NO_TERMINAL, hint=EXEC)
    return found


class _Prompt:
    """One run of the prompt."""

    def __init__(self, session: CliSession, wanted: PromptOptions, where: SessionTarget, terminal: int) -> None:
        self._session = session
        self._where = where
        self._wanted = wanted
        self._terminal = terminal
        self._prompter = PromptPrompter()
        self.last_words: list[str] = []

    async def main(self, interruption: Interruption) -> int:
        """Connect and serve, while the libraries for drawing are imported."""
        batch = self._session.invocation.batch
        async with AsyncExitStack() as stack:
            stack.enter_context(nullcontext() if batch else use_prompter(self._prompter))
            loading = await stack.enter_async_context(_loading())
            await stack.enter_async_context(self._session.notified("prompt"))
            await stack.enter_async_context(announced(self._session, "prompt"))
            execution = await stack.enter_async_context(self._where.open())
            with interruption.reaches():
                await loading.wait()
                await self._serve(execution)
        return 0

    async def _serve(self, execution: ExecutionContext) -> None:
        facing = self._facing(execution)
        await self._prompter.give_terminal_to(facing.surface)  # the connection may be lost while it is drawn
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
        from .early_ui import PromptUI

        return PromptUI(
            execution,
            self._terminal,
            plain=self._wanted.plain or os.environ.get("TERM", "") in DUMB,
            color=self._session.invocation.color is not False,
            accepts_typeahead=lambda: not self._prompter.has_asked,
        )

    async def _work(self, execution: ExecutionContext, facing: PromptUI) -> None:
        """Import the rest of the prompt and run it; the surface accepts input meanwhile."""
        await to_thread.run_sync(import_module, ".services", __package__)
        from .services import PromptSession

        wanted = self._wanted
        serving = PromptSession(
            self._session,
            execution,
            facing,
            self._prompter.leave,
            model=wanted.model,
            session_id=wanted.session_id,
            here=wanted.here,
            stored_options=options_to_store(self._where),
        )
        try:
            await serving.run()
        finally:
            self.last_words = serving.last_words


@asynccontextmanager
async def _loading() -> AsyncIterator[anyio.Event]:
    """Import the libraries for drawing in a thread.

    Yields:
        An event that is set when they are imported.
    """
    loaded = anyio.Event()

    async def load() -> None:
        await to_thread.run_sync(_load)
        loaded.set()

    async with open_background_tasks() as tasks:
        tasks.start_soon(load)
        yield loaded


def _load() -> None:
    """Import the libraries for drawing.

    Raises:
        ConfigError: A library is not installed.
    """
    import_module(".screen", __package__)
    if not (find_spec("rich") and find_spec("markdown_it")):
        raise _missing("rich")
