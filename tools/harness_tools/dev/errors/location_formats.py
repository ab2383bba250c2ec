"""Parsers for locations: ``file:line:column: severity: message [code]``, similar formats, and stack frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from .problem import Log, ParsedProblem, Problem, Severity, severity_of

__all__ = [
    "bare",
    "colon",
    "leading_code",
    "linker",
    "looks_like_file",
    "maven",
    "paren",
    "split_code",
    "stack",
]


# -- Exceptions above their stack frames: Java and related languages, Node, .NET.


_THROWN = re.compile(
    r'(?:Exception in thread "[^"]{0,200}" |Unhandled exception\. |Caused by: |Uncaught )?'
    r"((?:[\w$]{1,100}\.){0,20}(?:[A-Z][\w$]{0,100})?(?:Error|Exception|Throwable))(?: \[[\w.-]{1,80}\])?(?:: (.*))?$"
)
_PLACE_IN_STACK = re.compile(r":(?:line )?(\d{1,9})(?::(\d{1,9}))?$")
_ABOVE = re.compile(r"(\S.{0,1000}\.[cm]?[jt]sx?):(\d{1,9})$")
"""Where Node found a syntax error: above the source line and the arrow."""
_OWN = ("java.", "javax.", "jdk.", "sun.")
"""Calls inside the language's library: the location is further down."""
_STACK_FORMATS = {"java": "java", "kt": "java", "scala": "java", "groovy": "java", "cs": "dotnet", "fs": "dotnet"}
_LOOK = 6
"""Maximum lines of a message, and of what Node prints above it."""
_DEEP = 3_000
"""Maximum calls of one stack trace."""


class _FrameLocation(NamedTuple):
    file: str = ""
    line: int = 0
    col: int = 0


def is_frame(line: str) -> bool:
    """Return whether a line is one call of a stack trace."""
    return line[:1] in (" ", "\t") and line.lstrip().startswith("at ")


