"""``sig``: list the declarations of a source file, without bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import AliasChoices, Field

from harness.errors import UnsupportedOperation
from harness.extras import install_command
from harness.results import FileContent
from harness.toolkit import Arguments, Category, Json, OutputLimit, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.result_cache import depends_on
from harness.toolkit.results import fit_items
from harness.toolkit.session.file_versions import target_path

from ..texts import Line
from .languages.parsing import EXTRA, Source, outline_in

if TYPE_CHECKING:
    from .languages.model import Declaration, FileOutline
    from .languages.table import Language

__all__ = ["Sig"]

MAX_READ_BYTES = 1 << 20
"""Maximum bytes of a file that are parsed."""
PARSE_TIMEOUT = 15.0
"""Maximum CPU seconds for parsing."""
LIMIT = OutputLimit(30_000, 0)
DESCRIPTION = """\
List what a source file declares: types with their members, functions, constants and variables, each with its line and \
its signature on one line, without bodies. Private ones are omitted unless all is true. \
A syntax error does not hide the rest of the file. Languages: Python, Go, TypeScript, JavaScript, Rust, Java, \
Kotlin, Scala, C, C++, C#, Ruby, shell, PHP, Swift, Lua, Zig."""


class _Arguments(Arguments):
    file: Line = Field(
        description="the source file; ~ is the user's home",
        validation_alias=AliasChoices("file", "path", "file_path"),
    )
    all: bool = Field(
        False, description="include private declarations", validation_alias=AliasChoices("all", "private")
    )


class Sig(Tool[_Arguments]):
    """``sig``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=180.0,
            aliases=("signatures", "outline"),
            limit=LIMIT,
            packs=("dev",),
            libraries=("tree_sitter",),
            extra=EXTRA,
        )
        super().__init__("sig", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.file),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        from .languages.analysis import is_binary, utf8_of
        from .languages.table import language_of

        content = await ctx.execution.read_file(target_path(ctx, args.file), limit=MAX_READ_BYTES)
        source = utf8_of(content.data)
        language = language_of(args.file, source) or language_of(content.path, source)
        if language is None:
            return _unknown(args.file)
        if is_binary(source):
            text = f"{args.file} is not a text file (contains NUL bytes; {content.size} bytes)"
            return ToolResult.failure("binary", text)

        parsed = await outline_in(Source(language.name, source), PARSE_TIMEOUT)
        if parsed.problem == "missing":
            raise UnsupportedOperation(f"the parser for {language.name} is not installed", hint=install_command(EXTRA))
        return _shown(args, content, parsed.found) if parsed.found is not None else _too_hard(args.file, language)


def _unknown(path: str) -> ToolResult:
    from .languages.table import suffixes

    known = ", ".join(suffixes())
    return ToolResult.failure("unknown_language", f"{path}: unknown language; known: {known}")


def _too_hard(path: str, language: Language) -> ToolResult:
    text = f"{path} could not be parsed as {language.name}: it takes too much time or memory. Read or search it instead"
    return ToolResult.failure("too_complex", text)


def _shown(args: _Arguments, content: FileContent, outlined: FileOutline) -> ToolResult:
    chosen = [item for item in outlined.declarations if args.all or item.visibility != "private"]
    hidden = len(outlined.declarations) - len(chosen)
    facts = _facts(args.file, content, outlined, hidden)
    kept, dropped = fit_items(chosen, lambda some: _text(facts, some, len(chosen) - len(some)), LIMIT)
    facts["dropped"] = dropped
    data: Json = {**facts, **grouped(kept)}
    return ToolResult.of(_text(facts, kept, dropped), data=data, metadata=depends_on(content))


def _facts(path: str, content: FileContent, outlined: FileOutline, hidden: int) -> dict[str, Json]:
    return {
        "file": path,
        "language": outlined.language,
        "package": outlined.package,
        "imports": list(dict.fromkeys(item.module for item in outlined.imports)),
        "bytes": content.size,
        "bytes_read": len(content.data),
        "syntax_error_line": outlined.damage,
        "complete": outlined.complete,
        "private_left_out": hidden,
    }


def _text(facts: dict[str, Json], shown: Sequence[Declaration], dropped: int) -> str:
    package = f", package {facts['package']}" if facts["package"] else ""
    lines = [f"{facts['file']} ({facts['language']}{package})"]
    width = len(str(shown[-1].line)) if shown else 1
    lines += [f"{item.line:>{width}}  {'  ' * item.depth}{_marked(item)}" for item in shown]
    return "\n".join([*(lines if shown else [*lines, "(no declarations)"]), *_notes(facts, dropped)])


def _marked(item: Declaration) -> str:
    return f"{item.signature}  [private]" if item.visibility == "private" else item.signature


def _notes(facts: dict[str, Json], dropped: int) -> Iterator[str]:
    if facts["private_left_out"]:
        yield f"[{facts['private_left_out']} private declarations omitted; all=true shows them]"
    if dropped:
        yield f"[{dropped} more declarations omitted: the result would be too long]"
    if facts["bytes"] != facts["bytes_read"]:
        yield f"[only the first {facts['bytes_read']} of {facts['bytes']} bytes were parsed]"
    if not facts["complete"]:
        yield "[the file was parsed only partly: it has too many declarations, or they are nested too deeply]"
    if facts["syntax_error_line"] is not None:
        line, language = facts["syntax_error_line"], facts["language"]
        yield f"[line {line} is not valid {language}; declarations near it may be missing]"


# -- as data


def grouped(shown: Iterable[Declaration]) -> dict[str, Json]:
    """Return the declarations by kind, with members inside their types. Pure."""
    result: dict[str, list[Json]] = {"types": [], "functions": [], "constants": [], "variables": []}
    open_types: list[tuple[int, dict[str, list[Json]]]] = []
    for item in shown:
        while open_types and open_types[-1][0] >= item.depth:
            open_types.pop()
        place = open_types[-1][1] if open_types else result
        facts = _item(item)
        if item.group == "type":
            members: dict[str, list[Json]] = {"types": [], "fields": [], "methods": [], "constants": []}
            open_types.append((item.depth, members))
            place["types"].append({**facts, **_as_json(members)})
        else:
            place[_list_of(item, place)].append(facts)
    return _as_json(result)


def _list_of(item: Declaration, place: dict[str, list[Json]]) -> str:
    names = {"function": ("methods", "functions"), "constant": ("constants",)}
    wanted = names.get(item.group, ("fields", "variables"))
    return next(name for name in wanted if name in place)


def _as_json(lists: dict[str, list[Json]]) -> dict[str, Json]:
    return dict(lists.items())


def _item(item: Declaration) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "name": item.name,
        "kind": item.kind,
        "line": item.line,
        "end_line": item.end_line,
        "signature": item.signature,
        "visibility": item.visibility,
    }
    more = {"type": item.type, "value": item.value, "receiver": item.receiver}
    return {**facts, **{name: value for name, value in more.items() if value}}
