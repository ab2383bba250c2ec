"""``imports``: which files of a tree use which modules, and which of each other."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.errors import FileError, NotADirectory, UnsupportedOperation
from harness.extras import install_command
from harness.results import FileContent, FileStat
from harness.toolkit import Arguments, Category, JsonObject, OutputLimit, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import target_path
from harness.toolkit.results_cache import depends_on

from ..texts import Line
from .imports_fetch import FILE_LIMIT, Fetched, Listing, TooSlow, fetch, list_sources
from .parsing import EXTRA, Source, facts_in

if TYPE_CHECKING:
    from .import_kinds import GoModule, Project
    from .imports_report import Scanned, Trouble
    from .languages.model import Facts

__all__ = ["Imports"]

MOST_FILES = 2_000
MOST_IMPORTS = 50_000
FILE_SECONDS = 5.0
"""Seconds of the processor that parsing one file may take."""
PROBLEMS = {
    "missing": "the parser of its language is not installed (extra parsers)",
    "hard": "to parse it takes too much time or memory",
    "late": "too many files before it could not be parsed",
}
MANIFEST_LIMIT = 64 << 10
MOST_ABOVE = 32
NOT_KEPT: JsonObject = {"depends": None}
"""Metadata of a result that is made of more than can be asked for again: it is not remembered."""
LIMIT = OutputLimit(30_000, 0)
EXCLUDING = ".aiexclude"
"""Files that say what the people there keep from agents."""
MANIFESTS = {".go": "go.mod", ".rs": "Cargo.toml"}
DESCRIPTION = """\
Map the imports of the source files in a directory: for each file what it imports, with lines, as stdlib, external, \
local, relative or system, and the files of the tree that this leads to; and for each package the files that use it. \
Hidden directories, node_modules, vendor and the like are skipped and named. Languages: Python, Go, TypeScript, \
JavaScript, Rust, Java, Kotlin, Scala, C, C++, C#, Ruby, shell, PHP, Swift, Lua, Zig."""


class _Arguments(Arguments):
    dir: Line = Field(
        description="the directory; ~ is the user's home", validation_alias=AliasChoices("dir", "path", "directory")
    )
    ext: str | None = Field(
        None, description="only files that end so, such as .go", validation_alias=AliasChoices("ext", "extension")
    )
    recursive: bool = Field(False, description="the directories below it too")

    @field_validator("ext")
    @classmethod
    def _suffix(cls, ext: str | None) -> str | None:
        from .languages.table import suffixes

        if ext is None or not ext.strip():
            return None
        wanted = "." + ext.strip().lower().removeprefix("*").removeprefix(".")
        if wanted not in suffixes():
            raise ValueError(f"no language is known by it; known: {', '.join(suffixes())}")
        return wanted

    @property
    def above(self) -> tuple[str, ...]:
        """The paths of ``go.mod`` above the directory, as far as its path names directories; the nearest first."""
        parts = self.dir.rstrip("/").split("/")
        if self.ext not in (None, ".go") or ".." in parts or parts in (["."], ["~"], [""]):
            return ()
        found: list[str] = []
        path = self.dir.rstrip("/")
        while path not in ("", "/", "~", ".") and len(found) < MOST_ABOVE:
            path = posixpath.dirname(path)
            found.append(posixpath.join(path, "go.mod"))
        return tuple(found)


