"""The interface of what knows the state of panes, and the start, the output and the end of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from harness.results import ShellResult

from ..jobs.pane_job import PaneJob
from ..naming import PaneRow
from ..pane.foreground import Foreground, PaneInspector
from ..pane.keyboard import Dispatch
from ..pane.pane_state import Pane

__all__ = ["PaneSource"]


class PaneSource(Protocol):
    """What the runner, the pane table and the terminal need to know of panes; one instance serves all panes."""

    inspector: PaneInspector
    poll: float | None
    """Seconds between reads of separate streams that are reported as they grow; None: when the pane shows output."""

    # -- panes

    async def attach(self, row: PaneRow, kind: str, add: Callable[[Pane], None]) -> Pane:
        """Pass a pane that this process has not used yet to ``add``, and learn its state; ``kind`` is its shell's.

        Raises:
            TerminalError: its files were deleted.
        """

    def found(self, pane: Pane, row: PaneRow) -> None:
        """Record that a pane still exists, as tmux describes it now."""

    def is_free(self, pane: Pane) -> bool:
        """Return whether no command runs in a pane, as far as known."""

    def describe(self, pane: Pane | None) -> str:
        """Return the state of a pane for the end of a line."""

    # -- before a command

    async def prepare(self, pane: Pane) -> list[str]:
        """Wait until the pane's shell takes a command, and return notices about it.

        Raises:
            PaneBusy, ShellNotReady: it does not in time; the error names what occupies it.
            PaneGone: the pane was closed.
        """

    async def wait_for_holder(self, pane: Pane, holder: str) -> None:
        """Wait briefly for the end of another harness's job that holds the pane; release the pane if it has ended.

        Raises:
            PaneBusy: it has not ended.
        """

    # -- while it runs

    async def watch(self, pane: Pane, job: PaneJob, action: Dispatch) -> None:
        """Ensure that a typed job starts, learn of its end, and release the pane, independently of callers."""

    async def has_read(self, pane: Pane, job: PaneJob) -> bool:
        """Return whether the pane's shell has read a job that was typed, if nothing in the pane shows its start."""

    async def withdraw(self, pane: Pane, job: PaneJob) -> None:
        """Finish a job whose slot was cleared, as its shell does not read it; the reason is in its notices."""

    async def until_begun(self, job: PaneJob) -> None:
        """Wait until it is known whether a background job could be stored and started, as far as that is reported."""

    async def is_over(self, pane: Pane, job: PaneJob, front: Foreground) -> bool:
        """Return whether a job does not wait for input, as it is over and only its end has not arrived yet."""

    async def finish_if_ended(self, pane: Pane, job: PaneJob, timeout: float) -> None:
        """Finish a job that has ended on the target, but whose end has not been read by its deadline.

        Raises:
            TimeoutError: the target did not answer in time.
        """

    async def record_end(self, pane: Pane, job: PaneJob) -> None:
        """Record of an ended job what others need before its caller gets the result."""

    # -- its output

    async def output_so_far(self, pane: Pane, job: PaneJob) -> ShellResult:
        """Return the result of a running job with its output so far."""

    async def buffered_output(self, pane: Pane, job: PaneJob, offset: int, wait: float) -> ShellResult | None:
        """Return like :meth:`.Terminal.held` what is in this process's memory."""

    def check_followable(self, pane: Pane, job: PaneJob) -> None:
        """Check that the output of a running job can be followed in its log.

        Raises:
            UnsupportedOperation: its pane has none.
        """

    # -- at the end

    async def release_idle(self, panes: Iterable[Pane]) -> None:
        """Release the panes that this process holds without a job."""
