"""The decisions behind file operations: versions, patterns, replies, messages, escapes."""

from __future__ import annotations

import glob as python_glob
import hashlib
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples

from harness.errors import FileError, FileNotFound, NoSpace, PermissionDenied, StaleFileError
from harness.results import DirEntry
from harness_backends.posix.files.file_calls import (
    EntryParser,
    Hasher,
    display_path,
    fields_of,
    file_error,
    local_error,
    parse_stat,
    tolerable,
    version_of,
)
from harness_backends.posix.files.search import plan_glob
from harness_backends.posix.files.shell_library import Refusal, encode_inline


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("content", [b"", b"a", b"123456789", bytes(range(256)) * 300, b"\0" * 70000])
def test_a_cksum_version_is_what_the_posix_program_computes(content: bytes) -> None:
    crc, size = subprocess.run(["cksum"], input=content, capture_output=True, check=True).stdout.split()
    assert version_of(content, "cksum") == f"cksum:{crc.decode()}:{size.decode()}"


@given(st.lists(st.binary(max_size=300)), st.sampled_from(["sha256", "cksum"]))
def test_a_version_does_not_depend_on_the_pieces(pieces: list[bytes], scheme: str) -> None:
    hasher = Hasher("cksum" if scheme == "cksum" else "sha256")
    for piece in pieces:
        hasher.update(piece)
    assert hasher.version() == version_of(b"".join(pieces), hasher.scheme)


def test_a_sha256_version_is_the_hash() -> None:
    assert version_of(b"x", "sha256") == f"sha256:{hashlib.sha256(b'x').hexdigest()}"


@pytest.mark.usefixtures("needs_process")
@few_examples()
@given(st.binary(max_size=2000))
def test_inline_content_survives_the_shell(content: bytes) -> None:
    for shell in (["dash"], ["bash", "--posix"], ["busybox", "ash"]):
        script = encode_inline(content) + "hxf_data"
        assert subprocess.run([*shell, "-c", script], capture_output=True, check=True).stdout == content


TREE = [
    "top.py", "top.txt", ".hidden.py", "a/one.py", "a/two.txt", "a/.secret/deep.py", "a/b/three.py", "a/b/c/four.py",
    "x1/f", "x2/g", "x[1]/odd.py", "we-ird/e.py", ".dot/inside.py", "a/b/[z].py", "new\nline.py",
]  # fmt: skip
PATTERNS = [
    "*", "*.py", "**", "**/*", "**/*.py", "*/", "**/", "a/**", "a/**/*.py", "a/*/*.py", "a/**/", "x*/**", "x?/*",
    "x[0-9]/*", "x[!1]/*", "x[[]1]/*", ".*", ".*/*", "**/.*", "**/.*/*.py", "a/**/c/*", "*/b/**/*.py", "[a-b]", "[",
    "[]", "a/b/[[]z].py", "top.p[xyz]", "top.py", "nope", "nope/*", "a/./b/*", "*e*i*/*", "**/b/*.py", "[z-a]*",
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def below(root: Path) -> list[DirEntry]:
    found = []
    for path in root.rglob("*"):
        found.append(DirEntry(str(path.relative_to(root)), "dir" if path.is_dir() else "file"))
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_pythons_glob_matches(pattern: str, tree: Path) -> None:
    plan = plan_glob(pattern)
    expected = sorted(python_glob.glob(pattern, root_dir=tree, recursive=True))
    if not plan.readings:
        assert expected == ([pattern] if (tree / pattern).exists() else [])
        return
    prefix = tree / plan.prefix
    found = [name for entry in below(prefix) for name in plan.match(entry)]
    extra = [plan.prefix] if plan.includes_prefix and prefix.is_dir() else []
    assert sorted(found + extra) == expected


@pytest.mark.parametrize(
    ("pattern", "shape", "expansion"),
    [
        ("*/*.py", "expand", "*/*"),
        ("/var/log/*/a b/x-1.log", "expand", "*/*/x-1.log"),
        (".[a-c]*/", "expand", ".*"),
        ("a\\*", "expand", "*"),
        ("**/*.py", "visible", None),
        ("**/.g*", "search", None),
    ],
)
def test_a_pattern_is_expanded_by_the_shell_unless_it_looks_at_every_depth(
    pattern: str, shape: str, expansion: str | None
) -> None:
    plan = plan_glob(pattern)
    assert (plan.shape, plan.expansion) == (shape, expansion)


@pytest.mark.parametrize("pattern", ["", "*/../x"])
def test_a_pattern_without_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"empty|may not"):
        plan_glob(pattern)


