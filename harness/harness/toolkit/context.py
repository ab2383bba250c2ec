"""What a tool is given beside its arguments."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .events import Event, EventBus, ToolCallProgress
from .seams import FileVersions, Redactor, Spawner, Verdict
from .values import ShownForm
from .websettings import WebSettings

if TYPE_CHECKING:
    from ..context import ExecutionContext
    from .compaction import Compactor
    from .executor import Executor
    from .notebook import Notebook
    from .profiles import FacedCall
    from .progress import ProgressStream
    from .questions import Questioner
    from .registry import Registry
    from .values import Subject, ToolCall

__all__ = ["CallNotes", "ToolContext"]


PARTIAL_KEPT = 32 << 10
"""Characters of progress that are kept for a call that does not come to its result."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class CallNotes:
    """What a running tool tells the executor beside its result."""

    job_id: str = ""
    """The job on the target that does the work: after a lost link the ledger asks it for the outcome."""
    begun: bool = False
    """The tool was started: from then on it may have changed something."""
    waited: float = 0.0
    """Seconds for which it waited for somebody's leave."""
    requested: ToolCall | None = None
    """The call as it may be shown, once its arguments are known to be valid."""
    shown: str = ""
    """The end of the progress that was shown so far, redacted."""
    streams: dict[str, ProgressStream] = field(default_factory=dict)
    """What redacts each stream of progress: it holds back what may be the beginning of a secret."""
    redactor: Redactor | None = None
    """Redacts the progress of this call instead of the executor's."""
    on_job: Callable[[str], None] | None = None
    """Told at once which job it is, so that the ledger knows also when harness is killed."""
    judge: Callable[[tuple[Subject, ...]], Awaitable[Verdict]] | None = None
    """Asks the policy about what the running call comes to touch."""
    keys_command: Subject | None = None
    """The command that the policy has judged instead of the keys of this call: it is run, and nothing is typed."""
    faced: FacedCall | None = None
    """How a profile shows the call to the model."""

    @property
    def partial(self) -> str:
        """The end of what it produced so far, for a call that is cancelled or runs out of time."""
        return (self.shown + "".join(stream.rest for stream in self.streams.values()))[-PARTIAL_KEPT:]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call's surroundings. Everything on the target goes through ``execution``, and through nothing else.

    ``registry`` has the tools under their own names, ``offered`` as the model knows them; without a profile, and where
    ``offered`` is None, they are the same.
    ``cwd`` is the directory that relative paths of the call start from; None is the context's own.
    ``depth`` is 0 for the first agent and grows by one with each sub-agent.
    """

    execution: ExecutionContext
    registry: Registry
    events: EventBus
    reads: FileVersions
    redactor: Redactor
    session_id: str = ""
    call_id: str = ""
    message_id: str = ""
    agent_id: str = ""
    depth: int = 0
    model: str = ""
    cwd: str | None = None
    spawner: Spawner | None = None
    offered: Registry | None = None
    handoff: float | None = None
    """Seconds after which a tool that can leave its work running does so and returns what names it, without an error:
    whoever asked would not wait any longer. None waits as long as the arguments say."""
    questioner: Questioner | None = None
    """Who asks the user; None: there is no user to ask."""
    notebook: Notebook | None = None
    """Things to do and memories."""
    compactor: Compactor | None = None
    """Who keeps the conversation and can shorten it."""
    web: WebSettings = field(default_factory=WebSettings)
    executor: Executor | None = None
    """What runs this call: the executor of a sub-agent is made from it."""
    clock: Callable[[], float] = time.time
    notes: CallNotes = field(default_factory=CallNotes)

    @property
    def shown(self) -> ShownForm:
        """In which form the model gets the result: a tool that is read on from an offset fills it, and no more."""
        return ShownForm() if self.notes.faced is None else self.notes.faced.form

    def progress(self, text: str, stream: Literal["stdout", "stderr", "note"] = "stdout") -> None:
        """Show people a piece of output while the call runs; models never see it.

        A piece of ``stdout`` or ``stderr`` may end anywhere: what could be the beginning of a secret is shown with
        what follows it. A note is whole.
        """
        if stream == "note":
            self._show((self.notes.redactor or self.redactor).text(text), stream)
        else:
            self._show(self._progress(stream).feed(text), stream)

    def skip_progress(self, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """The next piece of a stream does not follow the last one: what is between them is not shown."""
        self._progress(stream).skip()

    def _progress(self, stream: str) -> ProgressStream:
        from .progress import ProgressStream

        if stream not in self.notes.streams:
            self.notes.streams[stream] = ProgressStream(self.notes.redactor or self.redactor)
        return self.notes.streams[stream]

    def finish_progress(self) -> None:
        """Show what was held back; the executor does this when the tool has ended."""
        for stream in ("stdout", "stderr"):
            if stream in self.notes.streams:
                self._show(self.notes.streams[stream].flush(), stream)

    def _show(self, text: str, stream: Literal["stdout", "stderr", "note"]) -> None:
        if text:
            self.notes.shown = (self.notes.shown + text)[-PARTIAL_KEPT:]
            self.events.publish(ToolCallProgress(call_id=self.call_id, text=text, stream=stream))

    async def permitted(self, subjects: tuple[Subject, ...]) -> Verdict:
        """What the policy says of what the call comes to touch while it runs, such as where a redirect leads.

        Raises:
            ToolError: it could not be found out.
        """
        if self.notes.judge is None:
            return Verdict(False, "nobody judges what the call comes to touch", "no policy")
        return await self.notes.judge(subjects)

    async def withheld(
        self, paths: Collection[str], *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Those of some files, found in a directory, of which nothing may be shown; see :meth:`Policy.withheld`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.withheld(paths, self, top=top, holders=holders)

    async def locked(self, paths: Collection[str], *, tool: str) -> frozenset[str]:
        """Those of some files, found in a directory, that a tool may not change or move: :meth:`Policy.locked`."""
        if self.executor is None or not paths:
            return frozenset()
        return await self.executor.services.policy.locked(paths, self, tool=tool)

    def publish(self, event: Event) -> None:
        """Publish an event of this session."""
        self.events.publish(event)

    def started_job(self, job_id: str) -> None:
        """Say which job on the target does the work of this call."""
        self.notes.job_id = job_id
        if self.notes.on_job is not None:
            self.notes.on_job(job_id)
