"""Notifications of the end of a command that this process waits for, on one target or on many hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import HarnessError
from ..results import ShellResult, Status
from ..wording import counted

if TYPE_CHECKING:
    from ..live.sessions.state import SessionState
    from .notifier import Notifier
    from .settings import EventKind

__all__ = ["CommandEnd", "fleet_summary", "notified_end"]


class CommandEnd:
    """How a command ended; nothing is sent unless one of the methods is called."""

    def __init__(self) -> None:
        self.summary = ""
        self.exit_code: int | None = None
        self.output = b""
        self.is_output_cut = False

    def take_result(self, result: ShellResult) -> None:
        """Take the result of a command; one that is still running has not ended."""
        if result.stderr_bytes:
            self._take_output(result.stderr_bytes, result.stderr_gap)
        else:
            self._take_output(result.stdout_bytes, result.stdout_gap)
        if result.exit_code is not None:
            self.summary, self.exit_code = f"the command has ended: exit code {result.exit_code}", result.exit_code
        elif result.status is not Status.RUNNING:
            self.summary = f"the command has ended: {result.status.value.replace('_', ' ')}"

    def _take_output(self, data: bytes, gap: tuple[int, int] | None) -> None:
        self.output = data if gap is None else data[gap[0] :]  # the omitted bytes may have cut a secret
        self.is_output_cut = gap is not None

    def take_counts(self, counts: Mapping[str, int], run: int | None = None) -> None:
        """Take how many hosts ended how, and the number of the run."""
        self.summary = fleet_summary(counts, run)


def fleet_summary(counts: Mapping[str, int], run: int | None = None) -> str:
    """Return how a run on many hosts ended. Pure.

    Args:
        counts: How many ``hosts`` there are, and how many of each kind of outcome.
        run: The number of the run, if it is kept.
    """
    parts = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count and kind != "hosts"]
    hosts = counted(counts["hosts"], "host")
    return f"{'the run' if run is None else f'run {run}'} on {hosts} has ended: {', '.join(parts)}"


@contextmanager
def notified_end(
    notifier: Notifier | None,
    state: Callable[[], SessionState],
    kind: EventKind,
    redact: Callable[[str], str] = str,
) -> Iterator[CommandEnd]:
    """Notify of the end of the command inside.

    Args:
        notifier: Sends the notification; None sends nothing.
        state: Returns the state of the command, as dashboards show it.
        kind: ``job_ended`` or ``fleet_ended``.
        redact: Replaces secrets in the output.

    Raises:
        ConfigError: The settings of the redaction are wrong.

    Yields:
        Takes how the command ended.
    """
    end, started = CommandEnd(), time.monotonic()
    if notifier is not None:
        state()  # a wrong pattern of the redaction is an error before the command, and not after it
    try:
        yield end
    except HarnessError as error:
        end.summary = f"harness failed: {type(error).__name__}"
        raise
    finally:
        seconds = time.monotonic() - started
        if notifier is not None and end.summary and seconds >= notifier.settings.min_duration:
            from .notification import NotificationItem, last_lines
            from .session_watch import attach_hint

            shown, includes_output = state(), notifier.settings.include_output
            item = NotificationItem(
                event=kind,
                summary=end.summary,
                target=shown.target,
                session=shown.session,
                detail=shown.title if notifier.settings.include_command else "",
                output=last_lines(end.output, redact, is_cut=end.is_output_cut) if includes_output else "",
                hint=attach_hint(shown),
                exit_code=end.exit_code,
                seconds=seconds,
            )
            notifier.add((kind, started), item)
