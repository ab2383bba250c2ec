"""Patterns of paths, and ignore files: what they match, and that they take no long time."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples

from harness.patterns.ignore_rules import Ignored, parse_ignore
from harness.patterns.wildcards import PathPattern, expand_braces, glob_names, name_matcher, names_match, rough_name
from harness_tools.search.listing import split_pattern

# -- patterns of paths


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", "a.py", "d/a.py .py a.pyc"),
        ("**/*.py", "a.py d/a.py d/e/a.py", "a.txt .d/a.py"),
        ("**", "a d/a", ".a d/.a"),
        ("a/**", "a/b a/b/c", "b a"),
        ("a/**/b", "a/b a/x/b a/x/y/b", "a/bb b x/a/b"),
        ("**/.x/*", ".x/a d/.x/a", "x/a .y/.x/a"),
        ("{a,b{c,d}}.t", "a.t bc.t bd.t", "b.t"),
        ("[a-c]?", "ax bz", "dx a abc"),
        ("[!a]x", "bx", "ax"),
        ("[^a]x", "bx", "ax"),
        ("[]]x", "]x", "x"),
        ("[a", "[a", "a"),
        ("{a", "{a", "a"),
        ("\\*", "*", "a"),
        ("a\\{b", "a{b", "ab"),
        ("./a", "a", "./b"),
        ("*", "a\nb ünï", "a/b"),
    ],
)
def test_a_pattern_matches_paths_name_by_name(pattern: str, yes: str, no: str) -> None:
    compiled = PathPattern.parse(pattern, visible_only=True)
    assert [path for path in yes.split(" ") if not compiled.matches(path)] == []
    assert [path for path in no.split(" ") if compiled.matches(path)] == []


def test_an_include_without_a_slash_is_of_the_last_name() -> None:
    assert PathPattern.parse("*.c", only_name=True).matches("a/b/x.c")
    assert not PathPattern.parse("a/*.c", only_name=True).matches("a/b/x.c")
    assert not PathPattern.parse("*.c").matches("a/x.c")


@pytest.mark.parametrize(
    ("pattern", "depth"), [("*", 1), ("./a//b", 2), ("{a/*/c,*}", 3), ("**", None), ("{a,b/**}", None), ("a**/b", 2)]
)
def test_how_deep_a_pattern_leads_is_known(pattern: str, depth: int | None) -> None:
    assert PathPattern.parse(pattern).depth == depth
    assert PathPattern.parse(pattern, only_name=True).depth == (None if "/" not in pattern else depth)


NAMES = st.text(alphabet="ab.*?[]!-{},\\é\n", min_size=1, max_size=8)


@given(NAMES, st.text(alphabet="ab.*é-\n", min_size=1, max_size=6))
def test_the_rough_pattern_for_find_matches_at_least_as_much(pattern: str, name: str) -> None:
    compiled = PathPattern.parse(pattern.replace("/", "") + "x")
    if not compiled.matches(name + "x"):
        return
    wide = ["".join(".*" if char == "*" else re.escape(char) for char in rough) for rough in compiled.rough_names]
    assert any(re.fullmatch(rough, name + "x", re.DOTALL) for rough in wide)
    assert all(re.fullmatch(r"[A-Za-z0-9._@%+=,*-]*", rough) for rough in map(rough_name, compiled.rough_names))


def _matches_naively(patterns: list[re.Pattern[str] | None], names: list[str], *, visible_only: bool) -> bool:
    """Whether names match, by every way there is."""
    if not patterns:
        return not names
    first, others = patterns[0], patterns[1:]
    if first is not None:
        return bool(names and first.match(names[0])) and _matches_naively(others, names[1:], visible_only=visible_only)
    if _matches_naively(others, names, visible_only=visible_only):
        return True
    further = bool(names) and not (visible_only and names[0].startswith("."))
    return further and _matches_naively(patterns, names[1:], visible_only=visible_only)


@given(
    st.lists(st.sampled_from(["**", "*", "a", "a*", "?", ".*"]), max_size=5),
    st.lists(st.sampled_from(["a", "b", "aa", ".a"]), max_size=5),
    st.booleans(),
)
def test_names_match_as_if_every_way_were_taken(patterns: list[str], names: list[str], visible_only: bool) -> None:
    compiled = [None if pattern == "**" else name_matcher(pattern) for pattern in patterns]
    expected = _matches_naively(compiled, names, visible_only=visible_only)
    assert names_match(compiled, names, visible_only=visible_only) == expected


@pytest.mark.parametrize(
    ("pattern", "anywhere"),
    [
        ("**/*.py", True),
        ("**/*.{c,h}", True),
        ("**", True),
        ("**/a*b*", True),
        ("*.py", False),
        ("src/**/*.py", False),
        ("**/x/*.py", False),
        ("**/[ab].py", False),
        ("**/a?.py", False),
        ("**/\\*.py", False),
        ("{**/*.c,x/*.h}", False),
    ],
)
def test_a_pattern_of_last_names_alone_is_known_as_such(pattern: str, anywhere: bool) -> None:
    assert PathPattern.parse(pattern).anywhere == anywhere


ODD_NAMES = st.text("ab.*[\\é\n", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))


@given(st.lists(ODD_NAMES, min_size=1, max_size=3), st.text("ab.*{,}", min_size=1, max_size=6))
def test_what_find_matches_for_last_names_alone_matches(names: list[str], last: str) -> None:
    try:
        pattern = PathPattern.parse(f"**/{last}")
    except ValueError:
        return
    if pattern.anywhere:
        found = any(fnmatch.fnmatchcase(names[-1], rough) for rough in pattern.rough_names)
        assert found == pattern.matches("/".join(names))


def test_no_pattern_takes_long() -> None:
    started = time.monotonic()
    assert not PathPattern.parse("*a" * 100 + "b").matches("a" * 250)
    assert not PathPattern.parse("**/a/" * 30 + "b").matches("/".join("a" * 500))
    assert not names_match(glob_names(["*a" * 100 + "b"])[0], ["a" * 250], visible_only=True)
    assert not names_match(glob_names(["**", "a*"] * 30 + ["b"])[0], ["a"] * 500, visible_only=True)
    with pytest.raises(ValueError, match="expand to more"):
        expand_braces("{a,b}" * 30)
    assert time.monotonic() - started < 20


def test_an_absolute_pattern_begins_where_it_says() -> None:
    assert split_pattern("/etc/*.conf") == ("/etc", "*.conf")
    assert split_pattern("/*") == ("/", "*")
    assert split_pattern("~/x/**/y") == ("~/x", "**/y")
    assert split_pattern("/etc/passwd") == ("/etc", "passwd")
    assert split_pattern("a/*") == ("", "a/*")


# -- ignore files

LINES = st.lists(
    st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(["", "", "", "!", "/"]),
        st.sampled_from(["a", "b", "a*", "*", "?", "**", "[ab]", "a/b", "**/b", "a/**", "a/**/b", "\\a", "a ", "a\\ "]),
        st.sampled_from(["", "", "/"]),
    ),
    max_size=5,
)
PATHS = ("a", "b", "ab", "a/a", "a/b", "b/a", "a/b/a", "a/a/b", "b/b/b", "c", "a ", "c/a/b", "c/b")
DIRECTORIES = {"x/" + path for path in ("a/b", "b/b", "c", "a/a", "c/a")}


@pytest.mark.usefixtures("needs_process")
@given(LINES, LINES)
@few_examples()
def test_ignore_files_mean_what_they_mean_to_git(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], sub: list[str]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "ignoring"
    if not (directory / ".git").exists():
        directory.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", str(directory)], check=True, timeout=60)
        (directory / "a").mkdir()
    (directory / ".gitignore").write_text("\n".join(top) + "\n")
    (directory / "a/.gitignore").write_text("\n".join(sub) + "\n")
    command = [
        "git",
        "-C",
        str(directory),
        "-c",
        "core.excludesFile=/dev/null",
        "check-ignore",
        "--no-index",
        "-z",
        "--stdin",
    ]
    names = [path for path in PATHS if path != "a"]  # a directory there
    done = subprocess.run(command, input="\0".join(names).encode(), capture_output=True, timeout=60)
    rules = {
        "": parse_ignore((directory / ".gitignore").read_text()),
        "a": parse_ignore((directory / "a/.gitignore").read_text()),
    }
    ignored = Ignored(rules)
    ours = [name for name in names if ignored.leaves_out(name)]
    assert ours == [name for name in done.stdout.decode().split("\0") if name]


def test_a_repository_below_is_not_ruled_by_the_one_around_it() -> None:
    rules = {"": parse_ignore("*.log\n"), "inner": parse_ignore("x\n")}
    ignored = Ignored(rules, frozenset({"inner"}))
    assert ignored.leaves_out("a.log")
    assert not ignored.leaves_out("inner/a.log")
    assert ignored.leaves_out("inner/x")


def test_rules_above_the_top_hold_below_it() -> None:
    rules = {"/r": parse_ignore("/src/gen\n*.o\n"), "/r/src": parse_ignore("!keep.o\n")}
    ignored = Ignored(rules, above={"/r": ("src",), "/r/src": ()})
    assert ignored.leaves_out("gen", is_dir=True)
    assert ignored.leaves_out("gen/x")
    assert ignored.leaves_out("a.o")
    assert not ignored.leaves_out("keep.o")
    assert not Ignored({}).leaves_out("/".join("x" * 2000))
