"""``errs``: real output of compilers, linters and tests, and text that means harm."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, ToolCall
from harness.toolkit.arguments import parse_arguments
from harness.toolkit.values import Category
from harness_tools.dev.errors.parse import ALIASES, BY_FORMAT, KEPT, parse
from harness_tools.dev.errors.problem import Problem, without_escapes
from harness_tools.dev.errors.tool import Errs

DATA = Path(__file__).parents[2] / "data" / "errs"
NAMES = sorted(path.stem for path in DATA.glob("*.txt"))


def written(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}:{problem.col}"
    message = problem.message.replace("\n", "\\n")
    return f"{place} {problem.severity} [{problem.code}] {message}"


def expected() -> dict[str, list[str]]:
    """What is expected of each file: ``== name format``, then a line for each problem."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (DATA / "expected").read_text().splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line[3:], [])
        elif line:
            lines.append(line)
    return found


EXPECTED = expected()


def read(name: str) -> str:
    return (DATA / f"{name}.txt").read_bytes().decode()


def test_every_output_has_its_expectation() -> None:
    assert sorted(title.split()[0] for title in EXPECTED) == NAMES


def test_real_output_is_read() -> None:
    for title in EXPECTED:
        name, form = title.split()
        report = parse(read(name))
        assert (report.format, [written(problem) for problem in report.problems]) == (form, EXPECTED[title])
        assert report.total == len(report.problems)


@pytest.mark.parametrize("title", EXPECTED)
def test_a_hint_finds_no_less_than_the_format_alone(title: str) -> None:
    """The same problems are found when the caller says whose output it is."""
    name, form = title.split()
    hint: Any = form if form in BY_FORMAT else None
    found = {(one.file, one.line, one.code, one.message) for one in parse(read(name), hint).problems}
    if name == "ci-log":  # of several programs
        assert len(found) == 3
        return
    assert found == {(one.file, one.line, one.code, one.message) for one in parse(read(name)).problems}


@pytest.mark.parametrize(("plain", "coloured"), [("eslint-stylish", "eslint-colour"), ("rustc", "rustc-colour")])
def test_colours_change_nothing(plain: str, coloured: str) -> None:
    assert "\x1b" in read(coloured)
    assert parse(read(coloured)).problems == parse(read(plain)).problems


def test_what_was_said_already_is_counted_and_not_repeated() -> None:
    text = read("gcc")
    once, twice = parse(text), parse(text + text)
    assert (twice.problems, twice.repeated) == (once.problems, once.total)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all is well",
        "12:30:45: started",
        "connect to http://example.org:8080: refused",
        "10.0.0.1:443: closed",
        "ratio 3:4: fine",
        "see RFC 2119: it says so",
        "key: value: 3: 4",
        "   | 3:4: x",
        "tests/test_x.py::test_a PASSED",
        "[1, 2, 3]",
        '{"a": 1}',
        "[{}]",
        "we met at noon in the park, line 3",
        "make: *** [Makefile:3: all] Error 1",
        "    at Object.<anonymous> (/p/t.js:1:7)",
        '[{"messages": [3, {"line": "x"}], "filePath": 4}]',
    ],
)
def test_what_is_no_complaint_is_none(text: str) -> None:
    assert [one for one in parse(text).problems if one.file or one.line] == []


