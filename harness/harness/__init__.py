"""Run commands on real machines, in a tmux session that people can watch.

>>> import harness
>>> async with harness.connect("ssh://deploy@web1", tmux=True) as ctx:  # doctest: +SKIP
...     result = await ctx.run_shell("df -h /")
"""

from __future__ import annotations

from . import errors as _errors
from .backend import ANY, Capabilities
from .config import Config
from .context import ExecutionContext, connect
from .errors import *  # noqa: F403  # the error tree is public as a whole; its __all__ is pinned by a test
from .results import (
    DirEntry,
    FileContent,
    FileStat,
    Job,
    PaneInfo,
    SessionInfo,
    ShellResult,
    Status,
    WriteResult,
)
from .settings import load_config
from .target import Hop, Target

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "Capabilities",
    "Config",
    "DirEntry",
    "ExecutionContext",
    "FileContent",
    "FileStat",
    "Hop",
    "Job",
    "PaneInfo",
    "SessionInfo",
    "ShellResult",
    "Status",
    "Target",
    "WriteResult",
    "__version__",
    "connect",
    "load_config",
]
__all__ += _errors.__all__
