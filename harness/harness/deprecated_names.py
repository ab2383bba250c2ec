"""Documented names of the previous release: they still work for one release, with a ``DeprecationWarning``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own is slow to load, and this is loaded with the package
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])
    _Class = TypeVar("_Class", bound=type)

__all__ = [
    "MOVED",
    "MovedModules",
    "moved_names",
    "renamed_arguments",
    "renamed_fields",
    "renamed_method",
    "renamed_names",
]

MOVED = {
    "harness.toolkit.compaction": "harness.toolkit.interfaces",
    "harness_backends.posix.backend": "harness_backends.composition",
    "harness.live.agent_session": "harness.live.sessions.agent_session",
    "harness.live.approvals": "harness.live.sessions.approvals",
    "harness.live.call_session": "harness.live.sessions.call_session",
    "harness.mcp.client_config": "harness.mcp.client.configuration",
    "harness.mcp.client_files": "harness.mcp.client.configuration",
    "harness.mcp.elicitation": "harness.mcp.server.elicitation",
    "harness.mcp.elicitation_questions": "harness.mcp.server.elicitation",
    "harness.mcp.handles": "harness.mcp.server.protocol_types",
    "harness.mcp.server_main": "harness.mcp.server.main",
    "harness.mcp.server_settings": "harness.mcp.server.main",
    "harness.mcp.sources": "harness.mcp.client.sources",
    "harness.mcp.supervise": "harness.mcp.client.session",
    "harness.toolkit.catalogue": "harness.toolkit.catalog",
    "harness.toolkit.commandspec": "harness.toolkit.declared_tools",
    "harness.toolkit.commandtool": "harness.toolkit.declared_tools",
    "harness.toolkit.hooks_command": "harness.toolkit.hooks.command",
    "harness.toolkit.hooks_match": "harness.toolkit.hooks.dispatch",
    "harness.toolkit.hooks_settings": "harness.toolkit.hooks.command",
    "harness.toolkit.ledger": "harness.toolkit.audit",
    "harness.toolkit.limits": "harness.toolkit.results",
    "harness.toolkit.notebook": "harness.toolkit.session.notebook",
    "harness.toolkit.notebook_sqlite": "harness.toolkit.session.notebook_stores",
    "harness.toolkit.outputs": "harness.toolkit.session.output_store",
    "harness.toolkit.outputtool": "harness.toolkit.session.output_store",
    "harness.toolkit.permissions.answers": "harness.toolkit.permissions.questions",
    "harness.toolkit.permissions.keysjudge": "harness.toolkit.permissions.shell.typed_keys",
    "harness.toolkit.permissions.settings": "harness.toolkit.permissions.rules.settings",
    "harness.toolkit.permissions.shell.keys": "harness.toolkit.permissions.shell.typed_keys",
    "harness.toolkit.permissions.shelljudge": "harness.toolkit.permissions.shell.classification",
    "harness.toolkit.permissions.store": "harness.toolkit.permissions.rules.store",
    "harness.toolkit.permissions.timed": "harness.toolkit.permissions.remembered_answers",
    "harness.toolkit.presets": "harness.toolkit.registry",
    "harness.toolkit.profiles": "harness.toolkit.tool_profiles",
    "harness.toolkit.questions": "harness.toolkit.session.questions",
    "harness.toolkit.reads": "harness.toolkit.session.file_versions",
    "harness.toolkit.results_cache": "harness.toolkit.result_cache",
    "harness.toolkit.shellresults": "harness.toolkit.results",
    "harness.toolkit.skills": "harness.toolkit.session.skills",
    "harness.toolkit.sources": "harness.toolkit.registry",
    "harness.toolkit.spawning": "harness.toolkit.delegation",
    "harness.toolkit.toolsettings": "harness.toolkit.catalog",
    "harness.toolkit.websettings": "harness.toolkit.web_settings",
}
"""Old name → new name. Where a package has the old name now, its ``__getattr__`` is :func:`moved_names`."""


_COPIED = ("__all__", "__getattr__")


def _warn(old: str, new: str) -> None:
    import warnings

    warnings.warn(f"{old} has moved to {new}", DeprecationWarning, stacklevel=3)


def _warn_renamed(old: str, new: str) -> None:
    import warnings

    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)


class MovedModules:
    """Finds the modules of :data:`MOVED`, before an empty directory of that name is taken for a package."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MOVED:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls())  # type: ignore[arg-type] # a loader by its methods, not by its base class

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give it what the new module has."""
        from importlib import import_module

        new = import_module(MOVED[module.__name__])
        _warn(module.__name__, new.__name__)
        names = {name: value for name, value in vars(new).items() if name[:2] != "__" or name in _COPIED}
        module.__dict__.update(names)


def moved_names(package: str, module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package whose names have moved into one of its modules."""

    def get(name: str) -> Any:
        from importlib import import_module
        from importlib.util import find_spec

        is_module = name[:2] != "__" and find_spec(f"{package}.{name}") is not None
        if name[:2] == "__" or is_module or not hasattr(new := import_module(module, package), name):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        _warn(f"{package}.{name}", f"{new.__name__}.{name}")
        return getattr(new, name)

    return get


def renamed_names(module: str, **names: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module whose names were renamed; ``names`` are old name → new name."""

    def get(name: str) -> Any:
        new = names.get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn_renamed(f"{module}.{name}", new)
        return getattr(sys.modules[module], new)

    return get


def renamed_method(old: str, new: str) -> Callable[..., Any]:
    """A method that calls the one that has its new name."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)(*args, **kwargs)

    call.__name__, call.__doc__ = old, f"Deprecated: use :meth:`{new}`."
    return call


def renamed_arguments(
    values: Mapping[str, Mapping[object, object]] | None = None, /, **names: str
) -> Callable[[_Function], _Function]:
    """A decorator for a function whose keyword arguments were renamed.

    Args:
        values: old name → old value → new value, where values were renamed, too.
        names: old name → new name.
    """
    from functools import wraps

    def decorate(function: Any) -> Any:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                _warn_renamed(f"{function.__qualname__.removesuffix('.__init__')}({old}=...)", names[old])
                given = kwargs.pop(old)
                kwargs[names[old]] = (values or {}).get(old, {}).get(given, given)
            return function(*args, **kwargs)

        return call

    return decorate


def renamed_fields(
    values: Mapping[str, Mapping[object, object]] | None = None, /, **names: str
) -> Callable[[_Class], _Class]:
    """A decorator for a dataclass whose fields were renamed; arguments as for :func:`renamed_arguments`."""

    def decorate(cls: Any) -> Any:
        cls.__init__ = renamed_arguments(values, **names)(cls.__init__)
        for old, new in names.items():
            setattr(cls, old, _renamed_property(old, new))
        return cls

    return decorate


def _renamed_property(old: str, new: str) -> property:
    def get(self: Any) -> Any:
        _warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use :attr:`{new}`.")


sys.meta_path.insert(0, MovedModules)
