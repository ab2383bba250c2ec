"""Import of the MCP SDK for a server: without its client, and without validators that no message has needed yet."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType

__all__ = ["import_server_sdk"]

LAZY_PACKAGES = ("mcp", "mcp.server")
"""Packages of the SDK that import its client and its second server framework, only to offer their names."""
WIRE_TYPES = "mcp_types.methods"
"""The module that imports the models of every message in every protocol revision, most of which are never used."""


def import_server_sdk() -> None:
    """Import the low-level server of the SDK; does nothing to packages that are already imported.

    Raises:
        ImportError: the SDK is not installed.
    """
    for name in LAZY_PACKAGES:
        if name not in sys.modules:
            _register_lazily(name)
    importlib.import_module("mcp_types")
    with _models_built_at_first_use():
        importlib.import_module(WIRE_TYPES)
    importlib.import_module("mcp.server.lowlevel")


def _register_lazily(name: str) -> None:
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = module_from_spec(spec)
    module.__class__ = _LazyPackage
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


class _LazyPackage(ModuleType):
    """A package whose ``__init__`` runs when one of its names is first used; its modules can be imported before."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        object.__setattr__(self, "__class__", ModuleType)  # as any module whose __init__ is running
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


@contextmanager
def _models_built_at_first_use() -> Iterator[None]:
    """Let pydantic build the validators of models that are defined meanwhile when they are first used."""
    from pydantic import BaseModel

    config = BaseModel.model_config
    before = config.get("defer_build", False)
    config["defer_build"] = True
    try:
        yield
    finally:
        config["defer_build"] = before
