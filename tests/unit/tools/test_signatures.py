"""What is found in source files: each language on a file of its own, and the tool on everything that is no source."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.desk import until
from tests.support.toolbox import Toolbox, Trace, Words, toolbox

from harness.extras import install_extra
from harness.testing.memory import MemoryBackend
from harness.toolkit import CallOutcome, CallStatus, Executor, Registry, Services, ToolCall
from harness.toolkit.registry import schema_gaps
from harness.toolkit.result_cache import ResultCache
from harness.toolkit.session.file_versions import ReadTracker
from harness.toolkit.values import Subject
from harness_tools.dev import signatures as sig
from harness_tools.dev import tools
from harness_tools.dev.languages import outline, parsing
from harness_tools.dev.languages.analysis import facts_of, outline_of, utf8_of
from harness_tools.dev.languages.grammar import Grammar, Stopped, parse
from harness_tools.dev.languages.model import Declaration, FileOutline
from harness_tools.dev.languages.parsing import Source, facts_in, outline_in
from harness_tools.dev.languages.table import LANGUAGES, Language, language_named, language_of

DATA = Path(__file__).parents[2] / "data" / "sources"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_file())


def on(source: bytes | str, language: str) -> FileOutline:
    data = source.encode() if isinstance(source, str) else source
    return outline_of(data, language_named(language), lambda: False)


def signatures(source: bytes | str, language: str) -> list[str]:
    return [item.signature for item in on(source, language).declarations]


def box(files: dict[str, bytes]) -> Toolbox:
    """The tools on files in memory, with a real cache."""
    backend = MemoryBackend()
    made = toolbox(tools(), backend=backend)
    old = made.executor
    services = Services(made.policy, made.ledger, Words(Trace()), made.outputs, ResultCache())
    made.executor = Executor(
        old.execution, old.registry, services, old.events, ReadTracker().of("s", old.execution), "s", cwd="/home/user"
    )
    return made


async def asked(made: Toolbox, files: dict[str, bytes], **arguments: Any) -> CallOutcome:
    for name, data in files.items():
        await made.backend.files.write(name, data)
    with anyio.fail_after(100):
        return await made.executor.call(ToolCall("sig", arguments))


async def ask(files: dict[str, bytes], **arguments: Any) -> CallOutcome:
    return await asked(box(files), files, **arguments)


# -- each language


def table(outlined: FileOutline) -> str:
    """What was found, as the files in ``expected`` have it."""
    damage = f" damage at {outlined.damage}" if outlined.damage is not None else ""
    lines = [f"{outlined.language} package={outlined.package or '-'}{damage}"]
    lines += [_row(item) for item in outlined.declarations]
    lines += [
        f"import {item.line} {item.module} {item.form or '-'} {','.join(item.names)}" for item in outlined.imports
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(item: Declaration) -> str:
    name = f"{item.container}.{item.name}" if item.container else item.name
    more = "".join(f" | {key} {value}" for key, value in _details(item) if value)
    return f"{item.line}-{item.end_line} {item.visibility} {item.group} {item.kind} {name} | {item.signature}{more}"


def _details(item: Declaration) -> Iterator[tuple[str, str]]:
    yield from (("type", item.type), ("value", item.value), ("receiver", item.receiver))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_of_each_language_is_outlined_as_expected(name: str) -> None:
    data = (DATA / name).read_bytes()
    language = language_of(name, data)
    assert language is not None
    assert table(outline_of(data, language, lambda: False)) == (DATA / "expected" / f"{name}.txt").read_text()


def test_every_language_has_a_sample() -> None:
    found = {language.name for name in SAMPLES if (language := language_of(name)) is not None}
    assert found == {language.name for language in LANGUAGES}


# -- what is hard in some of them


def test_a_mistake_in_the_syntax_loses_nothing_but_itself() -> None:
    source = "def first(): pass\ndef broken(:\n    x = (\nclass Last:\n    def method(self): pass\n"
    found = on(source, "python")
    assert found.damage is not None
    assert {"first", "Last", "method"} <= {item.name for item in found.declarations}


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
        ("python", "def f(a, # one\n  b): # two\n  pass", ["def f(a, b)"]),
        ("python", "if a:\n  def f(): pass\nelse:\n  class C: pass", ["def f()", "class C"]),
        ("python", "x: int\ny = z = 3\na.b = 1\nc[0] = 2", ["x: int", "y = z = 3", "y = z = 3"]),
        ("go", "package p\ntype (\n A struct{ B int }\n C interface{ D() }\n)", None),
        ("typescript", "export default class { run() {} }", ["export default class", "run()"]),
        ("typescript", "export default () => 1;", ["export default ()"]),
        ("typescript", "const a = 1, b = (x: number) => x;", ["a = 1", "b = (x: number)"]),
        ("javascript", "const { a } = b; const c = require('c');", []),
        ("typescript", "export const { a, b: [c = 1], ...d } = e;", ["export const { a, b: [c = 1], ...d } = e"] * 3),
        ("typescript", "const [a, b] = c; export { b };", ["const [a, b] = c"]),
        (
            "typescript",
            "export interface A { [b: string]: C; new (d: E): A; (f: G): H }",
            ["export interface A", "[b: string]: C", "new (d: E): A", "(f: G): H"],
        ),
        ("typescript", "export default { a: 1 };", ["export default { a: 1 }"]),
        ("javascript", "module.exports = function (a) { b() };", ["module.exports = function (a)"]),
        ("javascript", "module.exports = class A { b() {} };", ["module.exports = class A", "b()"]),
        ("javascript", "const a = 1; module.exports = { a };", ["const a = 1"]),
        ("rust", 'extern "C" { pub fn puts(s: *const u8) -> i32; }', ["pub fn puts(s: *const u8) -> i32"]),
        ("c", "int (*handler)(int);", ["int (*handler)(int)"]),
        ("c", "struct a { struct b { int c; } d; } e;", None),
        ("cpp", "class A { int a; public: int b; private: int c; };", None),
        ("shell", "f() { g() { :; }; }\nlocal x=1\nA=1 command", ["f()"]),
        ("ruby", "class A::B < C; def ==(o); end; end", ["class A::B < C", "def ==(o)"]),
        ("lua", "local a, b = 1, function(c) return c end", None),
    ],
)
def test_these_are_the_signatures(language: str, source: str, expected: list[str] | None) -> None:
    found = signatures(source, language)
    if expected is not None:
        assert found == expected
    assert all("\n" not in text and text for text in found)


def test_who_may_see_a_member_follows_the_line_that_says_so() -> None:
    found = on("class A { int a; public: int b; protected: int c; private: int d; };", "cpp").declarations
    assert [(item.name, item.visibility) for item in found[1:]] == [
        ("a", "private"),
        ("b", "public"),
        ("c", "protected"),
        ("d", "private"),
    ]


def test_members_of_what_is_private_are_private() -> None:
    found = on("class _A:\n  def b(self): pass\n  class C:\n    d = 1\n", "python").declarations
    assert {item.visibility for item in found} == {"private"}


def test_a_header_of_c_plus_plus_is_read_as_such() -> None:
    found = on("#pragma once\nnamespace a { class B { public: void c(); }; }", "c")
    assert (found.language, [item.name for item in found.declarations]) == ("cpp", ["a", "B", "c"])


def test_a_text_in_utf_16_is_read_like_any_other() -> None:
    text = "\ufeffclass Größe { }"
    for encoding in ("utf-16-le", "utf-16-be", "utf-8"):
        assert signatures(utf8_of(text.encode(encoding)), "csharp") == ["class Größe"]


def test_a_long_signature_and_a_long_value_are_cut_at_a_character() -> None:
    found = on(f"def f({', '.join(f'é{n}' for n in range(1000))}): pass\nX = '{'é' * 5000}'\n", "python").declarations
    assert [len(item.signature) for item in found] == [400, 400]
    assert all(item.signature.endswith("…") for item in found)
    assert len(found[1].value) == 120


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        ("/a/b.py", b"", "python"),
        ("B.PY", b"", "python"),
        ("Rakefile", b"", "ruby"),
        (".bashrc", b"", "shell"),
        ("tool", b"#!/bin/sh\n", "shell"),
        ("tool", b"#! /usr/bin/env -S python3.11 -u\n", "python"),
        ("tool", b"#!/usr/local/bin/node --x\n", "javascript"),
        ("tool", b"", None),
        ("tool", b"#!/usr/bin/awk -f\n", None),
        ("a.txt", b"#!" + b"/" * 300, None),
        ("a.py/", b"", None),
    ],
)
def test_a_language_is_known_by_the_name_or_the_first_line(path: str, head: bytes, language: str | None) -> None:
    found = language_of(path, head)
    assert (found.name if found else None) == language


# -- the tool


def test_it_says_of_itself_what_it_touches() -> None:
    registry = Registry(tools())
    tool = registry.lookup("sig")
    assert tool.subjects(tool.parse({"path": "a.go"})) == (Subject("read", "a.go"),)
    assert [schema_gaps(tool) for tool in registry.list() if schema_gaps(tool)] == []
    assert not tool.traits.mutating
    assert tool.traits.packs == ("dev",)
    assert all(name in tool.description.replace("#", "sharp").lower() for name in ("python", "go", "csharp", "zig"))


@pytest.mark.usefixtures("needs_process")
async def test_the_answer_is_an_outline_with_lines() -> None:
    source = b"package p\n\ntype A struct {\n\tB int\n\tc int\n}\n\nfunc (a A) D() {}\nfunc e() {}\n"
    outcome = await ask({"/srv/a.go": source}, file="/srv/a.go")
    assert outcome.result.text == (
        "/srv/a.go (go, package p)\n3  type A struct\n4    B int\n8  func (a A) D()\n"
        "[2 private declarations omitted; all=true shows them]"
    )
    outcome = await ask({"/srv/a.go": source}, file="/srv/a.go", all="true")
    assert "5    c int  [private]" in outcome.result.text
    assert "left out" not in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_the_data_has_members_in_their_types() -> None:
    members = b"class C:\n  D = 3\n  e = 4\n  def f(self): pass\n  class G: pass\n"
    source = b"import os\nA = 1\nb: int = 2\n" + members + b"def h(): pass\n"
    data: Any = (await ask({"/a.py": source}, file="/a.py")).result.data
    names = {key: [item["name"] for item in data[key]] for key in ("types", "functions", "constants", "variables")}
    assert names == {"types": ["C"], "functions": ["h"], "constants": ["A"], "variables": ["b"]}
    inside = {
        key: [item["name"] for item in data["types"][0][key]] for key in ("types", "fields", "methods", "constants")
    }
    assert inside == {"types": ["G"], "fields": ["e"], "methods": ["f"], "constants": ["D"]}
    assert (data["variables"][0]["type"], data["variables"][0]["value"]) == ("int", "2")
    assert (data["language"], data["imports"], data["syntax_error_line"]) == ("python", ["os"], None)


@pytest.mark.parametrize(
    ("name", "content", "code", "text"),
    [
        ("/a.txt", b"text", "unknown_language", r"/a\.txt: unknown language; .*\.py, "),
        ("/a.py", b"\x7fELF\0\0", "binary", r"not a text file \(.*6 bytes"),
        ("/tmp", None, "is_a_directory", "tmp"),
        ("/nothing.py", None, "file_not_found", "nothing"),
    ],
)
async def test_what_is_no_source_is_told(name: str, content: bytes | None, code: str, text: str) -> None:
    outcome = await ask({name: content} if content is not None else {}, file=name)
    assert outcome.result.error_code == code
    assert outcome.error is None
    assert re.search(text, outcome.result.text), outcome.result.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({}, "file: required"), ({"file": ""}, "file: "), ({"file": "a\0"}, "NUL"), ({"file": "a", "al": 1}, "'all'")],
)
async def test_mistakes_are_told_as_mistakes_of_the_arguments(arguments: dict[str, Any], message: str) -> None:
    outcome = await ask({}, **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert message in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_an_empty_file_declares_nothing() -> None:
    assert (await ask({"/a.py": b""}, file="/a.py")).result.text == "/a.py (python)\n(no declarations)"


@pytest.mark.usefixtures("needs_process")
async def test_a_relative_path_starts_from_the_directory_of_the_call() -> None:
    outcome = await ask({"/home/user/src/a.py": b"def f(): pass\n"}, file="src/a.py")
    assert outcome.result.text.startswith("src/a.py (python)\n1  def f()")


@pytest.mark.usefixtures("needs_process")
async def test_more_than_fits_is_counted_and_never_cut_in_the_middle() -> None:
    source = "".join(f"def name_of_function_{n:05}(argument): pass\n" for n in range(2_000)).encode()
    outcome = await ask({"/a.py": source}, file="/a.py")
    data: Any = outcome.result.data
    *lines, last = outcome.result.text.splitlines()
    assert len(outcome.result.text) <= sig.LIMIT.characters
    assert last == f"[{data['dropped']} more declarations omitted: the result would be too long]"
    assert len(lines) - 1 == len(data["functions"]) == 2_000 - data["dropped"]
    assert all(line.endswith("(argument)") for line in lines[1:])


@pytest.mark.usefixtures("needs_process")
async def test_of_a_huge_file_the_beginning_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sig, "MAX_READ_BYTES", 1_000)
    source = b"def first(): pass\n" + b"#\n" * 1_000 + b"def last(): pass\n"
    outcome = await ask({"/a.py": source}, file="/a.py")
    assert "def first()" in outcome.result.text
    assert "last" not in outcome.result.text
    assert "[only the first 1000 of 2035 bytes were parsed]" in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_an_outline_is_remembered_until_the_file_changes() -> None:
    made = box({})
    first = await asked(made, {"/a.py": b"def f(): pass\n"}, file="/a.py")
    again = await asked(made, {}, file="/a.py")
    changed = await asked(made, {"/a.py": b"def g(): pass\n"}, file="/a.py")
    assert (first.cached, again.cached, changed.cached) == (False, True, False)
    assert "def g()" in changed.result.text


# -- what is hostile

HOSTILE = {
    "brackets": b"([{" * 2_000,
    "quotes": b"\"'`" * 2_000,
    "zeros": b"\0" * 15_000,
    "assignments": b"a=" * 3_000,
}


@pytest.mark.usefixtures("needs_process")
async def test_hostile_sources_of_every_language_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source(language.name, data) for language in LANGUAGES for data in HOSTILE.values()]
    monkeypatch.setattr(parsing, "PROCESSES", len(sources))
    with anyio.fail_after(110):
        answers = await facts_in(sources, 0.05)
    assert {answer.problem for answer in answers} <= {"", "hard"}
    assert all((answer.found is None) == (answer.problem == "hard") for answer in answers)


@pytest.mark.usefixtures("needs_process")
async def test_a_file_that_keeps_the_parser_busy_takes_no_other_with_it() -> None:
    bad = Source("shell", b"\0" * 100_000)  # the parser does not even ask whether to go on
    good = Source("shell", b"source x")
    answers = await facts_in([good, bad, good, bad, good], 1.0)
    assert [answer.problem for answer in answers] == ["", "hard", "", "hard", ""]
    assert [item.module for answer in answers if answer.found for item in answer.found.imports] == ["x"] * 3


@pytest.mark.usefixtures("needs_process")
async def test_a_file_that_takes_all_memory_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MEMORY", 200 << 20)
    answers = await facts_in([Source("python", b"(" * (1 << 20)), Source("python", b"import x")], 50.0)
    assert [answer.problem for answer in answers] == ["hard", ""]


@pytest.mark.usefixtures("needs_process")
async def test_when_many_files_end_their_process_the_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "PROCESSES", 1)
    answers = await facts_in([Source("shell", b"\0" * 100_000), Source("shell", b"")], 0.1)
    assert [answer.problem for answer in answers] == ["hard", "late"]


@pytest.mark.usefixtures("needs_process")
async def test_a_call_that_is_cancelled_leaves_no_process_behind() -> None:
    seconds = 1_000 + random.random()

    def processes() -> list[str]:
        listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
        return [line for line in listed.splitlines() if f" facts {seconds} " in line]

    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            group.start_soon(facts_in, [Source("shell", b"\0" * 1_000_000)], seconds)
            await until(processes, 60)
            group.cancel_scope.cancel()
        await until(lambda: not processes(), 30)


@pytest.mark.usefixtures("needs_process")
async def test_a_source_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sig, "PARSE_TIMEOUT", 0.0)
    outcome = await ask({"/a.c": b"(" * 10_000}, file="/a.c")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "too_complex")
    assert "Read or search it" in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_what_was_found_is_the_same_in_a_process_of_its_own() -> None:
    for name in ("shapes.py", "server.go", "shape.hpp", "store.ts"):
        data, language = (DATA / name).read_bytes(), language_of(name)
        assert language is not None
        source = Source(language.name, data)
        assert (await outline_in(source, 60.0)).found == outline_of(data, language, lambda: False)
        assert (await facts_in([source], 60.0))[0].found == facts_of(data, language, lambda: False)


def test_a_parse_ends_when_it_is_told_to() -> None:
    with pytest.raises(Stopped):
        parse(b"x = (\n" * 10_000, Grammar("tree_sitter_python"), lambda: True)


def test_a_long_walk_ends_when_it_is_told_to() -> None:
    asked_times = iter(range(100))
    walk = outline.Walk(language_named("python").outline, lambda: next(asked_times, None) is None)
    walk.file(parse(b"x = 1\n" * 1_000, Grammar("tree_sitter_python"), lambda: False).root_node)
    assert (len(walk.found) <= 100, walk.complete) == (True, False)


@given(st.sampled_from(LANGUAGES), st.binary(max_size=300))
def test_any_bytes_have_an_outline(language: Language, source: bytes) -> None:
    found = outline_of(utf8_of(source), language, lambda: False)
    assert all(item.line >= 1 and item.end_line >= item.line for item in found.declarations)
    facts_of(utf8_of(source), language, lambda: False)


@given(st.sampled_from(SAMPLES), st.data())
def test_a_damaged_source_has_an_outline(name: str, data: st.DataObject) -> None:
    source = (DATA / name).read_bytes()
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 200)))
    damaged = source[:start] + data.draw(st.binary(max_size=20)) + source[end:]
    language = language_of(name)
    assert language is not None
    found = outline_of(damaged, language, lambda: False)
    assert all(item.name and "\n" not in item.signature for item in found.declarations)


# -- without the grammars


@pytest.mark.usefixtures("needs_process")
async def test_a_grammar_that_is_not_installed_is_told_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tree_sitter_rust.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = await ask({"/a.rs": b"fn a() {}"}, file="/a.rs")
    assert (outcome.result.error_code, outcome.error) == ("unsupported_operation", None)
    assert outcome.result.text == (f"the parser for rust is not installed ({install_extra('parsers')})")


@pytest.mark.usefixtures("needs_process")
def test_nothing_of_it_is_loaded_before_it_is_used() -> None:
    script = "import sys, harness_tools.dev; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "harness_tools.dev.signatures" in loaded
    assert [name for name in loaded if name.startswith("tree_sitter") or name.endswith("languages.table")] == []
