"""Resolving imports: the language's own library, another project, or a file of the same tree. Pure."""

from __future__ import annotations

import posixpath
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from .languages.model import FileImports, Import

__all__ = [
    "GoModule",
    "Kind",
    "Project",
    "Resolved",
    "crate_names",
    "go_module",
    "resolve",
]


# -- The standard modules of each language, if this process cannot query them.


_NODE = """
assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events
fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream
string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib
"""
NODE = frozenset(_NODE.split())
RUST = frozenset(["std", "core", "alloc", "proc_macro", "test"])
JVM = frozenset(["java", "javax", "jdk", "sun", "kotlin", "scala"])
C_SHARP = ("System", "Microsoft.CSharp", "Microsoft.VisualBasic", "Microsoft.Win32")
_RUBY = """
English abbrev base64 benchmark bigdecimal bundler cgi coverage csv date delegate did_you_mean digest drb erb
error_highlight etc expect fcntl fiber fiddle fileutils find forwardable getoptlong io ipaddr irb json logger matrix
minitest monitor mutex_m net nkf objspace observer open-uri open3 openssl optparse ostruct pathname pp prettyprint
prime prism pstore psych pty racc rbconfig rdoc readline reline resolv rexml rinda ripper rss rubygems securerandom
set shellwords singleton socket stringio strscan syslog tempfile thread time timeout tmpdir tsort un uri weakref
webrick win32ole yaml zlib
"""
RUBY = frozenset(_RUBY.split())
_SWIFT = """
Accelerate AppKit ARKit AVFoundation AVKit CloudKit CoreBluetooth CoreData CoreFoundation CoreGraphics CoreImage
CoreLocation CoreML CoreMotion CoreText Combine CryptoKit Darwin Dispatch Foundation FoundationNetworking GameKit
GLKit Glibc HealthKit ImageIO IOKit Intents JavaScriptCore LocalAuthentication MapKit MediaPlayer MessageUI Metal
MetalKit Musl NaturalLanguage Network ObjectiveC Observation OSLog PackageDescription PassKit PDFKit Photos PhotosUI
QuartzCore QuickLook RegexBuilder SafariServices SceneKit Security Social SpriteKit StoreKit Swift SwiftData SwiftUI
Synchronization SystemConfiguration Testing UIKit UniformTypeIdentifiers UserNotifications Vision WatchKit WebKit
WidgetKit WinSDK XCTest os
"""
SWIFT = frozenset(_SWIFT.split())
LUA = frozenset(["bit", "bit32", "coroutine", "debug", "ffi", "io", "jit", "math", "os", "string", "table", "utf8"])
ZIG = frozenset(["std", "builtin", "root"])


# -- Resolving imports. Pure.


Kind = Literal["stdlib", "external", "local", "relative", "system"]
ES_SUFFIXES = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".json")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The kind of an import, and the files of the tree that it resolves to, if known."""

    kind: Kind
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GoModule:
    """A Go module: its directory in the tree (``""`` is the root), and the import path of that directory.

    ``root`` is the path of the whole module, which may start above the tree.
    """

    directory: str
    path: str
    root: str


@dataclass(frozen=True)
class Project:
    """Facts about the tree: its files, Go modules and crates, and the packages that its files declare."""

    files: frozenset[str]
    modules: tuple[GoModule, ...] = ()
    crates: frozenset[str] = frozenset()
    packages: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def directories(self) -> frozenset[str]:
        """The directories with files, and those above them; the root is ``""``."""
        return frozenset(above for path in self.files for above in parents(path))

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        named: dict[str, list[str]] = {}
        for path in sorted(self.files):
            named.setdefault(posixpath.basename(path), []).append(path)
        return named

    def one_of(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the first of the paths that is in the tree."""
        return next(((path,) for path in map(_normal, paths) if path in self.files), ())

    def ending(self, tail: str, near: str) -> tuple[str, ...]:
        """Return the file whose path ends with ``tail``; of several, the one nearest to ``near``."""
        wanted = "/" + _normal(tail).lstrip("/")
        found = [path for path in self._by_name.get(posixpath.basename(wanted), ()) if f"/{path}".endswith(wanted)]
        return (max(found, key=lambda path: (len(posixpath.commonprefix([path, near])), -len(path))),) if found else ()


