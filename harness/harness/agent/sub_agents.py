"""Sub-agents: their turns within a turn of their parent agent, and the targets that they may use."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace

import anyio
from anyio import to_thread
from pydantic_ai.messages import ModelMessage, ModelResponse

from ..context import ExecutionContext, connect
from ..errors import ConfigError, HarnessError, TargetNotFound, UnsupportedOperation
from ..login import use_prompter
from ..settings import CommandLineChoices, Settings, load_settings
from ..target import Target
from ..toolkit.delegation import SpawnRequest, SpawnResult
from ..toolkit.executor import Executor, Spawner
from ..toolkit.permissions.rules.settings import Mode
from .events import Notice
from .messages.compaction import ConversationCompactor, admit_compaction, needed
from .messages.history import loaded
from .messages.instructions import instructions
from .messages.situation import situation
from .models import ModelProfile, ModelTable, OpenModel
from .settings import AgentSettings
from .storage import ConversationLog, ConversationNote
from .stored_usage import SubagentLog, texts_of
from .turn import Gate, Transcript, Turn, TurnContext, TurnResult
from .usage import Usage, spent_on

__all__ = [
    "NamedTargets",
    "Parent",
    "Subagents",
    "messages_of",
    "said",
    "set_parent",
]


# -- The targets that a sub-agent may be sent to: those that the settings name.


class NamedTargets:
    """The ``[targets.NAME]`` tables of the settings.

    Args:
        config_file: the file of ``--config``, if given.
    """

    def __init__(self, config_file: str | None = None) -> None:
        self._config_file = config_file

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[ExecutionContext]:
        """Connect to a target, by its name or its URL, without prompting for a password or a host key.

        Raises:
            TargetNotFound: the settings do not name it.
            ConnectError: it is not reachable.
        """
        settings = await to_thread.run_sync(self._settings, name)
        with use_prompter(None):
            async with connect(settings.target, tmux=settings.tmux, config=settings.config) as execution:
                yield execution

    def _settings(self, name: str) -> Settings:
        known = load_settings(CommandLineChoices(config_file=self._config_file)).targets
        urls = {_url(url): one for one, url in reversed(known)}
        chosen = name if name in dict(known) else urls.get(_url(name))
        if chosen is None:
            names = ", ".join(one for one, _ in known) or "none"
            raise TargetNotFound(
                f"sub-agents cannot use {name!r}: the settings name: {names}", hint="leave backend out"
            )
        return load_settings(CommandLineChoices(config_file=self._config_file, target=chosen))


def _url(text: str) -> str:
    """Return a target URL in normal form; other text is returned unchanged."""
    try:
        return str(Target.parse(text))
    except (HarnessError, ValueError):
        return text


# -- Sub-agents: the conversations of a model that the tool ``task`` starts.
#
# A sub-agent starts without its parent's conversation and uses the executor that it is given; its last text is the
# result. Its messages are stored with its parent's, so that it can be resumed, also by a later harness process.


KEPT = 32
"""Maximum number of sub-agents whose conversations are kept in memory to be resumed."""
RULES = (
    "You work for another agent, not for a human: questions are not answered. Only your last message is returned to it."
)


@dataclass(frozen=True, slots=True)
class Parent:
    """What sub-agents use of their parent agent."""

    profile: Callable[[], ModelProfile]
    open_model: Callable[[ModelProfile], Awaitable[OpenModel]]
    charge: Callable[[Usage, str], None]
    """Counts the usage of the sub-agent's turn with that id."""
    over: Callable[[AgentSettings, int], str]
    """Returns why, with these limits and after that many responses, no request may be sent; empty if one may."""
    gate: Gate
    log: ConversationLog
    settings: Callable[[], AgentSettings]
    mode: Mode = Mode.ASK


class Subagents(Spawner):
    """Runs the sub-agents of one agent.

    Args:
        models: the models that may be requested by name; without them, only the parent's.
        targets: the targets that sub-agents may be sent to.
        notes: the notes of a stored conversation, whose sub-agents can then be resumed.
    """

    def __init__(
        self,
        models: ModelTable | None = None,
        *,
        targets: NamedTargets | None = None,
        notes: Iterable[ConversationNote] = (),
    ) -> None:
        self.parent: Parent | None = None
        """Set once the agent is open."""
        self._models = models or ModelTable()
        self._targets = targets
        self._messages: dict[str, Sequence[ModelMessage]] = dict(messages_of(notes))
        self._running: dict[str, ModelProfile] = {}
        """The models of the running sub-agents, by session."""

    async def spawn(self, request: SpawnRequest, executor: Executor) -> SpawnResult:
        """See :class:`Spawner`."""
        if self.parent is None:
            raise HarnessError("sub-agents need a running parent agent")
        session = request.session_id
        if session in self._running:
            raise HarnessError(f"sub-agent {session} is already running", hint="wait for it, or start a new agent")
        if request.resume and request.resume not in self._messages:
            raise HarnessError(f"the conversation of {request.resume} is no longer available", hint="start a new agent")
        profile = self._profile(request, self.parent)
        log = SubagentLog(self.parent.log, session)
        transcript = Transcript(log, executor.services.redactor, self._messages.get(session, ()))
        self._running[session] = profile
        try:
            return await _SubagentRun(self.parent, request, executor, transcript, profile).run_to_completion(log)
        finally:
            self._running.pop(session, None)
            self._keep(session, transcript.messages)

    def _profile(self, request: SpawnRequest, parent: Parent) -> ModelProfile:
        above = request.session_id.rpartition(".")[0]
        current = self._running.get(above) or parent.profile()  # nested sub-agents use their parent's model
        if not request.model or request.model in (current.name, current.model, current.label):
            return current
        known = {name: one for one in self._models.profiles for name in (one.model, one.label, one.name)}
        if request.model not in known:
            names = ", ".join(one.name for one in self._models.profiles) or current.name
            raise ConfigError(
                f"model {request.model!r} is not available; available models: {names}", hint="leave model out"
            )
        return known[request.model]

    def _keep(self, session: str, messages: Sequence[ModelMessage]) -> None:
        self._messages.pop(session, None)
        self._messages[session] = tuple(messages)
        while len(self._messages) > KEPT:
            del self._messages[next(iter(self._messages))]

    def open_target(self, url: str) -> AbstractAsyncContextManager[ExecutionContext]:
        """See :class:`Spawner`."""
        if self._targets is None:
            raise UnsupportedOperation(
                f"no sub-agent can be sent to {url}: no targets are configured", hint="leave backend out"
            )
        return self._targets.open(url)


