"""Parsers for problems of several lines, or in sentences: tracebacks, pytest, rustc, eslint, shells, servers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .location_formats import leading_code, looks_like_file, split_code
from .problem import Log, ParsedProblem, Problem, severity_of

__all__ = [
    "annotation",
    "arrow",
    "cmake",
    "go_panic",
    "kotlin",
    "pretty",
    "pytest",
    "rust_panic",
    "sentence",
    "shell",
    "stylish",
    "summary",
    "syntax",
    "traceback",
]


# -- Locations in a sentence: shells, CMake, PHP, Perl, nginx and similar servers.


_CMAKE = re.compile(r"CMake (Error|Warning)(?: \(dev\))? at ([^:]{1,1000}):(\d{1,9})(?: \((\w{1,60})\))?:")


def cmake(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``CMake Error at file:line (command):``, with the message in the lines below."""
    match = _CMAKE.match(log.lines[at]) if log.lines[at].startswith("CMake ") else None
    if match is None:
        return None
    said: list[str] = []
    upto = at + 1
    for line in log.lines[at + 1 : at + 20]:
        if line[:1] not in ("", " ") or (said and not line.strip()):
            break
        upto += 1
        said += [line.strip()] if line.strip() else []
    problem = Problem(match[2], int(match[3]), 0, match[4] or "", severity_of(match[1]), " ".join(said), "cmake")
    return ParsedProblem((problem,), upto)


_AGAIN = re.compile(r"\S{1,1000}:\d{1,9}(?::\d{1,9})?: ")
_UNESCAPED = {"%0A": "\n", "%0D": "", "%3A": ":", "%2C": ",", "%25": "%"}


def annotation(log: Log, at: int) -> ParsedProblem | None:
    """Parse a GitHub annotation: ``::error file=app.js,line=1,col=5::message``."""
    head, found, message = log.lines[at].removeprefix("::").partition("::")
    word, _, rest = head.partition(" ")
    if not found or not log.lines[at].startswith("::") or word not in ("error", "warning", "notice"):
        return None
    said = {name.strip(): _plain(value) for name, _, value in (one.partition("=") for one in rest.split(","))}
    line, col = (int(value[:9]) if (value := said.get(name, "")).isdecimal() else 0 for name in ("line", "col"))
    again = _AGAIN.match(message)  # some programs repeat the location in the message
    code, message = leading_code(_plain(message[again.end() :] if again else message).strip())
    severity = "note" if word == "notice" else severity_of(word)
    return ParsedProblem((Problem(said.get("file", ""), line, col, code, severity, message, "unknown"),), at + 1)


def _plain(text: str) -> str:
    return re.sub("|".join(_UNESCAPED), lambda match: _UNESCAPED[match[0]], text)


_SHELL = re.compile(r"([^\s:]{1,1000}): (?:line )?(\d{1,9}): (.+)")


def shell(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``file: line 5: message`` of bash, ``file: 5: message`` of dash."""
    match = _SHELL.match(log.lines[at]) if ": " in log.lines[at] else None
    if match is None or not looks_like_file(match[1], certain=False):
        return None
    return ParsedProblem((Problem(match[1], int(match[2]), 0, "", "error", match[3].strip(), "shell"),), at + 1)


_ON_LINE = re.compile(r" (?:in|at) ([^\s:]{1,1000})(?:(?:,)? (?:on )?line (\d{1,9})|:(\d{1,9})$)")
_LEVEL = re.compile(r"\b(?:(warn)\w*|(notice|info|debug))\b", re.IGNORECASE)


def sentence(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``message in file on line 3``, ``message at file line 3.``, ``message in /etc/nginx/nginx.conf:3``."""
    line = log.lines[at]
    match = _ON_LINE.search(line) if " in " in line or " at " in line else None
    if match is None or not looks_like_file(match[1], certain=False):
        return None
    level = _LEVEL.search(line, 0, min(match.start(), 100))
    severity = severity_of("" if level is None else "warning" if level[1] else "note")
    message = line[: match.start()].strip()
    if message == "thrown":  # PHP repeats the location
        return ParsedProblem((), at + 1)
    return ParsedProblem((Problem(match[1], int(match[2] or match[3]), 0, "", severity, message, "unknown"),), at + 1)


# -- Python tracebacks and pytest reports.


_FRAME = re.compile(r'  File "([^"]{1,2000})", line (\d{1,9})')
_RAISED = re.compile(r"([A-Za-z_][\w.]{0,200})(?::[ \t]?(.*))?$")
_START = "Traceback (most recent call last):"
_DEEP = 3_000
"""Maximum lines of one traceback: unlimited recursion shows a thousand frames."""


def traceback(log: Log, at: int) -> ParsedProblem | None:
    """Parse a traceback: the location, the exception, and its message."""
    line = log.lines[at]
    start = line.find(_START)
    if start < 0:
        return None
    start -= len("Exception Group ") if line[:start].endswith("Exception Group ") else 0
    start -= 2 if line[:start].endswith("+ ") else 0
    place = ("", 0)
    for number in range(at + 1, min(at + _DEEP, len(log.lines))):
        text = log.lines[number][start:].removeprefix("| ")
        if match := _FRAME.match(text):
            place = (match[1], int(match[2]))
        elif text and text[0] not in " \t":
            return ParsedProblem((_raised(place, text),), number + 1)
        elif not text.strip() and _START in "".join(log.lines[number : number + 3]):
            break
    return None


def _raised(place: tuple[str, int], text: str) -> Problem:
    match = _RAISED.match(text)
    code, message = (match[1], match[2] or match[1]) if match else ("", text)
    return Problem(*place, 0, code, "error", message.strip(), "python")


_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): ")


