"""The tools that rewrite files: splice, split, notab, utf8 and tabcount."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, CallStatus, Executor, Registry, ToolCall
from harness.toolkit.registry import schema_gaps
from harness.toolkit.session.file_versions import ReadTracker
from harness.toolkit.values import Subject
from harness_tools import core
from harness_tools.dev import tools
from harness_tools.dev.lines import MAX_TABS, part_name, parts_of, respaced, spliced, tabs_of
from harness_tools.dev.recode import recoded, recoded_from

"""The same examples each time, however slow the machine is."""

BOM = b"\xef\xbb\xbf"
LINES = st.lists(st.sampled_from([b"a\n", b"\tb\r\n", b"\n", b"    c\n", b"\xe9\n"]), max_size=12).map(b"".join)
ENDS = st.sampled_from([b"", b"x", b"\t"])


# -- what they say of themselves


def test_the_set_is_opt_in_and_its_changes_are_known_as_such() -> None:
    found = Registry(tools())
    assert [schema_gaps(tool) for tool in found.list() if schema_gaps(tool)] == []
    assert {tool.traits.packs for tool in found.list()} == {("dev",)}
    changing = {tool.name for tool in found.list()} - {tool.name for tool in found.read_only().list()}
    assert changing == {"delete", "notab", "repfor", "splice", "split", "transform", "utf8"}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("tabcount", {"file": "a"}, [("read", "a")]),
        ("notab", {"path": "a"}, [("write", "a")]),
        ("splice", {"source": "a", "target": "b", "mode": "append"}, [("read", "a"), ("write", "b")]),
        (
            "split",
            {"file": "d.x/a.b", "lines": [2, 2]},
            [("read", "d.x/a.b"), ("write", "d.x/a_001.b"), ("write", "d.x/a_002.b")],
        ),
        ("utf8", {"file": "a"}, [("write", "a"), ("write", "a.bak")]),
        ("utf8", {"file": "a", "backup": "false"}, [("write", "a")]),
        ("delete", {"path": "a"}, [("write", "a")]),
    ],
)
def test_the_policy_sees_every_path(name: str, arguments: dict[str, Any], expected: list[tuple[Any, str]]) -> None:
    tool = Registry(tools()).lookup(name)
    assert tool.subjects(tool.parse(arguments)) == tuple(Subject(kind, text) for kind, text in expected)


# -- pure


@given(LINES, ENDS, LINES, ENDS, st.sampled_from(["append", "prepend", "insert"]), st.integers(1, 8), st.booleans())
def test_a_spliced_file_holds_both_whole_and_apart(
    target: bytes, end: bytes, source: bytes, source_end: bytes, mode: Any, line: int, mark: bool
) -> None:
    body, new = target + end, source + source_end
    made = spliced(BOM * mark + body, BOM + new, mode, line)
    if mode == "insert" and line > body.count(b"\n") + bool(end):
        assert made is None
        return
    assert made is not None
    assert made.startswith(BOM * mark)
    rest = made.removeprefix(BOM * mark)
    at = {"append": len(body), "prepend": 0}.get(mode, -1)
    at = sum(map(len, body.split(b"\n")[:line])) + min(line, body.count(b"\n")) if at < 0 else at
    before, after = body[:at], body[at:]
    assert rest.startswith(before)
    assert rest.endswith(after)
    middle = rest[len(before) : len(rest) - len(after)]
    assert new in middle
    assert (
        middle.replace(new, b"", 1) in (b"", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\n\n", b"\n\r\n")
        if new
        else not middle
    )


@pytest.mark.parametrize(
    ("target", "source", "mode", "line", "made"),
    [
        (b"a\r\nb", b"x", "append", 0, b"a\r\nb\r\nx"),
        (b"a\n", b"x", "prepend", 0, b"x\na\n"),
        (b"a\nb\nc", b"x\n", "insert", 2, b"a\nb\nx\nc"),
        (b"a\nb\nc", b"x", "insert", 3, b"a\nb\nc\nx"),
        (b"a\n", b"x", "insert", 2, None),
        (b"", b"x", "insert", 1, None),
        (b"", b"x\n", "append", 0, b"x\n"),
        (b"a", b"", "append", 0, b"a"),
        (BOM + b"a\n", BOM + b"x\n", "prepend", 0, BOM + b"x\na\n"),
    ],
)
def test_where_files_meet_lines_stay_lines(
    target: bytes, source: bytes, mode: Any, line: int, made: bytes | None
) -> None:
    assert spliced(target, source, mode, line) == made


@given(LINES, ENDS, st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_the_parts_of_a_file_are_the_file(data: bytes, end: bytes, lines: list[int]) -> None:
    whole = data + end
    parts, ignored = parts_of(whole, lines)
    total = whole.count(b"\n") + bool(end)
    assert ignored == sorted({line for line in lines if line >= total})
    assert b"".join(part.data for part in parts) == (whole if parts else b"")
    for part in parts:
        assert part.last - part.first + 1 == part.data.count(b"\n") + (not part.data.endswith(b"\n"))
    assert [part.last for part in parts[:-1]] == sorted(set(lines) - set(ignored))


@pytest.mark.parametrize(
    ("path", "number", "count", "name"),
    [
        ("a.txt", 1, 3, "a_001.txt"),
        ("/d.x/a", 12, 12, "/d.x/a_012"),
        ("a.tar.gz", 1, 1, "a.tar_001.gz"),
        (".rc", 2, 2, ".rc_002"),
        ("a", 7, 1001, "a_0007"),
    ],
)
def test_parts_are_numbered_before_the_extension(path: str, number: int, count: int, name: str) -> None:
    assert part_name(path, number, count) == name


@given(LINES, ENDS, st.integers(1, 8))
def test_nothing_but_tabs_changes_in_either_direction(data: bytes, end: bytes, spaces: int) -> None:
    whole = data + end
    made = respaced(whole, spaces, tabs=False)
    assert made.data == whole.replace(b"\t", b" " * spaces)
    assert (made.replacements, b"\t" in made.data) == (whole.count(b"\t"), False)
    back = respaced(whole, spaces, tabs=True)
    for old, new in zip(whole.split(b"\n"), back.data.split(b"\n"), strict=True):
        assert old.lstrip(b" \t") == new.lstrip(b" \t")
        assert b" " * spaces not in new[: len(new) - len(new.lstrip(b" \t"))]
        assert old.expandtabs(1).strip() == new.expandtabs(1).strip()
    assert respaced(back.data, spaces, tabs=True).replacements == 0


def test_only_the_spaces_that_lines_begin_with_become_tabs() -> None:
    made = respaced(BOM + b"    a    b\n  \t      c\n\t    d", 4, tabs=True)
    assert made.data == BOM + b"\ta    b\n  \t\t  c\n\t\td"
    assert (made.replacements, made.lines) == (3, 3)


def test_tabs_are_counted_line_by_line_and_what_is_too_much_is_said() -> None:
    assert tabs_of(b"\ta\n\t\t\n b\t\nc", 0, 0) == ([(1, 1), (2, 2), (3, 0), (4, 0)], 0)
    assert tabs_of(b"a\nb\nc\n", 2, 2) == ([(2, 0)], 0)
    assert tabs_of(b"a\n", 5, 0) == ([], 0)
    assert tabs_of(b"a\n", 3, 2) == ([], 0)
    found, left_out = tabs_of(b"x\n" * (MAX_TABS + 7), 3, 0)
    assert (len(found), found[0], left_out) == (MAX_TABS, (3, 0), 5)


PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=4, max_size=40)


@given(PLAIN, st.sampled_from(["utf-16", "utf-16-le", "utf-16-be", "utf-32"]))
def test_utf_16_is_known_with_and_without_its_mark(text: str, encoding: str) -> None:
    found = recoded(text.encode(encoding))
    assert found is None or found.data == text.encode()
    assert found is not None or encoding == "utf-32"
    given = recoded_from(text.encode(encoding), encoding)
    assert given is not None
    assert (given.data, given.lost) == (text.encode(), 0)


@given(st.text(max_size=60))
def test_utf_8_stays_as_it_is(text: str) -> None:
    data = text.encode("utf-8", "replace")
    found = recoded(data)
    assert found is None or b"\0" in data or found.data == data


@given(st.binary(max_size=200))
def test_any_bytes_are_converted_with_certainty_or_not_at_all(data: bytes) -> None:
    found = recoded(data)
    if found is not None:
        found.data.decode("utf-8", "strict")
        assert len(found.data) <= 2 * len(data)


@pytest.mark.parametrize(
    ("data", "made"),
    [
        (b"plain\n", b"plain\n"),
        (BOM + b"plain\n", BOM + b"plain\n"),
        ("één\r\n".encode("utf-16-le") + b"", "één\r\n".encode()),
        ("één twee\n".encode("utf-16"), "één twee\n".encode()),
        ("\u4f60\u597d\n".encode("utf-16"), "\u4f60\u597d\n".encode()),
        (b"f\0i\0v\0e\0s", b"fives"),
        (b"\0f\0i\0v\0e\0", b"five"),
        ("é utf-8\n".encode() + "windows\r\n".encode("utf-16-le"), "é utf-8\nwindows\r\n".encode()),
        (b"\xff\xfe" + "start\n".encode("utf-16-le") + b"odd\r\n", b"start\nodd\r\n"),
        (b"\xff\xfe" + "start\n".encode("utf-16-le") + b"even\r\n", None),
        ("start\n".encode("utf-16-le") + b"even\n\n", None),
        (b"caf\xe9\n", None),
        (b"\x80\x81", None),
        ("\u4f60\u597d\n".encode("utf-16-le"), None),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0", None),
        (b"a\0b", None),
        (b"text\0", None),
        (b"\xff\xfeodd", None),
        (b"\xff\xfea\0\x00\xd8b\0", None),
    ],
)
def test_only_what_is_certain_is_converted(data: bytes, made: bytes | None) -> None:
    found = recoded(data)
    assert (found.data if found else None) == made


def test_half_characters_are_replaced_and_counted_when_the_encoding_is_given() -> None:
    found = recoded_from(b"a\0\x00\xd8b\0", "utf-16-le")
    assert found is not None
    assert (found.data, found.lost) == ("a\ufffdb".encode(), 1)
    mixed = recoded_from("start\n".encode("utf-16-le") + b"even\n\n", "mixed")
    assert mixed is not None
    assert mixed.data == b"start\neven\n\n"
    assert recoded_from(b"plain", "mixed") is None
    assert recoded_from(b"odd", "utf-16-le") is None
    assert recoded_from(b"caf\x81", "cp1252") is None


# -- on this machine


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext, cwd: Path | None = None) -> Toolbox:
    made = toolbox([*core.tools(), *tools()], execution=execution)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    where = str(cwd) if cwd else None
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1", cwd=where)
    return made


async def call(made: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall(name, {key: _plain(value) for key, value in arguments.items()}))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def data_of(outcome: CallOutcome) -> dict[str, Any]:
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


def code(outcome: CallOutcome) -> str:
    return outcome.result.error_code


async def test_a_file_is_put_into_another(here: ExecutionContext, tmp_path: Path) -> None:
    made = box(here, tmp_path)
    (tmp_path / "head").write_bytes(b"x\ny")
    (tmp_path / "body").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "body").chmod(0o640)
    (tmp_path / "link").symlink_to("body")
    target = {"source": "head", "target": "body"}
    assert code(await call(made, "splice", **target, mode="append")) == "not_read"
    await call(made, "read_file", path="body", limit=1)
    done = data_of(await call(made, "splice", **target, mode="insert", line=1))
    assert (done["lines_spliced"], done["line"], done["created"]) == (2, 1, False)
    assert (tmp_path / "body").read_bytes() == b"a\r\nx\ny\r\nb\r\n"
    assert (tmp_path / "body").stat().st_mode & 0o777 == 0o640
    assert code(await call(made, "splice", **target, mode="insert", line=9)) == "no_line"
    assert code(await call(made, "splice", source="link", target="body", mode="append")) == "same_file"
    assert code(await call(made, "splice", **target, mode="replace")) == "not_read", "a part of it was read"
    assert data_of(await call(made, "splice", source="head", target="new", mode="replace"))["created"]
    assert code(await call(made, "splice", source="head", target="none", mode="append")) == "file_not_found"
    assert code(await call(made, "splice", source="none", target="body", mode="append")) == "file_not_found"
    (tmp_path / "bin").write_bytes(b"\0")
    assert code(await call(made, "splice", source="bin", target="new", mode="append")) == "binary"
    assert data_of(await call(made, "splice", source="bin", target="new", mode="replace"))["bytes_written"] == 1
    assert code(await call(made, "splice", **target, mode="append", line=3)) == "invalid_args"
    assert code(await call(made, "splice", **target, mode="insert")) == "invalid_args"
    assert (tmp_path / "body").read_bytes() == b"a\r\nx\ny\r\nb\r\n"


async def test_a_file_is_split_beside_itself(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, tmp_path), tmp_path / "log.txt"
    file.write_bytes(b"1\n2\r\n3\n4")
    file.chmod(0o600)
    done = data_of(await call(made, "split", file="log.txt", lines=[3, "1", 3, 9]))
    assert [part["file"] for part in done["parts"]] == [f"{tmp_path}/log_00{n}.txt" for n in (1, 2, 3)]
    assert (done["count"], done["ignored_lines"], done["parts"][1]["lines"]) == (3, [9], 2)
    parts = [tmp_path / f"log_00{n}.txt" for n in (1, 2, 3)]
    assert [part.read_bytes() for part in parts] == [b"1\n", b"2\r\n3\n", b"4"]
    assert {part.stat().st_mode & 0o777 for part in parts} == {0o600}
    assert file.read_bytes() == b"1\n2\r\n3\n4"
    parts[0].unlink()
    again = await call(made, "split", file="log.txt", lines=[1])
    assert (code(again), "log_002.txt" in again.result.text) == ("file_exists", True)
    assert not parts[0].exists()
    assert code(await call(made, "split", file="log.txt", lines=[4])) == "no_line"
    assert code(await call(made, "split", file="log.txt", lines=[0])) == "invalid_args"
    assert code(await call(made, "split", file="log.txt", lines=list(range(1, 2_000)))) == "invalid_args"
    parts[1].write_text("theirs")
    refused = await call(made, "split", file="log.txt", lines=[1], overwrite=True)
    assert code(refused) == "stale"
    assert "log_001.txt: lines 1 to 1" in refused.result.text
    assert parts[1].read_text() == "theirs"
    await call(made, "read_file", path=parts[1])
    assert data_of(await call(made, "split", file="log.txt", lines=[1], overwrite=True))["count"] == 2
    assert parts[1].read_bytes() == b"2\r\n3\n4"


async def test_tabs_are_replaced_only_where_there_are_some(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, tmp_path), tmp_path / "f.py"
    file.write_bytes(b"\tx\t# caf\xe9\r\n  y")
    file.chmod(0o755)
    assert code(await call(made, "notab", file=file)) == "not_read"
    await call(made, "read_file", path=file)
    done = data_of(await call(made, "notab", file=file, spaces="2"))
    assert (done["replacements"], done["lines_changed"], done["changed"]) == (2, 1, True)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"  x  # caf\xe9\r\n  y", 0o755)
    before = file.stat()
    assert data_of(await call(made, "notab", file=file))["changed"] is False
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert data_of(await call(made, "notab", file=file, tabs=True, spaces=2))["replacements"] == 2
    assert file.read_bytes() == b"\tx  # caf\xe9\r\n\ty"
    assert code(await call(made, "notab", file=file, spaces=0)) == "invalid_args"
    file.write_bytes(b"\tchanged\n")
    assert code(await call(made, "notab", file=file)) == "stale"
    assert file.read_bytes() == b"\tchanged\n"
    counted = await call(made, "tabcount", file=file)
    assert (counted.result.text, data_of(counted)["lines"]) == ("line 1: 1 tab", [{"line": 1, "tabs": 1}])


async def test_a_file_becomes_utf_8_and_its_backup_is_no_other_file(here: ExecutionContext, tmp_path: Path) -> None:
    made, file, backup = box(here, tmp_path), tmp_path / "f.csv", tmp_path / "f.csv.bak"
    old = "één;twee\r\n".encode("utf-16")
    file.write_bytes(old)
    file.chmod(0o640)
    assert code(await call(made, "utf8", file=file)) == "not_read"
    assert code(await call(made, "read_file", path=file)) == "binary"
    backup.write_text("precious")
    assert code(await call(made, "utf8", file=file)) == "file_exists"
    assert (file.read_bytes(), backup.read_text()) == (old, "precious")
    backup.unlink()
    done = data_of(await call(made, "utf8", file=file))
    assert (done["status"], done["encoding"], done["backup"]) == ("converted", "utf-16-le", str(backup))
    assert (file.read_bytes(), backup.read_bytes()) == ("één;twee\r\n".encode(), old)
    assert {path.stat().st_mode & 0o777 for path in (file, backup)} == {0o640}
    assert data_of(await call(made, "utf8", file=file))["status"] == "already_utf8"


async def test_an_encoding_that_is_not_certain_has_to_be_told(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, tmp_path), tmp_path / "latin"
    file.write_bytes(b"caf\xe9 \x93\n")
    await call(made, "read_file", path=file)
    refused = await call(made, "utf8", file=file)
    assert (code(refused), "from_encoding" in refused.result.text) == ("low_confidence", True)
    assert code(await call(made, "utf8", file=file, from_encoding="utf-16")) == "wrong_encoding"
    assert code(await call(made, "utf8", file=file, from_encoding="rot13")) == "invalid_args"
    assert sorted(os.listdir(tmp_path)) == ["latin", "state"]
    done = data_of(await call(made, "utf8", file=file, from_encoding="windows-1252", backup=False))
    assert (done["encoding"], done["backup"], file.read_text()) == ("cp1252", None, "café \u201c\n")


async def test_what_is_utf_8_already_is_not_encoded_twice(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, tmp_path), tmp_path / "file"
    file.write_text("café ☃\n")
    await call(made, "read_file", path=file)
    refused = await call(made, "utf8", file=file, from_encoding="latin-1")
    assert (code(refused), file.read_text()) == ("already_utf8", "café ☃\n")
    assert "already UTF-8, and latin-1 would encode it twice" in refused.result.text
    assert data_of(await call(made, "utf8", file=file, from_encoding="utf-8"))["status"] == "already_utf8"
    file.write_text("plain\n")
    await call(made, "read_file", path=file)
    assert data_of(await call(made, "utf8", file=file, from_encoding="latin-1"))["status"] == "already_utf8"
    file.write_bytes("茅".encode("gb18030"))  # these bytes mean something in UTF-8, too
    await call(made, "read_file", path=file)
    assert code(await call(made, "utf8", file=file, from_encoding="gb18030", backup=False)) == "already_utf8"
    data_of(await call(made, "utf8", file=file, from_encoding="gb18030", backup=False, force=True))
    assert file.read_text() == "茅"
    file.write_bytes("plain\n".encode("utf-16-le"))  # each byte of it is one of UTF-8
    await call(made, "read_file", path=file, encoding="utf-16-le")
    data_of(await call(made, "utf8", file=file, from_encoding="utf-16-le", backup=False))
    assert file.read_text() == "plain\n"


async def test_tabs_do_not_make_a_file_larger_than_is_taken(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, tmp_path), tmp_path / "tabs"
    file.write_bytes(b"\t" * (5 << 20))
    await call(made, "read_file", path=file, byte_limit=1)
    refused = await call(made, "notab", file=file, spaces=16)
    assert (code(refused), file.stat().st_size) == ("too_big", 5 << 20)
    assert code(await call(made, "notab", file=file, spaces=16, tabs=True)) == ""


async def test_what_no_tool_takes_is_told_by_its_kind(here: ExecutionContext, tmp_path: Path) -> None:
    made = box(here, tmp_path)
    (tmp_path / "bin").write_bytes(b"a\0b")
    await call(made, "read_file", path="bin")
    for name, arguments in {"notab": {}, "utf8": {}, "tabcount": {}, "split": {"lines": [1]}}.items():
        for path in (".", "nowhere"):
            outcome = await call(made, name, file=path, **arguments)
            assert (outcome.result.is_error, outcome.error) == (True, None), (name, path)
    assert code(await call(made, "notab", file="bin")) == "binary"
    assert code(await call(made, "tabcount", file="bin")) == "binary"
    assert code(await call(made, "utf8", file="bin")) == "low_confidence"
    assert sorted(os.listdir(tmp_path)) == ["bin", "state"]
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate((64 << 20) + 1)
    for name, arguments in {"tabcount": {}, "split": {"lines": [1]}, "utf8": {}, "notab": {}}.items():
        await call(made, "read_file", path="huge", byte_limit=1)
        assert code(await call(made, name, file="huge", **arguments)) == "too_big", name
