"""Which shell the panes run. Pure."""

from __future__ import annotations

from harness.backend import Capabilities

__all__ = ["pane_shell", "replaced"]

WITHOUT_MARKERS = frozenset({"bsd-csh", "csh", "elvish", "es", "nu", "pwsh", "rc", "tcsh", "xonsh"})
"""Login shells that do not read the language of sh: they cannot be taught to mark where output begins and ends."""


def pane_shell(configured: str, capabilities: Capabilities) -> str:
    """The shell that is set, else the account's; for one that cannot have markers bash, else sh."""
    if replaced(configured, capabilities):
        return dict(capabilities.tools).get("bash", "/bin/sh")
    return configured or capabilities.shell or "/bin/sh"


def replaced(configured: str, capabilities: Capabilities) -> str:
    """The name of the account's shell where another one takes its place; else empty."""
    name = capabilities.shell.rpartition("/")[2]
    return name if not configured and name in WITHOUT_MARKERS else ""
