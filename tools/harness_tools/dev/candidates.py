"""The files below a directory that may hold a text: one script on the target, or its files one by one."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.errors import ToolError
from harness.results import Status
from harness.toolkit import ToolContext

__all__ = ["FILE_LIMIT", "NOT_ENTERED", "Candidates", "candidates_in", "candidates_script", "read_candidates"]

NOT_ENTERED = (".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS", "node_modules")
"""Directories below the one that is named whose files are never changed: they belong to programs."""
FILE_LIMIT = 16 << 20
"""Bytes of a file that is changed."""
SECONDS = 120.0
ANSWER = 24 << 20
"""Bytes of names and contents."""
INLINE = 256 << 10
"""Bytes of a file that comes with its name."""
_CLASSES = (
    'for f do s=$(wc -c <"$f") 2>/dev/null || { printf "U%s\\0" "$f"; continue; }; '
    'if [ "$s" -le "$I" ]; then printf "T%s\\0%s\\0" "$f" "$s"; tr -d "\\000" <"$f"; printf "\\0"; '
    f'elif [ "$s" -gt {FILE_LIMIT} ]; then printf "Z%s\\0" "$f"; '
    'elif [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ]; then printf "B%s\\0" "$f"; '
    'else printf "F%s\\0" "$f"; fi; done'
)
"""A content comes without its NULs, so that one ends it; when it had some it is shorter than its size, which comes
before it. What was changed at this moment is another version when it is written."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Names relative to the directory. ``unreadable`` counts what could not be looked into.

    ``texts`` are the contents of small files, where they came with the names.
    """

    names: tuple[str, ...]
    binary: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    unreadable: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict)


def candidates_script(part: bytes, ending: str, *, folds: bool, recursive: bool, inline: int = 0) -> str:
    """The script, for the directory in which it runs: names behind a letter, and ``E`` at the end. Pure.

    Args:
        part: a text of one line that the files hold, empty for any.
        ending: how their names end.
        inline: files of up to so many bytes come with their content, but for empty ones.
    """
    flags = "-F -i" if folds else "-F"
    names = " -o ".join(f"-name {shlex.quote(name)}" for name in NOT_ENTERED)
    rough = "".join("?" if char in "*?[]\\" else char for char in ending)
    files = f"-type f -name {shlex.quote('*' + rough)}" if ending else "-type f"
    tree = f"\\( -type d \\( {names} \\) -prune \\) -o {files} -print0" if recursive else f"-prune {files} -print0"
    one = f'for f do if grep -q {flags} -e "$L" -- "$f"; then printf "%s\\0" "$f"; fi; done'
    text = part.decode("utf-8", "surrogateescape")
    return f"""\
LC_ALL=C; export LC_ALL; unset GREP_OPTIONS CDPATH
L={shlex.quote(text)} I={inline}; export L I
null=; grep -c --null -e x -- /dev/null >/dev/null 2>&1; [ $? -eq 1 ] && null=1
holding() {{
  if [ -z "$L" ]; then cat
  elif [ -n "$null" ]; then xargs -0 grep -l --null {flags} -e "$L" -- /dev/null
  else xargs -0 sh -c {shlex.quote(one)} sh; fi
}}
find . ! -name . {tree} | holding | xargs -0 sh -c {shlex.quote(_CLASSES)} sh
printf 'E\\0'"""


def read_candidates(output: bytes, complaints: bytes, ending: str) -> Candidates | None:
    """What the script told; None when it did not come to its end. Pure."""
    frames = output.split(b"\0")
    if len(frames) < 2 or frames[-2:] != [b"E", b""]:
        return None
    kinds: dict[bytes, list[str]] = {b"F": [], b"B": [], b"Z": [], b"U": [], b"T": []}
    texts: dict[str, bytes] = {}
    following = iter(frames[:-2])
    for frame in following:
        kind, name = frame[:1], frame[1:].removeprefix(b"./").decode("utf-8", "surrogateescape")
        if kind == b"T":
            size, text = next(following, b"").strip(), next(following, b"")
            kind = b"B" if size.isdigit() and len(text) < int(size) else kind
            texts |= {name: text} if kind == b"T" and name.endswith(ending) else {}
        if name.endswith(ending):
            kinds.setdefault(kind, []).append(name)
    unreadable = len(kinds[b"U"]) + complaints.count(b"ermission denied")
    names = sorted([*kinds[b"F"], *kinds[b"T"]])
    return Candidates(tuple(names), tuple(sorted(kinds[b"B"])), tuple(sorted(kinds[b"Z"])), unreadable, texts)


async def candidates_in(
    ctx: ToolContext, directory: str, part: bytes, ending: str, *, folds: bool, recursive: bool
) -> Candidates:
    """The files of a directory, by its real path.

    Raises:
        FileError: without programs for it on the target, the directory cannot be read.
        ToolError: it took too long, or there are too many.
    """
    if not all(ctx.execution.capabilities.has(program) for program in ("find", "grep")):
        return await _listed(ctx, directory, ending, recursive=recursive)
    for inline in (INLINE, 0):
        script = candidates_script(part, ending, folds=folds, recursive=recursive, inline=inline)
        done = await ctx.execution.run_beside(script, cwd=directory, timeout=SECONDS, max_output=ANSWER)
        if not done.truncated:
            break
    if done.status is Status.COMPLETED and not done.truncated:
        found = read_candidates(done.stdout_bytes, done.stderr_bytes, ending)
        if found is not None:
            return found
    why = "took too long" if done.status is Status.TIMED_OUT else "did not come to its end"
    why = "found too many files" if done.truncated else why
    raise ToolError(f"the search of {directory} {why}; nothing was changed", hint="name a smaller directory, or files")


async def _listed(ctx: ToolContext, directory: str, ending: str, *, recursive: bool) -> Candidates:
    """All files, whatever is in them."""
    if recursive:
        entries = await ctx.execution.walk(directory)
    else:
        entries = await ctx.execution.list_dir(directory)
    names = (entry.name for entry in entries if entry.type == "file" and entry.name.endswith(ending))
    return Candidates(tuple(name for name in names if not _is_inside(name.split("/")[:-1])))


def _is_inside(parents: Iterable[str]) -> bool:
    return any(posixpath.basename(parent) in NOT_ENTERED for parent in parents)
