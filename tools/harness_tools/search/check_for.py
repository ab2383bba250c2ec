"""``checkfor``: find a text in the files of directories, without their subdirectories."""

from __future__ import annotations

import bisect
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.errors import FileError, FileNotFound, PermissionDenied
from harness.patterns.wildcards import rough_name
from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm
from harness.wording import counted

from ..texts import Line, PathText, SomeContent, Word, readable_name
from .entries import ALL_BYTES, FILE_BYTES, Contents, fetch, fetch_words, take_frame
from .grep import clipped
from .replies import LIMIT, absolute, ask, can_search, count_fitting, frames_of, plain, shown_path, text_of
from .tree_scripts import NO_ENGINE, needs

__all__ = [
    "Checkfor",
    "Literal",
    "find_hits",
]


# -- Fetching the files directly in some directories that may contain a text, with one script.


REASONS = {
    "missing": ("file_not_found", "no such file or directory"),
    "denied": ("permission_denied", "permission denied"),
    "directory": ("not_a_directory", "it is not a directory; pass it as file"),
    "file": ("not_a_file", "it is not a file; pass it as dir"),
}


@dataclass(slots=True)
class SearchRoot:
    """A requested directory or file, its absolute path, and its contents.

    ``refusal``: why it could not be searched; empty if it was.
    """

    given: str
    path: str
    is_dir: bool
    real: str = ""
    contents: Contents = field(default_factory=Contents)
    refusal: str = ""

    @property
    def code(self) -> str:
        """The error code of the refusal."""
        return REASONS[self.refusal][0]

    @property
    def reason(self) -> str:
        """The refusal as text."""
        return REASONS[self.refusal][1]


def check_script(places: Sequence[SearchRoot], part: str, ext: str | None, *, folds: bool) -> str:
    """Return the script: it prints ``D`` for each root, then ``X`` and a reason, or ``R``, the path and contents. Pure.

    Args:
        part: A text of one line that the files must contain; empty for any.
    """
    flags = "-F -i" if folds else "-F"
    one = f'for f do if grep -q {flags} -e "$L" -- "$f"; then printf "%s\\0" "$f"; fi; done'
    looks = "\n".join(_look(place, ext) for place in places)
    return f"""\
{needs("find", "grep", "head", "tr", "wc", "xargs")}\
find / -prune -print0 >/dev/null 2>&1 || {{ printf 'Xengine\\0'; exit 0; }}
LC_ALL=C; export LC_ALL; unset GREP_OPTIONS CDPATH
L={shlex.quote(part)}; export L
null=; grep -c --null -e x -- /dev/null >/dev/null 2>&1; [ $? -eq 1 ] && null=1
holding() {{
  if [ -z "$L" ]; then cat
  elif [ -n "$null" ]; then xargs -0 grep -l --null {flags} -e "$L" -- /dev/null
  else xargs -0 sh -c {shlex.quote(one)} sh; fi
}}
contents() {{ holding | xargs -0 {fetch_words()}; }}
refuse() {{ if [ ! -e "$1" ]; then printf 'Xmissing\\0'; else printf 'X%s\\0' "$2"; fi; }}
{{ {looks}
}} 2>/dev/null | head -c {ALL_BYTES}"""


def _look(place: SearchRoot, ext: str | None) -> str:
    path = shlex.quote(place.path)
    if place.is_dir:
        names = f" -name {shlex.quote('*' + rough_name(ending_of(ext)))}" if ext else ""
        return f"""\
printf 'D\\0'
if [ ! -d {path} ]; then refuse {path} directory
elif ! [ -r {path} ] || ! [ -x {path} ]; then printf 'Xdenied\\0'
else ( cd -P {path} && printf 'R%s\\0' "$PWD" && find . ! -name . -prune -type f{names} -print0 | contents ); fi"""
    directory, name = shlex.quote(posixpath.dirname(place.path) or "/"), shlex.quote(f"./{_last(place.path)}")
    return f"""\
printf 'D\\0'
if [ ! -f {path} ]; then refuse {path} file
elif [ ! -r {path} ]; then printf 'Xdenied\\0'
else ( cd -P {directory} && printf 'R%s\\0' "$PWD" && printf '%s\\0' {name} | contents ); fi"""


