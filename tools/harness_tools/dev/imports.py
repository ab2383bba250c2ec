"""``imports``: map which files of a tree use which modules, and each other."""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.errors import FileError, NotADirectory, ToolError, UnsupportedOperation
from harness.extras import install_command
from harness.results import FileContent, FileStat, ShellResult, Status
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    JsonObject,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.result_cache import depends_on
from harness.toolkit.results import fit_items
from harness.toolkit.session.file_versions import target_path

from ..texts import Line, readable_line, readable_name
from .import_kinds import Kind, Resolved
from .languages.model import FileImports, Import
from .languages.parsing import EXTRA, Source, facts_in

if TYPE_CHECKING:
    from .import_kinds import GoModule, Project

__all__ = [
    "Imports",
    "Listing",
    "Report",
    "Scanned",
    "parse_listing",
    "parse_stream",
    "result_of",
]


# -- Reading the sources of a tree with three commands: check the directory, list it, and read all contents at once.
#
# The contents are one stream, each between random marks, so that a file that changes meanwhile cannot be confused with
# the next. A few files are read one by one, which makes it possible to detect changes.


FEW = 6
"""Maximum number of files that are read one by one."""
FILE_LIMIT = 256 << 10
"""Maximum bytes of one file that are parsed."""
TOTAL_LIMIT = 16 << 20
LISTING_LIMIT = 8 << 20
SECONDS = 60.0
SKIPPED = (
    *("node_modules", "bower_components", "jspm_packages", "vendor", "third_party", "__pycache__", "venv"),
    *("virtualenv", "site-packages", "dist", "build", "target", "obj", "Pods", "Carthage", "DerivedData"),
)
"""Directories with copies of others' sources or build results; hidden ones are skipped, too."""
# If head does not support -c, the limit of the job's own log truncates the output.
_HEAD = """if (printf x | head -c 1) >/dev/null 2>&1; then hx_all() { head -c "$1"; }; else hx_all() { cat; }; fi; """
_READ = (
    """if (printf x | head -c 1) >/dev/null 2>&1; then hx_head() { head -c "$1"; }; """
    """else hx_head() { dd bs="$1" count=1; }; fi 2>/dev/null\n"""
)
_PRINT = 'for f do printf "%s%s\\0" "$0" "$f"; done'


class ListingTimeout(Exception):
    """The target did not finish in time."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a tree, relative to it and sorted.

    ``complaints`` are the target's messages about unreadable directories. ``complete`` is False if the listing was
    truncated.
    """

    files: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Fetched:
    """Contents by name; long files are truncated. ``unreadable`` could not be read; ``late`` did not fit.

    ``versions`` are the read versions, if the files were few.
    """

    contents: dict[str, bytes]
    unreadable: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    versions: tuple[FileContent, ...] = ()


async def list_sources(ctx: ToolContext, root: str, patterns: Sequence[str], *, recursive: bool) -> Listing:
    """List the files below ``root`` (a real path) whose names match one of the patterns of ``find -name``.

    Raises:
        ListingTimeout: The target did not finish in time.
        ToolError: The outcome is unknown.
    """
    command = listing_command(root, patterns, recursive=recursive)
    done = await _run(ctx, command, "listing", LISTING_LIMIT + 4096)
    return parse_listing(done.stdout_bytes, done.stderr)


def listing_command(root: str, patterns: Sequence[str], *, recursive: bool) -> str:
    """Return the command that lists files. Pure."""
    names = " -o ".join(f"-name {shlex.quote(pattern)}" for pattern in patterns)
    files = f"-type f \\( {names} \\) -exec sh -c {shlex.quote(_PRINT)} F {{}} +"
    pruned = " -o ".join(f"-name {shlex.quote(name)}" for name in (".?*", *SKIPPED))
    skip = f"-type d \\( {pruned} \\) -prune -exec sh -c {shlex.quote(_PRINT)} S {{}} +"
    what = f"{skip} -o {files}" if recursive else f"! -name . -prune {files}"
    return f"{_enter(root)}{_HEAD}find . {what} | hx_all {LISTING_LIMIT}"


