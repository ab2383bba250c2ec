"""Mutation check of the core: ``scripts/mutate --help``.

cosmic-ray makes the mutants and keeps the results, one session file for each module. This program chooses: what is
mutated, in which ways, and which tests run for a mutant, by the coverage of one clean run. A mutant of a function is
tested in a process forked from one that has collected the group's tests, by exchanging the function's code. A mutant of
what runs during imports is tested in a process forked from this one, which has imported only the libraries.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import fcntl
import gc
import hashlib
import importlib
import inspect
import json
import os
import py_compile
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import parso
import pytest
from _pytest.main import pytest_runtestloop
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import _make_diff, use_mutation
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import OPERATOR_PROVIDERS, get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

ROOT = Path(__file__).resolve().parents[1]
STATE = Path(os.environ.get("HARNESS_MUTATE_STATE", ROOT / ".mutate"))
COPY = STATE / "tree"
SOURCES = ("harness", "backends", "tools")
REQUIRED_SCORE = 85
ROUNDS = (20, 100)
CLEAN_LIMIT = 1800
MAX_BYTES = 4 << 30
"""The memory of a process: a mutant may fill a list for ever."""
SLOWDOWN, GRACE = 4, 15
"""The time limit of a mutant: so many times what its tests took without it, and so many seconds more."""
JUDGE, POSIX, TMUX = (
    "harness/harness/toolkit/permissions",
    "backends/harness_backends/posix",
    "backends/harness_backends/tmux",
)
QUICK = "not (ssh or docker or podman or node or shells)"
TOOLKIT_TESTS = (
    "permissions*",
    "shell_verdict*",
    "typed_keys",
    "host_decisions",
    "policy_attacks",
    "assembly",
    "declared_tools",
    "pipeline",
)
PANE_TESTS = ("pane_state", "pane_watch", "buffered_output", "pure", "traces")


@dataclass(frozen=True)
class Group:
    """Modules that the same tests are about: globs of files, and the marks of the tests that are quick enough."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    marks: str = QUICK


GROUPS = {
    "judge": Group(
        (f"{JUDGE}/**/*.py",),
        (*(f"tests/unit/toolkit/test_{name}.py" for name in TOOLKIT_TESTS), "tests/unit/test_commands_that_look.py"),
    ),
    "markers": Group(
        (f"{POSIX}/pane_jobs/prompt_markers.py", f"{POSIX}/pane_jobs/end_proof.py"),
        (
            "tests/unit/posix/test_prompt_markers.py",
            "tests/unit/tmux/test_pane_state.py",
            "tests/unit/posix/test_end_proof.py",
        ),
    ),
    "jobs": Group(
        (
            f"{POSIX}/jobs/shell_jobs.py",
            f"{POSIX}/jobs/table.py",
            f"{POSIX}/jobs/follow.py",
            f"{POSIX}/jobs/output.py",
        ),
        ("tests/unit/posix/test_job*.py", "tests/unit/posix/test_state.py", "tests/contract/test_contract.py"),
    ),
    "pane": Group(
        (f"{TMUX}/pane/pane_state.py", f"{TMUX}/jobs/pane_job.py"),
        tuple(f"tests/unit/tmux/test_{name}.py" for name in PANE_TESTS),
    ),
}
WAYS = {
    "core/ReplaceComparisonOperator": {
        "Eq_NotEq",
        "NotEq_Eq",
        "Lt_LtE",
        "LtE_Lt",
        "Gt_GtE",
        "GtE_Gt",
        "Is_IsNot",
        "IsNot_Is",
    },
    "core/ReplaceBinaryOperator": {
        "Add_Sub",
        "Sub_Add",
        "Mul_Div",
        "FloorDiv_Mul",
        "Mod_Mul",
        "BitOr_BitAnd",
        "BitAnd_BitOr",
    },
    "core/ReplaceUnaryOperator": {"Delete_Not", "USub_UAdd"},
}
"""The replacements that are used, of the many that cosmic-ray has: the others fail in any test that runs the line."""
LIBRARIES = [
    "anyio._backends._asyncio",
    "anyio.pytest_plugin",
    "asyncssh",
    "click",
    "hypothesis.strategies",
    "jsonschema",
    "pexpect",
    "pydantic",
    "pydantic_settings",
    "re2",
    "rich.console",
    "tree_sitter",
    "tree_sitter_bash",
    "xdist.plugin",
    "pytest_timeout",
]