def stack(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``NameOfError: message`` and the first call below it that is not in the language's library."""
    line = log.lines[at].strip()
    match = _THROWN.match(line) if "Error" in line or "Exception" in line or "Throwable" in line else None
    first = _first_frame(log, at + 1) if match else 0
    if match is None or not first:
        return None
    frames = list(_frames(log, first))
    place = next((place for frame in frames if (place := _place(frame)).file), None) or _above(log, at)
    said = " ".join([match[2] or match[1], *(more.strip() for more in log.lines[at + 1 : first])])
    form = _STACK_FORMATS.get(place.file.rpartition(".")[2], "node" if place.file else "unknown")
    return ParsedProblem((Problem(*place, match[1], "error", said.strip(), form),), first + len(frames))


def _first_frame(log: Log, at: int) -> int:
    """Return the number of the line with the first call; 0 without one."""
    for number in range(at, min(at + _LOOK, len(log.lines))):
        if is_frame(log.lines[number]):
            return number
        if not log.lines[number].strip() or _THROWN.match(log.lines[number].strip()):
            break
    return 0


def _frames(log: Log, at: int) -> Iterator[str]:
    for line in log.lines[at : at + _DEEP]:
        if not is_frame(line):
            return
        yield line.strip()[3:]


def _place(frame: str) -> _FrameLocation:
    """Return the location of a call; empty inside the language's library."""
    inside = frame.rpartition("(")[2][:-1] if frame.endswith(")") else frame.rpartition(" in ")[2]
    match = _PLACE_IN_STACK.search(inside)
    path = inside[: match.start()].removeprefix("file://").removeprefix("async ") if match else ""
    if match is None or path.startswith(("node:", "internal/")) or frame.startswith(_OWN):
        return _FrameLocation()
    return _FrameLocation(path, int(match[1]), int(match[2] or 0))


def _above(log: Log, at: int) -> _FrameLocation:
    for number in range(at - 1, max(-1, at - _LOOK), -1):
        if match := _ABOVE.match(log.lines[number]):
            return _FrameLocation(match[1].removeprefix("file://"), int(match[2]))
    return _FrameLocation()


# -- Locations and messages: ``file:line:column: severity: message [code]`` and similar formats.


_SOURCES = """
    ada adb ads asm astro bas bash bat bzl c c++ cc cfg clj cljs cmake coffee cpp cs cshtml css csv cts cu cxx d dart
    dockerfile ejs el elm erl ex exs f f90 for fs fsx go gradle graphql groovy h h++ hbs hcl hh hpp hs html hxx ini inl
    ipp java jl js json json5 jsx ksh kt kts less lhs lisp lua m make mak md mdx mjs mk ml mli mm mod mts nim nix pas
    php phtml pl pm po pp proto ps1 pug py pyi pyw pyx r rake razor rb rs rst s sass scala scm scss sh sol sql svelte
    svg swift t tcl templ tex tf toml ts tsx txt v vala vb vbproj vhd vue wat xaml xml yaml yml zig zsh cjs csproj
    fsproj props targets tmpl tpl lock rules ipynb cnf conf service txt
"""
_EXTENSIONS = frozenset(_SOURCES.split())
_NAMES = frozenset({"makefile", "gnumakefile", "dockerfile", "build", "rakefile", "gemfile", "justfile", "jenkinsfile"})
_PLACE = re.compile(r":(\d{1,9})(?::(\d{1,9}))?(?=[:\s]|$)")
_SEVERITY = re.compile(
    r"(fatal error|internal compiler error|sorry, unimplemented|error|warning|note|info|remark|help|hint)"
    r"(?:\[([\w:.-]{1,80})\])?:[ \t]*",
    re.IGNORECASE,
)
_LEADING_CODE = re.compile(
    r"(?:([A-Z]{1,6}\d{2,5}|invalid-syntax)(?::| \[\*\]|)|\[([a-z][\w-]{1,40}|[A-Z]{1,6}\d{2,5})\])[ \t]+"
)
_CODE = re.compile(r"-W[\w=+,-]{1,80}|[A-Za-z@][\w@./,=+:-]{0,80}")
_THREW = re.compile(r"([A-Z]\w{1,80}(?:Error|Exception|Warning))(?::|$)")
"""The name of a Python exception or warning."""
_GO_LINTERS = """
    asciicheck bodyclose containedctx copyloopvar cyclop depguard dupl dupword errcheck errname errorlint exhaustive
    forbidigo funlen gci gochecknoglobals gochecknoinits gocognit goconst gocritic gocyclo godot godox gofmt gofumpt
    goimports gosec gosimple govet ineffassign lll maintidx misspell mnd nakedret nestif nilerr nilnil nlreturn noctx
    nolintlint paralleltest prealloc predeclared revive rowserrcheck sqlclosecheck staticcheck stylecheck tagliatelle
    testpackage thelper tparallel typecheck unconvert unparam unused usestdlibvars varnamelen wastedassign whitespace
    wrapcheck wsl
"""
_LINTERS = frozenset(_GO_LINTERS.split())
_JAVA_DETAIL = re.compile(r"  (symbol|location|required|found|reason): {1,5}(.+)")


class _Message(NamedTuple):
    severity: Severity
    code: str
    message: str
    explicit: bool


def _base(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2].lower()


def _extension(path: str) -> str:
    name, dot, extension = _base(path).rpartition(".")
    return extension if dot and name else ""


def looks_like_file(path: str, *, certain: bool) -> bool:
    """Return whether a text names a source file; ``certain``: an error follows, so any word may be one."""
    if not path or "://" in path or path != path.strip():
        return False
    if _extension(path) in _EXTENSIONS or _base(path) in _NAMES or (path[0], path[-1]) == ("<", ">"):
        return True
    return certain and " " not in path


def split_code(message: str, *, opened: str = " [", closed: str = "]") -> tuple[str, str]:
    """Split a message and the code in brackets at its end."""
    if not message.endswith(closed):
        return message, ""
    at = message.rfind(opened)
    code = message[at + len(opened) : -len(closed)] if at >= 0 else ""
    return (message[:at].rstrip(), code) if _CODE.fullmatch(code) else (message, "")


def leading_code(message: str) -> tuple[str, str]:
    """Split a message into its leading code and the rest."""
    match = _LEADING_CODE.match(message)
    return (match[1] or match[2], message[match.end() :]) if match else ("", message)


def _said(rest: str, path: str) -> _Message:
    match = _SEVERITY.match(rest)
    severity: Severity = severity_of(match[1]) if match else "error"
    code = (match[2] or "") if match else ""
    message = rest[match.end() :] if match else rest
    extension = _extension(path)
    if not code and extension == "go":
        message, code = split_code(message, opened=" (", closed=")")
        message, code = (message, code) if code in _LINTERS else (rest if not match else f"{message} ({code})", "")
        return _Message(severity, code, message.strip(), match is not None)
    if not code and match is None and (threw := _THREW.match(message)):
        kind: Severity = "warning" if threw[1].endswith("Warning") else "error"
        return _Message(kind, threw[1], message[threw.end() :].strip() or threw[1], False)
    if not code:
        message, code = split_code(message.rstrip())
    if not code and (code := leading_code(message)[0]):
        message = leading_code(message)[1]
        severity = "warning" if match is None and code[0] == "W" else severity
    return _Message(severity, code, message.strip(), match is not None)


_FORMATS = {
    "go": "go",
    "java": "javac",
    "kt": "kotlin",
    "kts": "kotlin",
    "rs": "rust",
    **dict.fromkeys(
        ("c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "m", "mm", "inl", "cu", "s", "asm"), "gcc"
    ),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "vue"), "eslint"),
    **dict.fromkeys(("ts", "tsx", "mts", "cts"), "tsc"),
}