def _enter(root: str) -> str:
    return f"LC_ALL=C; export LC_ALL; cd -- {shlex.quote(root)} || exit 71; "


def parse_listing(data: bytes, complaints: str) -> Listing:
    """Parse the output of the command. Pure."""
    *records, rest = data.split(b"\0")
    names: dict[bytes, list[str]] = {b"F": [], b"S": []}
    for record in records:
        if record[:1] in names:
            path = record[1:].decode("utf-8", "surrogateescape")
            names[record[:1]].append(posixpath.normpath(path))
    said = tuple(line for line in complaints.splitlines() if line.strip())
    complete = not rest and len(data) < LISTING_LIMIT
    return Listing(tuple(sorted(names[b"F"])), tuple(sorted(names[b"S"])), said, complete)


async def fetch(ctx: ToolContext, root: str, names: Sequence[str]) -> Fetched:
    """Return the contents of files of a tree.

    Raises:
        ListingTimeout: The target did not finish in time.
        ToolError: The outcome is unknown.
    """
    if len(names) <= FEW:
        return await _fetch_few(ctx, root, names)
    mark = secrets.token_hex(12)
    command = f"{_enter(root)}{_HEAD}sh | hx_all {TOTAL_LIMIT}"
    done = await _run(ctx, command, "reading", TOTAL_LIMIT + 4096, stdin=stream_script(names, mark))
    return parse_stream(done.stdout_bytes, mark, names)


def stream_script(names: Iterable[str], mark: str) -> bytes:
    """Return the script that prints the files one after the other. Pure."""
    show = (
        f"""hx_file() {{ printf '%sF%s\\0' {mark} "$1"; if [ -f "$1" ] && hx_head {FILE_LIMIT + 1} <"$1"; """
        f"""then printf '%s+' {mark}; else printf '%s-' {mark}; fi; }} 2>/dev/null\n"""
    )
    calls = "".join(f"hx_file {shlex.quote('./' + name)}\n" for name in names)
    return (_READ + show + calls).encode("utf-8", "surrogateescape")


def parse_stream(data: bytes, mark: str, names: Sequence[str]) -> Fetched:
    """Parse the output of the script. Pure."""
    contents: dict[str, bytes] = {}
    unreadable: list[str] = []
    pieces = data.split(mark.encode())[1:]
    for piece, end in zip(pieces[::2], pieces[1::2], strict=False):
        name, _, content = piece[1:].partition(b"\0")
        path = posixpath.normpath(name.decode("utf-8", "surrogateescape"))
        if end == b"+":
            contents[path] = content
        elif end == b"-":
            unreadable.append(path)
    known = contents.keys() | set(unreadable)
    return Fetched(contents, tuple(unreadable), tuple(name for name in names if name not in known))


async def _fetch_few(ctx: ToolContext, root: str, names: Sequence[str]) -> Fetched:
    found: dict[str, FileContent | None] = {}

    async def read(name: str) -> None:
        try:
            found[name] = await ctx.execution.read_file(posixpath.join(root, name), limit=FILE_LIMIT + 1)
        except FileError:
            found[name] = None

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(read, name)
    contents = {name: content.data for name in names if (content := found[name]) is not None}
    unreadable = tuple(name for name in names if found[name] is None)
    return Fetched(contents, unreadable, (), tuple(content for content in found.values() if content is not None))


async def _run(ctx: ToolContext, command: str, what: str, room: int, *, stdin: bytes | None = None) -> ShellResult:
    done = await ctx.execution.run_helper(command, stdin=stdin, timeout=SECONDS, max_output=room)
    if done.status is Status.TIMED_OUT:
        raise ListingTimeout(f"{what} the sources took more than {SECONDS:g} s")
    if done.status is not Status.COMPLETED or done.truncated:
        raise ToolError(f"{what} the sources ended as {done.status}", target=ctx.execution.target)
    if done.exit_code == 71:
        raise FileError(done.stderr.strip() or "the directory cannot be entered", target=ctx.execution.target)
    return done