def syntax(log: Log, at: int) -> ParsedProblem | None:
    """Parse a Python syntax error, which has a location but no traceback."""
    line = log.lines[at].removeprefix("*** ").removeprefix("Sorry: ")
    match = _FRAME.match(line) if 'File "' in line else None
    if match is None:
        return None
    for number in range(at + 1, min(at + 6, len(log.lines))):
        if _SYNTAX.match(log.lines[number]):
            return ParsedProblem((_raised((match[1], int(match[2])), log.lines[number]),), number + 1)
    return None


# -- pytest

_PART = re.compile(r"={2,200} (.{1,200}) ={2,200}$")
_TEST = re.compile(r"_{2,200} (.{1,500}) _{1,200}$")
_AT = re.compile(r"([^:\s][^:]{0,1000}\.py):(\d{1,9}): ?(.*)")
_THREW = re.compile(
    r"(?:[\w.]{1,200}\.)?(\w{1,100}(?:Error|Exception|Exit|Interrupt|Warning|Failed|Fixture\w{1,40}))\b:?"
)


def _thrown(said: str) -> str:
    threw = _THREW.match(said)
    return threw[1] if threw else "AssertionError" if said.startswith("assert ") else ""


_CHAINED = frozenset(
    {
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    }
)
"""The exception after such a line is the one that made the test fail."""


@dataclass(slots=True)
class _Failure:
    """A failed test, while its part of the report is read."""

    test: str
    said: str = ""
    place: tuple[str, int] = ("", 0)
    code: str = ""
    closed: bool = False
    native: list[Problem] = field(default_factory=list)

    def line(self, line: str) -> None:
        if self.closed:
            return
        if line in _CHAINED:
            self.said = self.code = ""
        elif line.startswith("-----"):
            self.closed = True  # followed by the captured output of the test
        elif line.startswith("E   "):
            self.said = self.said or line[4:].strip()
        elif match := _AT.match(line):
            self.place = (match[1], int(match[2]))
            self.code = _thrown(match[3]) or self.code

    def problem(self) -> Problem | None:
        if not (self.said or self.place[0]):
            last = self.native[-1] if self.native else None
            return last._replace(message=f"{self.test}: {last.message}") if last else None
        code = self.code or _thrown(self.said)
        message = f"{self.test}: {self.said}" if self.said else self.test
        return Problem(*self.place, 0, code, "error", message, "pytest")


def pytest(log: Log, at: int) -> ParsedProblem | None:
    """Parse the failures part of a report, up to the next headline."""
    part = _PART.match(log.lines[at]) if log.lines[at].startswith("==") else None
    if part is None or part[1] not in ("FAILURES", "ERRORS"):
        return None
    state = _Part()
    number = at + 1
    while number < len(log.lines) and not (log.lines[number].startswith("==") and _PART.match(log.lines[number])):
        number = _in_report(log, number, state)
    shown = [problem for failure in state.failures if (problem := failure.problem())]
    log.tests.update(failure.test for failure in state.failures)
    log.tests.update(problem.message for problem in state.problems)
    return ParsedProblem((*state.problems, *shown), number)


