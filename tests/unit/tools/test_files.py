"""``read_file`` by lines, and what ``write_file`` takes for permissions: pure, and on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools.core import tools
from harness_tools.file_lines import LINE_SHOWN, WIDE_LIMIT, WINDOW, Window, decode_part, line_start, take_lines
from harness_tools.files import MAX_SHOWN_CHARS, ReadFile, WriteFile, mode_of

"""The same examples each time, however slow the machine is."""

# -- pure


def shown(data: bytes, limit: int = 100, room: int = 10_000, **window: Any) -> Any:
    return take_lines(Window(data, **window), limit, room, numbers=False)


@given(st.binary(max_size=200), st.integers(1, 8), st.integers(1, 40), st.integers(1, 4))
def test_lines_that_are_read_one_after_the_other_are_the_file(data: bytes, limit: int, room: int, first: int) -> None:
    parts, line = [], 1
    while (start := line_start(data, line)) is not None and start < len(data):
        taken = take_lines(Window(data[start:], line, start), limit, room, numbers=False)
        assert (taken.first, taken.seen) == (line, ((start, taken.end),))
        assert 1 <= taken.count <= limit
        assert taken.ended == (taken.end == len(data))
        parts.append(taken.text)
        line = taken.last + 1
    assert "".join(parts).encode("utf-8", "surrogateescape") == data


def test_a_line_that_the_window_does_not_hold_to_its_end_is_left_for_the_next_time() -> None:
    taken = shown(b"one\ntwo\nthr", complete=False)
    assert (taken.text, taken.count, taken.end, taken.ended) == ("one\ntwo\n", 2, 8, False)


def test_long_lines_are_cut_between_characters_and_counted() -> None:
    long = "é" * LINE_SHOWN
    taken = shown(f"short\n{long}x\nlast".encode())
    lines = taken.text.split("\n")
    assert lines[1] == f"{'é' * (LINE_SHOWN // 2)} [... {LINE_SHOWN + 1} more bytes of this line]"
    assert (lines[0], lines[2], taken.count, taken.ended) == ("short", "last", 3, True)
    assert [(cut.line, cut.offset) for cut in taken.cuts] == [(2, 6 + LINE_SHOWN)]
    assert taken.seen == ((0, 6 + LINE_SHOWN), (taken.end - len("last"), taken.end))
    odd = shown(b"a" + "é".encode() * LINE_SHOWN)
    assert odd.text.startswith("a" + "é" * (LINE_SHOWN // 2 - 1) + " [... ")


def test_a_first_line_without_an_end_is_shown_as_far_as_it_goes() -> None:
    taken = shown(b"x" * 5_000, complete=False)
    assert taken.text == f"{'x' * LINE_SHOWN} [... at least 3000 more bytes of this line]\n"
    assert (taken.count, taken.ended, taken.seen[0]) == (1, False, (0, LINE_SHOWN))


def test_numbers_stand_before_the_lines() -> None:
    taken = take_lines(Window(b"a\n\nb", 99), 100, 1_000, numbers=True)
    assert taken.text == "    99\ta\n   100\t\n   101\tb"


@given(st.text(max_size=30), st.sampled_from(["utf-8", "utf-16-le", "utf-32", "gb18030"]), st.integers(0, 100))
def test_a_part_of_an_encoded_text_is_whole_characters(text: str, encoding: str, length: int) -> None:
    data = text.encode(encoding, "surrogatepass" if encoding != "gb18030" else "replace")[:length]
    found, used = decode_part(data, encoding)
    assert used <= len(data) < used + 4 or not data
    assert len(found) <= len(data)


@pytest.mark.parametrize(
    ("given", "bits"), [("0644", 0o644), ("755", 0o755), ("0o600", 0o600), ("4755", 0o4755), (420, 0o644), (493, 0o755)]
)
def test_permissions_are_octal_texts_or_numbers(given: str | int, bits: int) -> None:
    assert mode_of(given) == bits


@pytest.mark.parametrize("given", [644, 755, 600, 400, 440, 444, 500, 777, 0, -1, 10**9, "u+x", "8", "99999", ""])
def test_a_mode_that_could_be_meant_otherwise_is_refused(given: str | int) -> None:
    with pytest.raises(ValueError, match="octal"):
        mode_of(given)


# -- on this machine


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext, cwd: str | None = None) -> Toolbox:
    made = toolbox(tools(), execution=execution)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1", cwd=cwd)
    return made


async def call(made: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall(name, arguments))


async def read(made: Toolbox, path: Path, **arguments: Any) -> str:
    return (await call(made, "read_file", path=str(path), **arguments)).result.text


def facts(outcome: CallOutcome) -> dict[str, Any]:
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


async def test_lines_are_read_from_where_they_are_asked_for(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert (
        await read(made, file, offset=4, limit=2)
        == "line 4\nline 5\n[lines 4 to 5 of 10 lines; continue with offset=6]"
    )
    assert await read(made, file, offset="9") == "line 9\nline 10\n[lines 9 to 10 of 10 lines]"
    assert await read(made, file, offset=11) == "[the file has 10 lines, so line 11 does not exist]"
    assert await read(made, file, limit=1, line_numbers=True) == (
        "     1\tline 1\n[lines 1 to 1 of 10 lines; continue with offset=2]"
    )
    outcome = await call(made, "read_file", path=str(file), limit=3)
    wanted = {"from_line": 1, "to_line": 3, "lines": 3, "total_lines": 10, "next_offset": 4, "cut_lines": 0}
    assert {name: facts(outcome)[name] for name in wanted} == wanted
    file.write_text("\nno end")
    assert await read(made, file) == "\nno end"
    assert await read(made, file, offset=2) == "no end\n[lines 2 to 2 of 2 lines]"
    assert await read(made, file, offset=3) == "[the file has 2 lines, so line 3 does not exist]"


async def test_what_was_read_by_lines_counts_as_what_was_seen(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("one\ntwo\nthree\n")
    await read(made, file, limit=2)
    assert (await call(made, "write_file", path=str(file), content="x")).result.error_code == "not_read"
    await read(made, file, offset=3)
    assert (await call(made, "write_file", path=str(file), content="x")).status is CallStatus.OK
    file.write_text("a\n" + "x" * 3_000 + "\nb\n")
    assert "\n[truncated: line 2 (byte_offset=2002)]" in await read(made, file)
    assert (await call(made, "write_file", path=str(file), content="x")).result.error_code == "not_read"
    await read(made, file, byte_offset=2002)
    assert (await call(made, "write_file", path=str(file), content="x")).status is CallStatus.OK


async def test_a_huge_file_is_read_by_lines_without_being_fetched(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "log"
    with file.open("w") as out:
        out.writelines(f"{number:07d} {'x' * 40}\n" for number in range(1, 400_001))
    first = await call(made, "read_file", path=str(file), limit=2)
    assert first.result.text.endswith(f"[lines 1 to 2 of a file of {49 * 400_000} bytes; continue with offset=3]")
    near = await read(made, file, offset=WINDOW // 49 - 2, limit=10)
    assert near.startswith(f"{WINDOW // 49 - 2:07d} ")
    assert near.count("\n") == 10
    far = await read(made, file, offset=399_999)
    assert far == f"0399999 {'x' * 40}\n0400000 {'x' * 40}\n[lines 399999 to 400000 of 400000 lines]"
    assert await read(made, file, offset=400_001) == "[the file has 400000 lines, so line 400001 does not exist]"
    last = 2**31 - 1
    assert await read(made, file, offset=last) == f"[the file has 400000 lines, so line {last} does not exist]"
    whole = await call(made, "read_file", path=str(file))
    assert MAX_SHOWN_CHARS - 200 < len(whole.result.text) < MAX_SHOWN_CHARS + 200
    assert "truncated" not in whole.result.metadata
    assert facts(whole)["next_offset"] == facts(whole)["lines"] + 1 == 1225
    with file.open("a") as out:
        out.write("no end")
    assert await read(made, file, offset=400_001, limit=9) == "no end\n[lines 400001 to 400001 of 400001 lines]"
    assert await read(made, file, offset=400_002) == "[the file has 400001 lines, so line 400002 does not exist]"


async def test_one_giant_line_is_cut_and_what_follows_it_is_found(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "min.js"
    file.write_bytes(b"x" * 3_000_000 + b"\nlast\n")
    text = await read(made, file)
    assert text.startswith(
        f"{'x' * LINE_SHOWN} [... at least 260144 more bytes of this line]\n[lines 1 to 1 of a file of"
    )
    assert await read(made, file, offset=2) == "last\n[lines 2 to 2 of 2 lines]"


async def test_encodings_are_decoded_by_lines_and_by_bytes(here: ExecutionContext, tmp_path: Path) -> None:
    made, wide, latin = box(here), tmp_path / "wide", tmp_path / "latin"
    wide.write_bytes("één\ntwee\n".encode("utf-16"))
    latin.write_bytes("één\ntwee\n".encode("latin-1"))
    refused = await call(made, "read_file", path=str(wide))
    assert refused.result.error_code == "binary"
    assert "encoding='utf-16'" in refused.result.text
    assert await read(made, wide, encoding="UTF16") == "één\ntwee\n"
    assert await read(made, wide, encoding="utf-16", offset=2) == "twee\n[lines 2 to 2 of 2 lines]"
    assert (
        await read(made, wide, encoding="utf-16", byte_limit=7)
        == "éé\n[bytes 0 to 6 of 20; continue with byte_offset=6]"
    )
    assert (
        await read(made, latin, encoding="iso-8859-1", limit=1)
        == "één\n[lines 1 to 1 of 2 lines; continue with offset=2]"
    )
    assert await read(made, latin) == "\udce9\udce9n\ntwee\n"
    wide.write_bytes(b"\xff\xfe" + b"a\0" * (WIDE_LIMIT // 2))
    assert (await call(made, "read_file", path=str(wide), encoding="utf-16")).result.error_code == "too_big"
    assert (await read(made, wide, encoding="utf-16", byte_limit=6)).startswith("aa\n[bytes 0 to 6 of")


async def test_what_cannot_be_read_is_told_by_its_kind(here: ExecutionContext, tmp_path: Path) -> None:
    made = box(here, cwd=str(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "bin").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "late").write_bytes(b"x\n" * WINDOW + b"\0\n")
    reasons = {"nowhere": "no such file", ".": "is a directory", "bin": "NUL bytes", "bin/x": "not a directory"}
    for path, reason in reasons.items():
        refused = (await call(made, "read_file", path=path)).result
        assert (refused.is_error, reason in refused.text) == (True, True), refused
    assert (await call(made, "read_file", path="loop")).result.is_error
    assert (await call(made, "read_file", path="late", offset=WINDOW)).result.error_code == "binary"
    assert (await call(made, "write_file", path="bin", content="x")).result.error_code == "not_read"
    assert (await call(made, "read_file", path="late", limit=1)).status is CallStatus.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"offset": 0}, "offset: "),
        ({"limit": 0}, "limit: "),
        ({"offset": 10**30}, "offset: "),
        ({"offset": 2, "byte_offset": 5}, "do not count lines"),
        ({"byte_offset": 5, "line_numbers": True}, "do not count lines"),
        ({"byte_offset": 5, "encoding": "utf-16"}, "multiple of 4"),
        ({"encoding": "idna"}, "encoding: "),
        ({"encoding": "zip"}, "encoding: "),
        ({"encoding": "x" * 100_000}, "encoding: "),
        ({"encoding": "a\0b"}, "encoding: "),
        ({"offsett": 1}, "did you mean 'offset'"),
    ],
)
async def test_mistakes_in_reading_are_mistakes_of_the_arguments(
    here: ExecutionContext, arguments: dict[str, Any], message: str
) -> None:
    outcome = await call(box(here), "read_file", path="x", **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert message in outcome.result.text


async def test_arguments_that_are_given_as_they_are_by_default_count_as_not_given(
    here: ExecutionContext, tmp_path: Path
) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("one\ntwo\n")
    properties: Any = ReadFile().schema["properties"]
    defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
    assert set(defaults) >= {"offset", "limit", "byte_offset", "byte_limit", "line_numbers", "encoding"}
    assert await read(made, file, **defaults) == "one\ntwo\n"
    assert await read(made, file, **{**defaults, "offset": 2}) == "two\n[lines 2 to 2 of 2 lines]"
    file.write_text("x" * 20_000)
    assert "[bytes 0 to 15000 of 20000; " in await read(made, file, byte_limit=defaults["byte_limit"])
    file.write_text("one\ntwo\n")
    part = await read(made, file, **{**defaults, "byte_offset": 2})
    assert part == "e\ntwo\n\n[bytes 2 to 8 of 8]"


async def test_a_part_by_bytes_can_be_limited_by_lines_too(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("one\ntwo\nthree\n")
    assert await read(made, file, byte_offset=4, limit=1) == "two\n\n[bytes 4 to 8 of 14; continue with byte_offset=8]"
    file.write_text("é")
    assert await read(made, file, byte_limit=1) == "\udcc3\n[bytes 0 to 1 of 2; continue with byte_offset=1]"


async def test_permissions_are_set_and_shown_to_who_approves(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "script"
    wrote = await call(made, "write_file", path=str(file), content="#!/bin/sh\n", permissions="0750")
    assert wrote.result.text == f"Wrote 10 bytes to a new file {file}, with permissions 0750"
    assert (file.stat().st_mode & 0o7777, facts(wrote)["permissions"]) == (0o750, "0750")
    assert (await call(made, "write_file", path=str(file), content="x", mode="append")).status is CallStatus.OK
    assert file.stat().st_mode & 0o7777 == 0o750
    refused = await call(made, "write_file", path=str(file), content="x", permissions=644)
    assert (refused.result.error_code, "octal" in refused.result.text) == ("invalid_args", True)
    tool = WriteFile()
    assert tool.preview(tool.parse({"path": "a", "content": "b"})) == "b"
    shown = tool.preview(tool.parse({"path": "a", "content": "b", "mode": "append", "permissions": 420}))
    assert shown == "[mode append, permissions 0644]\nb"


async def test_a_read_only_file_is_written_with_force_alone(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "conf"
    file.write_text("a\n")
    file.chmod(0o444)
    await read(made, file)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": str(file), "content": "b\n"}),
        ("write_file", {"path": str(file), "content": "b\n", "mode": "append"}),
        ("edit", {"path": str(file), "old_string": "a", "new_string": "b"}),
    ]
    for tool, arguments in calls:
        refused = await call(made, tool, **arguments)
        assert (refused.status, file.read_text()) == (CallStatus.ERROR, "a\n")
        assert "read-only" in refused.result.text
        assert "force" in refused.result.text
    for tool, arguments in calls[1:]:
        assert (await call(made, tool, **arguments, force=True)).status is CallStatus.OK
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("b\nb\n", 0o444)
    assert WriteFile().preview(WriteFile().parse({**calls[0][1], "force": True})).startswith("[even if read-only]\n")


async def test_permissions_of_a_new_file_leave_one_that_exists_as_it_is(here: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "run"
    wrote = await call(made := box(here), "write_file", path=str(file), content="a", permissions_if_new="0750")
    assert (file.stat().st_mode & 0o7777, facts(wrote)["permissions"]) == (0o750, "0750")
    again = await call(made, "write_file", path=str(file), content="b", permissions_if_new="0644")
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("b", 0o750)
    assert "permissions" not in facts(again)
    assert again.result.text == f"Wrote 1 bytes to the file {file}"
    both = await call(made, "write_file", path=str(file), content="c", permissions_if_new="0644", permissions="0600")
    assert both.result.error_code == "invalid_args"
    shown = WriteFile().preview(WriteFile().parse({"path": "a", "content": "b", "permissions_if_new": 420}))
    assert shown == "[permissions of a new file 0644]\nb"
