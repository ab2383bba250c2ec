"""HTML as text for a model. A page can be made to keep any converter busy, so this one has a process of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import anyio

from harness.errors import ToolError
from harness.extras import install_extra
from harness.toolkit.values import Advice

from .pages import WebFailure

__all__ = ["Form", "Readable", "readable"]

Form = Literal["markdown", "text", "raw"]
SECONDS = 15
"""Of the processor, for one page."""
MEMORY = 1 << 30
"""Bytes of address space of the converter."""
LONGEST = 8 << 20
"""Characters of what it makes of a page."""
NO_LIBRARY = 3
SCRIPT = "harness_tools.web.htmlscript"


@dataclass(frozen=True, slots=True)
class Readable:
    """A page's text, and its title."""

    text: str
    title: str = ""


async def readable(source: str, form: Form, base: str) -> Readable:
    """The page as Markdown, or as text alone.

    Args:
        base: the page's URL: relative links are made whole.

    Raises:
        WebFailure: ``not_converted``: it takes too long, or too much memory.
        ToolError: the library is not installed.
    """
    spec = find_spec(SCRIPT)
    assert spec is not None
    assert spec.origin is not None
    limits = [str(number) for number in (SECONDS, MEMORY, LONGEST)]
    command = [sys.executable, "-P", spec.origin, form, base, *limits]  # by its path: the package is not loaded again
    with anyio.move_on_after(2 * SECONDS):  # of a busy machine; the process has its own limit
        done = await anyio.run_process(command, input=source.encode("utf-8", "replace"), check=False)
        if done.returncode == NO_LIBRARY:
            raise ToolError("HTML needs a library that is not installed", hint=install_extra("web"))
        if done.returncode == 0:
            made = json.loads(done.stdout)
            return Readable(made["text"], made["title"])
    way = Advice('; format="raw" shows its source', ("format",))
    raise WebFailure("not_converted", "the page is too involved to be made readable", way)
