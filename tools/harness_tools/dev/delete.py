"""``delete``: move a file or a directory to the trash of the target."""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pydantic import AliasChoices, Field

from harness.errors import FileError
from harness.results import FileStat, ShellResult, Status
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.session.file_versions import target_path

from ..texts import Line

__all__ = [
    "Delete",
    "TrashDirectory",
    "TrashFacts",
    "facts_script",
    "info_path",
    "move_script",
    "parse_facts",
    "protection",
    "restore",
]


# -- The trash of the target: what may be moved there, its location, and the script that moves a file.
#
# The layout is that of the freedesktop trash specification: ``files/NAME`` and ``info/NAME.trashinfo``. Nothing is
# copied: the trash must be on the same file system, or another one is used.


SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys"),
    *("/usr", "/var", "/System", "/Library", "/Applications", "/private"),
)
"""These directories and their contents are never moved to the trash."""
HOMES = frozenset({"/var", "/private"})
"""System directories in which users or services may have their homes."""
TEMPORARY = ("/var/tmp", "/private/tmp", "/private/var/tmp", "/private/var/folders")  # noqa: S108  # on the target
"""Contents of these may be moved."""
TOPS = frozenset(
    {"/", "/home", "/root", "/opt", "/srv", "/tmp", "/mnt", "/media", "/Users", "/Volumes", *TEMPORARY}  # noqa: S108  # on the target
)
"""These directories themselves are never moved."""
STEM = 200
"""Maximum bytes of a name in the trash, without the number and ``.trashinfo`` after it."""
FACTS = 7
"""Number of facts that :func:`facts_script` prints."""


@dataclass(frozen=True, slots=True)
class TrashDirectory:
    """A trash directory; ``top`` is the base of its relative paths, or empty if they are absolute."""

    directory: str
    top: str = ""


@dataclass(frozen=True, slots=True)
class TrashFacts:
    """Facts about the target; ``home`` and ``state`` are real paths; ``mounted``: the path is a file system's root."""

    home: str
    state: str
    trashes: tuple[TrashDirectory, ...]
    mounted: bool
    kept: tuple[str, ...] = ()
    """All trash directories of the user, whose contents are never moved."""


def protection(path: str, places: TrashFacts) -> str:
    """Return why a real path may not be moved to the trash; empty if it may. Pure."""
    if path in TOPS or _holds(path, places.home):
        return "it is a system directory, or contains the home directory"
    for kept in (places.state, *places.kept):
        if kept and (_holds(path, kept) or _holds(kept, path)):
            return "it belongs to harness or to the trash itself, or contains it"
    if places.mounted:
        return "a file system is mounted there"
    own = places.home not in ("", "/") and _holds(places.home, path) and not _system(places.home)
    if own or any(_holds(prefix, path) for prefix in TEMPORARY):
        return ""
    found = next((prefix for prefix in SYSTEM if _holds(prefix, path)), "")
    return f"it is in {found}, which belongs to the system" if found else ""


def _system(home: str) -> bool:
    """Return whether a home is a system directory, as it is for some services."""
    return home in SYSTEM or any(_holds(prefix, home) for prefix in SYSTEM if prefix not in HOMES)


def _holds(directory: str, path: str) -> bool:
    """Return whether a path is the directory or in it."""
    return directory != "" and (path == directory or path.startswith(f"{directory.rstrip('/')}/"))


