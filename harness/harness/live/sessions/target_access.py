"""What dashboards see and do on the target of a session: jobs and their output, panes, keys, and a pane's lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...command import check_text
from ...context import ExecutionContext
from ...errors import HarnessError
from ...results import Job, OutputPart, PaneInfo
from ...toolkit.redaction.redactor import Redactor
from .session import MAX_TYPED_CHARS, StreamItems
from .state import MAX_LISTED, short_text

__all__ = ["TargetAccess"]


class TargetAccess:
    """The target of a session, for its dashboards.

    Args:
        execution: The target.
        redactor: Replaces secrets in all that is sent.
        changed: Called when a pane was taken over or given back.
    """

    def __init__(self, execution: ExecutionContext, redactor: Redactor, changed: Callable[[], None]) -> None:
        self._execution = execution
        self._redactor = redactor
        self._changed = changed
        self._leases: dict[str, str] = {}

    # -- the state

    @property
    def target(self) -> str:
        """The target as shown."""
        return self._redactor.text(str(self._execution.target)).removesuffix(":")

    @property
    def panes(self) -> tuple[str, ...]:
        """The session's default pane; the query ``panes`` asks for all."""
        return (self._execution.pane or "main",) if self._execution.has_terminal else ()

    @property
    def taken_by(self) -> dict[str, str]:
        """Who has taken over which pane."""
        return dict(self._leases)

    @property
    def attach_command(self) -> tuple[str, ...]:
        """The command that attaches to the session; empty without a terminal."""
        try:
            return tuple(map(self._redactor.text, self._execution.attach_command))
        except HarnessError:
            return ()

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that work on this target."""
        panes = ("take_pane", "type", "release_pane") if self._execution.has_terminal else ()
        return ("interrupt_job", "kill_job", *panes)

    # -- queries and actions

    async def query(self, query: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the jobs or the panes of the target.

        Raises:
            HarnessError: The target cannot be asked.
        """
        if query == "jobs":
            return {"jobs": [self._job(job) for job in (await self._execution.jobs())[-MAX_LISTED:]]}
        if not self._execution.has_terminal:
            return {"panes": []}
        return {"panes": [self._pane(pane) for pane in await self._execution.list_panes()]}

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "job_id": job.job_id,
            "command": short_text(self._redactor.text(job.command)),
            "status": job.status.value,
            "exit_code": job.exit_code,
            "pane": job.pane or "",
        }

    def _pane(self, pane: PaneInfo) -> dict[str, Any]:
        return {"name": pane.name, "taken_by": self._leases.get(pane.name, "")}

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """Interrupt or kill a job, or take, use or give back a pane.

        Raises:
            HarnessError: It is not possible.
        """
        if action in ("interrupt_job", "kill_job"):
            signal = "INT" if action == "interrupt_job" else "TERM"
            job = await self._execution.kill(_text(arguments, "job_id"), signal=signal)
            return {"status": job.status.value}
        pane = str(arguments.get("pane") or "") or self.panes[0]
        if action == "take_pane":
            self.take(pane, by)
        elif action == "release_pane":
            self.release(pane, by)
        else:
            await self._type(pane, arguments, by)
        return {"pane": pane}

    def take(self, pane: str, by: str) -> None:
        """Let one operator type into a pane.

        Raises:
            HarnessError: Another one has it.
        """
        holder = self._leases.setdefault(pane, by)
        if holder != by:
            raise HarnessError(f"pane {pane} is taken over by {holder}", hint="ask for it, or attach with tmux")
        self._changed()

    def release(self, pane: str, by: str) -> None:
        """Give a pane back; nothing happens if another operator has it."""
        if self._leases.get(pane) == by:
            del self._leases[pane]
            self._changed()

    async def _type(self, pane: str, arguments: Mapping[str, Any], by: str) -> None:
        if self._leases.get(pane) != by:
            raise HarnessError(f"pane {pane} must be taken over first", hint="take it over, then type")
        text, keys = str(arguments.get("text") or ""), arguments.get("keys") or []
        if len(text) > MAX_TYPED_CHARS or not isinstance(keys, list) or len(keys) > MAX_TYPED_CHARS:
            raise HarnessError(f"at most {MAX_TYPED_CHARS} characters can be typed at once")
        if not text and not keys:  # a dashboard that has connected again shows that its operator is there
            return
        try:
            check_text(text, "text")
        except ValueError as error:
            raise HarnessError(f"cannot be typed: {error}") from None
        await self._execution.send_keys([str(key) for key in keys], literal_text=text or None, pane=pane)

    async def read_end(self, job_id: str, max_bytes: int) -> OutputPart:
        """Return the end of the output of a job, not redacted; that of its standard error if it has one.

        Raises:
            HarnessError: It cannot be read.
        """
        sizes = await self._execution.read_job(job_id, limit=0)
        stdout, stderr = (max(0, part.size - max_bytes) for part in (sizes.stdout, sizes.stderr))
        found = await self._execution.read_job(job_id, stdout=stdout, stderr=stderr, limit=max_bytes)
        return found.stderr if found.stderr.data else found.stdout

    # -- streams

    def open_stream(self, stream: str, arguments: Mapping[str, Any]) -> StreamItems:
        """Return the output of a job, or what a pane shows.

        Raises:
            HarnessError: It is not possible.
        """
        if stream == "tail":
            from .job_output import job_items  # few sessions are ever followed

            return job_items(self._execution, _text(arguments, "job_id"), self._redactor)
        from .pane_streams import pane_items

        return pane_items(self._execution, str(arguments.get("pane") or "") or None, self._redactor)


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise HarnessError(f"the argument {name} is missing")
    return value
