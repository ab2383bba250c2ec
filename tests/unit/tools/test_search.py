"""The pure parts of the search tools: patterns of paths, ignore files, expressions, texts, and what scripts print."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.toolkit import Registry
from harness.toolkit.registry import schema_gaps
from harness.toolkit.values import Subject
from harness_tools.search import tools
from harness_tools.search.check_for import Literal, find_hits
from harness_tools.search.entries import read_contents
from harness_tools.search.grep import clipped, shown_lines
from harness_tools.search.grep_search import Line, counts_of, lines_of, stdin_of
from harness_tools.search.linear_matcher import Matcher
from harness_tools.search.regular_expressions import extended, parse, rust
from harness_tools.search.replies import read_tree

# -- what the tools say of themselves


def test_the_set_reads_and_changes_nothing() -> None:
    found = Registry(tools())
    assert [tool.name for tool in found.list()] == ["checkfor", "glob", "grep", "ls", "stump"]
    assert found.read_only().list() == found.list()
    assert [schema_gaps(tool) for tool in found.list()] == [()] * 5
    assert all(tool.traits.cacheable and tool.traits.parallelizable and not tool.traits.mutating for tool in tools())
    assert [tool.name for tool in found.packs("core").list()] == ["ls"]


def test_the_policy_sees_every_path_that_is_searched() -> None:
    found = {tool.name: tool for tool in tools()}

    def subjects(name: str, **arguments: object) -> tuple[Subject, ...]:
        return found[name].subjects(found[name].parse(arguments))  # type: ignore[arg-type]  # JSON values, all of them

    assert subjects("grep", pattern="x", path="/srv") == (Subject("read", "/srv"),)
    assert subjects("glob", pattern="/etc/ssl/**/*.pem") == (Subject("read", "/etc/ssl"),)
    assert subjects("glob", pattern="~/.ssh/*") == (Subject("read", "~/.ssh"),)
    assert subjects("checkfor", search="x", dir="a", file=["b", "c"]) == tuple(Subject("read", name) for name in "abc")
    assert subjects("checkfor", search="x") == (Subject("read", "."),)
    assert subjects("stump", path="/srv") == subjects("ls", dir="/srv") == (Subject("read", "/srv"),)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("grep", {"pattern": "(a"}, "without its )"),
        ("grep", {"pattern": ""}, "it is empty"),
        ("grep", {"pattern": "a\nb"}, "multiline"),
        ("grep", {"pattern": "a", "path": "a\0b"}, "NUL"),
        ("grep", {"pattern": "a\0b", "fixed": True}, "NUL"),
        ("grep", {"pattern": "\ud800"}, "pattern"),
        ("grep", {"pattern": "a", "include": "{a,b}" * 12}, "expand to more"),
        ("grep", {"pattern": "a", "type": "pyton"}, "known: c,"),
        ("grep", {"pattern": "a", "max_results": 1001}, "1000"),
        ("grep", {"pattern": "a", "pth": "x"}, "did you mean 'path'"),
        ("grep", {"pattern": "x*", "multiline": True}, "empty text"),
        ("grep", {"pattern": "a" * 5000}, "longer than"),
        ("glob", {"pattern": "../*"}, ".. leads out"),
        ("glob", {"pattern": "/"}, "empty"),
        ("glob", {"pattern": "/etc/*", "path": "x"}, "omit path"),
        ("glob", {"pattern": "{" * 900}, ""),
        ("stump", {}, "dir: required"),
        ("stump", {"dir": ".", "depth": -2}, "-1"),
        ("checkfor", {"search": "\n"}, "line ends"),
        ("checkfor", {"search": "a\0"}, "NUL"),
        ("ls", {"path": ""}, "path"),
        ("ls", {"path": "a" * 5000}, "4096"),
        ("checkfor", {"search": "x", "dir": ["a"] * 51}, "50"),
    ],
)
def test_a_mistake_is_told_with_what_to_write_instead(name: str, arguments: dict[str, object], said: str) -> None:
    tool = Registry(tools()).lookup(name)
    if not said:
        tool.parse(arguments)  # type: ignore[arg-type]  # JSON values
        return
    with pytest.raises(ToolError, match=re.escape(said)) as caught:
        tool.parse(arguments)  # type: ignore[arg-type]  # as above
    assert caught.value.code == "invalid_args"


# -- expressions

GOOD = [
    *(
        "needle",
        "^a$",
        "a|b|cd",
        "(ab)+c?",
        "a{2,3}",
        "a{2,}",
        "[a-z0-9_]+",
        "[^a-z]",
        "[]a-]",
        "[^]a-]",
        "[\\]\\-\\\\]",
    ),
    *("[[:alpha:]_]x", "\\d+\\.\\d*", "\\w\\W\\s\\S\\D", "\\bfoo\\b", "\\Bfoo", "(?:ab|c)*?d", "(?P<n>a)", "(?i)AbC"),
    *(
        "\\x41\\t",
        "é+",
        "[éa]b",
        "a.c",
        "\\(\\)\\[\\]\\{\\}\\.\\*\\+\\?\\|\\^\\$\\/",
        "a-b:c=d#e&f~g",
        "\"'`$x;&",
        "x*",
    ),
    *("[a^]", "[\\^a]", "[\\[x]", "(a|b)?", "a}", "]", "(^a|b$)", "[\\x01-\\x1f]", "[^\\x01-\\x7f]", "[-^]", "[^^]"),
]
TEXTS = [
    *(
        b"",
        b"a",
        b"needle",
        b"abc",
        b"cd",
        b"ababc",
        b"aa",
        b"aaaa",
        b"A",
        b"foo",
        b"a foo b",
        b"xfoo",
        b"x.y",
        b"12.5",
    ),
    *(b"]-", b"\\", "é".encode(), "aéb".encode(), b"a\tb", b"A\t", b"()[]{}.*+?|^$/", b"a-b:c=d#e&f~g", b"\"'`$x;&"),
    *(b"a}", b"^", b"[x", b"_x", b"\xff", b"d", b"abcd", b"AbC", b" \x02", b"b", b"a c", b"zx", b"--", b"^^"),
]


@pytest.mark.usefixtures("needs_process")
def test_an_expression_means_the_same_to_grep_and_here() -> None:
    for pattern in GOOD:
        expression = parse(pattern)
        matcher = Matcher(expression)
        ours = [matcher.found_in(text) for text in TEXTS]
        folds = ["-i"] if expression.folds else []
        command = ["grep", "-naE", *folds, "-e", extended(expression).encode("utf-8", "surrogateescape"), "--"]
        done = subprocess.run(
            command,
            input=b"\n".join(TEXTS) + b"\n",
            capture_output=True,
            env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"},
            timeout=60,
        )
        assert done.returncode in (0, 1), done.stderr
        theirs = {int(line.partition(b":")[0]) - 1 for line in done.stdout.splitlines() if line}
        assert [number for number, found in enumerate(ours) if found] == sorted(theirs)


@pytest.mark.usefixtures("needs_process")
def test_an_expression_means_the_same_to_rg() -> None:
    for pattern in GOOD:
        expression = parse(pattern)
        matcher = Matcher(expression)
        command = [
            "rg",
            "--no-config",
            "-naE",
            "none",
            "--no-heading",
            "--color=never",
            "-e",
            rust(expression),
            "--",
            "-",
        ]
        done = subprocess.run(command, input=b"\n".join(TEXTS) + b"\n", capture_output=True, timeout=60)
        assert done.returncode in (0, 1), (pattern, done.stderr)
        theirs = [int(line.partition(b":")[0]) - 1 for line in done.stdout.splitlines() if line]
        assert [number for number, text in enumerate(TEXTS) if matcher.found_in(text)] == theirs, pattern


WHAT_IS_NO_COMMON = [
    ("(a", "without its )"),
    ("a)", "without its ("),
    ("*a", "nothing to repeat"),
    ("a|", "nothing to match"),
    ("()", "nothing to match"),
    ("(?=a)", "look-around"),
    ("(?<!a)b", "look-around"),
    ("(a)\\1", "back-references"),
    ("a{300}", "255"),
    ("a{3,2}", "255"),
    ("a{", "a count"),
    ("[a", "ends too early"),
    ("[z-a]", "a range"),
    ("[[:foo:]]", "known are"),
    ("\\q", "not supported"),
    ("\\<word", "edge of a word"),
    ("\\", "ends too early"),
    ("a++", "possessive"),
    ("^*", "cannot be repeated"),
    ("\\x00", "NUL"),
    ("\\xg1", "hexadecimal"),
    ("((a{100}){100}){100}", "too large"),
    ("a\\nb", "multiline"),
    ("[^é]", "ASCII"),
    ("(" * 60 + "a" + ")" * 60, "nested groups"),
    ("[\\n]", "match nothing"),
    ("a{0}", "matches nothing"),
]


def test_what_is_no_common_expression_is_refused_with_its_place() -> None:
    for pattern, said in WHAT_IS_NO_COMMON:
        with pytest.raises(ValueError, match=re.escape(said)):
            parse(pattern)


@given(st.text(max_size=40), st.booleans(), st.booleans())
def test_any_text_is_an_expression_or_a_value_error(text: str, fixed: bool, multiline: bool) -> None:
    try:
        expression = parse(text, fixed=fixed, multiline=multiline)
    except ValueError:
        return
    Matcher(expression).found_in(b"some text")
    assert "\0" not in rust(expression) + extended(expression)


@given(st.text(alphabet="ab.[]^$*\\-é\"' ", min_size=1, max_size=12), st.text(alphabet="ab.[]^$*\\-é\"' ", max_size=20))
def test_a_fixed_text_is_found_where_it_is(needle: str, text: str) -> None:
    expression = parse(needle, fixed=True)
    data = text.encode()
    assert Matcher(expression).found_in(data) == (needle in text)
    assert re.search(rust(expression).removeprefix("(?-u)").encode(), data) is None or needle in text
    spans = [(match.start(), match.end()) for match in re.finditer(re.escape(needle.encode()), data)]
    assert list(Matcher(expression).spans(data)) == spans


@given(
    st.sampled_from(["a|ab", "ab|a", "a+?b", "(a|b)+", "b+", "a.?", "(ab?)+?", "^a", "b$", "\\bb", "[^a]+"]),
    st.text(alphabet="ab \n", max_size=20),
)
def test_spans_are_those_of_an_engine_with_priorities(pattern: str, text: str) -> None:
    known = [
        (match.start(), match.end()) for match in re.finditer(pattern.encode(), text.encode(), re.MULTILINE) if match[0]
    ]
    assert list(Matcher(parse(pattern, multiline=True)).spans(text.encode())) == known


def test_an_expression_that_would_take_for_ever_elsewhere_is_quick_here() -> None:
    started = time.monotonic()
    for pattern in ("(a+)+$", "(a|aa)+$", "(a|a?)+b", "(.*)*x", "(\\w+\\s?)*x", "(a{1,30}){1,30}b"):
        assert not Matcher(parse(pattern)).found_in(b"a" * 20_000 + b"!")
    assert time.monotonic() - started < 60


# -- texts


def test_a_text_is_found_as_it_is() -> None:
    content = b"One two\r\ntwo twos\nTWO\n"

    def lines(text: str, *, folds: bool = False, whole_word: bool = False) -> list[tuple[int, int]]:
        found = find_hits(Literal.of(text, folds=folds, whole_word=whole_word), content)
        return [(hit.line, hit.end_line) for hit in found]

    assert lines("two") == [(1, 1), (2, 2)]
    assert lines("two", folds=True) == [(1, 1), (2, 2), (3, 3)]
    assert lines("twos", whole_word=True) == [(2, 2)]
    assert lines("wo", whole_word=True) == []
    assert lines("two\ntwo") == [(1, 2)]
    assert lines("two\r\ntwo") == [(1, 2)]
    assert lines("\ntwo") == [(1, 2)]
    assert lines("TWO\n") == [(3, 3)]
    assert lines(".*") == []
    hit = find_hits(Literal.of("twos", folds=False, whole_word=False), content, 1)[0]
    assert (hit.text, hit.before, hit.after) == ("two twos", (b"One two",), (b"TWO",))
    assert Literal.of("größer als\nx", folds=True, whole_word=False).part == "er als"
    assert [hit.line for hit in find_hits(Literal.of("É", folds=True, whole_word=False), "é".encode())] == [1]


# -- what the scripts print


def test_frames_become_a_tree_whatever_is_in_names() -> None:
    output = b"R/top\0I./.gitignore\0*.o\n\0N./in/.git\0S./node_modules\0./a\nb\0./\xff\0E2\0"
    tree = read_tree(output)
    assert (tree.real, tree.paths, tree.skipped, tree.unreadable) == (
        "/top",
        [b"./a\nb", b"./\xff"],
        ["node_modules"],
        2,
    )
    assert tree.ignored.leaves_out("x.o")
    assert tree.repositories == {"in"}
    assert tree.is_whole
    cut = read_tree(b"./a\0./bcd\0E0\0", limit=10)
    assert (cut.paths, cut.is_cut) == ([b"./a"], True)


def test_counts_and_lines_are_read_whatever_is_in_names_and_texts() -> None:
    tree = read_tree(b"L./b\x012\n./a\x02c\x011\n./a:1:\x013\n\0")
    files, is_cut = counts_of(tree, 1000)
    assert [(file.path, file.count) for file in files] == [("a\nc", 1), ("a:1:", 3), ("b", 2)]
    assert not is_cut
    assert stdin_of(files[:1]) == b"./a\x02c\x011\n"
    lines = lines_of(b"./a\nc\x011:x\x01y\n./a\nc\x012-z\n--\n./b\x017:1:2\n./b\x018-cut", 1000)
    assert lines["a\nc"] == [Line(1, b"x\x01y", True), Line(2, b"z", False)]
    assert [line.number for line in lines["b"]] == [7, 8]
    assert [line.number for line in lines_of(b"./b\x017:1:2\n./b\x018-cut", 10)["b"]] == [7]
    headed = lines_of(b"\x01./x\x02y\n3:text\n--\n5-more\n", 1000)
    assert headed == {"x\ny": [Line(3, b"text", True), Line(5, b"more", False)]}


@given(st.binary(max_size=200))
def test_whatever_a_target_prints_is_read_without_an_error(output: bytes) -> None:
    tree = read_tree(output)
    counts_of(tree, 100)
    lines_of(output, 100)
    read_contents(output)


def test_lines_beyond_the_cap_are_left_out_with_what_is_beside_them() -> None:
    lines = [Line(1, b"", False), Line(2, b"", True), Line(3, b"", False), Line(4, b"", True), Line(5, b"", False)]
    assert shown_lines(lines, 1, 1) == lines[:3]
    assert shown_lines(lines, 1, 5) == lines[:3]
    assert shown_lines(lines, 1, 0) == lines[:2]
    assert shown_lines(lines, 2, 1) == lines


def test_a_giant_line_is_shown_around_its_match_and_cut_between_characters() -> None:
    line = ("ä" * 400 + "needle" + "ö" * 400).encode()
    text = clipped(line, Matcher(parse("needle")))
    assert "needle" in text
    assert text.startswith("[...]ä")
    assert text.endswith("ö[...]")
    assert all(char in "äöndle[.]" for char in text)
    assert clipped(b"short\r") == "short"


def test_contents_are_frames_of_two(tmp_path: Path) -> None:
    found = read_contents(b"F./a\0B not a frame\0B./b\0Z./c\0U./d\0F./e\0\0")
    assert found.texts == {b"./a": b"B not a frame", b"./e": b""}
    assert (found.binary, found.large, found.unreadable) == ([b"./b"], [b"./c"], [b"./d"])