# -- The report, as text and as data. Pure.


KINDS: tuple[Kind, ...] = ("stdlib", "system", "external", "local", "relative")
NAMED = 10
"""Maximum files that are named per package, and skipped directories."""
MAX_PACKAGES = 1_000
SHARE = 0.7
"""Share of the text for the files; the rest is for the packages."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One file: its imports, and what each resolves to."""

    path: str
    facts: FileImports
    resolved: tuple[Resolved, ...]

    @property
    def pairs(self) -> Iterator[tuple[Import, Resolved]]:
        """Each import with what it resolves to."""
        return zip(self.facts.imports, self.resolved, strict=True)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file that was not scanned, or only partly, and why."""

    path: str
    why: str
    partly: bool = False


@dataclass(frozen=True, slots=True)
class Package:
    """One module and the files that import it."""

    name: str
    kind: Kind
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole result; ``unscanned`` files exceed the limit; the policy denies reading ``withheld`` files."""

    directory: str
    scanned: tuple[Scanned, ...]
    troubles: tuple[FileProblem, ...]
    listing: Listing
    unscanned: int = 0
    withheld: int = 0


def packages_of(scanned: Iterable[Scanned]) -> list[Package]:
    """Return the users of each module, by name; a relative import counts as its file, because its name is ambiguous."""
    users: dict[tuple[str, Kind], dict[str, None]] = {}
    for one in scanned:
        for item, where in one.pairs:
            names = where.files if where.kind == "relative" and where.files else (item.module,)
            for name in names:
                users.setdefault((name, where.kind), {})[one.path] = None
    return [Package(name, kind, tuple(files)) for (name, kind), files in sorted(users.items())]


def result_of(report: Report, limit: OutputLimit, metadata: JsonObject) -> ToolResult:
    """Return the result; files and packages that do not fit are counted."""
    room = OutputLimit(int(limit.characters * SHARE), 0)
    shown, fewer = fit_items(report.scanned, lambda some: "\n".join(map(_file_text, some)), room)
    packages = packages_of(report.scanned)
    head, notes = _head(report, packages), [*_notes(report, fewer)]
    rest = limit.characters - len("\n".join([head, *map(_file_text, shown), *notes])) - 200
    some, without = fit_items(packages[:MAX_PACKAGES], _packages_text, OutputLimit(max(0, rest), 0))
    without += len(packages) - len(packages[:MAX_PACKAGES])
    lines = [line for line in (head, *map(_file_text, shown), _packages_text(some)) if line]
    lines += [f"[{without} more packages omitted]"] if without else []
    data = _data(report, shown, fewer, some, without)
    return ToolResult.of("\n".join([*lines, *notes]), data=data, metadata=metadata)


def _head(report: Report, packages: Sequence[Package]) -> str:
    if not report.scanned:
        return f"{report.directory}: no source files in a supported language"
    count = sum(len(one.resolved) for one in report.scanned)
    return f"{report.directory}: {len(report.scanned)} files, {count} imports of {len(packages)} modules"


def _file_text(one: Scanned) -> str:
    lines = [f"\n{readable_name(one.path)} ({one.facts.language})"]
    for kind in KINDS:
        found = [_import_text(item, where) for item, where in one.pairs if where.kind == kind]
        lines += [f"  {kind}: {', '.join(found)}"] if found else []
    return "\n".join(lines if len(lines) > 1 else [*lines, "  (no imports)"])


def _import_text(item: Import, where: Resolved) -> str:
    leads = f" -> {' '.join(map(readable_name, where.files))}" if where.files else ""
    return f"{item.module}:{item.line}{leads}"


