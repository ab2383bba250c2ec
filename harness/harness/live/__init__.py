"""Running harness processes: how they announce themselves, and how dashboards see them and act through them.

A program that uses harness as a library is shown if it asks for that:

>>> from harness.live import announce, share_approver, show_calls
>>> async with announce("python") as announcement:  # doctest: +SKIP
...     approver = share_approver(announcement)
...     async with open_executor(execution, approver=approver) as executor:
...         with show_calls(announcement, executor, approver):
...             await executor.call(ToolCall("run_shell", {"command": "uptime"}))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .announcement import Announcement, announce
    from .sessions.agent_session import show_agent
    from .sessions.approvals import SharedApprover, share_approver
    from .sessions.call_session import show_calls

__all__ = ["Announcement", "SharedApprover", "announce", "share_approver", "show_agent", "show_calls"]

_NAMES = {
    "sessions.agent_session": ("show_agent",),
    "announcement": ("Announcement", "announce"),
    "sessions.approvals": ("SharedApprover", "share_approver"),
    "sessions.call_session": ("show_calls",),
}

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
