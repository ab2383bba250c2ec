"""What ``grep`` says of what was found: lines, names or counts, and what is not among them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.toolkit import Json, ToolResult
from harness.toolkit.values import ShownForm

from ..texts import readable_name
from .frames import text_of
from .greplines import Counted, Line
from .grepping import Found
from .grepscripts import GrepQuery
from .linear import Matcher
from .notes import count_fitting, plural, shown_path
from .treescripts import EXCLUDED

__all__ = ["Mode", "clipped", "grep_result"]

Mode = Literal["content", "files_with_matches", "count"]
SHOWN = 500
"""Bytes of a line that are shown."""
MARK = "[...]"
SEPARATOR = "--"
"""Between lines that do not follow each other; no line is shown as that, each has its number."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is shown: the text, the same as data, and how many lines or files that is."""

    texts: list[str]
    data: list[Json]
    shown: int


def grep_result(
    found: Found, query: GrepQuery, *, base: str, pattern: str, mode: Mode, form: ShownForm | None = None
) -> ToolResult:
    """The result of a search that was not refused: as much as there is room for in ``form``."""
    total = sum(file.count for file in found.files)
    part = _lines(found, query, base) if mode == "content" else _files(found, query, base, mode)
    fitted = _fitted(part, form or ShownForm(), mode)
    way = ", or raise max_results" if fitted is part else ""
    part = fitted
    whole = total if mode == "content" else len(found.files)
    dropped = max(whole - part.shown, 0)
    notes = _notes(found, query)
    if dropped:
        what = plural(whole, "match") if mode == "content" else plural(whole, "file")
        notes.insert(0, f"{dropped} more of {what} are not shown; narrow the search{way}")
    if not found.files:
        notes.insert(0, f"no match for {pattern} in {base}")
    data: dict[str, Json] = {
        "count": total,
        "files": len(found.files),
        "mode": mode,
        "matches" if mode == "content" else "results": part.data,
        "dropped": dropped,
        "unreadable": found.tree.unreadable,
        "excluded": [*EXCLUDED, *query.tree.kernel] if query.tree.excludes else [],
        "engine": found.engine,
        "complete": found.tree.is_whole and not found.is_cut and not found.tree.is_cut,
    }
    text = "\n".join([*part.texts, *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": total, "matches": total})


def _fitted(part: _Part, form: ShownForm, mode: Mode) -> _Part:
    """As much of it as there is room for."""
    count = count_fitting(part.texts, form)
    if count == len(part.texts):
        return part
    if mode != "content":
        return _Part(part.texts[:count], part.data[:count], count)
    data = part.data[: sum(text != SEPARATOR for text in part.texts[:count])]
    return _Part(part.texts[:count], data, sum(isinstance(one, dict) and bool(one["match"]) for one in data))


def _name(found: Found, base: str, file: Counted) -> str:
    return base if found.is_file else shown_path(base, file.path)


def _files(found: Found, query: GrepQuery, base: str, mode: Mode) -> _Part:
    kept = found.files[: query.most]
    names = [(_name(found, base, file), file.count) for file in kept]
    texts = [f"{readable_name(name)}:{count}" if mode == "count" else readable_name(name) for name, count in names]
    return _Part(texts, [{"path": name, "count": count} for name, count in names], len(kept))


def _lines(found: Found, query: GrepQuery, base: str) -> _Part:
    texts: list[str] = []
    data: list[Json] = []
    matcher = Matcher(query.expression)
    left = query.most
    for file in found.files:
        if left <= 0:
            break
        lines = shown_lines(found.lines.get(file.path, []), left, query.after)
        left -= sum(line.is_match for line in lines)
        name = _name(found, base, file)
        shown = readable_name(name)
        for before, line in zip([None, *lines], lines, strict=False):
            text = clipped(line.text, matcher if line.is_match else None, is_cut=line.is_cut)
            if (query.before or query.after) and texts and (before is None or before.number + 1 < line.number):
                texts.append(SEPARATOR)
            texts.append(f"{shown}{':' if line.is_match else '-'}{line.number}{':' if line.is_match else '-'}{text}")
            data.append({"path": name, "line": line.number, "text": text, "match": line.is_match})
    return _Part(texts, data, query.most - left)


def shown_lines(lines: list[Line], most: int, after: int) -> list[Line]:
    """The first ``most`` lines that match, with what is beside them."""
    matches = [line.number for line in lines if line.is_match]
    if len(matches) <= most:
        return lines
    last = min(matches[most - 1] + after, matches[most] - 1)
    return [line for line in lines if line.number <= last]


def clipped(line: bytes, matcher: Matcher | None = None, *, is_cut: bool = False) -> str:
    """A line, or of a long one the part around its first match, cut between characters; ``is_cut``: it goes on."""
    line = line.removesuffix(b"\r")
    if len(line) <= SHOWN:
        return text_of(line)
    start = 0
    if matcher is not None:
        first = next(matcher.spans(line), (0, 0))[0]
        start = max(0, first - SHOWN // 4) if first > SHOWN // 2 else 0
    start, end = _between_characters(line, start), _between_characters(line, start + SHOWN)
    return (MARK if start else "") + text_of(line[start:end]) + (MARK if is_cut or end < len(line) else "")


def _between_characters(line: bytes, at: int) -> int:
    """The place, or the nearest before it that is not within a character."""
    back = min(at, len(line))
    while back and at - back < 4 and back < len(line) and line[back] & 0xC0 == 0x80:
        back -= 1
    return back


def _notes(found: Found, query: GrepQuery) -> list[str]:
    notes = []
    if found.is_binary:
        notes.append("the file is not text, and was not searched")
    if found.tree.unreadable:
        notes.append(f"{plural(found.tree.unreadable, 'place')} could not be read")
    if found.is_cut or found.tree.is_cut:
        notes.append("too many files match: what is beyond was not counted; narrow the search")
    elif not found.tree.is_whole:
        notes.append("the search did not come to its end: there may be more")
    if not found.files and not found.is_file:
        excluded = [*EXCLUDED, *query.tree.kernel, "what .gitignore leaves out"] if query.tree.excludes else []
        hidden = [] if query.tree.hidden else ["names with a dot in front"]
        notes.append(f"not searched: {', '.join([*excluded, *hidden, 'what the policy withholds'])}")
    return notes
