"""Lines of ignore files that are written seldom: what git makes of them, and which of them ``rg`` is trusted with."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples

from harness.patterns.ignore_rules import IGNORE_LIMIT, Ignored, bytewise, parse_ignore
from harness_tools.search.grep_scripts import find_incompatible_ignores
from harness_tools.search.replies import read_tree
from harness_tools.search.tree_scripts import TreeQuery, find_words, framed_errors, ignore_above

PIECES = [
    *(b"a", b"b", b"d", b"*", b"**", b"***", b"?", b"/", b"/", b"\\", b"[", b"]", b"!", b"#", b" ", b"\t", b"\r", b"."),
    *(b"[ab]", b"[!a]", b"[^a]", b"[a-c]", b"[z-a]", b"[-a]", b"[a-]", b"[a/]", b"[]a]", b"[!]a]", b"[\\]]", b"[[a]"),
    *(b"[[:alpha:]]", b"[[:digit:][:space:]x]", b"[[:foo:]]", b"[[:]a]", b"[a\\-c]", b"{a,b}", b"\xc3\xa9", b"\xff"),
    b"\0",
]
STARTS = [b"", b"", b"!", b"/", b"**/", b"!/"]
ENDS = [b"", b"", b"/", b" ", b"  ", b"\\ ", b"\r", b"/**", b"**"]
LINES = st.lists(
    st.builds(
        lambda start, parts, end: start + b"".join(parts) + end,
        st.sampled_from(STARTS),
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
        st.sampled_from(ENDS),
    ),
    max_size=4,
)
NAMES = [
    *(b"a", b"b", b"ab", b"abc", b"ac", b"1", b"a ", b"!a", b"#", b"\xc3\xa9", b"a\xff", b"[", b"a]", b"b-", b"*"),
    *(b"\\", b"a\n", b".a", b"a.", b"{a,b}", b"a\r", b"a\t", b"A"),
]
PATHS = [*NAMES, *(b"d/" + name for name in NAMES), *(b"b/d/" + name for name in NAMES), b"a/b", b"a/x/b", b"ax/y/b"]


@pytest.fixture(scope="module")
def repository(needs_process: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(directory)], check=True, timeout=60)
    (directory / "d").mkdir()
    return directory


def left_out_by_git(repository: Path, paths: list[bytes]) -> list[bytes]:
    command = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(command, cwd=repository, input=b"\0".join(paths), capture_output=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return [path for path in done.stdout.split(b"\0") if path]


def left_out_here(files: dict[str, bytes], paths: list[bytes]) -> list[bytes]:
    rules = {at: parse_ignore(os.fsdecode(data.replace(b"\0", b"\1"))) for at, data in files.items()}
    ignored = Ignored(rules)
    return [path for path in paths if ignored.leaves_out(os.fsdecode(path))]


@given(LINES, LINES, st.sampled_from([b"", b"", b"\xef\xbb\xbf"]), st.sampled_from([b"", b"\n", b"\r\n"]))
@few_examples()
def test_lines_of_any_kind_mean_what_they_mean_to_git(
    repository: Path, top: list[bytes], sub: list[bytes], mark: bytes, end: bytes
) -> None:
    files = {"": mark + b"\n".join(top) + end, "d": b"\n".join(sub) + end}
    for at, data in files.items():
        (repository / at / ".gitignore").write_bytes(data)
    assert left_out_here(files, PATHS) == left_out_by_git(repository, PATHS)


CLASSES = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit".split()  # noqa: SIM905  # one line


CLASSES = (
    *("alnum", "alpha", "blank", "cntrl", "digit", "graph"),
    *("lower", "print", "punct", "space", "upper", "xdigit"),
)


@pytest.mark.parametrize(
    "line",
    [
        *(f"x[[:{name}:]]" for name in CLASSES),
        *("x[!a-y]", "x[^\\]-a]", "x[[:alpha:]-z]", "x[+--]", "x[--0]", "x[]-a]", "x[a-\\c]", "x?", "x[é]", "x[!é]"),
    ],
)
def test_every_byte_is_in_brackets_where_git_has_it(repository: Path, line: str) -> None:
    (repository / "d/.gitignore").unlink(missing_ok=True)
    (repository / ".gitignore").write_text(line)
    paths = [b"x%c" % number for number in range(1, 256) if number != ord("/")] + ["xé".encode(), b"x/a"]
    assert left_out_here({"": line.encode()}, paths) == left_out_by_git(repository, paths)


ALIKE = [
    *("", "  ", "# Files of {a} build, é — all", "*.py[cod]", "*.log", "/build/", "!keep.log", "**/gen/*.c", "a/**"),
    *("*~", "[Bb]in/", "[._]*.s[a-v][a-z]", "[._]ss[a-gi-z]", "\\#x#", "\\!x", "é.txt", "日本", "a b", "~$*.doc*"),
    *("*.*", ".env.*", "$RECYCLE.BIN/", "x?y", "target/**/*.o", "**", "/*", "!/*/", "a]", "trail  ", "dos\r"),
    "*.egg-info/",
]
UNALIKE = [
    *("{a,b}", "a}", "a.", "a./b", "[!a]", "[^a]", "x[[:alpha:]]", "a[/]b", "a**", "**a", "a\\ ", "a\t", "/", "!"),
    *("!/", "a//b", "Icon\r\r", "***", "[z-a]", "[a", "\\a", "a\\", "./a", "a\u00a0", "\ufeff*.log", "a\u3000"),
    *("\x7f", "x\x01", "\udce9", "# \udce9", "\udcc0\udc80", "\udced\udca0\udc80", "\udcc3\udcc3\udca9", "a\0b"),
]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("lines", "blocked"), [(ALIKE, ""), (UNALIKE, "1")])
def test_rg_is_trusted_with_lines_that_are_common(tmp_path: Path, lines: list[str], blocked: str) -> None:
    script = f'cd "$1" || exit; {find_incompatible_ignores(TreeQuery("."))}printf "<%s>" "${{blocked:+1}}"'
    for number, line in enumerate(lines):
        for name in (".gitignore", "tree/.gitignore"):
            file = tmp_path / f"{blocked}{number}" / name
            (tmp_path / f"{blocked}{number}" / "tree").mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"*.o\n{line}\n*.a\n".encode("utf-8", "surrogateescape"))
            words = ["sh", "-c", script, "sh", str(tmp_path / f"{blocked}{number}" / "tree")]
            env = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
            done = subprocess.run(words, capture_output=True, check=True, timeout=60, env=env)
            assert (line, name, done.stdout) == (line, name, b"<%s>" % blocked.encode())
            file.unlink()


SIMPLE = [
    *(
        "a",
        "b",
        "d",
        "c.x",
        "*",
        "?",
        "/",
        "/",
        ".",
        "[ab]",
        "[b-z]",
        "[._a]",
        " ",
        "é",
        "]",
        "-",
        "$",
        "(",
        "*.x",
        "#",
    ),
]
RG = "rg --files --hidden --no-config --no-require-git --no-ignore-parent --no-ignore-dot --no-messages -0 .".split()  # noqa: SIM905  # as it is typed


@pytest.mark.usefixtures("needs_process")
@given(st.lists(st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=5), max_size=4), st.sampled_from(STARTS))
@few_examples()
def test_what_rg_is_trusted_with_it_reads_as_git_does(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], start: bytes
) -> None:
    top = tmp_path_factory.getbasetemp() / "trusted"
    for path in PATHS:
        if path not in (b"a", b"b", b"d", b"a\n"):
            file = Path(os.fsdecode(os.path.join(os.fsencode(top), path)))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    data = start + "\n".join(map("".join, lines)).encode()
    (top / ".gitignore").write_bytes(data)
    env = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    look = ["sh", "-c", f'{find_incompatible_ignores(TreeQuery("."))}printf %s "${{blocked:+1}}"']
    if subprocess.run(look, cwd=top, capture_output=True, check=True, timeout=60, env=env).stdout:
        return
    found = subprocess.run(RG, cwd=top, capture_output=True, timeout=60, env=env).stdout.split(b"\0")
    every = [os.fsencode(file.relative_to(top)) for file in top.rglob("*") if file.is_file()]
    left = left_out_here({"": data}, every)
    assert {name.removeprefix(b"./") for name in found if name} == set(every) - set(left), data


def test_no_line_takes_long() -> None:
    started = time.monotonic()
    lines = ["*a" * 100 + "b", "**/a/" * 30 + "b", "/" + "a**/" * 30 + "b", "?*" * 200, "[!b]*" * 100 + "b"]
    for line in [*lines, "a**/" + "**/" * 99]:
        Ignored({"": parse_ignore(line)}).leaves_out("/".join(["a" * 250] * 16))
    many = Ignored({"": parse_ignore("\n".join(f"*{number}?x" for number in range(5_000)))})
    assert not many.leaves_out("none")
    assert time.monotonic() - started < 20
    assert bytewise("aé\udcff") == "a\xc3\xa9\xff"


@pytest.mark.usefixtures("needs_process")
def test_of_an_ignore_file_that_is_too_long_whole_lines_hold_and_it_is_counted(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    text = "".join(f"name-{number:06}\n" for number in range(IGNORE_LIMIT // 12 + 9))
    (tmp_path / "tree/.gitignore").write_text(text)
    (tmp_path / ".gitignore").write_text(text)
    (tmp_path / ".git").mkdir()
    script = ignore_above() + framed_errors(find_words(TreeQuery("."), [("-type f", "-print0")]))
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path / "tree", capture_output=True, check=True, timeout=60)
    tree = read_tree(b"R%s\0" % os.fsencode(tmp_path / "tree") + done.stdout)
    assert tree.unreadable == 2
    last = text[:IGNORE_LIMIT].count("\n") - 1
    assert tree.ignored.leaves_out(f"name-{last:06}")
    assert not tree.ignored.leaves_out(f"name-{last + 1:06}"[: IGNORE_LIMIT % 12])
    assert [len(rules) for rules in tree.rules.values()] == [last + 1] * 2
