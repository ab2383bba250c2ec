"""``grep``: find lines by a regular expression."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from harness.patterns.wildcards import PathPattern
from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm
from harness.wording import counted

from ..texts import Line as Text
from ..texts import PathText, SomeContent, readable_name
from .grep_scripts import GrepQuery
from .grep_search import FileMatchCount, GrepResult, Line, Wanted, find_lines, grep_locally
from .linear_matcher import Matcher
from .regular_expressions import Expression, parse
from .replies import LIMIT, absolute, count_fitting, refusal_of, shown_path, text_of
from .tree_scripts import EXCLUDED, TreeQuery

__all__ = [
    "Grep",
    "clipped",
]


# -- Kinds of files by name, for ``type``; the same on every target, whatever program searches.


FILE_TYPES = MappingProxyType(
    {
        "c": ("*.c", "*.h"),
        "cmake": ("CMakeLists.txt", "*.cmake"),
        "config": ("*.conf", "*.cfg", "*.cnf", "*.ini", "*.config", "*.properties"),
        "cpp": ("*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.hxx", "*.h", "*.inl"),
        "cs": ("*.cs",),
        "css": ("*.css", "*.scss", "*.sass", "*.less"),
        "csv": ("*.csv", "*.tsv"),
        "docker": ("Dockerfile", "Dockerfile.*", "*.dockerfile", "Containerfile", "docker-compose*.y*ml"),
        "go": ("*.go",),
        "html": ("*.html", "*.htm", "*.xhtml"),
        "java": ("*.java",),
        "js": ("*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"),
        "json": ("*.json", "*.jsonl", "*.ndjson"),
        "kotlin": ("*.kt", "*.kts"),
        "log": ("*.log", "*.log.[0-9]*"),
        "lua": ("*.lua",),
        "make": ("Makefile", "makefile", "GNUmakefile", "*.mk", "*.mak"),
        "md": ("*.md", "*.markdown", "*.mdx"),
        "nix": ("*.nix",),
        "perl": ("*.pl", "*.pm", "*.t"),
        "php": ("*.php",),
        "proto": ("*.proto",),
        "py": ("*.py", "*.pyi"),
        "rst": ("*.rst",),
        "ruby": ("*.rb", "*.rake", "Gemfile", "Rakefile"),
        "rust": ("*.rs",),
        "sh": ("*.sh", "*.bash", "*.zsh", "*.ksh", ".bashrc", ".profile", ".zshrc"),
        "sql": ("*.sql",),
        "swift": ("*.swift",),
        "systemd": ("*.service", "*.socket", "*.timer", "*.target", "*.mount", "*.path", "*.slice"),
        "tf": ("*.tf", "*.tfvars", "*.hcl"),
        "toml": ("*.toml",),
        "ts": ("*.ts", "*.tsx", "*.mts", "*.cts"),
        "txt": ("*.txt",),
        "xml": ("*.xml", "*.xsd", "*.xsl", "*.svg"),
        "yaml": ("*.yaml", "*.yml"),
        "zig": ("*.zig",),
    }
)
"""Patterns of names by kind."""


# -- Presenting the result: lines, names or counts, and notes about omissions. Pure.


Mode = Literal["content", "files_with_matches", "count"]
SHOWN = 500
"""Maximum bytes of a line that are shown."""
MARK = "[...]"
SEPARATOR = "--"
"""Printed between non-adjacent lines; unambiguous, because each shown line has a number."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The shown text, the same as data, and the number of lines or files in it."""

    texts: list[str]
    data: list[Json]
    shown: int


def grep_result(
    found: GrepResult, query: GrepQuery, *, base: str, pattern: str, mode: Mode, form: ShownForm | None = None
) -> ToolResult:
    """Return the result of a search that was not refused: as much as fits in ``form``."""
    total = sum(file.count for file in found.files)
    part = _lines(found, query, base) if mode == "content" else _files(found, query, base, mode)
    fitted = _fitted(part, form or ShownForm(), mode)
    way = ", or raise max_results" if fitted is part else ""
    part = fitted
    whole = total if mode == "content" else len(found.files)
    dropped = max(whole - part.shown, 0)
    notes = _notes(found, query)
    if dropped:
        what = counted(whole, "match") if mode == "content" else counted(whole, "file")
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
    """Return as much of the part as fits."""
    count = count_fitting(part.texts, form)
    if count == len(part.texts):
        return part
    if mode != "content":
        return _Part(part.texts[:count], part.data[:count], count)
    data = part.data[: sum(text != SEPARATOR for text in part.texts[:count])]
    return _Part(part.texts[:count], data, sum(isinstance(one, dict) and bool(one["match"]) for one in data))


def _name(found: GrepResult, base: str, file: FileMatchCount) -> str:
    return base if found.is_file else shown_path(base, file.path)


def _files(found: GrepResult, query: GrepQuery, base: str, mode: Mode) -> _Part:
    kept = found.files[: query.most]
    names = [(_name(found, base, file), file.count) for file in kept]
    texts = [f"{readable_name(name)}:{count}" if mode == "count" else readable_name(name) for name, count in names]
    return _Part(texts, [{"path": name, "count": count} for name, count in names], len(kept))


def _lines(found: GrepResult, query: GrepQuery, base: str) -> _Part:
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
    """Return the first ``most`` matching lines, with their context."""
    matches = [line.number for line in lines if line.is_match]
    if len(matches) <= most:
        return lines
    last = min(matches[most - 1] + after, matches[most] - 1)
    return [line for line in lines if line.number <= last]


def clipped(line: bytes, matcher: Matcher | None = None, *, is_cut: bool = False) -> str:
    """Return a line, or the part of a long one around its first match; ``is_cut``: the line continues."""
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
    """Return the position, or the nearest before it that is not within a character."""
    back = min(at, len(line))
    while back and at - back < 4 and back < len(line) and line[back] & 0xC0 == 0x80:
        back -= 1
    return back