def test_no_name_on_the_target_makes_a_pattern_slow() -> None:
    started = time.monotonic()
    assert plan_glob("*a" * 100 + "b").match(DirEntry("a" * 250, "file")) == []
    assert plan_glob("**/a*/" * 30 + "b").match(DirEntry("/".join("a" * 500), "file")) == []
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("line", "kind", "mode", "mtime"),
    [
        ("81a4 644 12 0 0 1700000000.5", "file", 0o644, 1700000000.5),
        ("41ED 0755 4096 1 2 1700000000", "dir", 0o755, 1700000000.0),
        ("a1ff 777 3 0 0 1", "link", 0o777, 1.0),
        ("11a4 1644 0 0 0 1", "other", 0o1644, 1.0),
        ("8000 0644 12 0 0 Nov_14_22:13", "file", 0o644, 1699999980.0),
        ("8000 0644 12 0 0 Dec_25_22:13", "file", 0o644, 1672006380.0),
        ("8000 4755 12 0 0 Jan_1_2000", "file", 0o4755, 946684800.0),
    ],
)
def test_a_stat_line_is_read_in_every_dialect(line: str, kind: str, mode: int, mtime: float) -> None:
    stat = parse_stat(line, now=1700000000.0)
    assert (stat.type, stat.mode, stat.mtime) == (kind, mode, mtime)


@given(st.lists(st.integers(1, 40)))
def test_entries_are_found_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"MARKf 3 a b\nMARKd 0 x/\nf 9 fake\nMARKxa1ff 7 ./\xff link \n\n"
    expected = [
        DirEntry("a b", "file", 3),
        DirEntry("x/\nf 9 fake", "dir", 0),
        DirEntry("\udcff link \n", "link", 7),
    ]
    parser = EntryParser("MARK")
    found = []
    for cut in cuts:
        found += parser.feed(stream[:cut])
        stream = stream[cut:]
    assert [*found, *parser.feed(stream), *parser.finish()] == expected


def test_fields_end_where_the_content_begins() -> None:
    assert fields_of(b"one\0t\xffo\0\0content\0", 3) == (["one", "t\udcffo", ""], b"content\0")


def test_every_refusal_has_an_exception_with_path_and_target() -> None:
    for reason in Refusal:
        if reason is not Refusal.BIG:
            error = file_error("/etc/x", int(reason), b"", "ssh://web1")
            assert "/etc/x" in str(error)
            assert str(error).startswith("ssh://web1: ")


@pytest.mark.parametrize(
    ("code", "stderr", "kind"),
    [
        (Refusal.STALE, b"", StaleFileError),
        (1, b"cat: write error: No space left on device", NoSpace),
        (2, b"sh: 1: cannot create /x: Read-only file system", NoSpace),
        (1, b"rm: cannot remove 'x': Operation not permitted", PermissionDenied),
        (1, b"x: No such file or directory\n", FileNotFound),
        (3, b"", FileError),
        (1, b"something odd", FileError),
    ],
)
def test_what_a_program_complains_about_becomes_the_matching_exception(
    code: int, stderr: bytes, kind: type[FileError]
) -> None:
    assert type(file_error("x", code, stderr, "")) is kind


def test_errors_of_this_machine_are_file_errors_too() -> None:
    assert type(local_error("x", OSError(2, ""))) is FileNotFound
    assert "too many open files" in str(local_error("x", OSError(24, "")))


@pytest.mark.parametrize(
    ("path", "text"), [("a b", "a b"), (" a", "' a'"), ("a\nb", r"'a\nb'"), ("\udcff", r"'\udcff'")]
)
def test_a_path_is_shown_on_one_line(path: str, text: str) -> None:
    assert display_path(path) == text


def test_a_search_tolerates_what_it_may_not_enter_and_nothing_else() -> None:
    assert tolerable(b"find: './x': Permission denied\nfind: './y': No such file or directory\n")
    assert not tolerable(b"find: './x': Input/output error\n")
