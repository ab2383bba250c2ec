"""Every target as a sandbox of inspect_ai, for evaluations: ``sandbox=("harness", "ssh://lab1")``.

inspect_ai imports this package by its entry point; nothing else of harness does. It needs the extra ``inspect``.
"""

from .configuration import SandboxConfig
from .environment import HarnessSandbox

__all__ = ["HarnessSandbox", "SandboxConfig"]