def _notes(found: GrepResult, query: GrepQuery) -> list[str]:
    notes = []
    if found.is_binary:
        notes.append("the file is not text, and was not searched")
    if found.tree.unreadable:
        notes.append(f"{counted(found.tree.unreadable, 'entry')} could not be read")
    if found.is_cut or found.tree.is_cut:
        notes.append("too many files match: the rest was not counted; narrow the search")
    elif not found.tree.is_whole:
        notes.append("the search did not complete: there may be more")
    if not found.files and not found.is_file:
        excluded = [*EXCLUDED, *query.tree.kernel, "files ignored by .gitignore"] if query.tree.excludes else []
        hidden = [] if query.tree.hidden else ["hidden files"]
        notes.append(f"not searched: {', '.join([*excluded, *hidden, 'files denied by the policy'])}")
    return notes


# -- The tool.


DESCRIPTION = """\
Find lines by a regular expression in one file of the target or below a directory, with sorted paths. \
Binary files are not searched and links are not followed; .git, node_modules, vendor, .venv, __pycache__, dist, target \
and files ignored by .gitignore are skipped. Works the same on every target, with or without ripgrep."""
LINES_BESIDE = 50


def _include(pattern: str) -> str:
    PathPattern.parse(pattern, only_name=True)
    return pattern


def _kind(name: str) -> str:
    if name not in FILE_TYPES:
        raise ValueError(f"no such type; known: {', '.join(FILE_TYPES)}")
    return name


class _Arguments(Arguments):
    pattern: SomeContent = Field(
        description="regular expression: literals, . [a-z] \\d \\w \\s \\b ^ $ ( ) | * + ? {m,n}; beyond ASCII . and "
        "[^x] match one byte; no look-around, no back-references",
    )
    path: PathText = Field(
        ".", description="a directory or a file", validation_alias=AliasChoices("path", "dir", "directory", "file")
    )
    include: Annotated[Text, AfterValidator(_include)] | None = Field(
        None,
        description="only files whose name matches, such as *.{c,h}; with a / the path below the directory",
        validation_alias=AliasChoices("include", "glob"),
        max_length=1_000,
    )
    type: Annotated[str, AfterValidator(_kind)] | None = Field(None, description="only files of a kind, such as py")
    output_mode: Mode = Field("content", description="the lines, the file names, or the number of lines per file")
    case_insensitive: bool = Field(
        False,
        description="ignore case",
        validation_alias=AliasChoices("case_insensitive", "-i", "ignore_case"),
    )
    before: int = Field(
        0, ge=0, le=LINES_BESIDE, description="context lines before each", validation_alias=AliasChoices("before", "-B")
    )
    after: int = Field(
        0, ge=0, le=LINES_BESIDE, description="context lines after each", validation_alias=AliasChoices("after", "-A")
    )
    context: int = Field(
        0,
        ge=0,
        le=LINES_BESIDE,
        description="context lines around each",
        validation_alias=AliasChoices("context", "-C"),
    )
    multiline: bool = Field(False, description="a match may span lines (\\n)")
    fixed: bool = Field(
        False, description="the pattern is a text, not an expression", validation_alias=AliasChoices("fixed", "literal")
    )
    max_results: int = Field(
        100,
        ge=1,
        le=1_000,
        description="lines, or files; the others are counted",
        validation_alias=AliasChoices("max_results", "head_limit"),
    )
    include_hidden: bool = Field(False, description="include hidden files")
    no_default_excludes: bool = Field(False, description="search everywhere")

    @model_validator(mode="after")
    def _readable(self) -> _Arguments:
        try:
            self.expression()
        except ValueError as error:
            raise ValueError(f"pattern, {error}") from None
        return self

    def expression(self) -> Expression:
        """Parse the pattern.

        Raises:
            ValueError: The pattern is invalid or unsupported.
        """
        return parse(self.pattern, fixed=self.fixed, folds=self.case_insensitive, multiline=self.multiline)


class Grep(Tool[_Arguments]):
    """``grep``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=180.0,
            limit=LIMIT,
            packs=("search",),
        )
        super().__init__("grep", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.path),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        query, wanted = await _query(args, ctx)
        found = await _found(ctx, query, wanted)
        if isinstance(found, ToolResult):
            return found
        if found.tree.refusal:
            return refusal_of(found.tree.refusal, args.path)
        return grep_result(found, query, base=args.path, pattern=args.pattern, mode=args.output_mode, form=ctx.shown)


async def _found(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> GrepResult | ToolResult:
    found = await find_lines(ctx, query, wanted)
    return found if found is not None else await grep_locally(ctx, query, wanted)


async def _query(args: _Arguments, ctx: ToolContext) -> tuple[GrepQuery, Wanted]:
    include = None if args.include is None else PathPattern.parse(args.include, only_name=True)
    kinds = tuple(PathPattern.parse(name, only_name=True) for name in FILE_TYPES.get(args.type or "", ()))
    rough = include.rough_names if include else tuple(name for kind in kinds for name in kind.rough_names)
    tree = TreeQuery(
        await absolute(ctx, args.path),
        hidden=args.include_hidden,
        excludes=not args.no_default_excludes,
        rough_names=rough,
        depth=include.depth if include else None,
    ).starting(include.start if include else ())
    query = GrepQuery(
        tree,
        args.expression(),
        args.max_results,
        max(args.before, args.context),
        max(args.after, args.context),
        lines=args.output_mode == "content",
    )

    def wanted(path: str) -> bool:
        return (include is None or include.matches(path)) and (not kinds or any(kind.matches(path) for kind in kinds))

    return query, wanted
