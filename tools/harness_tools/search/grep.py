"""``grep``: lines by a regular expression."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from harness.toolkit import Arguments, Category, Subject, Tool, ToolContext, ToolResult, Traits

from ..texts import Line as Text
from ..texts import SomeContent
from .filetypes import FILE_TYPES
from .frames import refusal_of
from .grephere import search_here
from .grepping import Found, Wanted, find_lines
from .grepresults import Mode, grep_result
from .grepscripts import GrepQuery
from .notes import LIMIT
from .patterns import PathPattern
from .regexes import Expression, parse
from .target import absolute
from .treescripts import TreeQuery
from .words import PathText

__all__ = ["Grep"]

DESCRIPTION = """\
Find lines in files of the target by a regular expression, in one file or below a directory, with paths in order. \
Binary files are not searched and links are not followed; .git, node_modules, vendor, .venv, __pycache__, dist, target \
and what .gitignore leaves out are not looked at. The same on every target, whether or not ripgrep is there."""
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
    output_mode: Mode = Field("content", description="the lines, the files' names, or how many lines in each")
    case_insensitive: bool = Field(
        False,
        description="letters of either case are the same",
        validation_alias=AliasChoices("case_insensitive", "-i", "ignore_case"),
    )
    before: int = Field(
        0, ge=0, le=LINES_BESIDE, description="lines before each", validation_alias=AliasChoices("before", "-B")
    )
    after: int = Field(
        0, ge=0, le=LINES_BESIDE, description="lines after each", validation_alias=AliasChoices("after", "-A")
    )
    context: int = Field(
        0, ge=0, le=LINES_BESIDE, description="lines around each", validation_alias=AliasChoices("context", "-C")
    )
    multiline: bool = Field(False, description="a match may go over the ends of lines (\\n)")
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
    include_hidden: bool = Field(False, description="also names that begin with a dot")
    no_default_excludes: bool = Field(False, description="look everywhere")

    @model_validator(mode="after")
    def _readable(self) -> _Arguments:
        try:
            self.expression()
        except ValueError as error:
            raise ValueError(f"pattern, {error}") from None
        return self

    def expression(self) -> Expression:
        """The pattern.

        Raises:
            ValueError: it is none that is known here.
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


async def _found(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> Found | ToolResult:
    found = await find_lines(ctx, query, wanted)
    return found if found is not None else await search_here(ctx, query, wanted)


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