def _packages_text(packages: Sequence[Package]) -> str:
    """Return the packages except those of the language, which every file uses."""
    lines = [_package_text(package) for package in packages if package.kind not in ("stdlib", "system")]
    return "\n".join(["\nused by:", *lines]) if lines else ""


def _package_text(package: Package) -> str:
    more = f" and {len(package.files) - NAMED} more" if len(package.files) > NAMED else ""
    return f"  {package.name} ({package.kind}): {', '.join(map(readable_name, package.files[:NAMED]))}{more}"


def _notes(report: Report, fewer: int) -> Iterator[str]:
    if fewer:
        yield f"[{fewer} more files omitted: the result would be too long; choose ext or a smaller directory]"
    if report.unscanned:
        yield f"[{report.unscanned} more files were not scanned; choose ext or a smaller directory]"
    if report.withheld:
        yield f"[{report.withheld} files denied by the policy]"
    if not report.listing.complete:
        yield "[there are more files than could be listed; choose a smaller directory]"
    yield from _some("skipped", [f"{readable_name(path)}/" for path in report.listing.skipped])
    yield from _some(
        "not scanned", [f"{readable_name(one.path)}: {one.why}" for one in report.troubles if not one.partly]
    )
    yield from _some(
        "partly scanned", [f"{readable_name(one.path)}: {one.why}" for one in report.troubles if one.partly]
    )
    yield from _some("not listed", [readable_line(text) for text in report.listing.complaints])


