"""What compilers, linters and test runners complain of, as one list."""

from __future__ import annotations

from .tool import Errs

__all__ = ["Errs"]
