"""Copies of files and directories between targets: what ``harness cp`` does.

A copy is planned first: the sources are listed, and each file gets its destination. Then files are copied, several at a
time, and each one is verified. A name that a target answers with is never more than one name: what is written stays
below the destination.
"""

from __future__ import annotations

from .copier import Copier, CopyOptions
from .locations import Location, parse_location
from .plan import CopySide
from .results import CopyObserver, CopySummary, FileCopy

__all__ = ["Copier", "CopyObserver", "CopyOptions", "CopySide", "CopySummary", "FileCopy", "Location", "parse_location"]