def _some(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"[{what} ({len(names)}): {'; '.join(names[:NAMED])}{more}]"


# -- as data


def _data(report: Report, shown: Sequence[Scanned], fewer: int, packages: Sequence[Package], without: int) -> Json:
    listing = report.listing
    return {
        "dir": report.directory,
        "files": [_file_data(one) for one in shown],
        "packages": _keyed(packages),
        "total_files": len(report.scanned),
        "files_left_out": fewer,
        "files_not_looked_at": report.unscanned,
        "files_withheld": report.withheld,
        "packages_left_out": without,
        "listing_complete": listing.complete,
        "skipped": list(listing.skipped[:MAX_PACKAGES]),
        "skipped_count": len(listing.skipped),
        "errors": [_trouble_data(one) for one in report.troubles[:MAX_PACKAGES]],
        "error_count": len(report.troubles) + len(listing.complaints),
        "complaints": list(listing.complaints[:NAMED]),
    }


def _keyed(packages: Sequence[Package]) -> dict[str, Json]:
    """Return packages by name; a name with two kinds has two entries, the second with its kind."""
    found: dict[str, Json] = {}
    for package in packages:
        found[package.name if package.name not in found else f"{package.name} ({package.kind})"] = _package_data(
            package
        )
    return found


def _package_data(package: Package) -> Json:
    return {"type": package.kind, "count": len(package.files), "files": list(package.files[:MAX_PACKAGES])}


def _trouble_data(one: FileProblem) -> Json:
    return {"file": one.path, "error": one.why, "partly": one.partly}


def _file_data(one: Scanned) -> Json:
    return {
        "file": one.path,
        "language": one.facts.language,
        "imports": [_import_data(item, where) for item, where in one.pairs],
    }


def _import_data(item: Import, where: Resolved) -> Json:
    return {
        "module": item.module,
        "line": item.line,
        "type": where.kind,
        "names": list(item.names),
        "files": list(where.files),
    }


# -- The tool.


MAX_FILES = 2_000
MAX_IMPORTS = 50_000
FILE_SECONDS = 5.0
"""Maximum CPU seconds for parsing one file."""
PROBLEMS = {
    "missing": "the parser of its language is not installed (extra parsers)",
    "hard": "parsing takes too much time or memory",
    "late": "too many files before it could not be parsed",
}
MANIFEST_LIMIT = 64 << 10
MAX_PARENTS = 32
NOT_KEPT: JsonObject = {"depends": None}
"""Metadata of a result that is not cached, because its dependencies cannot be checked."""
LIMIT = OutputLimit(30_000, 0)
EXCLUDING = ".aiexclude"
"""Files that list what agents must not read."""
MANIFESTS = {".go": "go.mod", ".rs": "Cargo.toml"}
DESCRIPTION = """\
Map the imports of the source files in a directory: for each file its imports, with lines, as stdlib, external, local, \
relative or system, and the files that they resolve to; and for each package the files that use it. \
Hidden directories, node_modules, vendor and the like are skipped and named. Languages: Python, Go, TypeScript, \
JavaScript, Rust, Java, Kotlin, Scala, C, C++, C#, Ruby, shell, PHP, Swift, Lua, Zig."""


class _Arguments(Arguments):
    dir: Line = Field(
        description="the directory; ~ is the user's home", validation_alias=AliasChoices("dir", "path", "directory")
    )
    ext: str | None = Field(
        None, description="only files with this ending, such as .go", validation_alias=AliasChoices("ext", "extension")
    )
    recursive: bool = Field(False, description="include subdirectories")

    @field_validator("ext")
    @classmethod
    def _suffix(cls, ext: str | None) -> str | None:
        from .languages.table import suffixes

        if ext is None or not ext.strip():
            return None
        wanted = "." + ext.strip().lower().removeprefix("*").removeprefix(".")
        if wanted not in suffixes():
            raise ValueError(f"unknown extension; known: {', '.join(suffixes())}")
        return wanted

    @property
    def above(self) -> tuple[str, ...]:
        """The paths of ``go.mod`` above the directory, as far as its path names directories; the nearest first."""
        parts = self.dir.rstrip("/").split("/")
        if self.ext not in (None, ".go") or ".." in parts or parts in (["."], ["~"], [""]):
            return ()
        found: list[str] = []
        path = self.dir.rstrip("/")
        while path not in ("", "/", "~", ".") and len(found) < MAX_PARENTS:
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
            raise NotADirectory(
                f"{args.dir} is not a directory", target=ctx.execution.target, hint="sig shows one file"
            )
        try:
            return await self._map(args, ctx, root)
        except ListingTimeout as slow:
            return ToolResult.failure("too_slow", f"{slow}: choose a smaller directory, or omit recursive")

    async def _map(self, args: _Arguments, ctx: ToolContext, root: FileStat) -> ToolResult:

        listing = await list_sources(ctx, root.path, _patterns(args.ext), recursive=args.recursive)
        if listing.complaints and not (listing.files or listing.skipped):
            return ToolResult.failure("not_listed", f"{args.dir} could not be listed: {listing.complaints[0]}")
        manifests = [name for name in listing.files if posixpath.basename(name) in MANIFESTS.values()]
        sources, withheld = await _allowed(ctx, root.path, listing)
        fetched = await fetch(ctx, root.path, [*manifests[:MAX_FILES], *sources[:MAX_FILES]])
        above, module = await _module_above(args, ctx, listing)
        found, troubles = await _scan(sources[:MAX_FILES], fetched)
        metadata = _metadata(args, root, fetched, above)
        project = _project(sources, fetched, found, module)
        beyond = max(0, len(sources) - MAX_FILES)

        def finish() -> ToolResult:
            scanned = tuple(_scanned(path, facts, project) for path, facts in found.items())
            return result_of(Report(args.dir, scanned, troubles, listing, beyond, withheld), LIMIT, metadata)

        return await to_thread.run_sync(finish)


async def _allowed(ctx: ToolContext, root: str, listing: Listing) -> tuple[list[str], int]:
    """Return the sources that the policy allows to read, and the number of the others."""
    other = {EXCLUDING, *MANIFESTS.values()}
    sources = [name for name in listing.files if posixpath.basename(name) not in other]
    holders = [name for name in listing.files if posixpath.basename(name) == EXCLUDING]
    withheld = await ctx.unreadable_paths(
        [posixpath.join(root, name) for name in sources],
        top=root,
        holders=[posixpath.join(root, posixpath.dirname(name)).rstrip("/") or "/" for name in holders],
    )
    allowed = [name for name in sources if posixpath.join(root, name) not in withheld]
    return allowed, len(sources) - len(allowed)


def _patterns(ext: str | None) -> list[str]:
    """Return the patterns for ``find -name``."""
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
    """Return the nearest ``go.mod`` above the directory, if there are Go sources and none is in it."""
    from .import_kinds import go_module

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
    """Return what the result depends on: the names in the directory and the contents, if they are few."""
    if args.recursive or fetched.late or fetched.unreadable or len(fetched.versions) < len(fetched.contents):
        return NOT_KEPT
    return depends_on(root, *fetched.versions, *((above,) if above is not None else ()))


# -- the sources


async def _scan(names: Sequence[str], fetched: Fetched) -> tuple[dict[str, FileImports], tuple[FileProblem, ...]]:
    """Return the facts of each file, and the problems of the others."""

    troubles = [FileProblem(name, "it cannot be read") for name in names if name in fetched.unreadable]
    troubles += [
        FileProblem(name, "the files before it were too large in total") for name in names if name in fetched.late
    ]
    read = {name: data for name in names if (data := fetched.contents.get(name)) is not None}
    sources = {name: source for name, data in read.items() if (source := _source(name, data)) is not None}
    troubles += [FileProblem(name, "it is not text") for name in read if name not in sources]
    answers = dict(zip(sources, await facts_in(list(sources.values()), FILE_SECONDS), strict=True))
    found = _within({name: answer.found for name, answer in answers.items() if answer.found is not None})
    if not found and any(answer.problem == "missing" for answer in answers.values()):
        raise UnsupportedOperation("the parsers for these languages are not installed", hint=install_command(EXTRA))
    for name, answer in answers.items():
        if answer.found is None:
            troubles.append(FileProblem(name, PROBLEMS[answer.problem]))
        else:
            troubles += _doubts(name, read[name], answer.found)
    return found, tuple(troubles)


def _within(found: dict[str, FileImports]) -> dict[str, FileImports]:
    """Return the facts, truncated to the maximum number of imports."""
    left, kept = MAX_IMPORTS, {}
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


def _doubts(name: str, data: bytes, facts: FileImports) -> Iterator[FileProblem]:

    if len(data) > FILE_LIMIT:
        yield FileProblem(name, f"only its first {FILE_LIMIT} bytes were parsed", partly=True)
    elif facts.damage is not None:
        yield FileProblem(name, f"line {facts.damage} is not valid {facts.language}", partly=True)


def _scanned(path: str, facts: FileImports, project: Project) -> Scanned:
    from .import_kinds import resolve

    return Scanned(path, facts, tuple(resolve(item, path, facts, project) for item in facts.imports))


# -- facts about the tree


def _project(
    sources: Sequence[str], fetched: Fetched, found: dict[str, FileImports], above: GoModule | None
) -> Project:
    from .import_kinds import Project, crate_names, go_module

    modules, crates = ([above] if above is not None else []), set[str]()
    for name, data in fetched.contents.items():
        text = data.decode("utf-8", "replace")
        if posixpath.basename(name) == "go.mod":
            module = go_module(text, posixpath.dirname(name))
            modules += [module] if module is not None else []
        elif posixpath.basename(name) == "Cargo.toml":
            crates.update(crate_names(text))
    return Project(frozenset(sources), tuple(modules), frozenset(crates), _packages(found))


def _packages(found: dict[str, FileImports]) -> dict[str, frozenset[str]]:
    packages: dict[str, set[str]] = {}
    for facts in found.values():
        family = "jvm" if facts.language in ("java", "kotlin", "scala") else facts.language
        packages.setdefault(family, set()).update(facts.packages)
    return {family: frozenset(names) for family, names in packages.items()}