def _format(path: str, said: _Message) -> str:
    extension = _extension(path)
    if extension in ("py", "pyi", "pyx", "ipynb"):
        if said.code == "invalid-syntax":
            return "ruff"
        return "mypy" if said.explicit else "flake8" if said.code[-1:].isdecimal() else "python"
    return _FORMATS.get(extension, "gcc" if said.explicit else "unknown")


def colon(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``file:line:column: message``, of gcc, clang, go, mypy, ruff, flake8, javac, eslint and others."""
    line = log.lines[at]
    if ":" not in line or is_frame(line) or _RUBY_FRAME.match(line):
        return None
    start = len(line) - len(line.lstrip()) + 2  # after a drive letter
    match = _PLACE.search(line, start)
    for _ in range(3):  # a time or a port may precede the location
        if match is None:
            return None
        found = _at_place(log, at, match)
        if found is not None:
            return found
        match = _PLACE.search(line, match.end())
    return None


_BEFORE = re.compile(
    r"(?:vet|In file included from|from|\[?(?:error|err|fatal|warning|warn)\]?:?|\*\* \(\w{1,100}\)):? ",
    re.IGNORECASE,
)


_CONTEXT = ("required from ", "required by ", "recursively required ")
"""GCC's context lines before an error."""
_RUBY_FRAME = re.compile(r"\s+from \S{1,1000}:\d{1,9}:in ")


def _at_place(log: Log, at: int, match: re.Match[str]) -> ParsedProblem | None:
    line = log.lines[at]
    path, rest = _path(line[: match.start()]), line[match.end() :].lstrip(":").strip()
    if not rest or rest.startswith("- ") or (line[match.end() : match.end() + 1] != ":" and not match[2]):
        return None
    said = _said(rest, path)
    if said.message.startswith(_CONTEXT) and not said.explicit:
        said = said._replace(severity="note")
    if not said.message or not looks_like_file(path, certain=said.explicit):
        return None
    form = _format(path, said)
    said, upto = _MORE.get(form, _no_more)(log, at + 1, said)
    place = (path, int(match[1]), int(match[2] or 0))
    return ParsedProblem((Problem(*place, said.code, said.severity, said.message, form),), upto)


def _no_more(log: Log, at: int, said: _Message) -> tuple[_Message, int]:
    return said, at


def _eslint(log: Log, at: int, said: _Message) -> tuple[_Message, int]:
    """Parse a trailing ``[Error/rule]`` for the severity and the rule."""
    word, _, rule = said.code.partition("/")
    return (said._replace(severity=severity_of(word), code=rule) if word in ("Error", "Warning") else said), at


def _mypy(log: Log, at: int, said: _Message) -> tuple[_Message, int]:
    """Join a message that mypy wrapped at a terminal; the code is at the end of the last line."""
    for number in range(at, min(at + 4, len(log.lines)) if not said.code else at):
        line = log.lines[number].rstrip()
        if not line or line[0] in " \t" or _PLACE.search(line):
            break
        whole = " ".join([said.message, *(more.strip() for more in log.lines[at : number + 1])])
        message, code = split_code(whole)
        if code:
            return said._replace(message=message, code=code), number + 1
    return said, at


def _path(text: str) -> str:
    text = text.strip()
    word = _BEFORE.match(text)
    text = text[word.end() :] if word else text
    before, program, path = text.rpartition("ld: ")
    return path if program and " " not in before else text


def _javac(log: Log, at: int, said: _Message) -> tuple[_Message, int]:
    details, upto = _details(log, at)
    return said._replace(message=said.message + details), upto


_MORE: Mapping[str, Callable[[Log, int, _Message], tuple[_Message, int]]] = {
    "eslint": _eslint,
    "mypy": _mypy,
    "javac": _javac,
}
"""Program-specific details in other positions, or in the lines below."""


def _details(log: Log, at: int) -> tuple[str, int]:
    """Parse javac's details below the source line: which symbol, and where it was searched."""
    found: list[str] = []
    upto = at
    for number in range(at, min(at + 8, len(log.lines))):
        match = _JAVA_DETAIL.match(log.lines[number])
        if match:
            found.append(f"{match[1]}: {match[2].strip()}")
            upto = number + 1
        elif found or (log.lines[number][:1] not in (" ", "\t") and ".java:" in log.lines[number]):
            break
    return (f" ({', '.join(found)})" if found else ""), upto


# -- file(line,column): severity code: message

_PAREN = re.compile(r"\((\d{1,9})(?:,(\d{1,9}))?(?:[,-]\d{1,9}){0,2}\)[ \t]?: ")
_CODED = re.compile(
    r"(?:[\w-]{1,30} ){0,2}?(fatal error|error|warning|info|message|suggestion)(?: ([A-Za-z]{1,8}\d{1,8}))? ?: "
)
_NODE = re.compile(r"[ \t]{0,20}(?:\d{1,4}>)?[ \t]{0,20}")
_PROJECT = re.compile(r" \[[^\[\]]{1,1000}proj(?:::[^\[\]]{0,200})?\]$")


def paren(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``file(line,column): error CS0103: message [project]``, of tsc, msbuild and MSVC; location optional."""
    line = log.lines[at]
    if ": " not in line:
        return None
    start = _NODE.match(line)
    first = start.end() if start else 0
    match = _PAREN.search(line, first)
    if match is not None and (said := _CODED.match(line, match.end())):
        place = (line[first : match.start()], int(match[1]), int(match[2] or 0))
        return _coded(log, at, place, said)
    for sign in (" : error ", " : fatal error ", " : warning "):
        origin, found, _ = line.partition(sign)
        if found and (said := _CODED.match(line, len(origin) + 3)) and said[2]:
            return _coded(log, at, ("", 0, 0), said)
    bare_said = _CODED.match(line, first)
    return _coded(log, at, ("", 0, 0), bare_said) if bare_said and (bare_said[2] or "").startswith("TS") else None


def _coded(log: Log, at: int, place: tuple[str, int, int], said: re.Match[str]) -> ParsedProblem:
    line = log.lines[at]
    code = said[2] or ""
    form = "tsc" if code.startswith("TS") else "dotnet" if code else "gcc"
    message = _PROJECT.sub("", line[said.end() :].rstrip()) if line.endswith("]") else line[said.end() :].rstrip()
    if not code:  # clang in MSVC's format
        message, code = split_code(message)
    more, upto = _continued(log, at + 1) if form == "tsc" else ("", at + 1)
    return ParsedProblem((Problem(*place, code, severity_of(said[1]), message + more, form),), upto)


def _continued(log: Log, at: int) -> tuple[str, int]:
    """Return the indented lines below a message of tsc, which explain it."""
    upto = at
    while upto < len(log.lines) and upto < at + 20 and log.lines[upto].startswith("  ") and log.lines[upto].strip():
        upto += 1
    return "".join(f"\n{line.rstrip()}" for line in log.lines[at:upto]), upto


# -- others

_MAVEN = re.compile(r"\[(ERROR|WARNING)\] ([^\[\]]{1,2000}):\[(\d{1,9}),(\d{1,9})\] ")


def maven(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``[ERROR] file:[line,column] message``."""
    match = _MAVEN.match(log.lines[at]) if log.lines[at][:1] == "[" else None
    if match is None:
        return None
    message = log.lines[at][match.end() :].removeprefix("error: ").strip()
    form = "kotlin" if match[2].endswith((".kt", ".kts")) else "javac"
    details, upto = _details(log, at + 1)
    problem = Problem(match[2], int(match[3]), int(match[4]), "", severity_of(match[1]), message + details, form)
    return ParsedProblem((problem,), upto)


_COMPILERS = frozenset({"cc", "cc1", "cc1plus", "collect2", "c++", "clang", "clang++", "g++", "gcc", "ld"})
_LINKER = (
    *("undefined reference to ", "multiple definition of ", "undefined symbol: ", "Undefined symbols for "),
    *("cannot find -l", "symbol(s) not found for "),
)


def linker(log: Log, at: int) -> ParsedProblem | None:
    """Parse a linker error, which has sections of object files instead of lines."""
    line = log.lines[at]
    found = next((word for word in _LINKER if word in line), "")
    if not found or _PLACE.search(line):
        return None
    before, _, rest = line.partition(found)
    file = _path(before.rstrip(" :").partition(":(")[0]).rpartition(": ")[2]
    named = "" if _base(file) in _COMPILERS else file
    return ParsedProblem((Problem(named, 0, 0, "", "error", found + rest.strip(), "gcc"),), at + 1)


_BARE = re.compile(r"(?:([\w.+/-]{1,100}): )?(fatal error|error|fatal|Error|ERROR|FATAL): ?(.+)")
_SUMMARIES = ("aborting due to ", "could not compile ", "ld returned ", "linker command failed", "build failed")


def bare(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``program: error: message`` without a location."""
    line = log.lines[at]
    match = (
        _BARE.match(line) if "rror: " in line or "atal: " in line or "FATAL: " in line or "ERROR: " in line else None
    )
    if match is None or match[3].startswith(_SUMMARIES):
        return None
    form = "gcc" if match[1] in _COMPILERS else "unknown"
    return ParsedProblem((Problem("", 0, 0, "", "error", match[3].strip(), form),), at + 1)