def parents(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first, the root (``""``) last."""
    while path:
        path = posixpath.dirname(path)
        yield path


def _normal(path: str) -> str:
    return posixpath.normpath(path) if path else path


def resolve(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    """Resolve an import of the file ``path``."""
    rule = _RULES.get(facts.language, _other)
    return rule(item, path, facts, project)


Rule = Callable[[Import, str, FileImports, Project], Resolved]


def _other(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    return Resolved("external")


# -- Python


def _python(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.form == "relative":
        rest = item.module.lstrip(".")
        base = posixpath.dirname(path)
        for _ in range(len(item.module) - len(rest) - 1):
            base = posixpath.dirname(base) if base else ".."
        return Resolved("relative", _python_files(base, rest, item.names, project))
    top = item.module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return Resolved("stdlib")
    for root in dict.fromkeys([*parents(path), "src", "lib"]):
        place = posixpath.join(root, top)
        if place in project.directories or project.one_of([f"{place}.py", f"{place}.pyi"]):
            found = _python_files(root, item.module, item.names, project)
            return Resolved("local", found or _python_elsewhere(item.module, path, project))
    return Resolved("external")


def _python_files(base: str, module: str, names: tuple[str, ...], project: Project) -> tuple[str, ...]:
    """Return the modules among the names, else the module itself."""
    place = posixpath.join(base, *module.split(".")) if module else base
    inside = [project.one_of(_python_forms(posixpath.join(place, name))) for name in names]
    found = tuple(dict.fromkeys(file for files in inside for file in files))
    return found or project.one_of(_python_forms(place))


def _python_elsewhere(module: str, near: str, project: Project) -> tuple[str, ...]:
    """Return the module elsewhere in the tree: a package's root need not be the root of the tree."""
    place = module.replace(".", "/")
    return project.ending(f"{place}.py", near) or project.ending(f"{place}/__init__.py", near)


def _python_forms(place: str) -> tuple[str, ...]:
    return (f"{place}.py", f"{place}/__init__.py", f"{place}.pyi", f"{place}/__init__.pyi")


# -- Go


def _go(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.module.startswith((".", "/")):
        return Resolved("relative")
    above = {directory: number for number, directory in enumerate(parents(path))}
    owners = [module for module in project.modules if module.directory in above]
    module = min(owners, key=lambda owner: above[owner.directory], default=None)
    if module is not None and _below(item.module, module.root, "/"):
        return Resolved("local", _go_files(item.module, module, project))
    if item.module == "C":
        return Resolved("system")
    return Resolved("external" if "." in item.module.partition("/")[0] else "stdlib")


def _go_files(name: str, module: GoModule, project: Project) -> tuple[str, ...]:
    """Return the directory of the package, if it is in the tree."""
    if not _below(name, module.path, "/"):
        return ()
    place = _normal(posixpath.join(module.directory, name[len(module.path) :].lstrip("/")))
    return (place or ".",) if place in project.directories or place == "." else ()


def _below(name: str, root: str, separator: str) -> bool:
    return name == root or name.startswith(root + separator)


# -- JavaScript and TypeScript


def _ecmascript(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    name = item.module
    if name.startswith("."):
        return Resolved("relative", _es_file(posixpath.join(posixpath.dirname(path), name), project))
    if name.startswith(("node:", "bun:")) or name.partition("/")[0] in NODE:
        return Resolved("stdlib")
    if name.startswith(("@/", "~/", "#", "/")):
        tail = name.lstrip("@~#/")
        roots = [posixpath.join(root, tail) for above in parents(path) for root in (f"{above}/src".lstrip("/"), above)]
        return Resolved("local", next((found for root in roots if (found := _es_file(root, project))), ()))
    return Resolved("external")


def _es_file(place: str, project: Project) -> tuple[str, ...]:
    stem = posixpath.splitext(place)[0] if place.endswith((".js", ".mjs", ".cjs", ".jsx")) else place
    forms = [place, *(place + suffix for suffix in ES_SUFFIXES), *(stem + suffix for suffix in ES_SUFFIXES)]
    return project.one_of([*forms, *(f"{place}/index{suffix}" for suffix in ES_SUFFIXES)])


# -- Rust


def _rust(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    top = item.module.removeprefix("::").partition("::")[0]
    directory, stem = posixpath.dirname(path), posixpath.splitext(posixpath.basename(path))[0]
    own = directory if stem in ("mod", "lib", "main", "build") else posixpath.join(directory, stem)
    if item.form == "declared":
        return Resolved("local", project.one_of([f"{own}/{top}.rs".lstrip("/"), f"{own}/{top}/mod.rs".lstrip("/")]))
    if top in ("self", "super"):
        return Resolved("relative")
    if top in RUST:
        return Resolved("stdlib")
    declared = {other.module for other in facts.imports if other.form == "declared"}
    is_local = top == "crate" or top in declared or top in project.crates
    return Resolved("local" if is_local else "external")


# -- Java, Kotlin, Scala


def _jvm(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    parts = item.module.replace("_root_.", "").split(".")
    known = project.packages.get("jvm", frozenset())
    for length in range(len(parts) - 1, 0, -1):
        if ".".join(parts[:length]) in known:
            return Resolved("local", _jvm_file(parts, length, path, project))
        if not parts[length - 1][:1].isupper():
            break
    if ".".join(parts[:-1] if parts[-1] in ("*", "_") else parts) in known:
        return Resolved("local")
    return Resolved("stdlib" if parts[0] in JVM else "external")


def _jvm_file(parts: list[str], length: int, path: str, project: Project) -> tuple[str, ...]:
    stem = "/".join([*parts[:length], parts[length].rstrip("*_")])
    found = (project.ending(f"{stem}{suffix}", path) for suffix in (".java", ".kt", ".scala"))
    return next((files for files in found if files), ())


# -- C and C++


def _c(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    beside = project.one_of([posixpath.join(posixpath.dirname(path), item.module)])
    if item.form == "quoted":
        return Resolved("local", beside or project.ending(item.module, path))
    if item.form == "system":
        roots = [posixpath.join(root, "include", item.module) for root in parents(path)]
        inside = project.one_of(roots)
        return Resolved("local", inside) if inside else Resolved("system")
    return Resolved("external")


# -- C#


def _csharp(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    known = project.packages.get("csharp", frozenset())
    if any(_below(name, item.module, ".") or _below(item.module, name, ".") for name in known):
        return Resolved("local")
    return Resolved("stdlib" if any(_below(item.module, name, ".") for name in C_SHARP) else "external")


# -- Ruby


def _ruby(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    file = item.module if item.module.endswith(".rb") else f"{item.module}.rb"
    if item.form in ("relative", "path"):
        return Resolved("relative", project.one_of([posixpath.join(posixpath.dirname(path), file), file]))
    found = project.one_of([*(posixpath.join(root, "lib", file) for root in parents(path)), file])
    if found:
        return Resolved("local", found)
    return Resolved("stdlib" if item.module.partition("/")[0] in RUBY else "external")


# -- shell


def _shell(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.form == "path" and item.module.startswith(("/", "~")):
        return Resolved("system")
    if item.form == "path":
        return Resolved("relative", project.one_of([posixpath.join(posixpath.dirname(path), item.module), item.module]))
    return Resolved("local", project.ending(tail, path) if (tail := _literal_tail(item.module)) else ())


def _literal_tail(text: str) -> str:
    """Return the end of a path whose start is computed: ``lib/x.sh`` of ``$(dirname "$0")/lib/x.sh``."""
    return text[_last_computed(text) :].strip("/'\" ")


def _last_computed(text: str) -> int:
    plain = text.rstrip("'\"")
    cut = max(plain.rfind(mark) for mark in "})\"'`")
    dollar = plain.rfind("$")
    if dollar > cut:
        slash = plain.find("/", dollar)
        return slash if slash >= 0 else len(plain)
    return cut + 1


# -- PHP


def _php(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.form == "path":
        return Resolved("relative", project.one_of([posixpath.join(posixpath.dirname(path), item.module), item.module]))
    if item.form == "dynamic":
        tail = _literal_tail(item.module)
        return Resolved("relative", project.ending(tail, path) if tail else ())
    known = project.packages.get("php", frozenset())
    space, _, name = item.module.rpartition("\\")
    if any(_below(space, one, "\\") for one in known if one):
        return Resolved("local", project.ending(f"{name}.php", path))
    return Resolved("external" if space else "stdlib")


# -- Swift, Lua, Zig


def _swift(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if any(posixpath.basename(directory) == item.module for directory in project.directories):
        return Resolved("local")
    return Resolved("system" if item.module in SWIFT else "external")


def _lua(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.form == "path":
        return Resolved("relative", project.one_of([posixpath.join(posixpath.dirname(path), item.module), item.module]))
    place = item.module.replace(".", "/")
    found = project.ending(f"{place}.lua", path) or project.ending(f"{place}/init.lua", path)
    if found:
        return Resolved("local", found)
    return Resolved("stdlib" if item.module in LUA else "external")


def _zig(item: Import, path: str, facts: FileImports, project: Project) -> Resolved:
    if item.form == "path":
        return Resolved("relative", project.one_of([posixpath.join(posixpath.dirname(path), item.module)]))
    return Resolved("stdlib" if item.module in ZIG else "external")


_RULES: dict[str, Rule] = {
    "python": _python,
    "go": _go,
    "typescript": _ecmascript,
    "tsx": _ecmascript,
    "javascript": _ecmascript,
    "rust": _rust,
    "java": _jvm,
    "kotlin": _jvm,
    "scala": _jvm,
    "c": _c,
    "cpp": _c,
    "csharp": _csharp,
    "ruby": _ruby,
    "shell": _shell,
    "php": _php,
    "swift": _swift,
    "lua": _lua,
    "zig": _zig,
}


# -- Names that the manifests of a tree declare as its own. Pure.


_MODULE = re.compile(r"^[ \t]*module[ \t]+(?:\"([^\"\n]{1,500})\"|`([^`\n]{1,500})`|([^\s/\"`][^\s\"`]{0,500}))", re.M)


def go_module(text: str, directory: str = "", below: str = "") -> GoModule | None:
    """Return the module of a ``go.mod`` in ``directory`` of the tree; None if it names none.

    ``below`` is the path from a ``go.mod`` above the tree down to the tree.
    """
    match = _MODULE.search(text)
    if match is None:
        return None
    root = next(name for name in match.groups() if name)
    return GoModule(directory, posixpath.join(root, below) if below else root, root)


def crate_names(text: str) -> tuple[str, ...]:
    """Return the names of the crate of a ``Cargo.toml``; empty if the file is invalid."""
    try:
        manifest = tomllib.loads(text)
    except (ValueError, RecursionError):
        return ()
    tables = (manifest.get("package"), manifest.get("lib"))
    names = [table.get("name") for table in tables if isinstance(table, dict)]
    return tuple(name.replace("-", "_") for name in names if isinstance(name, str))
