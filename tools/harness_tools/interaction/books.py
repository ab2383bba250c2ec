"""The notebook of a call."""

from __future__ import annotations

from harness.errors import ToolError
from harness.toolkit import ToolContext
from harness.toolkit.notebook import Notebook

__all__ = ["notebook_of"]


def notebook_of(ctx: ToolContext) -> Notebook:
    """The notebook.

    Raises:
        ToolError: whoever made the executor gave it none.
    """
    if ctx.notebook is None:
        raise ToolError("there is no notebook to write in", hint="give the executor one")
    return ctx.notebook