WHAT_OTHERS_WRITE_IS = [
    (r"C:\a b\x.c:5:3: error: no", r"C:\a b\x.c:5:3 error [] no"),
    ("[error] /p/Foo.scala:3:5: not found: value x", "/p/Foo.scala:3:5 error [] not found: value x"),
    ("** (CompileError) lib/a.ex:3: undefined", "lib/a.ex:3:0 error [] undefined"),
    ("a.py:1:0: C0114: No docstring", "a.py:1:0 error [C0114] No docstring"),
    ("a/b.py:3: DeprecationWarning: old", "a/b.py:3:0 warning [DeprecationWarning] old"),
    ("a.sh:3:5: note: Quote it. [SC2086]", "a.sh:3:5 note [SC2086] Quote it."),
    ("./a.sh: line 5: syntax error", "./a.sh:5:0 error [] syntax error"),
    ("a.sh: 5: Syntax error: no", "a.sh:5:0 error [] Syntax error: no"),
    ("PHP Parse error:  no in /p/a.php on line 3", "/p/a.php:3:0 error [] PHP Parse error:  no"),
    ("syntax error at a.pl line 3, near x", "a.pl:3:0 error [] syntax error"),
    ("nginx: [emerg] no in /etc/nginx/nginx.conf:3", "/etc/nginx/nginx.conf:3:0 error [] nginx: [emerg] no"),
    ("x [warn] no in /etc/nginx/a.conf:7", "/etc/nginx/a.conf:7:0 warning [] x [warn] no"),
    ("CMake Error at CMakeLists.txt:3 (find):\n  No\n  x.\n\nz", "CMakeLists.txt:3:0 error [find] No x."),
    ("/usr/bin/ld: cannot find -lfoo", ":0:0 error [] cannot find -lfoo"),
    ("thread 'x' panicked at 'no', src/a.rs:2:5", "src/a.rs:2:5 error [panic] no"),
    ("a.swift:1:5: error: cannot find 'x'", "a.swift:1:5 error [] cannot find 'x'"),
    ("a.py:3: [F401] unused", "a.py:3:0 error [F401] unused"),
    ("#12 3.456 a.c:5:3: error: no", "a.c:5:3 error [] no"),
    ("web-1  | 2026-01-02T03:04:05.123Z a.c:5:3: error: no", "a.c:5:3 error [] no"),
    ("my_app.x_12 | a.py:3: DeprecationWarning: old", "a.py:3:0 warning [DeprecationWarning] old"),
    ("a.cc:3:7:   required from here", "a.cc:3:7 note [] required from here"),
    (
        "::error title=x (F1),file=/p/a.py,line=2,col=5::a.py:2:5: F401 no%3A%0A x",
        r"/p/a.py:2:5 error [F401] no:\n x",
    ),
    ("::warning file=a.js,line=1::old", "a.js:1:0 warning [] old"),
    ("a.rb:2:in `f': bad (E)\n\tfrom a.rb:4:in `<main>'", "a.rb:2:0 error [] in `f': bad (E)"),
    (
        "PHP Fatal error:  no in /p/a.php:2\n  thrown in /p/a.php on line 2",
        "/p/a.php:2:0 error [] PHP Fatal error:  no",
    ),
    ("warning: `A` (A1) is old\nF401 [*] `os` unused\n --> a.py:1:8\n", "a.py:1:8 error [F401] `os` unused"),
    (
        '{"code":"F401","filename":"a.py","location":{"row":1,"column":8},"message":"no"}',
        "a.py:1:8 error [F401] no",
    ),
    (
        "/t.js:1\nx\n^\n\nTypeError: no\n    at f (node:a:1:2)\n    at g (/t.js:1:7)",
        "/t.js:1:7 error [TypeError] no",
    ),
    ("/t.js:3\nlet = ;\n    ^\n\nSyntaxError: no\n    at f (node:a:1:2)\n", "/t.js:3:0 error [SyntaxError] no"),
    ("Error: no\nstack:\n- a\n    at async f (file:///p/t.mjs:1:7)", "/p/t.mjs:1:7 error [Error] no stack: - a"),
    ("Error [ERR_X]: no\n    at /p/a b.ts:4:7\n", "/p/a b.ts:4:7 error [Error] no"),
    (
        'Exception in thread "main" a.BException: no\n\tat java.base/b(D.java:1)\n\tat a.B(B.java:5)\n\t... 2 more',
        "B.java:5:0 error [a.BException] no",
    ),
    ("Unhandled exception. S.Exception: no\n   at A.B() in /c d.cs:line 3", "/c d.cs:3:0 error [S.Exception] no"),
    ("a.FooError\n\tat a.B(Native Method)\n", ":0:0 error [a.FooError] a.FooError"),
]


def test_what_others_write_is_read_as_well() -> None:
    for text, found in WHAT_OTHERS_WRITE_IS:
        assert [written(one) for one in parse(text).problems] == [found]