def set_parent(spawner: Spawner | None, parent: Parent) -> None:
    """Give the parent agent to the spawner of sub-agents; other spawners than :class:`Subagents` do not use it."""
    if isinstance(spawner, Subagents):
        spawner.parent = parent


class _SharedGate(Gate):
    """A gate that is paused while the parent's is; cancellation refuses only the sub-agent's calls."""

    def __init__(self, outer: Gate) -> None:
        super().__init__()
        self._outer = outer

    @property
    def paused(self) -> bool:
        """See :class:`Gate`."""
        return self._outer.paused

    async def wait_until_open(self) -> None:
        """See :class:`Gate`."""
        await self._outer.wait_until_open()


@dataclass(slots=True)
class _SubagentRun:
    """One turn of a sub-agent."""

    parent: Parent
    request: SpawnRequest
    executor: Executor
    transcript: Transcript
    profile: ModelProfile
    _turn: Turn = field(init=False)

    async def run_to_completion(self, log: ConversationLog) -> SpawnResult:
        """Run the turn on the prompt, recording its start and end in the log."""
        turn = self._turn = Turn(uuid.uuid4().hex, self._surroundings())
        redact = self.executor.services.redactor.text
        await log.turn_started(turn.turn_id, redact(self.request.prompt), "agent")
        result = TurnResult("cancelled")
        try:
            result = await turn.run(self.request.prompt)
        finally:
            with anyio.CancelScope(shield=True):
                await log.turn_ended(turn.turn_id, result.status, turn.spent.json())
        return said(result, turn.spent)

    def _surroundings(self) -> TurnContext:
        parent, executor, settings = self.parent, self.executor, self.parent.settings()
        own = replace(settings, max_steps=self.request.rounds)
        extra = "\n\n".join(part for part in (settings.instructions, RULES, self.request.system) if part)
        return TurnContext(
            executor=executor,
            transcript=self.transcript,
            gate=_SharedGate(parent.gate),
            settings=own,
            instructions=instructions(executor.execution, executor.registry, parent.mode, extra),
            model=lambda: parent.open_model(self.profile),
            news=tuple,
            situation=lambda: situation(executor),
            shorten=self._shorten,
            charge=parent.charge,
            over=lambda steps: parent.over(own, steps),
        )

    def _count_notes(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        spent = spent_on(response, opened, asked)
        self._turn.spent += spent
        self.parent.charge(spent, self._turn.turn_id)

    async def _shorten(self, opened: OpenModel, used: int) -> bool:
        limit = opened.context_window
        if used and not needed(self.transcript.messages, used, limit, self.parent.settings().compaction_threshold):
            return False
        try:
            await admit_compaction(self.executor, "auto", len(self.transcript.messages))
            compacting = ConversationCompactor(
                lambda: nullcontext(opened), self._count_notes, self.executor.services.redactor.text
            )
            done = await compacting.compact(self.transcript.messages, limit)
            if done is not None:
                await self.transcript.replace(done.messages, done.summary)
        except HarnessError as error:
            text = self.executor.services.redactor.text(f"cannot compact the conversation: {error}")
            self.executor.events.publish(Notice(text=text))
            return False
        return done is not None


def said(result: TurnResult, spent: Usage) -> SpawnResult:
    """Return the result for the parent agent. Pure."""
    if result.status == "completed":
        return SpawnResult(result.text, usage=spent.json())
    why = result.failure.replace("say 'go on' to continue", "resume it to continue") or result.status
    last = f"\nIts last message: {result.text}" if result.text else ""
    return SpawnResult(f"the agent did not finish: {why}{last}", is_error=True, usage=spent.json())


def messages_of(notes: Iterable[ConversationNote]) -> Mapping[str, Sequence[ModelMessage]]:
    """Return the conversations of sub-agents, by session, from the notes in their parent's log. Pure.

    Conversations with an unreadable message are omitted: an incomplete one would mislead the model.
    """
    found: dict[str, Sequence[ModelMessage]] = {}
    for session, texts in texts_of(notes).items():
        try:
            found[session] = tuple(loaded(text) for text in texts)
        except ValueError:
            continue
    return found
