"""The map of the imports of a tree, as text and as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.toolkit import Json, JsonObject, OutputLimit, ToolResult
from harness.toolkit.limits import fit_items

from ..texts import readable_line, readable_name
from .import_kinds import Kind, Resolved
from .imports_fetch import Listing
from .languages.model import Facts, Import

__all__ = ["Package", "Report", "Scanned", "Trouble", "packages_of", "result_of"]

KINDS: tuple[Kind, ...] = ("stdlib", "system", "external", "local", "relative")
NAMED = 10
"""Files that are named of those that use a package, and directories of those that were skipped."""
MOST_PACKAGES = 1_000
SHARE = 0.7
"""How much of the text the files may take; the rest is for the packages."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One file: what it imports, and where each of that leads."""

    path: str
    facts: Facts
    resolved: tuple[Resolved, ...]

    @property
    def pairs(self) -> Iterator[tuple[Import, Resolved]]:
        """Each import with where it leads."""
        return zip(self.facts.imports, self.resolved, strict=True)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A file that was not looked at, or only partly, and why."""

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
    """All that was found. ``beyond`` files were more than are looked at; the policy keeps ``withheld`` back."""

    directory: str
    scanned: tuple[Scanned, ...]
    troubles: tuple[Trouble, ...]
    listing: Listing
    beyond: int = 0
    withheld: int = 0


def packages_of(scanned: Iterable[Scanned]) -> list[Package]:
    """Who uses what, by name. A relative name means another file in each place, so there it is the file."""
    users: dict[tuple[str, Kind], dict[str, None]] = {}
    for one in scanned:
        for item, where in one.pairs:
            names = where.files if where.kind == "relative" and where.files else (item.module,)
            for name in names:
                users.setdefault((name, where.kind), {})[one.path] = None
    return [Package(name, kind, tuple(files)) for (name, kind), files in sorted(users.items())]


def result_of(report: Report, limit: OutputLimit, metadata: JsonObject) -> ToolResult:
    """The result. What is too long for it is counted, files and packages each by itself."""
    room = OutputLimit(int(limit.characters * SHARE), 0)
    shown, fewer = fit_items(report.scanned, lambda some: "\n".join(map(_file_text, some)), room)
    packages = packages_of(report.scanned)
    head, notes = _head(report, packages), [*_notes(report, fewer)]
    rest = limit.characters - len("\n".join([head, *map(_file_text, shown), *notes])) - 200
    some, without = fit_items(packages[:MOST_PACKAGES], _packages_text, OutputLimit(max(0, rest), 0))
    without += len(packages) - len(packages[:MOST_PACKAGES])
    lines = [line for line in (head, *map(_file_text, shown), _packages_text(some)) if line]
    lines += [f"[{without} more packages left out]"] if without else []
    data = _data(report, shown, fewer, some, without)
    return ToolResult.of("\n".join([*lines, *notes]), data=data, metadata=metadata)


def _head(report: Report, packages: Sequence[Package]) -> str:
    if not report.scanned:
        return f"{report.directory}: no source files whose imports are known"
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
    """Without those of the language, which every file uses."""
    lines = [_package_text(package) for package in packages if package.kind not in ("stdlib", "system")]
    return "\n".join(["\nused by:", *lines]) if lines else ""


def _package_text(package: Package) -> str:
    more = f" and {len(package.files) - NAMED} more" if len(package.files) > NAMED else ""
    return f"  {package.name} ({package.kind}): {', '.join(map(readable_name, package.files[:NAMED]))}{more}"


def _notes(report: Report, fewer: int) -> Iterator[str]:
    if fewer:
        yield f"[{fewer} more files left out: the answer would be too long; choose ext or a smaller directory]"
    if report.beyond:
        yield f"[{report.beyond} more files were not looked at; choose ext or a smaller directory]"
    if report.withheld:
        yield f"[{report.withheld} files withheld by the policy]"
    if not report.listing.complete:
        yield "[there are more files than could be listed; choose a smaller directory]"
    yield from _some("skipped", [f"{readable_name(path)}/" for path in report.listing.skipped])
    yield from _some(
        "not looked at", [f"{readable_name(one.path)}: {one.why}" for one in report.troubles if not one.partly]
    )
    yield from _some("in part", [f"{readable_name(one.path)}: {one.why}" for one in report.troubles if one.partly])
    yield from _some("not looked into", [readable_line(text) for text in report.listing.complaints])


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
        "files_not_looked_at": report.beyond,
        "files_withheld": report.withheld,
        "packages_left_out": without,
        "listing_complete": listing.complete,
        "skipped": list(listing.skipped[:MOST_PACKAGES]),
        "skipped_count": len(listing.skipped),
        "errors": [_trouble_data(one) for one in report.troubles[:MOST_PACKAGES]],
        "error_count": len(report.troubles) + len(listing.complaints),
        "complaints": list(listing.complaints[:NAMED]),
    }


def _keyed(packages: Sequence[Package]) -> dict[str, Json]:
    """By name; one that means two things in two files is there twice, the second time with its kind."""
    found: dict[str, Json] = {}
    for package in packages:
        found[package.name if package.name not in found else f"{package.name} ({package.kind})"] = _package_data(
            package
        )
    return found


def _package_data(package: Package) -> Json:
    return {"type": package.kind, "count": len(package.files), "files": list(package.files[:MOST_PACKAGES])}


def _trouble_data(one: Trouble) -> Json:
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
