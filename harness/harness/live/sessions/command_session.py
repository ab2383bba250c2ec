"""A single command, or one on many hosts, for dashboards. Nothing is imported or computed while none is connected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import anyio

from ...errors import HarnessError
from .session import LiveSession, StreamItems

if TYPE_CHECKING:
    from ...context import ExecutionContext
    from ...toolkit.redaction.redactor import Redactor
    from .host_groups import HostsOfCommand
    from .state import HostCounts, SessionState

__all__ = ["CommandSession"]

MAX_PANES = 24
"""Panes of hosts that dashboards are offered; a page has room for no more."""


class CommandSession(LiveSession):
    """A command that this process waits for.

    Args:
        target: The target, or the folded names of the hosts.
        command: Shell text, or what is done.
        cancel: Interrupts the command, as Ctrl-C does.
        make_redactor: Returns the redactor of what is shown, once something is; an error of it shows nothing.
        hosts: The hosts of a command on many; None on a single target.
        execution: The single target, whose job dashboards may follow.
        attach: The command that attaches to its session.
    """

    def __init__(
        self,
        target: str,
        command: str,
        cancel: Callable[[], None],
        *,
        make_redactor: Callable[[], Redactor],
        hosts: HostsOfCommand | None = None,
        execution: ExecutionContext | None = None,
        attach: tuple[str, ...] = (),
    ) -> None:
        self.started = time.time()
        self.session_id = f"command-{self.started:.6f}"
        self._target = target
        self._command = command
        self._cancel = cancel
        self._make_redactor = make_redactor
        self._hosts = hosts
        self._execution = execution
        self._job_id = ""
        self._attach = attach
        self._redactor: Redactor | None = None
        self._change = anyio.Event()

    def set_job(self, job_id: str) -> None:
        """Note the job of the command, whose output dashboards may follow."""
        self._job_id = job_id

    def hosts_changed(self) -> None:
        """Report the hosts to the dashboards that show them. Never waits."""
        self._change.set()
        self._change = anyio.Event()

    def state(self) -> SessionState:
        """See :class:`LiveSession`."""
        from .state import RunningCall, SessionState, short_text  # with the first client

        text = short_text(self.redact(self._command))
        return SessionState(
            session=self.session_id,
            kind="run" if self._hosts is None else "fleet",
            target=self.redact(self._target).removesuffix(":"),
            title=text,
            doing="running",
            since=self.started,
            started=self.started,
            running=(RunningCall("", "run", text, self.started),),
            hosts=self._counts(),
            panes=tuple(map(self.redact, islice(self._panes(), MAX_PANES))),
            attach=tuple(map(self.redact, self._attach)),
            actions=("cancel",),
        )

    def _counts(self) -> HostCounts | None:
        from .state import HostCounts

        if self._hosts is None:
            return None
        found = self._hosts.progress()
        return HostCounts(found.total, found.running, found.ok, found.failed)

    def _panes(self) -> Mapping[str, ExecutionContext]:
        """Return the contexts whose panes can be watched: by the pane's name, or on many hosts by the host's."""
        if self._hosts is not None:
            return self._hosts.panes()
        if self._execution is None or not self._execution.has_terminal:
            return {}
        return {self._execution.pane or "main": self._execution}

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redaction().text(text)

    def _redaction(self) -> Redactor:
        if self._redactor is None:
            self._redactor = self._make_redactor()
        return self._redactor

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        if action != "cancel":
            raise HarnessError(f"a command does not support: {action}", hint="it can be cancelled")
        from .action_records import record_cancel

        await record_cancel(self.session_id, self.redact(self._target), self.redact(self._command), by)
        self._cancel()
        return {}

    def open_stream(self, stream: str, arguments: Mapping[str, Any]) -> StreamItems:
        """Return the output of the command or of one host, what its pane shows, or the state of all hosts."""
        if stream == "hosts" and self._hosts is not None:
            from .host_groups import host_items

            return host_items(self._hosts, self.redact, lambda: self._change)
        if stream == "tail":
            return self._open_output(arguments)
        if stream == "pane":
            return self._open_pane(str(arguments.get("pane") or ""))
        return super().open_stream(stream, arguments)

    def _open_pane(self, name: str) -> StreamItems:
        from .pane_streams import pane_items

        if (execution := self._panes().get(name)) is None:
            raise HarnessError(f"no command runs in a pane {name}", hint="show the output instead")
        return pane_items(execution, None, self._redaction())

    def _open_output(self, arguments: Mapping[str, Any]) -> StreamItems:
        from .job_output import job_items

        if self._hosts is not None:
            from .host_groups import output_items

            return output_items(self._hosts, str(arguments.get("host") or ""), self._redaction())
        if self._execution is None or not self._job_id:
            raise HarnessError("the command has no output that can be followed yet", hint="try again")
        return job_items(self._execution, self._job_id, self._redaction())
