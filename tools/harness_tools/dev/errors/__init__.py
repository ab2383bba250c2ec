"""``errs``: extract errors and warnings from the output of compilers, linters and test runners."""

from __future__ import annotations

from .tool import Errs

__all__ = ["Errs"]
