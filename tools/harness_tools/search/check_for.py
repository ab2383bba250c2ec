"""``checkfor``: a text in the files of directories, without those below them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm

from ..texts import Line, SomeContent, readable_name
from .checkscripts import Place, check_script, look_here, read_places
from .contents import FILE_BYTES
from .frames import plain
from .grepresults import clipped
from .literals import Hit, Literal, find_hits
from .notes import LIMIT, count_fitting, plural, shown_path
from .target import absolute, ask, can_search
from .treescripts import NO_ENGINE
from .words import PathText, Word

__all__ = ["Checkfor"]

DESCRIPTION = """\
Find a text, exactly as it is, in the files that are directly in some directories of the target, or in some files. \
The text may have several lines. For expressions, and for directories below, use grep."""
FILES = "(files)"
MOST_PLACES = 50


class _Arguments(Arguments):
    search: Annotated[SomeContent, Field(max_length=10_000)] = Field(
        description="the text; a newline in it is a line's end"
    )
    dir: tuple[PathText, ...] = Field(
        (),
        description="directories; without them and without files, the current one",
        validation_alias=AliasChoices("dir", "dirs", "path", "directory"),
        max_length=MOST_PLACES,
    )
    file: tuple[PathText, ...] = Field(
        (), description="files", validation_alias=AliasChoices("file", "files"), max_length=MOST_PLACES
    )
    ext: Line | None = Field(
        None, description="of directories only files with this ending, such as .go", max_length=100
    )
    case_insensitive: bool = Field(False, description="letters of either case are the same")
    whole_word: bool = Field(False, description="no ASCII letter, digit or _ on either side")
    context: int = Field(0, ge=0, le=50, description="lines before and after each match")
    exclude: tuple[Word, ...] = Field((), description="no lines that hold one of these texts", max_length=100)
    max_results: int = Field(200, ge=1, le=1_000, description="the others are counted")

    @field_validator("search")
    @classmethod
    def _text(cls, search: str) -> str:
        if "\0" in search or not search.strip("\r\n"):
            raise ValueError("a text without NUL, and of more than the ends of lines")
        search.encode("utf-8", "surrogateescape")
        return search

    @property
    def directories(self) -> tuple[str, ...]:
        """Those to search in."""
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


async def _looked(args: _Arguments, ctx: ToolContext, literal: Literal) -> list[Place]:
    wanted = [(path, await absolute(ctx, path), True) for path in args.directories]
    wanted += [(path, await absolute(ctx, path), False) for path in args.file]
    places = [Place(given, path, is_dir=is_dir) for given, path, is_dir in wanted]
    if can_search(ctx, "find", "grep"):
        script = check_script(places, literal.part, args.ext, folds=args.case_insensitive)
        output = await ask(ctx, script)
        if output != NO_ENGINE:
            read_places(output, places)
            return places
    for place in places:
        await look_here(ctx, place, args.ext)
    return places


async def _leave_out_secrets(ctx: ToolContext, place: Place) -> None:
    """Take out what the policy keeps back. How many files that is would say whether the text is in them."""
    contents = place.contents
    found = [*contents.texts, *contents.binary, *contents.large, *contents.unreadable]
    names = {posixpath.normpath(posixpath.join(place.real, plain(name))): name for name in found}
    place.contents = contents.without({names[path] for path in await ctx.withheld(list(names), top=place.real)})


@dataclass(frozen=True, slots=True)
class _InFile:
    place: Place
    name: str
    hits: list[Hit]
    filtered: int

    @property
    def shown(self) -> str:
        """The path, as it may be given to another tool."""
        return shown_path(self.place.given, self.name) if self.place.is_dir else self.place.given


def _in_files(args: _Arguments, literal: Literal, places: list[Place]) -> list[_InFile]:
    found = []
    for place in places:
        for name in sorted(place.contents.texts):
            hits = find_hits(literal, place.contents.texts[name], args.context)
            kept = [hit for hit in hits if not any(text in hit.text for text in args.exclude)]
            if hits:
                found.append(_InFile(place, plain(name), kept, len(hits) - len(kept)))
    return found


def _first_hits(found: list[_InFile], most: int) -> list[_InFile]:
    shown: list[_InFile] = []
    for one in found:
        shown.append(replace(one, hits=one.hits[:most]))
        most -= len(shown[-1].hits)
    return shown


def _result(args: _Arguments, places: list[Place], found: list[_InFile], form: ShownForm) -> ToolResult:
    total = sum(len(one.hits) for one in found)
    shown = _first_hits(found, args.max_results)
    texts = ["\n".join(_lines(readable_name(one.shown), hit)) for one in shown for hit in one.hits]
    shown = _first_hits(shown, count_fitting(texts, form))
    dropped = total - sum(len(one.hits) for one in shown)
    lines = [line for one in shown for hit in one.hits for line in _lines(readable_name(one.shown), hit)]
    notes = _notes(args, places, found)
    if dropped:
        notes.insert(0, f"{dropped} more of {plural(total, 'match')} are not shown; narrow the search")
    if not total:
        notes.insert(0, "no match; what the policy withholds is not searched" if args.directories else "no match")
    data: dict[str, Json] = {
        "directories": [_group(args, name, shown) for name in dict.fromkeys(map(_group_name, shown))],
        "count": total,
        "dropped": dropped,
        "not_searched": [{"path": place.given, "reason": place.refusal} for place in places if place.refusal],
        "skipped": _skipped(places),
    }
    return ToolResult.of("\n".join([*lines, *(f"[{note}]" for note in notes)]), data=data, metadata={"count": total})


def _group_name(one: _InFile) -> str:
    return one.place.given if one.place.is_dir else FILES


def _group(args: _Arguments, name: str, shown: list[_InFile]) -> Json:
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


def _fact(args: _Arguments, hit: Hit) -> Json:
    fact: dict[str, Json] = {"line": hit.line, "content": clipped(hit.text.encode("utf-8", "surrogateescape"))}
    if hit.end_line != hit.line:
        fact["end_line"] = hit.end_line
    if args.context:
        fact["context_before"] = [clipped(line) for line in hit.before]
        fact["context_after"] = [clipped(line) for line in hit.after]
    return fact


def _lines(path: str, hit: Hit) -> Iterator[str]:
    first = hit.line - len(hit.before)
    for number, line in enumerate(hit.before, first):
        yield f"{path}-{number}-{clipped(line)}"
    for number, text in enumerate(hit.text.split("\n"), hit.line):
        yield f"{path}:{number}:{clipped(text.encode('utf-8', 'surrogateescape'))}"
    for number, line in enumerate(hit.after, hit.end_line + 1):
        yield f"{path}-{number}-{clipped(line)}"


def _skipped(places: list[Place]) -> dict[str, Json]:
    contents = [place.contents for place in places]
    return {
        "binary": sum(len(one.binary) for one in contents),
        "large": sum(len(one.large) for one in contents),
        "unreadable": sum(len(one.unreadable) for one in contents),
    }


def _notes(args: _Arguments, places: list[Place], found: list[_InFile]) -> list[str]:
    skipped = _skipped(places)
    notes = [f"{place.given}: {place.reason}" for place in places if place.refusal]
    if args.exclude:
        notes.append(f"{plural(sum(one.filtered for one in found), 'match')} excluded")
    if skipped["large"]:
        notes.append(f"{skipped['large']} with the text larger than {FILE_BYTES >> 20} MiB not searched; use grep")
    if skipped["unreadable"]:
        notes.append(f"{skipped['unreadable']} could not be read")
    if any(place.contents.is_cut for place in places):
        notes.append("too much to search: what is beyond was not looked at; name fewer files, or use grep")
    return notes
