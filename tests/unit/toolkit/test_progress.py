"""Progress with gaps: what comes too fast is passed over but for its end, and no gap shows a part of a secret."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import connect
from harness.command import LiveView
from harness.toolkit import JsonObject, Registry, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import Event, ToolCallProgress
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.redaction.stream import GAP, ProgressStream
from harness_tools.shell import RunShell


def lines(first: int, last: int) -> str:
    return "".join(f"line {number:03}\n" for number in range(first, last))


def test_what_comes_without_a_gap_is_shown_whole() -> None:
    stream = ProgressStream(PatternRedactor())
    assert "".join(stream.feed(f"line {number:03}\n") for number in range(300)) + stream.flush() == lines(0, 300)


def test_behind_a_gap_it_goes_on_at_a_line() -> None:
    stream = ProgressStream(PatternRedactor())
    assert stream.feed("begin\npassw") == "begin\n"
    stream.skip()
    shown = stream.feed("ord of the middle\nline 1\nline 2\nline 3\n")
    assert shown == f"{GAP}line 2\nline 3\n"
    assert stream.feed("line 4\n") == "line 4\n"
    assert stream.flush() == ""


def test_behind_a_gap_half_of_it_says_what_it_begins_in() -> None:
    stream = ProgressStream(PatternRedactor())
    stream.skip()
    shown = stream.feed(lines(0, 300))
    assert shown.startswith(f"{GAP}line 15")
    assert shown.endswith("line 299\n")


def test_a_line_that_never_ends_is_not_shown_from_its_middle() -> None:
    stream = ProgressStream(PatternRedactor())
    stream.skip()
    shown = "".join(stream.feed("x" * 5000) for _ in range(30)) + stream.flush()
    assert shown == GAP


KEY = "-----BEGIN PRIVATE KEY-----\nTUlJRXZRSUJBREFOQmdr\ncWhraUc5dzBCQVFFRkFB\n-----END PRIVATE KEY-----\n"
SEVERAL = "first half\nsecond half"
SECRETS = {
    KEY: ("TUlJRXZRSUJBREFOQmdr", "cWhraUc5dzBCQVFFRkFB"),
    "password = hunter2hunter2\n": ("hunter2hunter2",),
    "token: ghp_0123456789abcdefghijABCDEFGHIJ012345\n": ("ghp_0123456789",),
    f"{SEVERAL}\n": ("second half",),
}


@given(
    st.sampled_from(sorted(SECRETS)),
    st.integers(0, 1500),
    st.integers(1, 700),
    st.integers(0, 1500),
    st.integers(0, 2000),
)
def test_no_gap_shows_a_part_of_a_secret(secret: str, before: int, piece: int, after: int, gap: int) -> None:
    """Behind a gap there is at least twice as much as a secret has, as there is behind one of a target's."""
    text = ("harmless words here\n" * 80)[:before] + "\n" + secret + ("other words there\n" * 90)[:after]
    stream = ProgressStream(PatternRedactor(secrets=(SEVERAL,)))
    shown = "".join(
        stream.feed(text[start : min(gap, start + piece)]) for start in range(0, min(gap, len(text)), piece)
    )
    stream.skip()
    rest = text[gap + 10 :]
    first = 2 * max(map(len, SECRETS))
    shown += stream.feed(rest[:first])
    shown += "".join(stream.feed(rest[start : start + piece]) for start in range(first, len(rest), piece))
    shown += stream.flush()
    assert not [part for part in SECRETS[secret] if part in shown], shown


# -- on a target

FLOOD = "yes 0123456789abcdef | head -c 30000000; echo; echo the end"
FLOOD_SIZE = 30_000_000 + 1 + len("the end\n")


@pytest.mark.usefixtures("needs_process")
async def test_a_live_view_is_told_what_it_is_not_given() -> None:
    got: list[bytes | int] = []
    async with connect("local:") as ctx:
        with anyio.fail_after(120):
            done = await ctx.run_shell(FLOOD, on_output=LiveView(got.append, got.append))
        with anyio.fail_after(120):
            kept = sum([len(data) async for data in ctx.follow(done.job_id or "")])
    assert done.exit_code == 0
    assert len(done.stdout_bytes) + done.truncated == kept == FLOOD_SIZE
    assert done.stdout_bytes.endswith(b"\nthe end\n")
    assert sum(part if isinstance(part, int) else len(part) for part in got) == FLOOD_SIZE
    last = got[-1]
    assert isinstance(last, bytes)
    assert last.endswith(b"\nthe end\n")


@pytest.mark.usefixtures("needs_process")
async def test_a_live_view_that_fails_ends_the_command(tmp_path: Path) -> None:
    def fails(data: bytes) -> None:
        raise ZeroDivisionError(data)

    async with connect("local:") as ctx:
        with anyio.fail_after(120), pytest.raises(ZeroDivisionError):
            await ctx.run_shell(f"echo {tmp_path}; exec sleep 1000", on_output=LiveView(fails, fails), timeout=900)
        assert [job.status for job in await ctx.jobs() if str(tmp_path) in job.command] == ["interrupted"]


@pytest.mark.usefixtures("needs_process")
async def test_a_command_without_an_end_is_answered_at_its_time() -> None:
    """A minute is much: what ``yes`` writes in two seconds would take several to be shown."""
    shown: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, ToolCallProgress):
            shown.append(event.text)

    arguments: JsonObject = {"command": "echo begin; yes", "timeout": 2, "on_timeout": "kill"}
    toolkit_settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    async with (
        open_toolkit(toolkit_settings) as toolkit,
        connect("local:") as ctx,
        toolkit.executor(ctx, registry=Registry([RunShell()])) as executor,
    ):
        with executor.events.listening(listen), anyio.fail_after(60):
            outcome = await executor.call(ToolCall("run_shell", arguments))
    assert outcome.result.error_code == "timed_out"
    text = "".join(shown)
    assert text.startswith(("begin\ny\n", GAP))
    assert text.endswith("y\n")
    assert GAP in text
    assert len(text) < 20_000_000
