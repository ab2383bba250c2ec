"""The languages: their files, their grammars and their rules."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import c, csharp, ecmascript, go, jvm, lua, php, python, ruby, rust, shell, swift, zig
from .grammar import Grammar, NodeFilter
from .model import Import
from .outline import Outline

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["LANGUAGES", "Language", "language_named", "language_of", "suffixes"]

Finder = Callable[[list["Node"]], Iterator[Import]]
Packages = Callable[["Node"], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Language:
    """One language; ``names`` are whole file names, ``programs`` are interpreters in a ``#!`` line."""

    name: str
    suffixes: tuple[str, ...]
    grammar: Grammar
    outline: Outline
    wanted: NodeFilter
    imports: Finder
    packages: Packages = lambda root: ()
    names: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def _own(package: Callable[[Node], str]) -> Packages:
    return lambda root: (package(root),) if package(root) else ()


_JS = Grammar("tree_sitter_javascript")
_TS = Grammar("tree_sitter_typescript", "language_typescript")
_TSX = Grammar("tree_sitter_typescript", "language_tsx")
_ES = (ecmascript.OUTLINE, ecmascript.IMPORTS, ecmascript.imports_of)
_C = (c.OUTLINE, c.IMPORTS, c.imports_of)
_PACKAGE = _own(jvm.package_of)

LANGUAGES: tuple[Language, ...] = (
    Language(
        "python",
        (".py", ".pyi", ".pyw"),
        Grammar("tree_sitter_python"),
        python.OUTLINE,
        python.IMPORTS,
        python.imports_of,
        names=("SConstruct", "wscript"),
        programs=("python", "python3"),
    ),
    Language("go", (".go",), Grammar("tree_sitter_go"), go.OUTLINE, go.IMPORTS, go.imports_of),
    Language("typescript", (".ts", ".mts", ".cts"), _TS, *_ES, programs=("deno", "ts-node", "tsx", "bun")),
    Language("tsx", (".tsx",), _TSX, *_ES),
    Language("javascript", (".js", ".mjs", ".cjs", ".jsx"), _JS, *_ES, programs=("node", "nodejs")),
    Language("rust", (".rs",), Grammar("tree_sitter_rust"), rust.OUTLINE, rust.IMPORTS, rust.imports_of),
    Language("java", (".java",), Grammar("tree_sitter_java"), jvm.JAVA, jvm.JAVA_IMPORTS, jvm.imports_of, _PACKAGE),
    Language(
        "kotlin",
        (".kt", ".kts"),
        Grammar("tree_sitter_kotlin"),
        jvm.KOTLIN,
        jvm.KOTLIN_IMPORTS,
        jvm.imports_of,
        _PACKAGE,
    ),
    Language(
        "scala", (".scala", ".sc"), Grammar("tree_sitter_scala"), jvm.SCALA, jvm.SCALA_IMPORTS, jvm.imports_of, _PACKAGE
    ),
    Language("c", (".c", ".h"), Grammar("tree_sitter_c"), *_C),
    Language(
        "cpp",
        (".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".h++", ".ipp", ".tpp", ".inl", ".cu", ".cuh"),
        Grammar("tree_sitter_cpp"),
        *_C,
    ),
    Language(
        "csharp",
        (".cs", ".csx"),
        Grammar("tree_sitter_c_sharp"),
        csharp.OUTLINE,
        csharp.IMPORTS,
        csharp.imports_of,
        csharp.package_of,
    ),
    Language(
        "ruby",
        (".rb", ".rake", ".gemspec", ".ru"),
        Grammar("tree_sitter_ruby"),
        ruby.OUTLINE,
        ruby.IMPORTS,
        ruby.imports_of,
        names=("Rakefile", "Gemfile", "Guardfile", "Vagrantfile"),
        programs=("ruby",),
    ),
    Language(
        "shell",
        (".sh", ".bash", ".zsh", ".ksh", ".bats"),
        Grammar("tree_sitter_bash"),
        shell.OUTLINE,
        shell.IMPORTS,
        shell.imports_of,
        names=(".bashrc", ".bash_profile", ".profile", ".zshrc", ".bash_aliases", ".zprofile", "PKGBUILD"),
        programs=("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"),
    ),
    Language(
        "php",
        (".php", ".phtml", ".inc"),
        Grammar("tree_sitter_php", "language_php"),
        php.OUTLINE,
        php.IMPORTS,
        php.imports_of,
        php.package_of,
        programs=("php",),
    ),
    Language("swift", (".swift",), Grammar("tree_sitter_swift"), swift.OUTLINE, swift.IMPORTS, swift.imports_of),
    Language(
        "lua",
        (".lua",),
        Grammar("tree_sitter_lua"),
        lua.OUTLINE,
        lua.IMPORTS,
        lua.imports_of,
        programs=("lua", "luajit"),
    ),
    Language("zig", (".zig",), Grammar("tree_sitter_zig"), zig.OUTLINE, zig.IMPORTS, zig.imports_of),
)

_BY_SUFFIX = {suffix: language for language in LANGUAGES for suffix in language.suffixes}
_BY_FILE = {name: language for language in LANGUAGES for name in language.names}
_BY_PROGRAM = {name: language for language in LANGUAGES for name in language.programs}
_BY_NAME = {language.name: language for language in LANGUAGES}
_PROGRAM = re.compile(rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?([A-Za-z_+-]{1,20})")


def suffixes() -> tuple[str, ...]:
    """Return every suffix of a known language."""
    return tuple(_BY_SUFFIX)


def language_named(name: str) -> Language:
    """Return the language of a name of :data:`LANGUAGES`."""
    return _BY_NAME[name]


def language_of(path: str, head: bytes = b"") -> Language | None:
    """Return the language of a file by its name, else by its ``#!`` line; None if it is unknown. Pure."""
    name = posixpath.basename(path)
    known = _BY_FILE.get(name) or _BY_SUFFIX.get(posixpath.splitext(name)[1]) or _BY_SUFFIX.get(_lower_suffix(name))
    match = _PROGRAM.match(head[:200]) if known is None else None
    return known or (_BY_PROGRAM.get(match[1].decode()) if match else None)


def _lower_suffix(name: str) -> str:
    return posixpath.splitext(name)[1].lower()
