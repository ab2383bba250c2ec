"""Skills: instructions of the operator, found in directories and loaded on demand."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ...errors import HarnessError
from ..operator_files import (
    FileRefusedError,
    FrontMatterError,
    Origin,
    operator_directories,
    read_operator_file,
    split_front_matter,
)
from ..operator_files import (
    OperatorDirectory as SkillRoot,
)

__all__ = [
    "FrontMatter",
    "Skill",
    "SkillError",
    "SkillFile",
    "SkillInfo",
    "SkillLibrary",
    "SkillList",
    "SkillRoot",
    "digest_of",
    "skill_roots",
    "split_front",
]


# -- The front matter of a ``SKILL.md``.


class SkillError(HarnessError):
    """A skill does not exist or cannot be used."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The name and the description; other keys are ignored."""

    name: str
    description: str


def split_front(data: bytes) -> tuple[FrontMatter, str]:
    """Return the front matter of a ``SKILL.md``, and the text below it. Pure.

    Raises:
        SkillError: the front matter is missing or invalid.
    """
    try:
        found = split_front_matter(data, "SKILL.md")
        return FrontMatter(found.text("name"), found.description()), found.body
    except FrontMatterError as error:
        raise SkillError(error.message, hint=error.hint) from error


# -- Skills: directories on this machine with instructions for an agent and the files that these need.
#
# A directory ``NAME`` contains ``SKILL.md``: a YAML front matter with ``name`` (the directory's) and ``description``,
# then the instructions. The agent reads its other files, or they are uploaded to the target. Skills are in ``skills/``
# next to the user's settings, and in ``.harness/skills/`` of the current directory if that is trusted: agents follow
# them with the operator's rights.


FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
TEXT_LIMIT = 40 << 10
"""Maximum bytes of ``SKILL.md``: it must fit into one result, because incomplete instructions are different ones."""
FILES_LIMIT = 100
SIZE_LIMIT = 10 << 20
"""Maximum bytes of all files of a skill."""
DEPTH_LIMIT = 8
SKILLS_LIMIT = 200


@dataclass(frozen=True, slots=True)
class SkillInfo:
    """A skill before it is loaded."""

    name: str
    description: str
    origin: Origin
    directory: Path


