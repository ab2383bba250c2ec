"""Hard denials of files: secrets, protected files, and files excluded by ``.aiexclude`` on the target."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from ....context import ExecutionContext
from ....errors import FileError, HarnessError
from ....patterns.wildcards import matches
from ....results import ShellResult, Status
from ..rules.settings import PROTECTED, PermissionSettings, SecretPaths
from .target_paths import RealPath

__all__ = [
    "NAME",
    "AiExclude",
    "BelowSearch",
    "HardDenials",
    "excluded",
    "parse_lines",
]


# -- Search on the target for files below directories whose whole content a command would access.


NAME = ".aiexclude"
SECONDS = 10.0
"""Timeout of one search; the command asks if it is exceeded."""
ANSWER = 256 << 10
"""Maximum bytes of the result."""
PATTERNS = 200
"""Maximum number of patterns in one search."""


class BelowSearch:
    """Search with ``find`` on the target, outside the terminal.

    Args:
        execution: the target.
        privileged: the command runs with other rights, so directories that ``find`` cannot read count as unknown.
    """

    def __init__(self, execution: ExecutionContext, *, privileged: bool) -> None:
        self._execution = execution
        self._privileged = privileged

    async def aiexclude_directories(self, tops: Sequence[str]) -> list[str] | str:
        """Return the directories with an ``.aiexclude``, or why they are unknown."""
        found = await self._find(tops, f"-name {NAME}")
        return found if isinstance(found, str) else [posixpath.dirname(path) for path in found]

    async def named(self, tops: Sequence[str], told: Mapping[str, Sequence[str]]) -> list[str] | str:
        """Return the paths that patterns may match, possibly too many, or why they are unknown."""
        wanted = dict.fromkeys(
            test for directory, lines in told.items() for line in lines if (test := _test(directory, line))
        )
        if len(wanted) > PATTERNS:
            return f"its {NAME} files have too many patterns to search for"
        return await self._find(tops, f"\\( {' -o '.join(wanted)} \\)") if wanted else []

    async def _find(self, tops: Sequence[str], test: str) -> list[str] | str:
        look = f"LC_ALL=C find {' '.join(map(shlex.quote, tops))} {test} -print"
        script = f'{{ {look}; echo "end $?"; }} | head -c {ANSWER}'
        try:
            done = await self._execution.run_helper(script, timeout=SECONDS, max_output=ANSWER)
        except HarnessError as error:
            return f"could not check for files excluded by an {NAME}: {error.message}"
        *found, end = done.stdout.splitlines() or [""]
        return self._unknown(done, found, end) or found

    def _unknown(self, done: ShellResult, found: Sequence[str], end: str) -> str:
        if done.status is Status.TIMED_OUT:
            return f"the check for files excluded by an {NAME} took longer than {SECONDS:g} s"
        looked = done.status is Status.COMPLETED and end in ({"end 0"} if self._privileged else {"end 0", "end 1"})
        odd = any(not line.startswith("/") for line in found)
        if not looked or done.truncated or odd:
            return f"could not check for files excluded by an {NAME}"
        return ""


def _test(directory: str, line: str) -> str:
    """Return a ``find`` test that matches at least what a pattern matches. Pure."""
    if line.startswith("!"):
        return ""  # it only revokes other patterns
    plain = line.replace("\\", "").rstrip("/")
    if "/" not in plain:
        return f"-name {shlex.quote(plain)}" if plain.strip("*") else "-name '*'"
    path = posixpath.join(_literal(directory), plain.lstrip("/").replace("**", "*"))
    return f"-path {shlex.quote(path)}"


def _literal(directory: str) -> str:
    return "".join(f"\\{mark}" if mark in "*?[\\" else mark for mark in directory)


# -- ``.aiexclude`` files on the target: paths hidden from agents, in the syntax of ``.gitignore``.


SIZE_LIMIT = 256 << 10
"""Maximum bytes of one file; a longer one excludes everything."""
KEPT = 4096
"""Maximum number of directories whose file is cached."""
EVERYTHING = ("*",)


def parse_lines(text: str) -> tuple[str, ...]:
    """Return the patterns of a file, in order. Pure."""
    lines = (line.rstrip("\r").rstrip() for line in text.split("\n"))
    return tuple(line for line in lines if line and not line.startswith("#"))


def excluded(patterns: Sequence[str], relative: str) -> str:
    """Return the pattern that excludes a path below the file's directory; empty if none does. Pure.

    As in ``.gitignore``, the last match decides, and everything in an excluded directory stays excluded.

    Args:
        patterns: the patterns of the file, in order.
        relative: the path relative to the directory of the file.
    """
    names = relative.strip("/").split("/")
    for count in range(1, len(names) + 1):
        found = _last(patterns, "/".join(names[:count]))
        if found:
            return found
    return ""


def _last(patterns: Sequence[str], relative: str) -> str:
    for pattern in reversed(patterns):
        plain = pattern.removeprefix("!").replace("\\", "").rstrip("/")
        if "/" in plain:  # relative to the file's directory
            found = matches(f"/{plain.lstrip('/')}", f"/{relative}", "path")
        else:
            found = matches(plain, relative, "path")
        if found:
            return "" if pattern.startswith("!") else pattern
    return ""


@dataclass(frozen=True, slots=True)
class _Known:
    patterns: tuple[str, ...]
    until: float


class AiExclude:
    """Reads ``.aiexclude`` files on the target and caches them for a short time.

    Args:
        seconds: how long a file, or its absence, is cached.
        clock: monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._below: dict[tuple[str, tuple[str, ...], bool], tuple[str, float]] = {}

    async def reason(self, path: str, execution: ExecutionContext) -> str:
        """Return which pattern of which file excludes this real path; empty if none does.

        Raises:
            HarnessError: the connection was lost.
        """
        directories = _above(path)
        known = await self._learn(directories, execution)
        for directory in directories:
            found = excluded(known[directory], path[len(directory.rstrip("/")) :])
            if found:
                return f"{posixpath.join(directory, NAME)} excludes it ({found})"
        return ""

    async def among(
        self, paths: Collection[str], execution: ExecutionContext, top: str, holders: Collection[str] | None
    ) -> set[str]:
        """Return the real paths that are excluded; see :meth:`HardDenials.excluded`.

        Raises:
            HarnessError: the connection was lost.
        """
        above = {parent: _above(f"{parent.rstrip('/')}/x") for parent in {posixpath.dirname(path) for path in paths}}
        every = {directory for directories in above.values() for directory in directories}
        outside = frozenset(_above(top)) if holders is not None else frozenset()
        looked = [name for name in every if holders is None or name in holders or name in outside]
        told = {name: lines for name, lines in (await self._learn(looked, execution)).items() if lines}
        return {path for path in paths if told and _is_excluded(path, above[posixpath.dirname(path)], told)}

    async def excludes_below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        """Return which file below some real directories is excluded, or why that is unknown; empty if none is.

        Args:
            tops: the directories.
            execution: the target.
            privileged: unreadable directories count as unknown.

        Raises:
            HarnessError: the connection was lost.
        """
        key = (execution.identity, tuple(tops), privileged)
        known = self._below.get(key)
        if known is None or self._clock() >= known[1]:
            if len(self._below) > KEPT:
                self._below.clear()
            began = self._clock()
            known = await self._looked_below(tops, execution, privileged=privileged), began + self._seconds
            self._below[key] = known
        return known[0]

    async def _looked_below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        search = BelowSearch(execution, privileged=privileged)
        holders = await search.aiexclude_directories(tops)
        if isinstance(holders, str):
            return holders
        above = {directory for top in tops for directory in (*_above(top), top)}
        told = {name: lines for name, lines in (await self._learn([*above, *holders], execution)).items() if lines}
        if not told:
            return ""
        found = await search.named(tops, told)
        if isinstance(found, str):
            return found
        kept = [path for path in found if _is_excluded(path, _above(path), told)]
        return f"{kept[0]} is below and excluded by an {NAME}" if kept else ""

    async def _learn(self, directories: Sequence[str], execution: ExecutionContext) -> dict[str, tuple[str, ...]]:
        """Return the patterns of each directory; they are passed on, as another call may clear the cache."""
        if len(self._known) > KEPT:
            self._known.clear()
        now = self._clock()
        remembered = {name: self._known.get((execution.identity, name)) for name in directories}
        told = {name: found.patterns for name, found in remembered.items() if found is not None and now < found.until}
        async with anyio.create_task_group() as tasks:
            for directory in remembered.keys() - told.keys():
                tasks.start_soon(self._read, directory, execution, now, told)
        return told

    async def _read(
        self, directory: str, execution: ExecutionContext, now: float, told: dict[str, tuple[str, ...]]
    ) -> None:
        told[directory] = await _patterns(posixpath.join(directory, NAME), execution)
        self._known[execution.identity, directory] = _Known(told[directory], now + self._seconds)


