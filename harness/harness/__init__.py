"""Run commands on real machines, in a tmux session that operators can watch.

>>> import harness
>>> async with harness.connect("ssh://deploy@web1", tmux=True) as ctx:  # doctest: +SKIP
...     result = await ctx.run_shell("df -h /")
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing is slow, and the program must handle C-c from its start
if TYPE_CHECKING:
    from . import errors as _errors
    from .agent.pydantic_ai_toolset import toolset as toolset
    from .backend import ANY, Capabilities
    from .config import Config
    from .context import ExecutionContext, connect
    from .errors import *  # noqa: F403  # the error tree is public as a whole; its __all__ is pinned by a test
    from .fleets import Fleet, HostOutcome, fleet
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
    from .target import ExecTarget, Hop, Target

    __all__ = [
        "ANY",
        "Capabilities",
        "Config",
        "DirEntry",
        "ExecTarget",
        "ExecutionContext",
        "FileContent",
        "FileStat",
        "Fleet",
        "Hop",
        "HostOutcome",
        "Job",
        "PaneInfo",
        "SessionInfo",
        "ShellResult",
        "Status",
        "Target",
        "WriteResult",
        "__version__",
        "connect",
        "fleet",
        "load_config",
    ]
    __all__ += _errors.__all__

__version__ = "0.1.0"

_NAMES = {
    "backend": ("ANY", "Capabilities"),
    "config": ("Config",),
    "context": ("ExecutionContext", "connect"),
    "fleets": ("Fleet", "HostOutcome", "fleet"),
    "results": (
        *("DirEntry", "FileContent", "FileStat", "Job", "PaneInfo"),
        *("SessionInfo", "ShellResult", "Status", "WriteResult"),
    ),
    "settings": ("load_config",),
    "target": ("ExecTarget", "Hop", "Target"),
}
_WITH_EXTRAS = {"toolset": "agent"}
"""Names that need an optional part, so that ``import *`` must not load them, and the packages that define them."""
_MODULES = (*_NAMES, "command", "discovery", "errors", "terminal", "transport")

from . import deprecated_names as _deprecated_names  # noqa: E402, F401 # it finds moved modules

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import modules and their names on first use."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f".{name}", __name__)
        errors = import_module(".errors", __name__)
        if name == "__all__":
            return [*sorted([*(name for names in _NAMES.values() for name in names), "__version__"]), *errors.__all__]
        if name in _WITH_EXTRAS:
            return getattr(import_module(f".{_WITH_EXTRAS[name]}", __name__), name)
        home = next((module for module, names in _NAMES.items() if name in names), "")
        if not home and name not in errors.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{home or 'errors'}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES, *_WITH_EXTRAS, *__getattr__("__all__")})
