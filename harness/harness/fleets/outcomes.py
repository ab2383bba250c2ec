"""How one host of a call ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import HarnessError
from ..results import ShellResult, Status
from .starting import HostInterrupted, HostNotStarted

__all__ = ["HostOutcome"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostOutcome(Generic[T]):
    """What one host answered: a result, or the error that prevented it."""

    host: str
    target: str
    result: T | None = None
    error: HarnessError | None = None
    started: bool = True
    """Whether the command was sent, or may have been; for :meth:`Fleet.map`, whether the function was called."""

    @property
    def failed(self) -> bool:
        """Whether there is an error, or a command's result that is not a success."""
        return self.error is not None or (isinstance(self.result, ShellResult) and not self.result.ok)

    @property
    def left_out(self) -> bool:
        """Whether the host was not even tried: the limit of failed hosts, or :meth:`Fleet.stop_starting`."""
        return isinstance(self.error, HostNotStarted)

    @property
    def interrupted(self) -> bool:
        """Whether :meth:`Fleet.interrupt` ended what ran; of a command, whether any interrupt ended it."""
        if isinstance(self.result, ShellResult):
            return self.result.status is Status.INTERRUPTED
        return isinstance(self.error, HostInterrupted)