class CannotTell(Exception):
    """Nothing can be said of the tests."""


class Membership(Operator):
    """``in`` becomes ``not in``, and the other way round."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        """Where that can be done."""
        if node.type == "comparison":
            for word in node.children[1::2]:
                if "in" in word.get_code().split():
                    yield word.start_pos, word.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Do it at one place."""
        places = [at for at in range(1, len(node.children), 2) if "in" in node.children[at].get_code().split()]
        other = " in" if "not" in node.children[places[index]].get_code() else " not in"
        node.children[places[index]] = parso.parse(other)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """What it does."""
        return (Example("a in b", "a not in b"), Example("a not in b", "a in b"))


class OppositeAnswer(Operator):
    """A function that answers yes or no returns the opposite."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        """Where that can be done; a bare ``True`` has an operator of its own."""
        if node.type == "return_stmt" and node.children[1].type != "keyword":
            function = node.search_ancestor("funcdef")
            if (
                function is not None
                and function.annotation is not None
                and function.annotation.get_code().strip() == "bool"
            ):
                yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Do it."""
        node.children[1] = parso.parse(f" not ({node.children[1].get_code().strip()})")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """What it does."""
        return (Example("def f() -> bool: return x", "def f() -> bool: return not (x)"),)


OPERATOR_PROVIDERS["harness"] = {kind.__name__: kind for kind in (Membership, OppositeAnswer)}
"""Decisions that cosmic-ray's own operators leave alone."""


