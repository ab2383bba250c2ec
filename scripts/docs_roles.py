"""For the documentation site: what docstrings mark up for other tools becomes plain Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["PlainRoles"]

ROLE = re.compile(r":(?:py:)?(?:attr|class|data|exc|func|meth|mod):`[~.]?([^`]+)`")
LITERAL = re.compile(r":(:)$|^::$", re.MULTILINE)


class PlainRoles(griffe.Extension):
    """Rewrites each docstring as it is read from the source."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Turn cross-references into code, and the marks of literal blocks into nothing."""
        if obj.docstring is not None:
            obj.docstring.value = LITERAL.sub(r"\1", ROLE.sub(r"`\1`", obj.docstring.value))
