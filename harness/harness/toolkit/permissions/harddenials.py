"""What nothing allows: secrets, files that give rights, and what ``.aiexclude`` on the target keeps back."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable

from ...context import ExecutionContext
from .aiexclude import AiExclude
from .secretpaths import PROTECTED, SecretPaths
from .settings import PermissionSettings
from .targetpaths import RealPath

__all__ = ["HardDenials"]

DEPTH = 256
"""Directories above a path: in each an ``.aiexclude`` is looked for."""


class HardDenials:
    """The hard denials of paths.

    Args:
        protected: further files of this machine that no call on it may write: the file of the grants.
    """

    def __init__(self, settings: PermissionSettings, clock: Callable[[], float], protected: Iterable[str] = ()) -> None:
        self._secrets = SecretPaths(settings.secrets)
        self._protected = SecretPaths((*PROTECTED, *protected))
        self._aiexclude = AiExclude(settings.aiexclude_seconds, clock)

    def hidden(self, path: str, home: str) -> str:
        """Why a path, as it is written, is a secret; empty when it is none. Pure."""
        found = self._secrets.matching(path, home)
        return f"{path} is a secret ({found})" if found else ""

    def locked(self, path: str, home: str) -> str:
        """Why nothing may write this path; empty when something may. Pure."""
        found = self._protected.matching(path, home)
        return f"{path} decides what may be done ({found})" if found else ""

    async def of_path(self, path: RealPath, execution: ExecutionContext, *, writes: bool) -> str:
        """Why nothing may touch it; empty when something may.

        Raises:
            HarnessError: the link was lost.
        """
        home = execution.capabilities.home
        for form in path.forms:
            if reason := self.hidden(form, home) or (self.locked(form, home) if writes else ""):
                return reason
        for form in dict.fromkeys((path.real, posixpath.normpath(path.absolute))):  # a shell's cd goes by the names
            if form.count("/") > DEPTH:
                return f"it is in more than {DEPTH} directories, too many to be judged"
            if reason := await self._aiexclude.reason(_rooted(form), execution):
                return reason
        return ""

    async def excluded(
        self, paths: Collection[str], execution: ExecutionContext, top: str, holders: Collection[str] | None
    ) -> set[str]:
        """Those of some real paths that an ``.aiexclude`` keeps back; ``holders`` are the directories from ``top`` on
        that hold one, None when that is not known.

        Raises:
            HarnessError: the link was lost.
        """
        return await self._aiexclude.among(paths, execution, top, holders)


def _rooted(path: str) -> str:
    return "/" + path.lstrip("/")  # two slashes at the beginning are one on every target
