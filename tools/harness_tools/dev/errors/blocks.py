"""Python's tracebacks and pytest's reports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .model import Log, Problem, Read

__all__ = ["pytest", "summary", "syntax", "traceback"]

_FRAME = re.compile(r'  File "([^"]{1,2000})", line (\d{1,9})')
_RAISED = re.compile(r"([A-Za-z_][\w.]{0,200})(?::[ \t]?(.*))?$")
_START = "Traceback (most recent call last):"
_DEEP = 3_000
"""Lines of one traceback, at most: what recurses without end shows a thousand frames."""


def traceback(log: Log, at: int) -> Read | None:
    """A traceback: where it was raised, what, and its message."""
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
            return Read((_raised(place, text),), number + 1)
        elif not text.strip() and _START in "".join(log.lines[number : number + 3]):
            break
    return None


def _raised(place: tuple[str, int], text: str) -> Problem:
    match = _RAISED.match(text)
    code, message = (match[1], match[2] or match[1]) if match else ("", text)
    return Problem(*place, 0, code, "error", message.strip(), "python")


_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): ")


def syntax(log: Log, at: int) -> Read | None:
    """A mistake that Python finds before it runs anything: a place, and no traceback."""
    line = log.lines[at].removeprefix("*** ").removeprefix("Sorry: ")
    match = _FRAME.match(line) if 'File "' in line else None
    if match is None:
        return None
    for number in range(at + 1, min(at + 6, len(log.lines))):
        if _SYNTAX.match(log.lines[number]):
            return Read((_raised((match[1], int(match[2])), log.lines[number]),), number + 1)
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
"""What comes below it is what the test failed with."""


@dataclass(slots=True)
class _Failure:
    """One test that failed, while its part of the report is read."""

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
            self.closed = True  # below it is what the test printed
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


def pytest(log: Log, at: int) -> Read | None:
    """The part of a report that shows each failure, up to the next headline."""
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
    return Read((*state.problems, *shown), number)


@dataclass(slots=True)
class _Part:
    """What was read of a part of the report; ``said`` is what ``--tb=line`` says before it says where."""

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
    """Read one line of the part, or a traceback in it; returns the number of the next one."""
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


def summary(log: Log, at: int) -> Read | None:
    """``FAILED file.py::test - message``, for failures that were not shown before."""
    line = log.lines[at]
    match = _SUMMARY.match(line) if line.startswith(("FAILED ", "ERROR ")) else None
    if match is None:
        return None
    file, _, test = match[2].partition("::")
    name = test.replace("::", ".")
    if log.tests & {name, f"ERROR at setup of {name}", f"ERROR at teardown of {name}", f"ERROR collecting {file}"}:
        return Read((), at + 1)
    said = match[3] or match[1].lower()
    if said in log.tests:
        return Read((), at + 1)
    message = f"{name}: {said}" if name else said
    return Read((Problem(file, 0, 0, _thrown(said), "error", message, "pytest"),), at + 1)