def _last(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def ending_of(ext: str) -> str:
    """Return the ending with its dot, which may be omitted."""
    return ext if ext.startswith(".") else f".{ext}"


def read_places(output: bytes, places: Sequence[SearchRoot]) -> None:
    """Store the script's output in the roots."""
    waiting = list(places)
    place = waiting[0]
    frames = frames_of(output)
    is_cut = len(output) >= ALL_BYTES
    for frame in frames:
        if frame == b"D":
            place = waiting.pop(0)
        elif frame.startswith(b"X"):
            place.refusal = text_of(frame[1:])
        elif frame.startswith(b"R"):
            place.real = text_of(frame[1:])
        else:
            take_frame(place.contents, frame, frames)
    place.contents.is_cut = is_cut


async def search_locally(ctx: ToolContext, place: SearchRoot, ext: str | None) -> None:
    """Search without programs of the target."""
    try:
        if place.is_dir:
            entries = await ctx.execution.list_dir(place.path)
            names = [entry.name for entry in entries if entry.type == "file"]
            place.real = (await ctx.execution.stat(place.path)).path
        else:
            place.real, names = posixpath.dirname(place.path), [_last(place.path)]
            await ctx.execution.stat(place.path)
    except FileNotFound:
        place.refusal = "missing"
    except PermissionDenied:
        place.refusal = "denied"
    except FileError:
        place.refusal = "directory" if place.is_dir else "file"
    else:
        wanted = [name for name in names if not place.is_dir or ext is None or name.endswith(ending_of(ext))]
        encoded = [b"./" + name.encode("utf-8", "surrogateescape") for name in wanted]
        place.contents = await fetch(ctx, place.real, encoded)


# -- Finding a text in contents: exact or case-insensitive, across line ends of any kind. Pure.


WORD = b"[A-Za-z0-9_]"


@dataclass(frozen=True, slots=True)
class LiteralMatch:
    """A match: its line numbers, from 1, and the lines around it, without line ends."""

    line: int
    end_line: int
    text: str
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A text to find; ``part`` is a text of one line that each file with a match contains, for ``grep -F``."""

    expression: re.Pattern[bytes]
    part: str

    @classmethod
    def of(cls, text: str, *, folds: bool, whole_word: bool) -> Literal:
        """Compile a text; the expression has one way to match at each position, so searching is linear."""
        body = b"".join(_letter(char, folds=folds) for char in text.replace("\r\n", "\n"))
        whole = b"(?<!%s)%s(?!%s)" % (WORD, body, WORD) if whole_word else body
        lines = text.replace("\r\n", "\n").split("\n")
        parts = [part for line in lines for part in (re.split(r"[^\x01-\x7f]+", line) if folds else [line])]
        return cls(re.compile(whole), max(parts, key=len))


def _letter(char: str, *, folds: bool) -> bytes:
    if char == "\n":
        return rb"\r?\n"
    forms = [form for form in dict.fromkeys((char, char.lower(), char.upper())) if len(form) == 1] if folds else [char]
    encoded = [re.escape(form.encode("utf-8", "surrogateescape")) for form in forms]
    return encoded[0] if len(encoded) == 1 else b"(?:" + b"|".join(encoded) + b")"


def find_hits(literal: Literal, content: bytes, context: int = 0) -> list[LiteralMatch]:
    """Return the matches, one for each line in which one starts."""
    starts = [0, *(match.end() for match in re.finditer(rb"\n", content))]
    found: list[LiteralMatch] = []
    for match in literal.expression.finditer(content):
        first, last = _line(starts, match.start()), _line(starts, max(match.end() - 1, match.start()))
        if not found or found[-1].line != first + 1:
            found.append(_hit(content, starts, first, last, context))
    return found


def _line(starts: list[int], at: int) -> int:
    return bisect.bisect_right(starts, at) - 1


def _hit(content: bytes, starts: list[int], first: int, last: int, context: int) -> LiteralMatch:
    count = len(starts) - (starts[-1] == len(content))

    def line(number: int) -> bytes:
        end = starts[number + 1] if number + 1 < len(starts) else len(content)
        return content[starts[number] : end].removesuffix(b"\n").removesuffix(b"\r")

    text = "\n".join(text_of(line(number)) for number in range(first, last + 1))
    before = tuple(line(number) for number in range(max(0, first - context), first))
    after = tuple(line(number) for number in range(last + 1, min(count, last + 1 + context)))
    return LiteralMatch(first + 1, last + 1, text, before, after)


# -- The tool.


DESCRIPTION = """\
Find an exact text in the files directly in some directories of the target, or in some files. The text may have \
several lines. For regular expressions and subdirectories, use grep."""
FILES = "(files)"
MAX_MATCHES = 50


class _Arguments(Arguments):
    search: Annotated[SomeContent, Field(max_length=10_000)] = Field(
        description="the text; a newline matches any line end"
    )
    dir: tuple[PathText, ...] = Field(
        (),
        description="directories; without them and without files, the current one",
        validation_alias=AliasChoices("dir", "dirs", "path", "directory"),
        max_length=MAX_MATCHES,
    )
    file: tuple[PathText, ...] = Field(
        (), description="files", validation_alias=AliasChoices("file", "files"), max_length=MAX_MATCHES
    )
    ext: Line | None = Field(
        None, description="in directories, only files with this ending, such as .go", max_length=100
    )
    case_insensitive: bool = Field(False, description="ignore case")
    whole_word: bool = Field(False, description="no ASCII letter, digit or _ on either side")
    context: int = Field(0, ge=0, le=50, description="lines before and after each match")
    exclude: tuple[Word, ...] = Field((), description="skip lines that contain one of these texts", max_length=100)
    max_results: int = Field(200, ge=1, le=1_000, description="the others are counted")

    @field_validator("search")
    @classmethod
    def _text(cls, search: str) -> str:
        if "\0" in search or not search.strip("\r\n"):
            raise ValueError("it must contain more than line ends, and no NUL")
        search.encode("utf-8", "surrogateescape")
        return search

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories to search."""
        return self.dir or (() if self.file else (".",))


class Checkfor(Tool[_Arguments]):
    """``checkfor``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=90.0,
            limit=LIMIT,
            packs=("search", "dev"),
        )
        super().__init__("checkfor", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return tuple(Subject("read", path) for path in (*args.directories, *args.file))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        literal = Literal.of(args.search, folds=args.case_insensitive, whole_word=args.whole_word)
        places = await _looked(args, ctx, literal)
        if len(places) == 1 and places[0].refusal:
            return ToolResult.failure(places[0].code, f"{places[0].given}: {places[0].reason}")
        for place in places:
            await _leave_out_secrets(ctx, place)
        found = await to_thread.run_sync(_in_files, args, literal, places)
        return _result(args, places, found, ctx.shown)


async def _looked(args: _Arguments, ctx: ToolContext, literal: Literal) -> list[SearchRoot]:
    wanted = [(path, await absolute(ctx, path), True) for path in args.directories]
    wanted += [(path, await absolute(ctx, path), False) for path in args.file]
    places = [SearchRoot(given, path, is_dir=is_dir) for given, path, is_dir in wanted]
    if can_search(ctx, "find", "grep"):
        script = check_script(places, literal.part, args.ext, folds=args.case_insensitive)
        output = await ask(ctx, script)
        if output != NO_ENGINE:
            read_places(output, places)
            return places
    for place in places:
        await search_locally(ctx, place, args.ext)
    return places


async def _leave_out_secrets(ctx: ToolContext, place: SearchRoot) -> None:
    """Remove files that the policy denies: their number would tell whether they contain the text."""
    contents = place.contents
    found = [*contents.texts, *contents.binary, *contents.large, *contents.unreadable]
    names = {posixpath.normpath(posixpath.join(place.real, plain(name))): name for name in found}
    place.contents = contents.without({names[path] for path in await ctx.unreadable_paths(list(names), top=place.real)})


@dataclass(frozen=True, slots=True)
class _FileMatches:
    place: SearchRoot
    name: str
    hits: list[LiteralMatch]
    filtered: int

    @property
    def shown(self) -> str:
        """The path, as other tools accept it."""
        return shown_path(self.place.given, self.name) if self.place.is_dir else self.place.given


def _in_files(args: _Arguments, literal: Literal, places: list[SearchRoot]) -> list[_FileMatches]:
    found = []
    for place in places:
        for name in sorted(place.contents.texts):
            hits = find_hits(literal, place.contents.texts[name], args.context)
            kept = [hit for hit in hits if not any(text in hit.text for text in args.exclude)]
            if hits:
                found.append(_FileMatches(place, plain(name), kept, len(hits) - len(kept)))
    return found


def _first_hits(found: list[_FileMatches], most: int) -> list[_FileMatches]:
    shown: list[_FileMatches] = []
    for one in found:
        shown.append(replace(one, hits=one.hits[:most]))
        most -= len(shown[-1].hits)
    return shown


def _result(args: _Arguments, places: list[SearchRoot], found: list[_FileMatches], form: ShownForm) -> ToolResult:
    total = sum(len(one.hits) for one in found)
    shown = _first_hits(found, args.max_results)
    texts = ["\n".join(_lines(readable_name(one.shown), hit)) for one in shown for hit in one.hits]
    shown = _first_hits(shown, count_fitting(texts, form))
    dropped = total - sum(len(one.hits) for one in shown)
    lines = [line for one in shown for hit in one.hits for line in _lines(readable_name(one.shown), hit)]
    notes = _notes(args, places, found)
    if dropped:
        notes.insert(0, f"{dropped} more of {counted(total, 'match')} are not shown; narrow the search")
    if not total:
        notes.insert(0, "no match; files denied by the policy are not searched" if args.directories else "no match")
    data: dict[str, Json] = {
        "directories": [_group(args, name, shown) for name in dict.fromkeys(map(_group_name, shown))],
        "count": total,
        "dropped": dropped,
        "not_searched": [{"path": place.given, "reason": place.refusal} for place in places if place.refusal],
        "skipped": _skipped(places),
    }
    return ToolResult.of("\n".join([*lines, *(f"[{note}]" for note in notes)]), data=data, metadata={"count": total})


def _group_name(one: _FileMatches) -> str:
    return one.place.given if one.place.is_dir else FILES


def _group(args: _Arguments, name: str, shown: list[_FileMatches]) -> Json:
    members = [one for one in shown if _group_name(one) == name]
    count, filtered = sum(len(one.hits) for one in members), sum(one.filtered for one in members)
    group: dict[str, Json] = {"dir": name, "matches_found": count}
    if args.exclude:
        group |= {"original_matches": count + filtered, "filtered_matches": filtered}
    files: list[Json] = [
        {"file": one.name if one.place.is_dir else one.place.given, "matches": [_fact(args, hit) for hit in one.hits]}
        for one in members
        if one.hits
    ]
    return {**group, "files": files}


def _fact(args: _Arguments, hit: LiteralMatch) -> Json:
    fact: dict[str, Json] = {"line": hit.line, "content": clipped(hit.text.encode("utf-8", "surrogateescape"))}
    if hit.end_line != hit.line:
        fact["end_line"] = hit.end_line
    if args.context:
        fact["context_before"] = [clipped(line) for line in hit.before]
        fact["context_after"] = [clipped(line) for line in hit.after]
    return fact


def _lines(path: str, hit: LiteralMatch) -> Iterator[str]:
    first = hit.line - len(hit.before)
    for number, line in enumerate(hit.before, first):
        yield f"{path}-{number}-{clipped(line)}"
    for number, text in enumerate(hit.text.split("\n"), hit.line):
        yield f"{path}:{number}:{clipped(text.encode('utf-8', 'surrogateescape'))}"
    for number, line in enumerate(hit.after, hit.end_line + 1):
        yield f"{path}-{number}-{clipped(line)}"


def _skipped(places: list[SearchRoot]) -> dict[str, Json]:
    contents = [place.contents for place in places]
    return {
        "binary": sum(len(one.binary) for one in contents),
        "large": sum(len(one.large) for one in contents),
        "unreadable": sum(len(one.unreadable) for one in contents),
    }


def _notes(args: _Arguments, places: list[SearchRoot], found: list[_FileMatches]) -> list[str]:
    skipped = _skipped(places)
    notes = [f"{place.given}: {place.reason}" for place in places if place.refusal]
    if args.exclude:
        notes.append(f"{counted(sum(one.filtered for one in found), 'match')} excluded")
    if skipped["large"]:
        notes.append(
            f"{skipped['large']} with the text are larger than {FILE_BYTES >> 20} MiB and were not searched; use grep"
        )
    if skipped["unreadable"]:
        notes.append(f"{skipped['unreadable']} could not be read")
    if any(place.contents.is_cut for place in places):
        notes.append("too much to search: the rest was not searched; name fewer files, or use grep")
    return notes