_FACTS = r"""
set -f
path=$1 state=$2
real() { (cd -P -- "$1" 2>/dev/null && printf '%sx' "$PWD"); }
if stat -c %d / 2>/dev/null | { read -r n && [ "$n" -ge 0 ]; } 2>/dev/null; then device() { stat -c %d -- "$1"; }
elif stat -f %d / 2>/dev/null | { read -r n && [ "$n" -ge 0 ]; } 2>/dev/null; then device() { stat -f %d -- "$1"; }
else device() { df -P -- "$1" | awk 'END { print $1, $NF }'; }
fi
base() { at=$1; until [ -d "$at" ]; do at=${at%/*}; at=${at:-/}; done; printf '%sx' "$at"; }
home=$(real "${HOME:-/}"); home=${home%x}
data=${XDG_DATA_HOME:-}
case $data in /*) ;; *) data=${home:+${home%/}/.local/share} ;; esac
trash=${data:+$data/Trash}
if [ -d "$trash" ]; then trash=$(real "$trash"); trash=${trash%x}; fi
if [ -d "$state" ]; then state=$(real "$state"); state=${state%x}; fi
parent=${path%/*}; parent=${parent:-/}
mine=$(device "$parent")
near() { at=$(base "$1"); [ "$(device "${at%x}")" = "$mine" ]; }
same() { [ -n "$1" ] && near "$1" && printf 1; }
top=$parent
while [ "$top" != / ]; do
  up=${top%/*}; up=${up:-/}
  [ "$(device "$up")" = "$mine" ] || break
  top=$up
done
mounted=
if [ -d "$path" ] && [ ! -L "$path" ] && [ "$(device "$path")" != "$mine" ]; then mounted=1; fi
printf '%s\0' "$home" "$trash" "$state" "$top" "$(id -u)" "$(same "$trash")$(same "$state" | sed s/1/2/)" "$mounted"
"""


def facts_script(path: str, state: str) -> str:
    """Return a script that prints the :data:`FACTS` about an absolute path without links in its directory. Pure."""
    return f"sh -c {shlex.quote(_FACTS)} sh {shlex.quote(path)} {shlex.quote(state)}"


def parse_facts(output: bytes) -> TrashFacts | None:
    """Parse the output of the script; None if it is invalid. Pure."""
    words = [word.decode("utf-8", "surrogateescape") for word in output.split(b"\0")]
    if len(words) != FACTS + 1 or not words[4].isdecimal():
        return None
    home, trash, state, top, uid, near, mounted, _ = words
    found = [TrashDirectory(trash)] if "1" in near else []
    if state and "2" in near:
        found.append(TrashDirectory(posixpath.join(state, "trash")))
    own = posixpath.join(top, f".Trash-{uid}")
    found.append(TrashDirectory(own, top))
    return TrashFacts(home, state, tuple(found), mounted == "1", (trash, own))


def info_path(path: str, place: TrashDirectory) -> str:
    """Return a path as the trash's info file contains it."""
    plain = posixpath.relpath(path, place.top) if place.top else path
    return quote(plain.encode("utf-8", "surrogateescape"), safe="/")


def _stem(path: str) -> str:
    """Return the name for a path in the trash, truncated to leave room for a suffix."""
    name = posixpath.basename(path)
    data = name.encode("utf-8", "surrogateescape")
    return name if len(data) <= STEM else data[:STEM].decode("utf-8", "ignore")


_MOVE = r"""
path=$1 trash=$2 stem=$3 named=$4 token=$5
LC_ALL=C; export LC_ALL
umask 077
parent=${path%/*}; parent=${parent:-/}
[ -e "$path" ] || [ -L "$path" ] || exit 70
[ -w "$parent" ] && [ -x "$parent" ] || exit 71
made=
leave() {
  [ -z "$made" ] || rmdir -- "$trash/files" "$trash/info" "$trash" 2>/dev/null
  exit "$1"
}
[ -e "$trash" ] || [ -L "$trash" ] || made=1
mkdir -p -- "$trash/files" "$trash/info" || leave 72
for part in "$trash" "$trash/files" "$trash/info"; do
  { [ ! -L "$part" ] && [ -O "$part" ] && [ -w "$part" ]; } || leave 72
done
probe=.hx-probe-$token
mkdir -- "$parent/$probe" || leave 71
set -- $(ls -di -- "$parent/$probe")
before=$1
if mv -- "$parent/$probe" "$trash/files/$probe" && set -- $(ls -di -- "$trash/files/$probe") && [ "$1" = "$before" ]
then rmdir -- "$trash/files/$probe"
else rmdir -- "$parent/$probe" "$trash/files/$probe" 2>/dev/null; leave 73
fi
number=1 kept=$stem
set -C
there() { [ -e "$1" ] || [ -L "$1" ]; }
claim() { ! there "$trash/files/$1" && (: >"$trash/info/$1.trashinfo") 2>/dev/null; }
until claim "$kept"; do
  there "$trash/files/$kept" || there "$trash/info/$kept.trashinfo" || leave 72
  number=$((number + 1)) kept=$stem.$number
  [ "$number" -lt 10000 ] || exit 72
done
note=$trash/info/$kept.trashinfo
printf '[Trash Info]\nPath=%s\nDeletionDate=%s\n' "$named" "$(date +%Y-%m-%dT%H:%M:%S)" | cat >|"$note" || {
  rm -f -- "$note"
  leave 72
}
if mv -- "$path" "$trash/files/$kept"; then printf '%s\0' "$kept"
else
  rm -f -- "$note"
  leave 75
fi
"""


