"""For tests of programs that use harness: a target in memory, an SSH server, slow connections, agents without a model.

The suite that every backend passes is :mod:`.contract`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .agents import ScriptedSpawner
    from .delay import DelayProxy, delay_proxy
    from .memory import MemoryBackend, ScriptedReply, memory_context
    from .ssh_server import EmbeddedSshServer, embedded_ssh_server

__all__ = [
    "DelayProxy",
    "EmbeddedSshServer",
    "MemoryBackend",
    "ScriptedReply",
    "ScriptedSpawner",
    "delay_proxy",
    "embedded_ssh_server",
    "memory_context",
]

_NAMES: dict[str, tuple[str, ...]] = {
    "agents": ("ScriptedSpawner",),
    "delay": ("DelayProxy", "delay_proxy"),
    "memory": ("MemoryBackend", "ScriptedReply", "memory_context"),
    "ssh_server": ("EmbeddedSshServer", "embedded_ssh_server"),
}
"""The modules that define the names."""

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