def _is_excluded(path: str, directories: Sequence[str], told: Mapping[str, Sequence[str]]) -> bool:
    return any(excluded(told[name], path[len(name.rstrip("/")) :]) for name in directories if name in told)


async def _patterns(path: str, execution: ExecutionContext) -> tuple[str, ...]:
    """Read the patterns of a file; a file that exists but cannot be read excludes everything."""
    try:
        content = await execution.read_file(path, limit=SIZE_LIMIT)
    except FileError:
        return EVERYTHING if await _name_is_there(path, execution) else ()
    if content.size > SIZE_LIMIT:
        return EVERYTHING
    return parse_lines(content.text)


async def _name_is_there(path: str, execution: ExecutionContext) -> bool:
    try:
        await execution.stat(path, follow=False)
    except FileError:
        return False
    return True


def _above(path: str) -> list[str]:
    """Return the directories above an absolute path, the nearest last."""
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found[::-1]


# -- The hard denials.


HOME_PLACES = (".config/harness", ".local/state/harness")
"""Directories of harness's protected files in a home."""
KEY_PLACES = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh/hosts.yml", ".docker/config.json"),
    *(".kube/config", ".password-store", ".local/share/keyrings", ".netrc", ".git-credentials", ".pgpass"),
    *(".cargo/credentials.toml", ".config/rclone/rclone.conf", ".s3cfg", ".bash_history", ".zsh_history"),
)
"""Locations of keys and passwords in a home."""
DEPTH = 256
"""Maximum directories above a path, each of which is checked for an ``.aiexclude``."""


