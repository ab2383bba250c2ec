"""The profile ``terse``: the tools that change files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from pydantic import Field

from harness.toolkit import Arguments, ToolResult
from harness.toolkit.profiles import Face, Shown

from .forms import facts
from .jsonforms import as_json, picked

__all__ = ["REWRITING_FACES"]


def _form(always: Iterable[str], others: Iterable[str] = ()) -> Callable[[Any, ToolResult], Shown | None]:
    """These members of the data as JSON."""
    names, more = tuple(always), tuple(others)

    def render(args: Any, result: ToolResult) -> Shown | None:
        return None if result.is_error else as_json(picked(facts(result), names, more))

    return render


class _Repfor(Arguments):
    search: str = Field(description="Text to search for. A newline in it is a line's end.")
    replace: str = Field(description="Text to put in its place.")
    dir: list[str] = Field([], description="Directories; the default is the current one.")
    file: list[str] = Field([], description="Files to work on instead of directories.")
    ext: str | None = Field(None, description="Only files with this ending, such as .go.")
    case_insensitive: bool = Field(False, description="Ignore case.")
    whole_word: bool = Field(False, description="Match whole words alone.")
    dry_run: bool = Field(False, description="Say what would be changed, and change nothing.")
    recursive: bool = Field(False, description="Also in the directories below.")
    exclude: list[str] = Field([], description="Leave lines alone that hold one of these texts.")


REPFOR = Face(
    tool="repfor",
    name="repfor",
    description="Replace a text in files, exactly.",
    arguments=_Repfor,
    fields={name: name for name in _Repfor.model_fields},
    render=_form(("summary", "directories", "dry_run"), ("not_read", "skipped", "failed", "left_out", "dropped")),
)


class _Split(Arguments):
    file: str = Field(description="File to split.")
    lines: list[int] = Field(description="The last line of each part.")


SPLIT = Face(
    tool="split",
    name="split",
    description="Write the parts of a file into files of their own.",
    arguments=_Split,
    fields={"file": "file", "lines": "lines"},
    render=_form(("source", "parts"), ("ignored_lines",)),
)


class _Splice(Arguments):
    source: str = Field(description="File to take the content from.")
    target: str = Field(description="File to put it into.")
    mode: Literal["append", "prepend", "replace", "insert"] = Field(description="Where to put it.")
    line: int | None = Field(None, description="With insert: after this line.")


SPLICE = Face(
    tool="splice",
    name="splice",
    description="Put the content of one file into another.",
    arguments=_Splice,
    fields={name: name for name in _Splice.model_fields},
    render=_form(("source", "target", "mode", "lines_spliced", "bytes_written"), ("line", "created")),
)


class _Notab(Arguments):
    file: str = Field(description="File to normalize.")
    spaces: int = Field(4, description="Spaces for a tab.")
    tabs: bool = Field(False, description="The other way: leading spaces become tabs.")


NOTAB = Face(
    tool="notab",
    name="notab",
    description="Write spaces for tabs, or tabs for leading spaces.",
    arguments=_Notab,
    fields={name: name for name in _Notab.model_fields},
    render=_form(("file", "replacements", "lines_changed", "changed"), ("mode",)),
)


class _Utf8(Arguments):
    file: str = Field(description="File to convert.")
    backup: bool = Field(True, description="Keep the old content beside it.")


UTF8 = Face(
    tool="utf8",
    name="utf8",
    description="Convert a file in UTF-16, or a damaged one, to UTF-8.",
    arguments=_Utf8,
    fields={name: name for name in _Utf8.model_fields},
    render=_form(("file", "status"), ("encoding", "bytes_before", "bytes_after", "replaced_characters", "backup")),
)


class _Delete(Arguments):
    path: str = Field(description="File or directory to put into the trash.")


DELETE = Face(
    tool="delete",
    name="delete",
    description="Put a file or a directory into the trash of the target.",
    arguments=_Delete,
    fields={"path": "path"},
    render=_form(("path", "trash_path", "restore"), ("type",)),
)

REWRITING_FACES: tuple[Face[Any], ...] = (REPFOR, SPLIT, SPLICE, NOTAB, UTF8, DELETE)
