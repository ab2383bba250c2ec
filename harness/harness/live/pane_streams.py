"""The live stream of a pane for dashboards."""

from __future__ import annotations

from ..context import ExecutionContext
from ..errors import UnsupportedOperation
from ..toolkit.redaction.redactor import Redactor
from .session import StreamItems

__all__ = ["pane_items"]


def pane_items(execution: ExecutionContext, pane: str | None, redactor: Redactor) -> StreamItems:
    """Return what a pane shows: its screen, then each change.

    Raises:
        UnsupportedOperation: The pane cannot be watched.
    """
    raise UnsupportedOperation(f"pane {pane or 'main'} cannot be watched live", target=execution.target)