def move_script(path: str, place: TrashDirectory, token: str) -> str:
    """Return a script that moves a path to a trash and prints its name there, followed by a NUL. Pure.

    Exit codes: 70: no such file, 71: the directory is not writable, 72: the trash is unusable, 73: it is on another
    file system after all, 75: the move failed.
    """
    words = (path, place.directory, _stem(path), info_path(path, place), token)
    return f"sh -c {shlex.quote(_MOVE)} sh {' '.join(map(shlex.quote, words))}"


def restore(path: str, place: TrashDirectory, name: str) -> str:
    """Return the command that restores a path, unless it exists again. Pure."""
    there, was = shlex.quote(f"{place.directory}/files/{name}"), shlex.quote(path)
    note = shlex.quote(f"{place.directory}/info/{name}.trashinfo")
    return f"[ ! -e {was} ] && [ ! -L {was} ] && mv -- {there} {was} && rm -- {note}"


# -- Refusing directories with files that the policy protects only at their current location.


MAX_ENTRIES = 200_000
"""Maximum names in a directory that are checked."""
SHOWN = 5
EXCLUDES = ".aiexclude"
SOME_NAME = "x"
"""Stands for the directory's name in the trash, which may get a number and then match no rule."""


async def trash_refusal(ctx: ToolContext, directory: str, trashes: Sequence[TrashDirectory]) -> ToolResult | None:
    """Return the refusal to move a directory, by its real path, because of files in it; None if there are none.

    A file that is denied because of its location (an ``.aiexclude`` above it, a rule, ``.aws/credentials``) would
    become readable in the trash; one that is denied because of its name is denied there, too.

    Raises:
        HarnessError: The check failed.
    """
    try:
        entries = await ctx.execution.walk(directory, max_entries=MAX_ENTRIES)
    except FileError as error:
        text = f"{directory} could not be checked, so it was not moved: {error.message}. Use a command"
        return ToolResult.failure("not_judged", text)
    names = [entry.name for entry in entries if entry.type != "dir"]
    holders = [posixpath.dirname(name) for name in names if posixpath.basename(name) == EXCLUDES]
    real = {posixpath.join(directory, name): name for name in names}
    locked = await ctx.unwritable_paths(list(real), tool="delete")
    around = {posixpath.normpath(posixpath.join(directory, name)) for name in holders}
    withheld = await ctx.unreadable_paths(list(real), top=directory, holders=around)
    shown = await _not_kept_back(ctx, [real[path] for path in withheld], trashes)
    staying = sorted({real[path] for path in locked} | shown)
    return _refusal(directory, staying) if staying else None


async def _not_kept_back(ctx: ToolContext, names: Collection[str], trashes: Sequence[TrashDirectory]) -> set[str]:
    """Return the files that would be readable in one of the trashes."""
    shown: set[str] = set()
    for place in trashes if names else ():
        there = {posixpath.join(place.directory, "files", SOME_NAME, name): name for name in names}
        kept = await ctx.unreadable_paths(list(there), top=place.directory, holders=())
        shown |= {name for path, name in there.items() if path not in kept}
    return shown


