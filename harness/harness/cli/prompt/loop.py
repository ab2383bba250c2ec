"""The prompt's loop: pass the operator's input to the agent, to the target, or to a slash command."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from ...context import ExecutionContext
from ...errors import HarnessError
from ...toolkit.permissions.remembered_answers import TimedApproval
from .commands.base import PromptActions, PromptContext, SurfaceOutput
from .commands.table import Parsed, changes_conversation, is_command, parse, run_command
from .early_ui import StatusLine, status_line
from .surface import ExpandRequested, Input, InputEnded, Interrupted, Surface, TextEntered, one_line
from .view import EventView

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ...agent.models import ModelTable
    from ...agent.storage import ConversationStore
    from ...toolkit.assembly import Toolkit
    from .commands.base import Deadlines
    from .conversations import Conversations
    from .operator_commands import ShellEscape

__all__ = ["Loop", "PromptServices"]

log = logging.getLogger(__name__)
IDLE = frozenset({"idle", "closed", "paused"})
CLOSED = "no conversation is open; start one with /session new or resume one with /session resume ID"
LEAVES = "to leave, press Ctrl-C again or Ctrl-D, or enter /quit"


@dataclass(frozen=True, slots=True)
class PromptServices:
    """The services that are opened while the prompt already accepts input."""

    toolkit: Toolkit
    operator: ShellEscape
    deadlines: Deadlines
    conversations: Conversations
    models: ModelTable | None = None
    store: ConversationStore | None = None


@dataclass
class _LoadState:
    """The progress of loading: ``answering`` is set once it is known whether a model is available.

    ``silent`` is the reason if none is.
    """

    supplies: PromptServices | None = None
    supplied: anyio.Event = field(default_factory=anyio.Event)
    answering: anyio.Event = field(default_factory=anyio.Event)
    silent: str = ""


@dataclass(frozen=True, slots=True)
class _QueuedInput:
    """An input that is not started yet; ``behind`` tells whether it waits for another one."""

    text: str
    behind: bool


class Loop:
    """The prompt's loop; :meth:`set_services` and :meth:`set_model_ready` report what is loaded.

    ``leaves`` is called before the loop ends.
    """

    def __init__(
        self,
        surface: Surface,
        view: EventView,
        execution: ExecutionContext,
        timed: TimedApproval,
        front: Callable[[Loop], PromptActions],
        leaves: Callable[[], None] = lambda: None,
    ) -> None:
        self._surface = surface
        self._view = view
        self._execution = execution
        self._timed = timed
        self._front = front(self)
        self._leaves = leaves
        self._output = SurfaceOutput(surface)
        self._opened = _LoadState()
        self._waiting: deque[_QueuedInput] = deque()
        self._more = anyio.Event()
        self._wakeup = anyio.Event()
        self._leaving = anyio.Event()
        self._commands = anyio.Lock()
        self._warned: type[Input] | None = None
        self._working = False
        self._changing = False
        self._model_ready_scope = anyio.CancelScope()

    # -- loading

    def set_services(self, supplies: PromptServices) -> None:
        """Start to work on inputs, with these services."""
        self._opened.supplies = supplies
        self._opened.supplied.set()

    def set_model_ready(self, silent: str = "") -> None:
        """Report that a model is available, or the reason ``silent`` why none is."""
        self._opened.silent = silent
        self._opened.answering.set()
        self.changed()

    def leave(self) -> None:
        """End the loop; closing may take a while on a lost connection."""
        self._leaving.set()
        self.changed()

    @property
    def supplies(self) -> PromptServices:
        """The open services; only for code that runs after they were opened."""
        assert self._opened.supplies is not None
        return self._opened.supplies

    @property
    def agent(self) -> Agent | None:
        """The agent of the open conversation; None without one."""
        supplies = self._opened.supplies
        current = supplies.conversations.current if supplies is not None else None
        return current.agent if current is not None else None

    @property
    def context(self) -> PromptContext | None:
        """The context of slash commands; None before the services are open."""
        supplies, agent = self._opened.supplies, self.agent
        if supplies is None:
            return None
        return PromptContext(
            execution=self._execution,
            toolkit=supplies.toolkit,
            executor=agent.executor if agent is not None else supplies.operator.executor,
            timed=self._timed,
            output=self._output,
            front=self._front,
            deadlines=supplies.deadlines,
            agent=agent,
            models=supplies.models,
            store=supplies.store,
        )

    # -- running

    async def run(self) -> None:
        """Run until the operator leaves."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, tasks)
            tasks.start_soon(self._work)
            tasks.start_soon(self._tick)
            self.changed()
            await self._leaving.wait()
            self._leaves()
            tasks.cancel_scope.cancel()

    async def _listen(self, tasks: TaskGroup) -> None:
        async for what in self._surface.inputs():
            self._handle_input(what, tasks)
            self.changed()

    def _handle_input(self, what: Input, tasks: TaskGroup) -> None:
        warned, self._warned = self._warned, None
        if isinstance(what, Interrupted):
            self._interrupted(again=warned is Interrupted)
        elif isinstance(what, InputEnded):
            self._ended(what, again=warned is InputEnded)
        elif isinstance(what, ExpandRequested):
            self._view.open_reasoning()
        else:
            self._entered(what, tasks)

    def _entered(self, what: TextEntered, tasks: TaskGroup) -> None:
        text = what.text.rstrip()
        if not text.strip():
            return
        if _is_slash(text) and not changes_conversation(text):
            tasks.start_soon(self._command, text)
            return
        self._waiting.append(_QueuedInput(text, behind=self._working or bool(self._waiting)))
        self._more.set()

    # -- Ctrl-C and Ctrl-D

    def _interrupted(self, *, again: bool) -> None:
        asked = self._surface.dismiss()
        agent, supplies = self.agent, self._opened.supplies
        if not asked and supplies is not None and supplies.operator.cancel():
            self._view.note("interrupting the command…")
        elif agent is not None and agent.cancel():
            self._view.note("cancelling the turn…")
            self._hold_queue(agent)
        elif self._changing and supplies is not None and supplies.conversations.give_up_opening():
            self._view.note("cancelling the opening of the conversation…")
        elif self._working and not self._opened.answering.is_set():
            self._model_ready_scope.cancel()
        elif asked:
            return
        elif self._waiting:
            self._view.note(f"{len(self._waiting)} queued inputs discarded")
            self._waiting.clear()
        elif self._surface.clear():
            return
        elif again:
            self.leave()
        else:
            self._warned = Interrupted
            self._view.note(LEAVES)

    def _hold_queue(self, agent: Agent) -> None:
        """Start no queued prompt after a cancelled turn, as it was written for the turn's outcome."""
        queued = len(agent.state.queue)
        if queued:
            agent.pause("Ctrl-C", f"{queued} queued prompt{'' if queued == 1 else 's'} held, /kill #N drops one")

    def _ended(self, what: InputEnded, *, again: bool) -> None:
        if what.gone or again or not self.busy:
            self.leave()
            return
        self._warned = InputEnded
        self._view.note("work is running: Ctrl-D again cancels it and leaves, Ctrl-C cancels it", "warn")

    # -- work

    @property
    def busy(self) -> bool:
        """Whether a turn or a command of the operator runs, or an input is queued."""
        state = self.agent.state if self.agent is not None else None
        answering = state is not None and (state.doing not in IDLE or (bool(state.queue) and state.doing == "idle"))
        return self._working or bool(self._waiting) or answering

    async def _work(self) -> None:
        """Run prompts and commands for the target in the order in which they were entered."""
        await self._opened.supplied.wait()
        while True:
            while self._waiting:
                waiting, self._working = self._waiting.popleft(), True
                self.changed()
                if waiting.behind:
                    self._view.begins(waiting.text)
                try:
                    await self._worked(waiting.text)
                except Exception as error:
                    self._failed(error)
                finally:
                    self._working = False
                self.changed()
            self._more = anyio.Event()
            await self._more.wait()

    async def _worked(self, text: str) -> None:
        if text.startswith("!"):
            await self._operate(text[1:].strip())
            return
        if _is_slash(text):
            await self._change(text)
            return
        if not await self._is_answered():
            self._view.note(f"not started, discarded: {one_line(text, 120)}")
            return
        if self.agent is None:
            self._view.note(self._opened.silent or CLOSED, "warn")
            return
        place = self.agent.submit(text)
        if self.agent.state.turn_id:
            self._view.note(f"queued as #{place}; /kill #{place} removes it")

    async def _is_answered(self) -> bool:
        """Wait until it is known whether a model is available; return False if the operator cancels that."""
        with anyio.CancelScope() as self._model_ready_scope:
            await self._opened.answering.wait()
            return True
        return False

    async def _change(self, text: str) -> None:
        """Run a command that changes the conversation; later inputs are for the new one."""
        self._changing = True
        try:
            await self._command(text)
        finally:
            self._changing = False

    async def _operate(self, command: str) -> None:
        from .operator_commands import told  # imported with the toolkit, which is loaded by now

        if not command:
            self._view.note("missing command: write it after the !")
            return
        outcome = await self.supplies.operator.run(command)
        if self.agent is not None:
            self.agent.notify_model(told(self.supplies.toolkit.redactor.text(command), outcome))

    async def _command(self, text: str) -> None:
        await self._opened.supplied.wait()
        parsed = parse(text)
        async with nullcontext() if isinstance(parsed, Parsed) and parsed.may_wait else self._commands:
            context, agent = self.context, self.agent
            assert context is not None
            in_turn = agent is not None and bool(agent.state.turn_id)
            try:
                await run_command(parsed, context, in_turn=in_turn)
            except Exception as error:
                self._failed(error)
        self.changed()

    def _failed(self, error: Exception) -> None:
        """Show an error, which does not end the prompt."""
        log.debug("an input at the prompt failed", exc_info=error)
        what = str(error) if isinstance(error, HarnessError) else f"internal error: {type(error).__name__}: {error}"
        self._view.note(what, "error")

    # -- the status line

    def changed(self) -> None:
        """Show the current state after a change."""
        self._surface.status(status_line(self._standing(), self._surface.width))
        self._surface.ready(busy=self.busy)
        self._wakeup.set()

    async def _tick(self) -> None:
        """Update every second what changes with time; sleep while nothing does."""
        while True:
            while self._view.moving or self._timed.remaining is not None or self._working:
                await anyio.sleep(1)
                self._view.tick()
                self._surface.status(status_line(self._standing(), self._surface.width))
            self._wakeup = anyio.Event()
            await self._wakeup.wait()

    def _standing(self) -> StatusLine:
        target = str(self._execution.target)
        pane = self._execution.describe().removeprefix(target).strip() if self._execution.has_terminal else ""
        remaining = self._timed.remaining
        here = StatusLine(target=target.removesuffix(":"), pane=pane, approvals=self._timed.state, remaining=remaining)
        here = replace(here, jobs=len(self._view.jobs), doing=self._doing(), queued=len(self._waiting))
        if self.agent is None:
            return here
        state = self.agent.state
        return replace(
            here,
            model=state.profile,
            context=state.context,
            limit=state.limit,
            cost=state.spent.known_cost,
            queued=here.queued + len(state.queue),
        )

    def _doing(self) -> str:
        supplies, agent = self._opened.supplies, self.agent
        if self._leaving.is_set():
            return "leaving"
        if supplies is None:
            return "starting"
        if supplies.operator.running:
            return "running your command"
        if self._changing:
            return "opening"
        return agent.state.doing if agent is not None else ""


def _is_slash(text: str) -> bool:
    return is_command(text) and "\n" not in text