class HardDenials:
    """The hard denials of paths.

    Args:
        settings: the permission settings.
        clock: monotonic seconds.
        protected: further local files that no call may write, such as the rule file.
        places: local directories of files that no call may write.
    """

    def __init__(
        self,
        settings: PermissionSettings,
        clock: Callable[[], float],
        protected: Iterable[str] = (),
        places: Iterable[str] = (),
    ) -> None:
        self._secrets = SecretPaths(settings.secret_paths)
        self._protected = SecretPaths((*PROTECTED, *protected), copies=False)
        self._places = tuple(places)
        self._aiexclude = AiExclude(settings.aiexclude_cache_seconds, clock)

    def hidden(self, path: str, home: str) -> str:
        """Return why a path, as written, is a secret; empty if it is not. Pure."""
        found = self._secrets.matching(path, home)
        return f"{path} is a secret ({found})" if found else ""

    def locked(self, path: str, home: str) -> str:
        """Return why this path is protected from writing; empty if it is not. Pure."""
        found = self._protected.matching(path, home)
        return f"{path} is protected from writing ({found})" if found else ""

    async def of_path(self, path: RealPath, execution: ExecutionContext, *, writes: bool) -> str:
        """Return why access to a path is a hard denial; empty if it is not.

        Args:
            path: the resolved path.
            execution: the target.
            writes: the call may write it.

        Raises:
            HarnessError: the connection was lost.
        """
        home = execution.capabilities.home
        for form in path.forms:
            hidden = "" if path.only_named else self.hidden(form, home)
            if reason := hidden or (self.locked(form, home) if writes else ""):
                return reason
        if path.only_named and not writes:
            return ""
        for form in dict.fromkeys((path.real, posixpath.normpath(path.absolute))):  # the cd of a shell follows names
            if form.count("/") > DEPTH:
                return f"it is in more than {DEPTH} directories, too many to check"
            if reason := await self._aiexclude.reason(_rooted(form), execution):
                return reason
        return ""

    async def place_below(self, path: str, execution: ExecutionContext, *, reads: bool = False) -> str:
        """Return a directory of protected files at this absolute path or below it; empty without one.

        On another machine, it is a directory of harness there, if it exists.

        Args:
            path: the absolute path.
            execution: the target.
            reads: the files below are read, so directories of keys count, too.

        Raises:
            HarnessError: the connection was lost.
        """
        home, is_here = execution.capabilities.home.rstrip("/"), execution.target.hops[-1].scheme == "local"
        near = execution.target.hops[0].scheme != "ssh"  # a program or a container may show files of this machine
        own = [*(self._places if near else ()), *(f"{home}/{place}" for place in HOME_PLACES if home)]
        keys = [f"{home}/{place}" for place in KEY_PLACES if home and reads]
        above = f"{posixpath.normpath(_rooted(path)).rstrip('/')}/"
        for place in (*own, *keys):
            is_below = f"{place}/".startswith(above)
            if is_below and ((is_here and place in own) or await _file_is_there(place, execution)):
                return place
        return ""

    async def below(self, tops: Sequence[str], execution: ExecutionContext, *, privileged: bool) -> str:
        """Return which file below some directories is excluded, or why that is unknown; empty if none is.

        Args:
            tops: the directories.
            execution: the target.
            privileged: the command may read more directories than harness.

        Raises:
            HarnessError: the connection was lost.
        """
        return await self._aiexclude.excludes_below(tops, execution, privileged=privileged)

    async def excluded(
        self, paths: Collection[str], execution: ExecutionContext, top: str, holders: Collection[str] | None
    ) -> set[str]:
        """Return the real paths that an ``.aiexclude`` excludes.

        Args:
            paths: real paths.
            execution: the target.
            top: the directory that is searched.
            holders: the directories from ``top`` on with an ``.aiexclude``; None if unknown.

        Raises:
            HarnessError: the connection was lost.
        """
        return await self._aiexclude.among(paths, execution, top, holders)


async def _file_is_there(path: str, execution: ExecutionContext) -> bool:
    try:
        await execution.stat(path)
    except FileError:
        return False
    return True


def _rooted(path: str) -> str:
    return "/" + path.lstrip("/")  # two leading slashes mean one on every target
