"""The version of tmux, and its capabilities. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UnsupportedOperation

__all__ = ["MIN_VERSION", "TmuxVersion"]

_VERSION = re.compile(r"(?:tmux )?(?:next-|openbsd-)?(\d+)\.(\d+)([a-z]?)")


@dataclass(frozen=True, slots=True, order=True)
class TmuxVersion:
    """A released version; a development version counts as the release that it leads to."""

    major: int
    minor: int
    patch: str = ""

    @classmethod
    def parse(cls, text: str) -> TmuxVersion | None:
        """Parse the output of ``tmux -V``; return None without a version (``tmux master`` counts as newest)."""
        if text.strip() in ("tmux master", "master"):
            return cls(99, 0)
        match = _VERSION.match(text.strip())
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    @property
    def client_flags(self) -> bool:
        """``attach -f no-output,pause-after=...`` (3.2)."""
        return self >= TmuxVersion(3, 2)

    @property
    def window_size(self) -> bool:
        """The option ``window-size`` and the command ``resize-window`` (2.9)."""
        return self >= TmuxVersion(2, 9)

    @property
    def legacy_quoting(self) -> bool:
        """A final ``;`` ends a command even in quotes (before 3.0)."""
        return self < TmuxVersion(3, 0)

    @property
    def pane_options(self) -> bool:
        """``set-option -p`` (3.0): a pane's options stay with it when an operator moves it to another window."""
        return self >= TmuxVersion(3, 0)

    @property
    def keeps_spaces(self) -> bool:
        """``capture-pane -N`` (3.1)."""
        return self >= TmuxVersion(3, 1)

    @property
    def paste_flags(self) -> tuple[str, ...]:
        """Options of ``paste-buffer`` that keep every byte; 3.7 replaces control characters without ``-S``."""
        return ("-r", "-S") if self >= TmuxVersion(3, 7) else ("-r",)

    @property
    def pads_captures(self) -> bool:
        """``capture-pane -J`` adds blanks that no program wrote (before 3.3)."""
        return self < TmuxVersion(3, 3)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.patch}"


MIN_VERSION = TmuxVersion(2, 6)


def require(text: str, target: object) -> TmuxVersion:
    """Return the version from the output of ``tmux -V``.

    Raises:
        UnsupportedOperation: tmux is not installed, or is older than 2.6.
    """
    version = TmuxVersion.parse(text)
    if version is None:
        raise UnsupportedOperation(
            "tmux is not installed on the target", target=target, hint='install tmux, or set tmux_host = "local"'
        )
    if version < MIN_VERSION:
        raise UnsupportedOperation(
            f"tmux {version} is too old, {MIN_VERSION} or newer is required",
            target=target,
            hint='set tmux_host = "local"',
        )
    return version
