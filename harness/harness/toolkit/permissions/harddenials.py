"""What nothing allows: secrets, files that give rights, and what ``.aiexclude`` on the target keeps back."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence

from ...context import ExecutionContext
from ...errors import FileError
from .aiexclude import AiExclude
from .secretpaths import PROTECTED, SecretPaths
from .settings import PermissionSettings
from .targetpaths import RealPath

__all__ = ["HardDenials"]

HOME_PLACES = (".config/harness", ".local/state/harness")
"""Where a harness keeps such files, in a home."""
KEY_PLACES = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh/hosts.yml", ".docker/config.json"),
    *(".kube/config", ".password-store", ".local/share/keyrings", ".netrc", ".git-credentials", ".pgpass"),
    *(".cargo/credentials.toml", ".config/rclone/rclone.conf", ".s3cfg", ".bash_history", ".zsh_history"),
)
"""Where keys and passwords are, in a home."""
DEPTH = 256
"""Directories above a path: in each an ``.aiexclude`` is looked for."""


class HardDenials:
    """The hard denials of paths.

    Args:
        protected: further files of this machine that no call on it may write: the file of the grants.
        places: the directories on this machine of files that no call may write.
    """

    def __init__(
        self,
        settings: PermissionSettings,
        clock: Callable[[], float],
        protected: Iterable[str] = (),
        places: Iterable[str] = (),
    ) -> None:
        self._secrets = SecretPaths(settings.secrets)
        self._protected = SecretPaths((*PROTECTED, *protected), copies=False)
        self._places = tuple(places)
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
            hidden = "" if path.only_named else self.hidden(form, home)
            if reason := hidden or (self.locked(form, home) if writes else ""):
                return reason
        if path.only_named and not writes:
            return ""
        for form in dict.fromkeys((path.real, posixpath.normpath(path.absolute))):  # a shell's cd goes by the names
            if form.count("/") > DEPTH:
                return f"it is in more than {DEPTH} directories, too many to be judged"
            if reason := await self._aiexclude.reason(_rooted(form), execution):
                return reason
        return ""

    async def place_below(self, path: str, execution: ExecutionContext, *, reads: bool = False) -> str:
        """A directory of files that nothing may write, at this absolute path or below it; empty: there is none.

        On another machine it is one of a harness there, when that is there.

        Args:
            reads: what is below is read, so that directories of keys count, too.

        Raises:
            HarnessError: the link was lost.
        """
        home, is_here = execution.capabilities.home.rstrip("/"), execution.target.hops[-1].scheme == "local"
        own = [*(self._places if is_here else ()), *(f"{home}/{place}" for place in HOME_PLACES if home)]
        keys = [f"{home}/{place}" for place in KEY_PLACES if home and reads]
        above = f"{posixpath.normpath(_rooted(path)).rstrip('/')}/"
        for place in (*own, *keys):
            is_below = f"{place}/".startswith(above)
            if is_below and ((is_here and place in own) or await _is_there(place, execution)):
                return place
        return ""

    async def below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        """Which file below some directories an ``.aiexclude`` keeps back, or why that is not known; empty: none is.

        Args:
            privileged: who goes through them may see more than we do.

        Raises:
            HarnessError: the link was lost.
        """
        return await self._aiexclude.below(tops, execution, privileged=privileged)

    async def excluded(
        self, paths: Collection[str], execution: ExecutionContext, top: str, holders: Collection[str] | None
    ) -> set[str]:
        """Those of some real paths that an ``.aiexclude`` keeps back; ``holders`` are the directories from ``top`` on
        that hold one, None when that is not known.

        Raises:
            HarnessError: the link was lost.
        """
        return await self._aiexclude.among(paths, execution, top, holders)


async def _is_there(path: str, execution: ExecutionContext) -> bool:
    try:
        await execution.stat(path)
    except FileError:
        return False
    return True


def _rooted(path: str) -> str:
    return "/" + path.lstrip("/")  # two slashes at the beginning are one on every target