class Imports(Tool[_Arguments]):
    """``imports``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=300.0,
            limit=LIMIT,
            packs=("dev",),
            libraries=("tree_sitter",),
            extra=EXTRA,
        )
        super().__init__("imports", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return tuple(Subject("read", path) for path in (args.dir, *args.above))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        root = await ctx.execution.stat(target_path(ctx, args.dir))
        if root.type != "dir":
            raise NotADirectory(f"{args.dir} is no directory", target=ctx.execution.target, hint="sig shows one file")
        try:
            return await self._map(args, ctx, root)
        except TooSlow as slow:
            return ToolResult.failure("too_slow", f"{slow}: choose a smaller directory, or leave recursive out")

    async def _map(self, args: _Arguments, ctx: ToolContext, root: FileStat) -> ToolResult:
        from .imports_report import Report, result_of

        listing = await list_sources(ctx, root.path, _patterns(args.ext), recursive=args.recursive)
        if listing.complaints and not (listing.files or listing.skipped):
            return ToolResult.failure("not_listed", f"{args.dir} could not be listed: {listing.complaints[0]}")
        manifests = [name for name in listing.files if posixpath.basename(name) in MANIFESTS.values()]
        sources, withheld = await _allowed(ctx, root.path, listing)
        fetched = await fetch(ctx, root.path, [*manifests[:MOST_FILES], *sources[:MOST_FILES]])
        above, module = await _module_above(args, ctx, listing)
        found, troubles = await _scan(sources[:MOST_FILES], fetched)
        metadata = _metadata(args, root, fetched, above)
        project = _project(sources, fetched, found, module)
        beyond = max(0, len(sources) - MOST_FILES)

        def finish() -> ToolResult:
            scanned = tuple(_scanned(path, facts, project) for path, facts in found.items())
            return result_of(Report(args.dir, scanned, troubles, listing, beyond, withheld), LIMIT, metadata)

        return await to_thread.run_sync(finish)


async def _allowed(ctx: ToolContext, root: str, listing: Listing) -> tuple[list[str], int]:
    """The sources of which something may be shown, and how many others there are."""
    other = {EXCLUDING, *MANIFESTS.values()}
    sources = [name for name in listing.files if posixpath.basename(name) not in other]
    holders = [name for name in listing.files if posixpath.basename(name) == EXCLUDING]
    withheld = await ctx.withheld(
        [posixpath.join(root, name) for name in sources],
        top=root,
        holders=[posixpath.join(root, posixpath.dirname(name)).rstrip("/") or "/" for name in holders],
    )
    allowed = [name for name in sources if posixpath.join(root, name) not in withheld]
    return allowed, len(sources) - len(allowed)


def _patterns(ext: str | None) -> list[str]:
    """What ``find -name`` looks for."""
    from .languages.table import LANGUAGES

    if ext is not None:
        return [EXCLUDING, f"*{ext}", *([MANIFESTS[ext]] if ext in MANIFESTS else [])]
    names = [name for language in LANGUAGES for name in language.names if not name.startswith(".")]
    return [
        EXCLUDING,
        *(f"*{suffix}" for language in LANGUAGES for suffix in language.suffixes),
        *names,
        *MANIFESTS.values(),
    ]


async def _module_above(
    args: _Arguments, ctx: ToolContext, listing: Listing
) -> tuple[FileContent | None, GoModule | None]:
    """The nearest ``go.mod`` above the directory, when there are sources of Go and none beside it."""
    from .manifests import go_module

    if "go.mod" in listing.files or not any(name.endswith(".go") for name in listing.files):
        return None, None
    parts = args.dir.rstrip("/").split("/")
    for number, path in enumerate(args.above, 1):
        try:
            content = await ctx.execution.read_file(target_path(ctx, path), limit=MANIFEST_LIMIT)
        except FileError:
            continue
        return content, go_module(content.text, below="/".join(parts[-number:]))
    return None, None


def _metadata(args: _Arguments, root: FileStat, fetched: Fetched, above: FileContent | None) -> JsonObject:
    """What the result depends on: the names in the directory and the contents that were read, when they are few."""
    if args.recursive or fetched.late or fetched.unreadable or len(fetched.versions) < len(fetched.contents):
        return NOT_KEPT
    return depends_on(root, *fetched.versions, *((above,) if above is not None else ()))


# -- the sources


async def _scan(names: Sequence[str], fetched: Fetched) -> tuple[dict[str, Facts], tuple[Trouble, ...]]:
    """The facts of each file, and what is wrong with the others."""
    from .imports_report import Trouble

    troubles = [Trouble(name, "it cannot be read") for name in names if name in fetched.unreadable]
    troubles += [Trouble(name, "the files before it were too large together") for name in names if name in fetched.late]
    read = {name: data for name in names if (data := fetched.contents.get(name)) is not None}
    sources = {name: source for name, data in read.items() if (source := _source(name, data)) is not None}
    troubles += [Trouble(name, "it is no text") for name in read if name not in sources]
    answers = dict(zip(sources, await facts_in(list(sources.values()), FILE_SECONDS), strict=True))
    found = _within({name: answer.found for name, answer in answers.items() if answer.found is not None})
    if not found and any(answer.problem == "missing" for answer in answers.values()):
        raise UnsupportedOperation(
            "the parsers of these languages are not installed beside harness", hint=install_command(EXTRA)
        )
    for name, answer in answers.items():
        if answer.found is None:
            troubles.append(Trouble(name, PROBLEMS[answer.problem]))
        else:
            troubles += _doubts(name, read[name], answer.found)
    return found, tuple(troubles)


def _within(found: dict[str, Facts]) -> dict[str, Facts]:
    """The same with no more imports in all than are looked up."""
    left, kept = MOST_IMPORTS, {}
    for name, facts in found.items():
        kept[name] = replace(facts, imports=facts.imports[:left])
        left -= len(kept[name].imports)
    return kept


def _source(name: str, data: bytes) -> Source | None:
    from .languages.analysis import is_binary, utf8_of
    from .languages.table import language_of

    text = utf8_of(data[:FILE_LIMIT])
    language = language_of(name, text)
    return Source(language.name, text) if language is not None and not is_binary(text) else None


def _doubts(name: str, data: bytes, facts: Facts) -> Iterator[Trouble]:
    from .imports_report import Trouble

    if len(data) > FILE_LIMIT:
        yield Trouble(name, f"only its first {FILE_LIMIT} bytes were looked at", partly=True)
    elif facts.damage is not None:
        yield Trouble(name, f"line {facts.damage} is no {facts.language} that is known", partly=True)


def _scanned(path: str, facts: Facts, project: Project) -> Scanned:
    from .import_kinds import resolve
    from .imports_report import Scanned

    return Scanned(path, facts, tuple(resolve(item, path, facts, project) for item in facts.imports))


# -- what is known of the tree


def _project(sources: Sequence[str], fetched: Fetched, found: dict[str, Facts], above: GoModule | None) -> Project:
    from .import_kinds import Project
    from .manifests import crate_names, go_module

    modules, crates = ([above] if above is not None else []), set[str]()
    for name, data in fetched.contents.items():
        text = data.decode("utf-8", "replace")
        if posixpath.basename(name) == "go.mod":
            module = go_module(text, posixpath.dirname(name))
            modules += [module] if module is not None else []
        elif posixpath.basename(name) == "Cargo.toml":
            crates.update(crate_names(text))
    return Project(frozenset(sources), tuple(modules), frozenset(crates), _packages(found))


def _packages(found: dict[str, Facts]) -> dict[str, frozenset[str]]:
    packages: dict[str, set[str]] = {}
    for facts in found.values():
        family = "jvm" if facts.language in ("java", "kotlin", "scala") else facts.language
        packages.setdefault(family, set()).update(facts.packages)
    return {family: frozenset(names) for family, names in packages.items()}