def test_a_test_failed_with_what_was_raised_last() -> None:
    text = (
        "=== FAILURES ===\n___ test_e ___\n\nE   ZeroDivisionError: division\n\nt.py:3: ZeroDivisionError\n\n"
        "The above exception was the direct cause of the following exception:\n\nE   ValueError: wrapped\n\n"
        "t.py:4: ValueError\n=== 1 failed ===\n"
    )
    assert [written(one) for one in parse(text).problems] == ["t.py:4:0 error [ValueError] test_e: ValueError: wrapped"]


# -- escapes


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[1;31merror\x1b[0m", "error"),
        ("\x1b[38;2;1;2;3mx\x1b[K", "x"),
        ("\x1b[?25lx\x1b[2J\x1b[10;4H", "x"),
        ("\x1b]8;;https://example.org/a:1\x1b\\rule\x1b]8;;\x1b\\", "rule"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1bP1;2q#0\x1b\\x", "x"),
        ("\x1b(Bx\x1b=\x1b7", "x"),
        ("\x9b31mx", "x"),
        ("a\x1b]8;;no end\nb:1: x", "a\nb:1: x"),
        ("a\x1b[31", "a"),
        ("a\x1b", "a"),
        ("a\tb\r\nc\0\x08d", "a\tb\r\ncd"),
        ("é 漢 😀", "é 漢 😀"),
    ],
)
def test_escape_sequences_are_taken_out_whole(text: str, clean: str) -> None:
    assert without_escapes(text) == clean


@given(st.lists(st.sampled_from([*"ab1;?[]m\\\n ", "\x1b", "\x9b", "\x07", "\x1b[0m", "\x1b]0;x\x07"]), max_size=30))
def test_nothing_that_a_terminal_obeys_is_left(parts: list[str]) -> None:
    text = "".join(parts)
    clean = without_escapes(text)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", clean)
    assert clean.count("\n") == text.count("\n")
    assert without_escapes(clean) == clean


# -- harm

ATOMS = [
    *("a.c:1:2: error: x\n", "a.py:1: ", ":1", "(1,2): ", " --> a:1:1\n", "\x1b[", "\x1b]8;;", "\x1b", " [", "]", "_"),
    *("==== FAILURES ====\n", "____ a ____\n", "E   ", "Traceback (most recent call last):\n", '  File "a", line 1\n'),
    *(
        "e: ",
        "FAILED a.py::",
        "[ERROR] a:[1,1] ",
        "thread 'a' panicked at '",
        "panic: \n",
        "{",
        '{"a":',
        " error ",
        "\n",
    ),
    *("/a/b.js\n  1:1  error  x  y\n", "A.java:1: error: x\n  symbol: y\n", "proj]", "9", "é", "\r", "x: error[", "- "),
]


@given(st.lists(st.sampled_from(ATOMS), max_size=40), st.sampled_from([None, *BY_FORMAT]))
def test_any_text_is_read_without_a_fault(parts: list[str], hint: Any) -> None:
    report = parse("".join(parts), hint)
    assert report.total >= len(report.problems)
    assert all(one.line >= 0 and one.col >= 0 and one.message for one in report.problems if one.file)


def test_long_lines_and_many_complaints_are_bounded() -> None:
    """Five megabytes of each; a pattern that looks back would not come to an end."""
    for atom in ("a:1", "(1,2", " [", "x: error[", "\x1b[", "____ ", '  File "'):
        report = parse(atom * (5_000_000 // len(atom)))
        assert report.total <= 1
        assert all(len(one.message) < 5_000 for one in report.problems)
    many = parse("".join(f"a.c:{number}:1: error: x\n" for number in range(1, KEPT + 11)))
    assert (len(many.problems), many.total) == (KEPT, KEPT + 10)


# -- the tool


async def call(made: Toolbox, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall("errs", arguments))


async def test_the_result_is_a_text_and_the_same_as_data() -> None:
    outcome = await call(toolbox([Errs()]), text=read("javac"))
    data: Any = outcome.result.data
    assert outcome.result.text.splitlines()[:2] == [
        "3 errors, 2 warnings in 1 file (javac)",
        "Main.java:5: error: incompatible types: String cannot be converted to int",
    ]
    assert (data["count"], data["files"], data["format"], data["left_out"]) == (5, 1, "javac", 0)
    assert data["errors"][1] == {
        "file": "Main.java",
        "line": 6,
        "col": 0,
        "code": "rawtypes",
        "severity": "warning",
        "message": "found raw type: List",
    }


async def test_nothing_wrong_is_no_error() -> None:
    outcome = await call(toolbox([Errs()]), input="all is well", format="gcc")
    data: Any = outcome.result.data
    assert (outcome.status, outcome.result.text, data["count"]) == (
        CallStatus.OK,
        "no errors found with the rules of gcc",
        0,
    )


async def test_what_does_not_fit_is_counted_and_the_data_stays_whole() -> None:
    text = "".join(f"a.c:{number}:1: error: {'é' * 3_000}\n" for number in range(1, 200))
    outcome = await call(toolbox([Errs()]), input=text)
    data: Any = outcome.result.data
    assert data["left_out"] == 199 - len(data["errors"])
    assert 0 < len(data["errors"]) < 199
    assert outcome.result.text.endswith(f"[{data['left_out']} more omitted]")
    assert len(json.dumps(data, ensure_ascii=False)) <= 48_000
    assert data["errors"][0]["message"].endswith("[... 1000 more characters]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one of input and job_id"),
        ({"input": "x", "job_id": "1"}, "give one of input and job_id"),
        ({"input": "x", "format": "cobol"}, "format: "),
        ({"input": "x", "form": "go"}, "did you mean 'format'"),
        ({"input": 3}, "input: "),
        ({"input": "\ud800"}, "input: "),
        ({"job_id": "a\0"}, "job_id: .*NUL"),
    ],
)
async def test_mistakes_are_told(arguments: Any, message: str) -> None:
    outcome = await call(toolbox([Errs()]), **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text


def test_formats_have_the_names_of_their_programs() -> None:
    for name in [*ALIASES, *BY_FORMAT, "RUSTC", " go "]:
        args = parse_arguments(Errs().arguments, {"input": "x", "format": name}, "errs")
        assert args.format == ALIASES.get(name.strip().lower(), name.strip().lower())


def test_a_text_touches_nothing_and_the_output_of_a_job_is_not_remembered() -> None:
    tool = Errs()
    text, long, job = (
        tool.traits_of(tool.parse(arguments))
        for arguments in ({"input": "x"}, {"input": "x" * 100_000}, {"job_id": "1"})
    )
    assert (text.category, text.cacheable, long.cacheable) == (Category.NONE, True, False)
    assert (job.category, job.cacheable, job.mutating) == (Category.SHELL, False, False)


async def test_the_output_of_a_job_is_read_from_both_streams() -> None:
    backend = MemoryBackend({"make": ScriptedReply("a.c:1:2: error: out\n", "b.c:3:4: warning: err\n", 2)})
    made = toolbox([Errs()], backend=backend)
    done = await made.executor.execution.run_shell("make")
    outcome = await call(made, bash_id=done.job_id)
    assert outcome.result.text.splitlines() == [
        "1 error, 1 warning in 2 files (gcc)",
        "a.c:1:2: error: out",
        "b.c:3:4: warning: err",
        f"notice: job {done.job_id} ended with exit code 2",
    ]
    assert (await call(made, job_id="none")).result.error_code == "job_not_found"


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


async def test_a_job_that_still_runs_is_read_so_far(here: ExecutionContext) -> None:
    made = toolbox([Errs()], execution=here)
    with anyio.fail_after(100):
        job = await here.run_shell("echo a.c:1:2: error: so far; echo b.c:1: error: x >&2; exec sleep 300", wait=False)
        assert job.job_id is not None
        try:
            async for _ in here.follow(job.job_id):
                break  # the first line is there
            outcome = await call(made, job_id=job.job_id)
            assert "a.c:1:2: error: so far" in outcome.result.text
            assert "is still running" in outcome.result.text
        finally:
            await here.kill(job.job_id, signal="KILL")