@dataclass(frozen=True, slots=True)
class SkillList:
    """The skills by name, and one sentence for each that cannot be used."""

    skills: tuple[SkillInfo, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkillFile:
    """An additional file of a skill; ``path`` is relative to the skill's directory."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill's instructions and its other files. ``left_out`` are symbolic links and other non-regular files."""

    info: SkillInfo
    body: str
    files: tuple[SkillFile, ...] = ()
    left_out: tuple[str, ...] = ()


def skill_roots() -> tuple[SkillRoot, ...]:
    """Return the user's directory, and the current directory's if it is trusted; the first one with a name wins.

    Raises:
        ConfigError: the settings cannot be read, so it is unknown which directories are trusted.
    """
    return tuple(root for root in operator_directories("skills") if root.trusted)


class SkillLibrary:
    """The skills of this machine, read again on each use. Everything blocks.

    Args:
        roots: returns the directories.
    """

    def __init__(self, roots: Callable[[], Sequence[SkillRoot]] = skill_roots) -> None:
        self._roots = roots

    def list(self) -> SkillList:
        """Return all skills; an invalid one does not affect the others."""
        found: dict[str, SkillInfo] = {}
        problems: list[str] = []
        try:
            roots = tuple(self._roots())
        except (HarnessError, OSError, RuntimeError) as error:  # no home directory, or a deleted working directory
            return SkillList(problems=(f"the skills are unknown: {error}",))
        for root in roots:
            for directory in _folders(root, problems):
                try:
                    info = _info(directory, root.origin)[0]
                except SkillError as error:
                    problems.append(f"{directory}: {error}")
                    continue
                if info.name in found:
                    problems.append(
                        f"{directory}: a skill of that name is already in {found[info.name].directory.parent}"
                    )
                found.setdefault(info.name, info)
        return SkillList(tuple(found[name] for name in sorted(found)), tuple(problems))

    def load(self, name: str) -> Skill:
        """Return a skill with its instructions.

        Raises:
            SkillError: it does not exist or cannot be used.
        """
        info = self._find(name)
        info, body = _info(info.directory, info.origin)
        files, left_out = _files(info.directory)
        return Skill(info, body, files, left_out)

    def read(self, skill: Skill, path: str) -> bytes:
        """Return the content of one of the skill's files.

        Raises:
            SkillError: the skill has no such file, or the file cannot be read.
        """
        if path not in {file.path for file in skill.files}:
            close = get_close_matches(path, [file.path for file in skill.files], n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"it has {len(skill.files)} files"
            raise SkillError(f"{skill.info.name} has no file {path!r}; {advice}")
        return _read(skill.info.directory / path, SIZE_LIMIT)

    def _find(self, name: str) -> SkillInfo:
        known = self.list()
        for info in known.skills:
            if info.name == name:
                return info
        names = [info.name for info in known.skills]
        close = get_close_matches(name, names, n=1)
        wrong = next((problem for problem in known.problems if f"/{name}: " in problem), "")
        there_are = f"there are: {', '.join(names)}" if names else "there are none"
        advice = f"did you mean {close[0]!r}?" if close else there_are
        raise SkillError(wrong or f"unknown skill {name!r}; {advice}")


def digest_of(contents: Iterable[tuple[SkillFile, bytes]]) -> str:
    """Return a short hash of exactly these files. Pure."""
    found = hashlib.sha256()
    for file, data in contents:
        found.update(f"{file.path}\0{file.executable}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return found.hexdigest()[:12]


def _folders(root: SkillRoot, problems: list[str]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(root.directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{root.directory}: {error.strerror or error}")
        return
    folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    linked = [entry.path for entry in entries if entry.is_symlink() and entry.is_dir()]
    problems += [f"{path}: symbolic links are not followed; move the directory itself there" for path in linked]
    if len(folders) > SKILLS_LIMIT:
        problems.append(f"{root.directory}: only the first {SKILLS_LIMIT} of {len(folders)} skills are used")
    yield from folders[:SKILLS_LIMIT]


def _info(directory: Path, origin: Origin) -> tuple[SkillInfo, str]:
    """Return a skill's front matter and its instructions.

    Raises:
        SkillError: it cannot be used.
    """
    if not NAME.fullmatch(directory.name):
        raise SkillError("its name must consist of lower-case letters, digits, - and _, at most 64")
    front, body = split_front(_read(directory / FILE, TEXT_LIMIT))
    if front.name != directory.name:
        raise SkillError(f"{FILE} has the name {front.name!r}, which differs from the directory's name")
    return SkillInfo(front.name, front.description, origin, directory), body


def _read(path: Path, limit: int) -> bytes:
    """Read a file that only its owner can have written: agents follow it with the operator's rights."""
    try:
        return read_operator_file(path, limit)
    except FileRefusedError as error:
        raise SkillError(error.message) from error


def _files(directory: Path) -> tuple[tuple[SkillFile, ...], tuple[str, ...]]:
    """Return the regular files below a directory except its instructions, and everything else there."""
    found: list[SkillFile] = []
    left_out: list[str] = []
    for path, info in _below(directory, "", DEPTH_LIMIT):
        if info is None or not stat.S_ISREG(info.st_mode) or not path.isprintable():
            left_out.append(path)
        elif path != FILE:
            found.append(SkillFile(path, info.st_size, bool(info.st_mode & stat.S_IXUSR)))
    if len(found) > FILES_LIMIT:
        raise SkillError(f"it has more than {FILES_LIMIT} files")
    if sum(file.size for file in found) > SIZE_LIMIT:
        raise SkillError(f"its files are larger than {SIZE_LIMIT} bytes together")
    return tuple(found), tuple(left_out[:FILES_LIMIT])


def _below(directory: Path, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield everything but directories, by path; a directory that is too deep or unreadable has no ``stat`` result."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        yield prefix.rstrip("/"), None
        return
    for entry in entries[: 10 * FILES_LIMIT]:
        path = f"{prefix}{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield path, _state(entry)
        elif depth:
            yield from _below(Path(entry.path), f"{path}/", depth - 1)
        else:
            yield path, None


def _state(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