class Session:
    """A run of pytest in a forked process: the tests with these ids, and what each took."""

    def __init__(self, wanted: dict[str, float] | None = None, cover: coverage.Coverage | None = None) -> None:
        self.wanted, self.cover, self.seconds = wanted, cover, dict[str, float]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what does not run the mutant's line, and begin with what takes least."""
        if (wanted := self.wanted) is not None:
            items[:] = sorted((item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test: its time, and the lines it runs."""
        began = time.monotonic()
        if self.cover is not None:
            self.cover.switch_context(item.nodeid)
        result = yield
        if self.cover is not None:
            self.cover.switch_context("")
        self.seconds[item.nodeid] = time.monotonic() - began
        return result


def forked(work: Callable[[], int], log: Path, limit: float | None = None) -> int | None:
    """Run ``work`` in a process group of its own.

    Returns:
        Its exit status, negative for a signal; None when it took longer than ``limit`` seconds and was killed.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = 3
        try:
            code = int(work())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    ended = os.pidfd_open(pid)
    try:
        in_time = bool(select.select([ended], [], [], limit)[0])
    finally:
        os.close(ended)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also what the tests left running
        status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) if in_time else None


def pytest_arguments(*arguments: str) -> list[str]:
    """What every run of pytest here is given: one process, no files left, the same examples each time."""
    rewriting = "ignore::pytest.PytestAssertRewriteWarning"  # of libraries that were imported before
    return [
        "-W",
        rewriting,
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile",
        "fast",
        *arguments,
    ]


def copy_checkout() -> None:
    """Make the copy anew, with compiled files that are used only for the very source that they were made from."""
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns(
        ".venv", ".git", ".mutate", "__pycache__", ".*_cache", "site", "dist", "build", "media"
    )
    shutil.copytree(ROOT, COPY, symlinks=True, ignore=ignored)
    for source in SOURCES:
        compileall.compile_dir(COPY / source, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    paths = [str(COPY / source) for source in SOURCES]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:0] = [str(COPY), *paths]
    os.chdir(COPY)


def files(patterns: Iterable[str], base: Path = COPY) -> list[Path]:
    """The files that match, relative to the copy, or to the checkout: that one may change meanwhile."""
    found = []
    for pattern in patterns:
        matching = [path.relative_to(base) for path in sorted(base.glob(pattern))]
        if not matching:
            raise CannotTell(f"no file matches {pattern}")
        found += [path for path in matching if path.name != "__init__.py"]
    return found


def digest(paths: Iterable[Path]) -> str:
    """What the files hold, as one short word."""
    return hashlib.sha256(b"\0".join((COPY / path).read_bytes() for path in paths)).hexdigest()[:12]


@dataclass
class Covered:
    """Which tests run which lines, as one clean run of a group's tests showed."""

    lines: dict[str, dict[int, list[str]]]
    at_import: dict[str, list[int]]
    """The lines that ran outside of every test."""
    seconds: dict[str, float]
    start: float
    """Seconds that pytest took apart from the tests."""

    def tests_of(self, module: Path, lines: Iterable[int]) -> dict[str, float]:
        """The tests that run one of the lines, and the seconds that each took."""
        known = self.lines.get(str(module), {})
        return {test: self.seconds[test] for line in lines for test in known.get(line, ())}

    def limit(self, tests: dict[str, float]) -> float:
        """How long these may take with a mutant, in seconds."""
        return GRACE + SLOWDOWN * (self.start + sum(tests.values()))


def cover(name: str, group: Group) -> Covered:
    """Run the group's tests without a mutant, or read what such a run of the same files showed."""
    modules, tests = files(group.modules), files(group.tests)
    kept = STATE / f"covered-{name}-{digest([*modules, *tests, Path('scripts/mutate.py')])}.json"
    if not kept.exists():
        for old in STATE.glob(f"covered-{name}-*.json"):
            old.unlink()
        print(f"== {name}: the tests without a mutant", flush=True)
        began, log = time.monotonic(), STATE / f"clean-{name}.log"
        status = forked(lambda: _cover(modules, tests, group.marks, kept), log, CLEAN_LIMIT)
        if status != 0:
            raise CannotTell(f"the tests of {name} fail without a mutant, or take too long: see {log}")
        print(f"   {time.monotonic() - began:.0f} s", flush=True)
    return Covered(
        **{key: _numbered(value) if key == "lines" else value for key, value in json.loads(kept.read_text()).items()}
    )


def _numbered(lines: dict[str, dict[str, list[str]]]) -> dict[str, dict[int, list[str]]]:
    return {module: {int(line): tests for line, tests in known.items()} for module, known in lines.items()}


def _cover(modules: list[Path], tests: list[Path], marks: str, kept: Path) -> int:
    measure = coverage.Coverage(data_file=None, include=[str(COPY / module) for module in modules])
    session, began = Session(cover=measure), time.monotonic()
    measure.start()
    status = pytest.main([*pytest_arguments("-m", marks), *map(str, tests)], plugins=[session])
    measure.stop()
    data = measure.get_data()
    contexts = {str(module): data.contexts_by_lineno(str(COPY / module)) for module in modules}
    lines = {
        module: {line: [test for test in names if test] for line, names in known.items()}
        for module, known in contexts.items()
    }
    at_import = {module: [line for line, names in known.items() if "" in names] for module, known in contexts.items()}
    if status != 0:
        return int(status)
    if not session.seconds or sys.modules["harness"].__file__ != str(COPY / "harness/harness/__init__.py"):
        return 3
    start = time.monotonic() - began - sum(session.seconds.values())
    kept.write_text(json.dumps({"lines": lines, "at_import": at_import, "seconds": session.seconds, "start": start}))
    return status


class NotExchangeable(Exception):
    """A mutant that needs a fresh import: code outside of functions differs, or no function has the changed code."""


def changed_functions(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Return the functions of a module that differ, with the inner ones."""
    old, new = ([const for const in code.co_consts if isinstance(const, CodeType)] for code in (before, after))
    if len(old) != len(new):
        raise NotExchangeable
    if not before.co_flags & inspect.CO_OPTIMIZED and _own_code(before) != _own_code(after):
        raise NotExchangeable  # a module or a class
    for one, other in zip(old, new, strict=True):
        if one != other:
            if one.co_flags & inspect.CO_OPTIMIZED:
                yield one, other
            yield from changed_functions(one, other)


def _own_code(code: CodeType) -> tuple[Any, ...]:
    consts = [repr(const) for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, consts, code.co_names


class Collected:
    """The plugin of a pytest that collects the tests once, and then runs some of them for each mutant in a fork."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers = os.fdopen(requests), os.fdopen(answers, "w")
        self.functions = defaultdict[tuple[str, str, int], list[FunctionType]](list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        gc.unfreeze()  # get_objects() leaves out what the tests' fork server froze
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                self.functions[_place(thing.__code__)].append(thing)
        gc.freeze()
        for line in self.requests:
            request = json.loads(line)
            try:
                exchange = self.exchange(*request["texts"], request["module"])
            except (NotExchangeable, SyntaxError):
                answer = "import"
            else:
                answer = forked(partial(self.run, session, request["tests"], exchange), *request["limits"])
            self.answers.write(json.dumps(answer) + "\n")
            self.answers.flush()
        return True

    def exchange(self, before: str, after: str, module: str) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions of the module that differ between two texts, each with its new code."""
        name = str(COPY / module)
        found = []
        for old, new in changed_functions(compile(before, name, "exec"), compile(after, name, "exec")):
            live = [function for function in self.functions[_place(old)] if function.__code__ == old]
            if old.co_freevars != new.co_freevars or not (live or "<locals>" in old.co_qualname):
                raise NotExchangeable
            found += [(function, new) for function in live]
        if not found:
            raise NotExchangeable
        return found

    def run(
        self, session: pytest.Session, tests: dict[str, float], exchange: list[tuple[FunctionType, CodeType]]
    ) -> int:
        """Run these tests with the functions' new code."""
        for function, changed in exchange:
            function.__code__ = changed
        wanted = [item for item in session.items if item.nodeid in tests]
        if len(wanted) < len(tests):
            return 3
        session.items, session.testscollected = sorted(wanted, key=lambda item: tests[item.nodeid]), len(wanted)
        with suppress(session.Failed):
            pytest_runtestloop(session)
        code = int(bool(session.testsfailed))
        session.config.hook.pytest_sessionfinish(session=session, exitstatus=code)
        return code


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


class Server:
    """A process that has collected a group's tests."""

    def __init__(self, name: str, group: Group) -> None:
        self.log = STATE / f"server-{name}.log"
        tests = [*pytest_arguments("--tb=no", "-m", group.marks), *map(str, files(group.tests))]
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.requests)
            os.close(self.answers)
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            try:
                pytest.main(tests, plugins=[Collected(requests, answers)])
            finally:
                os._exit(0)
        os.close(requests)
        os.close(answers)
        self.writer, self.reader = os.fdopen(self.requests, "w"), os.fdopen(self.answers)

    def test(self, module: Path, texts: tuple[str, str], tests: dict[str, float], limit: float) -> int | str | None:
        """Run the tests with a mutant.

        Returns:
            As :func:`forked`; "import" if the mutant needs a fresh import.
        """
        request = {"module": str(module), "texts": texts, "tests": tests, "limits": (str(STATE / "mutant.log"), limit)}
        self.writer.write(json.dumps(request) + "\n")
        self.writer.flush()
        answer = self.reader.readline()
        if not answer:
            raise CannotTell(f"the collected tests ended, see {self.log}")
        result: int | str | None = json.loads(answer)
        return result

    def close(self) -> None:
        """End it, and with it the tests of a mutant."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


class Source:
    """What a module's text says of a place in it."""

    def __init__(self, module: Path) -> None:
        self.tree = ast.parse((COPY / module).read_text())
        self.silent = list(_unjudged(self.tree))
        self.operations = [
            ((node.left.end_lineno, node.left.end_col_offset), (node.right.lineno, node.right.col_offset))
            for node in ast.walk(self.tree)
            if isinstance(node, ast.BinOp)
        ]
        self.statements = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        self.bodies = [
            (node.body[0].lineno, node.end_lineno or 0) for node in ast.walk(self.tree) if isinstance(node, functions)
        ]

    def worth_a_test(self, spec: MutationSpec) -> bool:
        """Whether a change there can be seen: no annotation or decorator of a class, a way in use."""
        prefix, _, way = spec.operator_name.partition("Operator_")
        ways = WAYS.get(f"{prefix}Operator")
        if prefix == "core/ReplaceBinary" and not any(
            start <= spec.start_pos and spec.end_pos <= end for start, end in self.operations
        ):
            return False  # the star of a signature or of a call
        return (ways is None or way in ways) and not any(start <= spec.start_pos < end for start, end in self.silent)

    def in_function(self, line: int) -> bool:
        """Whether it runs when a function is called, and not when the module is imported."""
        return any(start <= line <= end for start, end in self.bodies)

    def lines_with(self, line: int) -> range:
        """The lines of the statement that the line is part of; of a compound one those before its body."""
        spans = []
        for node in self.statements:
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or 0
            if node.lineno <= line <= max(end, node.lineno):
                spans.append(range(node.lineno, max(end, node.lineno) + 1))
        return min(spans, key=len, default=range(line, line + 1))


def _unjudged(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(tree):
        decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None), *decorators):
            if isinstance(part, ast.expr):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


@dataclass
class Score:
    """The results of one module, or of several."""

    killed: int = 0
    timed_out: int = 0
    survived: int = 0
    waiting: int = 0
    survivors: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def judged(self) -> int:
        """The mutants that were run."""
        return self.killed + self.timed_out + self.survived

    @property
    def percent(self) -> float:
        """How many of those the tests noticed."""
        return 100 * (self.killed + self.timed_out) / self.judged if self.judged else 100.0

    def add(self, result: WorkResult, spec: MutationSpec) -> None:
        """Count one mutant."""
        if result.test_outcome is TestOutcome.SURVIVED:
            self.survived += 1
            self.survivors.append((spec.start_pos[0], result.output or "", result.diff or ""))
        elif result.output == "timeout":
            self.timed_out += 1
        else:
            self.killed += 1

    def line(self, name: str) -> str:
        """One line of the table."""
        score = f"{self.percent:6.1f}" if self.judged else "     -"
        return f"{name:58}{self.judged:8}{self.killed:8}{self.survived:9}{self.timed_out:10}{score} %" + (
            f"  ({self.waiting} not run yet)" if self.waiting else ""
        )


class Run:
    """One call of this program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.sample: int = options.sample
        self.seed: int = options.seed
        self.servers = dict[str, Server]()
        self.until = time.monotonic() + 60 * options.minutes if options.minutes else None

    @property
    def rounds(self) -> list[int]:
        """How many mutants of each module are tested before more of any: a run that is cut short is a sample, too."""
        return [count for count in ROUNDS if count < self.sample or not self.sample] + [self.sample or sys.maxsize]

    def server(self, group: str) -> Server:
        """The process with the collected tests of a group."""
        if group not in self.servers:
            self.servers[group] = Server(group, GROUPS[group])
        return self.servers[group]

    def close(self) -> None:
        """End what is left."""
        for server in self.servers.values():
            server.close()

    def module(self, module: Path, group_name: str, covered: Covered, sample: int) -> Score:
        """Test those mutants of the module, of so many, that have not been tested yet."""
        group = GROUPS[group_name]
        name = str(module).replace("/", "_").removesuffix(".py")
        key = digest([module, *files(group.tests), Path("scripts/mutate.py")])
        for old in STATE.glob(f"{name}-*.sqlite"):
            if old.stem != f"{name}-{key}":
                old.unlink()
        source, score = Source(module), Score()
        with use_db(str(STATE / f"{name}-{key}.sqlite"), WorkDB.Mode.create) as db:
            if not db.num_work_items:
                items = _all_work_items([module], {})
                db.add_work_items([item for item in items if source.worth_a_test(item.mutations[0])])
            results = dict(db.results)
            for item in self.chosen(db.work_items, sample):
                result = results.get(item.job_id)
                if result is None and (self.until is None or time.monotonic() < self.until):
                    result = self.test(item.mutations[0], source, covered, group_name)
                    db.set_result(item.job_id, result)
                if result is None:
                    score.waiting += 1
                else:
                    score.add(result, item.mutations[0])
        return score

    def chosen(self, items: Iterable[WorkItem], sample: int) -> list[WorkItem]:
        """The sample: a larger one of the same seed contains the smaller."""

        def place(item: WorkItem) -> Any:
            spec = item.mutations[0]
            return spec.start_pos, spec.end_pos, spec.operator_name, spec.occurrence

        ordered = sorted(items, key=place)
        random.Random(self.seed).shuffle(ordered)
        return ordered[:sample]

    def test(self, spec: MutationSpec, source: Source, covered: Covered, group: str) -> WorkResult:
        """Test one mutant."""
        module, line = spec.module_path, spec.start_pos[0]
        lines = source.lines_with(line)
        tests = covered.tests_of(module, lines)
        exchangeable = source.in_function(line) and set(lines).isdisjoint(covered.at_import[str(module)])
        server = self.server(group) if tests and exchangeable else None  # collects the tests before the mutant is there
        if not tests and not source.in_function(line):
            tests = covered.tests_of(module, covered.lines.get(str(module), {}))
        operator = get_operator(spec.operator_name)(**spec.operator_args)
        with use_mutation(COPY / module, operator, spec.occurrence) as (before, after):
            if after is None:
                raise CannotTell(f"no mutant of {module} at line {line}")
            diff = "\n".join(_make_diff(before, after, module)[1:])
            limit = covered.limit(tests)
            status = server.test(module, (before, after), tests, limit) if server else "import"
            outcome, note = _outcome(tests, limit, status)
        return WorkResult(WorkerOutcome.NORMAL, output=note, test_outcome=outcome, diff=diff)


def _outcome(tests: dict[str, float], limit: float, status: int | str | None) -> tuple[TestOutcome, str]:
    if not tests:
        return TestOutcome.SURVIVED, "no test runs this line"
    log = STATE / "mutant.log"
    if status == "import":
        paths = sorted({test.partition("::")[0] for test in tests})
        status = forked(lambda: _mutant(paths, tests), log, limit)
    if status is None:
        return TestOutcome.KILLED, "timeout"
    if status == 0:
        return TestOutcome.SURVIVED, f"{len(tests)} tests passed"
    if status in {1, 2} or int(status) < 0:  # a test failed; the module could not be imported; a crash
        return TestOutcome.KILLED, ""
    raise CannotTell(f"pytest could not run (status {status}), see {log}")


def _mutant(paths: list[str], tests: dict[str, float]) -> int:
    sys.dont_write_bytecode = True
    return pytest.main([*pytest_arguments(), *paths], plugins=[Session(tests)])


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/mutate")
    parser.add_argument("paths", nargs="*", help="files of a group, instead of all of them")
    parser.add_argument("--modules", default=",".join(GROUPS), help="groups, separated by commas")
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args(arguments)
    options.groups = {name: GROUPS[name] for name in options.modules.split(",") if name in GROUPS}
    if unknown := [name for name in options.modules.split(",") if name not in GROUPS]:
        parser.error(f"unknown group {unknown[0]}; there are {', '.join(GROUPS)}")
    options.paths = [Path(path).resolve().relative_to(ROOT) for path in options.paths]
    known = {path for group in GROUPS.values() for path in files(group.modules, ROOT)}
    if strange := [path for path in options.paths if path not in known]:
        parser.error(f"no group has {strange[0]}")
    return options


def report(scores: dict[str, dict[Path, Score]]) -> int:
    """Print the survivors and the table.

    Returns:
        The exit code.
    """
    for modules in scores.values():
        for module, score in modules.items():
            for line, note, diff in sorted(score.survivors):
                print(f"\nsurvived: {module}:{line} ({note})\n{diff}")
    print(f"\n{'':58}{'mutants':>8}{'killed':>8}{'survived':>9}{'timed out':>10}{'score':>7}")
    codes = [0]
    for name, modules in scores.items():
        total = Score()
        for module, score in modules.items():
            print(score.line(str(module)))
            for part in ("killed", "timed_out", "survived", "waiting"):
                setattr(total, part, getattr(total, part) + getattr(score, part))
        print(total.line(f"{name}, all of it"))
        codes.append(1 if total.judged and total.percent < REQUIRED_SCORE else 0)
        codes.append(2 if not total.judged else 0)
    return 1 if 1 in codes else max(codes)


def main() -> int:
    """Check the groups that were asked for."""
    options = parse(sys.argv[1:])
    STATE.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the tests, restores the copy
    lock = (STATE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CannotTell(f"another run uses {STATE}") from None
    if options.fresh:
        for path in STATE.glob("*.*"):
            path.unlink()
    copy_checkout()
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    run, scores = Run(options), defaultdict[str, dict[Path, Score]](dict)
    chosen: list[tuple[str, Path, Covered]] = []
    for name, group in options.groups.items():
        modules = [path for path in files(group.modules) if not options.paths or path in options.paths]
        covered = cover(name, group) if modules else None
        chosen += [(name, module, covered) for module in modules if covered is not None]
    try:
        for sample in run.rounds:
            for name, module, covered in chosen:
                scores[name][module] = score = run.module(module, name, covered, sample)
                print(score.line(str(module)), flush=True)
    finally:
        run.close()
    return report(scores)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotTell as error:
        print(f"mutate: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    sys.exit(2)
