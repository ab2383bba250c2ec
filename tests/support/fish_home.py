"""Homes in which fish starts at once."""

from __future__ import annotations

from pathlib import Path

__all__ = ["let_fish_start_at_once"]


def let_fish_start_at_once(home: Path) -> None:
    """Make the directory of fish's generated completions, if it is missing.

    An interactive fish whose home lacks it reads every manual page of the machine in a background process, which takes
    many seconds of a processor and outlives the test (``__fish_config_interactive``, fish 3.6).
    """
    (home / ".local/share/fish/generated_completions").mkdir(parents=True, exist_ok=True)
