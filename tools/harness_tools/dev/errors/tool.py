"""``errs``: errors and warnings from the output of compilers, linters and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from anyio import to_thread
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from harness.results import ShellResult, Status
from harness.toolkit import Arguments, Category, Json, Tool, ToolContext, ToolResult, Traits

from ...texts import REPORT, Content, Line, clip, fit
from .parse import ALIASES, Format, Report, parse
from .problem import Problem

__all__ = ["Errs"]

INPUT = 8 << 20
"""Maximum characters of input, and bytes of a job's output; of longer output the start and the end are read."""
REMEMBERED = 64 << 10
"""Maximum characters of an input whose result is cached."""
SETTLED = 0.2
"""Seconds to wait for a running job."""
MESSAGE = 2_000
"""Maximum characters of one message that are shown."""

DESCRIPTION = """\
Find the errors and warnings in the output of compilers, linters and tests: one list with file, line, column, code, \
severity and message, each once, without colors and source excerpts. Supports Go, GCC, Clang, rustc, cargo, tsc, \
ESLint, .NET, MSVC, pytest, mypy, ruff, flake8, kotlinc, javac, Maven, exceptions of Python, Java, Node and .NET, and \
similar formats. Give the text, or the id of a job."""


def _canonical(value: object) -> object:
    name = value.strip().lower() if isinstance(value, str) else value
    return ALIASES.get(name, name) if isinstance(name, str) else name


class _Arguments(Arguments):
    input: Content | None = Field(
        None,
        max_length=INPUT,
        description="the output, as it was printed",
        validation_alias=AliasChoices("input", "text", "output"),
    )
    job_id: Line | None = Field(
        None,
        description="instead of input: a job of the target, also one that still runs",
        validation_alias=AliasChoices("job_id", "bash_id", "shell_id"),
    )
    format: Annotated[Format, BeforeValidator(_canonical)] | None = Field(
        None, description="format of the output; detected by default, also for several programs in one text"
    )

    @model_validator(mode="after")
    def _one_source(self) -> _Arguments:
        if (self.input is None) == (self.job_id is None):
            raise ValueError("give one of input and job_id")
        return self


class Errs(Tool[_Arguments]):
    """``errs``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.SHELL, parallelizable=True, cacheable=True, packs=("dev",), limit=REPORT, timeout=120
        )
        super().__init__("errs", DESCRIPTION, _Arguments, traits)

    def traits_of(self, args: _Arguments) -> Traits:
        """Return the traits: a text is parsed locally; the output of a job is on the target, and may grow."""
        if args.input is None:
            return replace(self.traits, cacheable=False)
        return replace(self.traits, category=Category.NONE, cacheable=len(args.input) <= REMEMBERED)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        if args.input is not None:
            return _result(await to_thread.run_sync(parse, args.input, args.format), ())
        done = await ctx.execution.wait(args.job_id or "", timeout=SETTLED, max_output=INPUT)
        text = done.stdout + ("\n" if done.stdout and done.stderr else "") + done.stderr
        return _result(await to_thread.run_sync(parse, text, args.format), _notes(done))


def _notes(done: ShellResult) -> tuple[str, ...]:
    """Return notices about the job."""
    notes = list(done.notices)
    if done.status is Status.RUNNING:
        notes.append(f"job {done.job_id} is still running: there may be more")
    if done.truncated:
        notes.append(f"{done.truncated} bytes in the middle of the output were not read")
    if done.exit_code is not None:
        notes.append(f"job {done.job_id} ended with exit code {done.exit_code}")
    return tuple(notes)


# -- the result


def _result(report: Report, notes: tuple[str, ...]) -> ToolResult:
    kept, _ = fit(report.problems, lambda some: _text(report, some, notes), lambda some: _data(report, some, notes))
    return ToolResult.of(_text(report, kept, notes), data=_data(report, kept, notes))


def _summary(report: Report) -> str:
    if not report.total:
        return "no errors found" + (f" with the rules of {report.format}" if report.format != "unknown" else "")
    parts = [
        f"{count} {severity}{'s' * (count != 1)}"
        for severity in ("error", "warning", "note")
        if (count := report.counts.get(severity, 0))
    ]
    return f"{', '.join(parts)} in {report.files} file{'s' * (report.files != 1)} ({report.format})"


def _text(report: Report, problems: Sequence[Problem], notes: tuple[str, ...]) -> str:
    lines = [_summary(report), *(_line(problem) for problem in problems)]
    if dropped := report.total - len(problems):
        lines.append(f"[{dropped} more omitted]")
    return "\n".join([*lines, *(f"notice: {note}" for note in notes)])


def _line(problem: Problem) -> str:
    place = ":".join([problem.file, *(str(number) for number in (problem.line, problem.col) if number)])
    code = f"[{problem.code}]" if problem.code else ""
    message = clip(problem.message, MESSAGE).replace("\n", "\n    ")
    return f"{place}: {problem.severity}{code}: {message}" if place else f"{problem.severity}{code}: {message}"


def _data(report: Report, problems: Sequence[Problem], notes: tuple[str, ...]) -> Json:
    return {
        "errors": [_fields(problem) for problem in problems],
        "format": report.format,
        "count": report.total,
        "files": report.files,
        "repeated": report.repeated,
        "left_out": report.total - len(problems),
        "summary": _summary(report),
        "notices": list(notes),
    }


def _fields(problem: Problem) -> Json:
    return {
        "file": problem.file,
        "line": problem.line,
        "col": problem.col,
        "code": problem.code,
        "severity": problem.severity,
        "message": clip(problem.message, MESSAGE),
    }