def _refusal(directory: str, names: Sequence[str]) -> ToolResult:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    text = (
        f"{directory} was not moved to the trash: the policy protects files in it ({', '.join(names[:SHOWN])}"
        f"{more}). Nothing was moved. Delete the other files, or ask the user"
    )
    listed: list[Json] = list(names[:SHOWN])
    return ToolResult.failure("protected", text, data={"kept": listed, "kept_count": len(names)})


# -- The tool.


LIMIT = 60.0
"""Timeout of each script in seconds; nothing is copied."""
NO_PLACE = frozenset({72, 73})
"""Exit codes of the script after which another trash may be usable."""
REASONS = {
    70: ("file_not_found", "the file no longer exists"),
    71: ("permission_denied", "its directory is not writable for the target's user"),
}


class _Arguments(MutatingArguments):
    path: Line = Field(
        description="the file or directory; of a link, the link itself",
        validation_alias=AliasChoices("path", "file", "file_path"),
    )


class Delete(Tool[_Arguments]):
    """``delete``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Move a file or a directory to the target's trash; the result says how to restore it. "
            "System directories and the home directory are refused."
        )
        super().__init__("delete", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        stat = await ctx.execution.stat(target_path(ctx, args.path), follow=False)
        places = await _places(ctx, stat.path)
        if isinstance(places, ToolResult):
            return places
        reason = protection(stat.path, places) or await _in_use(ctx, stat)
        if reason:
            text = f"{stat.path} was not moved to the trash: {reason}. Use a command if you are sure"
            return ToolResult.failure("protected", text)
        if stat.type == "dir" and (kept := await trash_refusal(ctx, stat.path, places.trashes)):
            return kept
        for place in places.trashes:
            done = await _script(ctx, move_script(stat.path, place, secrets.token_hex(8)))
            if done.exit_code not in NO_PLACE:
                return _result(ctx, stat, place, done)
        why = f" ({last})" if (last := done.stderr.strip().rpartition("\n")[2][:200]) else ""
        text = f"no usable trash directory on the file system of {stat.path}{why}. Nothing was moved"
        return ToolResult.failure("no_trash", text)


async def _in_use(ctx: ToolContext, stat: FileStat) -> str:
    """Return that the session's directory is in it, or empty if it is not: later calls would fail."""
    if stat.type != "dir" or ctx.cwd is None:
        return ""
    try:
        here = (await ctx.execution.stat(ctx.cwd)).path
    except FileError:
        return ""
    return "this session works in it" if f"{here}/".startswith(f"{stat.path.rstrip('/')}/") else ""


async def _script(ctx: ToolContext, script: str) -> ShellResult:
    return await ctx.execution.run_helper(script, cwd="/", timeout=LIMIT)


async def _places(ctx: ToolContext, path: str) -> TrashFacts | ToolResult:
    done = await _script(ctx, facts_script(path, ctx.execution.capabilities.state_dir))
    places = parse_facts(done.stdout_bytes) if done.ok else None
    why = done.stderr.strip()[:200] or done.status
    text = f"the trash of the target could not be located ({why}). Nothing was moved"
    return places or ToolResult.failure("no_trash", text)


def _result(ctx: ToolContext, stat: FileStat, place: TrashDirectory, done: ShellResult) -> ToolResult:
    if done.status is not Status.COMPLETED:
        text = f"whether {stat.path} was moved to {place.directory} is unknown: check before you retry"
        return ToolResult.failure("unknown", text)
    if not done.ok:
        code, reason = REASONS.get(done.exit_code or 0, ("not_moved", done.stderr.strip()[:200] or "mv failed"))
        return ToolResult.failure(code, f"{stat.path} was not moved: {reason}")
    ctx.reads.forget(stat.path)
    name = done.stdout.removesuffix("\0")
    back = restore(stat.path, place, name)
    facts: Json = {
        "path": stat.path,
        "type": stat.type,
        "trash_path": f"{place.directory}/files/{name}",
        "info": f"{place.directory}/info/{name}.trashinfo",
        "restore": back,
    }
    text = f"Moved {stat.path} to {place.directory}/files/{name}\nTo restore it: {back}"
    return ToolResult.of(text, data=facts)