@dataclass(slots=True)
class _Part:
    """The parsed part of the report; ``said`` is the message that ``--tb=line`` prints before the location."""

    failures: list[_Failure] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    said: str = ""

    def untitled(self, line: str) -> None:
        if line.startswith("E   "):
            self.said = line[4:].strip()
        elif (match := _AT.match(line)) and self.said and match[3].strip() == self.said:
            place = (match[1], int(match[2]))
            self.problems.append(Problem(*place, 0, _thrown(self.said), "error", self.said, "pytest"))


def _in_report(log: Log, number: int, state: _Part) -> int:
    """Read one line of the part, or a traceback in it, and return the number of the next one."""
    failures = state.failures
    line = log.lines[number]
    if line.startswith("__") and (title := _TEST.match(line)):
        failures.append(_Failure(title[1]))
        return number + 1
    if failures and not failures[-1].closed and (found := traceback(log, number)):
        failures[-1].native += [problem._replace(format="pytest") for problem in found.problems]
        return found.upto
    if failures:
        failures[-1].line(line)
    else:
        state.untitled(line)
    return number + 1


_SUMMARY = re.compile(r"(FAILED|ERROR) ([^ ]{1,2000}\.py[^ ]{0,1000}(?:\[.{0,500}?\])?)(?: - (.*))?$")


def summary(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``FAILED file.py::test - message`` for failures that were not shown before."""
    line = log.lines[at]
    match = _SUMMARY.match(line) if line.startswith(("FAILED ", "ERROR ")) else None
    if match is None:
        return None
    file, _, test = match[2].partition("::")
    name = test.replace("::", ".")
    if log.tests & {name, f"ERROR at setup of {name}", f"ERROR at teardown of {name}", f"ERROR collecting {file}"}:
        return ParsedProblem((), at + 1)
    said = match[3] or match[1].lower()
    if said in log.tests:
        return ParsedProblem((), at + 1)
    message = f"{name}: {said}" if name else said
    return ParsedProblem((Problem(file, 0, 0, _thrown(said), "error", message, "pytest"),), at + 1)


# -- Problems of several lines: rustc and similar formats, eslint's groups, kotlin, panics of Go and Rust.


_HEAD = re.compile(r"(error|warning|note|help|failure-note)(?:\[([\w:.-]{1,80})\])?: ")
_RUFF = re.compile(r"([A-Z]{1,6}\d{2,5}|[a-z]{1,20}-[a-z]{1,20})(?::| \[\*\]|) ")
_LINT = re.compile(r"#\[(?:warn|deny|forbid)\(([\w:]{1,80})\)\]")
_LOOK = 40
"""Maximum lines of one problem."""


def arrow(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``error[E0308]: message`` above ``--> file:line:column``."""
    stripped = log.lines[at].strip()
    if not stripped.startswith("--> "):
        return None
    parts = stripped[4:].rsplit(":", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    place = (parts[0], int(parts[1][:9]), int(parts[2][:9]))
    ruff = _RUFF.match(log.lines[at - 1]) if at else None
    if ruff is not None and not place[0].endswith(".rs"):  # the lines above belong to another problem
        return ParsedProblem(
            (Problem(*place, ruff[1], "error", log.lines[at - 1][ruff.end() :].strip(), "ruff"),), at + 1
        )
    for number in range(at - 1, max(-1, at - 6), -1):
        if match := _HEAD.match(log.lines[number]):
            return _of_rustc(log, at, number, match, place)
        if not log.lines[number].strip():
            break
    return None


def _of_rustc(log: Log, at: int, head: int, match: re.Match[str], place: tuple[str, int, int]) -> ParsedProblem:
    if match[1] not in ("error", "warning"):
        return ParsedProblem((), at + 1)
    message = " ".join([log.lines[head][match.end() :].strip(), *(line.strip() for line in log.lines[head + 1 : at])])
    form = "ruff" if place[0].endswith((".py", ".pyi", ".ipynb")) else "rust"
    code = match[2] or _lint(log, at + 1)
    return ParsedProblem((Problem(*place, code, severity_of(match[1]), message, form),), at + 1)


def _lint(log: Log, at: int) -> str:
    for line in log.lines[at : at + _LOOK]:
        if not line.strip():
            break
        if match := _LINT.search(line):
            return match[1]
    return ""


_RUST_PANIC = re.compile(
    r"thread '[^']{0,200}'(?: \(\d{1,20}\))? panicked at (?:'(.*)', )?([^':]{1,1000}):(\d{1,9}):(\d{1,9}):?$"
)


def rust_panic(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``thread 'main' panicked at src/main.rs:2:5:``, with the message below or before the location."""
    line = log.lines[at]
    match = _RUST_PANIC.match(line) if line.startswith("thread '") else None
    if match is None:
        return None
    below = log.lines[at + 1].strip() if at + 1 < len(log.lines) else ""
    message = match[1] if match[1] is not None else below
    place = (match[2], int(match[3]), int(match[4]))
    return ParsedProblem((Problem(*place, "panic", "error", message, "rust"),), at + 1 + (match[1] is None))


_GO_FRAME = re.compile(r"\t(.{1,2000}\.go):(\d{1,9})(?: \+0x[0-9a-f]{1,16})?$")


def go_panic(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``panic: message`` and the first location below it that is not in Go itself."""
    line = log.lines[at]
    if not line.startswith(("panic: ", "fatal error: all goroutines")):
        return None
    for number in range(at + 1, min(at + _LOOK, len(log.lines))):
        if log.lines[number].startswith("panic: "):
            break
        match = _GO_FRAME.match(log.lines[number])
        if match and "/src/runtime/" not in match[1] and "/src/testing/" not in match[1]:
            message = line.removeprefix("panic: ").removesuffix(" [recovered]")
            return ParsedProblem((Problem(match[1], int(match[2]), 0, "panic", "error", message, "go"),), number + 1)
    return None


_ENTRY = re.compile(r"[ \t]{1,8}(\d{1,9}):(\d{1,9}) +(error|warning) +")


def stylish(log: Log, at: int) -> ParsedProblem | None:
    """Parse a file name, and below it eslint's ``line:column  severity  message  rule``."""
    file = log.lines[at]
    if file[:1] in ("", " ", "\t") or at + 1 >= len(log.lines) or not _ENTRY.match(log.lines[at + 1]):
        return None
    problems = []
    upto = at + 1
    while upto < len(log.lines) and (match := _ENTRY.match(log.lines[upto])):
        message, rule = _rule(log.lines[upto][match.end() :].rstrip())
        place = (file.rstrip(), int(match[1]), int(match[2]))
        problems.append(Problem(*place, rule, severity_of(match[3]), message, "eslint"))
        upto += 1
    return ParsedProblem(tuple(problems), upto)


def _rule(text: str) -> tuple[str, str]:
    message, gap, rule = text.rpartition("  ")
    return (message.rstrip(), rule) if gap and rule and " " not in rule else (text, "")


_PRETTY = re.compile(r" - (error|warning|message|suggestion)(?: (TS\d{1,6}))?: ")


def pretty(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``file:line:column - error TS2322: message``, of tsc at a terminal."""
    line = log.lines[at]
    match = _PRETTY.search(line) if " - " in line else None
    parts = line[: match.start()].rsplit(":", 2) if match else []
    if match is None or len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    place = (parts[0].strip(), int(parts[1][:9]), int(parts[2][:9]))
    upto = at + 1
    while upto < min(at + 20, len(log.lines)) and log.lines[upto].startswith("  ") and log.lines[upto].strip():
        upto += 1
    message = "\n".join([line[match.end() :].rstrip(), *(more.rstrip() for more in log.lines[at + 1 : upto])])
    return ParsedProblem((Problem(*place, match[2] or "", severity_of(match[1]), message, "tsc"),), upto)


_OLD_KOTLIN = re.compile(r": \((\d{1,9}), (\d{1,9})\): ")
_NEW_KOTLIN = re.compile(r":(\d{1,9}):(\d{1,9}):? ")
_KOTLIN_SEVERITY = {"e": "error", "w": "warning", "i": "info"}


def kotlin(log: Log, at: int) -> ParsedProblem | None:
    """Parse ``e: file:///path:line:column message``, and the older ``e: path: (line, column): message``."""
    line = log.lines[at]
    if line[1:3] != ": " or line[0] not in _KOTLIN_SEVERITY:
        return None
    match = _OLD_KOTLIN.search(line) or _NEW_KOTLIN.search(line)
    severity = severity_of(_KOTLIN_SEVERITY[line[0]])
    if match is None:
        return ParsedProblem((Problem("", 0, 0, "", severity, line[3:].strip(), "kotlin"),), at + 1)
    path = line[3 : match.start()].removeprefix("file://")
    message, code = split_code(line[match.end() :].strip())
    return ParsedProblem((Problem(path, int(match[1]), int(match[2]), code, severity, message, "kotlin"),), at + 1)
