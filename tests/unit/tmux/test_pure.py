"""The engine's small pure parts: output within bounds, names, records, versions, the foreground, what is typed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.command import Command
from harness.errors import TerminalError, UnsupportedOperation
from harness.results import Status
from harness.target import Target
from harness_backends.posix.jobs.output import cut
from harness_backends.posix.state_directory import JobRecord, parse_record, render_record
from harness_backends.tmux.jobs.output_collector import OutputCollector
from harness_backends.tmux.jobs.pane_job import MAX_HELD_BYTES, MAX_HELD_JOBS, PaneJob, forget_jobs
from harness_backends.tmux.jobs.wrapped_command import WrappedCommand, slot_text
from harness_backends.tmux.naming import (
    PANE_FIELDS,
    check_name,
    parse_panes,
    record_text,
    shown_text,
    target_label,
)
from harness_backends.tmux.pane.foreground import Foreground, parse
from harness_backends.tmux.pane.keyboard import type_text
from harness_backends.tmux.pane.pane_state import Pane, PaneShell
from harness_backends.tmux.version import TmuxVersion, require

# -- output


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(index % (len(data) + 1) for index in at)})
    return [data[start:end] for start, end in pairwise(edges)]


CUTS = st.lists(st.integers(min_value=0, max_value=500), max_size=8)


@given(st.binary(max_size=120), st.integers(min_value=0, max_value=130), CUTS)
def test_head_and_tail_are_kept_and_the_rest_is_counted_at_every_split(data: bytes, limit: int, at: list[int]) -> None:
    seen: list[bytes] = []
    collector = OutputCollector(limit, seen.append)
    for piece in pieces(data.replace(b"\n", b"\r\n"), at):
        collector.feed(piece)
    collector.finish()
    kept, expected = collector.kept(), cut(data, limit)
    assert (kept.data, kept.omission) == (expected.data, expected.omission)
    assert len(kept.data) + kept.omitted == len(data)
    assert (b"".join(seen), collector.total) == (data, len(data))


@pytest.mark.parametrize(
    ("limit", "kept", "lost"),
    [(0, b"", 6), (1, b"a", 5), (2, b"af", 4), (3, b"abf", 3), (6, b"abcdef", 0), (9, b"abcdef", 0)],
)
def test_a_bound_keeps_the_head_first(limit: int, kept: bytes, lost: int) -> None:
    found = cut(b"abcdef", limit)
    assert (found.data, found.omitted) == (kept, lost)


def test_a_huge_output_is_held_within_its_bound() -> None:
    collector = OutputCollector(1000)
    for _ in range(3000):
        collector.feed(b"x" * 1000)
        assert collector.held <= 1000 + 2 * 500 + 65536 + 1000
    assert (len(collector.data), collector.kept().omitted) == (1000, 3_000_000 - 1000)


@given(st.binary(max_size=60), st.integers(min_value=0, max_value=60), CUTS)
def test_what_was_reported_before_a_gap_is_not_reported_again(data: bytes, had: int, at: list[int]) -> None:
    data = data.replace(b"\r", b"")
    had = min(had, len(data))
    seen: list[bytes] = []
    collector = OutputCollector(1000, seen.append, skip=had)
    collector.restart()  # the start mark
    for piece in pieces(data.replace(b"\n", b"\r\n"), at):
        collector.feed(piece)
    collector.finish()
    assert (b"".join(seen), collector.data) == (data[had:], data)


def test_what_follows_a_start_mark_is_reported_at_once() -> None:
    seen: list[bytes] = []
    collector = OutputCollector(100, seen.append)
    collector.restart()
    collector.feed(b"x")
    assert (seen, collector.settled) == ([b"x"], True)


@pytest.mark.parametrize("size", [1, 16384, 16385, 50000])
def test_what_follows_an_announced_start_alone_is_reported_at_the_end_at_the_latest(size: int) -> None:
    seen: list[bytes] = []
    collector = OutputCollector(100, seen.append)
    collector.restart(soon=True)
    collector.feed(b"x" * size)
    assert bool(seen) == (size > 16384)
    collector.finish()
    assert b"".join(seen) == b"x" * size


def test_a_second_start_mark_forgets_what_a_trace_wrote() -> None:
    seen: list[bytes] = []
    collector = OutputCollector(100, seen.append)
    collector.restart(soon=True)
    collector.feed(b"+ trace\r")
    collector.restart()
    collector.feed(b"out\r\n")
    collector.finish()
    assert (collector.data, collector.total, seen) == (b"out\n", 4, [b"out\n"])


# -- names


@pytest.mark.parametrize("name", ["main", "a", "A-b_9", "x" * 48])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_name(name, "pane") == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "a b", "a:b", "a.b", "a\n", "ä", "x" * 49, "$(id)", "=a", "a;"])
def test_a_name_that_a_shell_or_tmux_reads_otherwise_is_refused(name: str) -> None:
    with pytest.raises(TerminalError, match="is not a valid name for a pane"):
        check_name(name, "pane")


ROW = {
    "pane_id": "%1",
    "window_id": "@1",
    "@harness_pane_id": "%1",
    "@harness_pane": "main",
    "@harness_uid": "abc",
    "pane_width": "150",
    "pane_height": "40",
    "pane_tty": "/dev/pts/3",
    "pane_pid": "77",
    "pane_current_command": "vim",
    "pane_current_path": "/tmp",
}


def row(**changes: str) -> str:
    return "\t".join({**ROW, **changes}.get(field, "") for field in PANE_FIELDS)


@pytest.mark.parametrize("path", ["/tmp", "", "/a\tb", "/a\x0b\x0c\x1c\x85\u2028b", "/a b"])
@pytest.mark.parametrize("program", ["vim", "", "a b", "a\x85b"])
def test_a_managed_pane_is_known_whatever_its_program_and_directory_are_called(path: str, program: str) -> None:
    (found,) = parse_panes(row(pane_current_path=path, pane_current_command=program))
    assert (found.pane_id, found.name, found.pid, found.foreground, found.cwd) == ("%1", "main", 77, program, path)


@pytest.mark.parametrize("text", ["a\tb", "a\nb"])
def test_a_program_with_a_tab_or_newline_in_its_name_hides_no_pane(text: str) -> None:
    names = [pane.name for pane in parse_panes(row(pane_current_command=text) + "\n" + row(**{"@harness_pane": "two"}))]
    assert names == ["main", "two"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "noise",
        row(**{"@harness_pane_id": ""}),
        row(**{"@harness_pane_id": "%2"}),
        row(**{"@harness_uid": ""}),
        row(**{"@harness_pane": ""}),
        row(pane_width="wide"),
        row(pane_pid=""),
    ],
)
def test_a_pane_that_we_did_not_make_is_left_out(text: str) -> None:
    assert parse_panes(text) == []


# -- what people see, and the record


@given(st.text(max_size=300))
def test_nothing_shown_acts_on_a_terminal_but_the_next_line(command: str) -> None:
    shown = shown_text(command)
    rest = shown.replace("\x1bE", "").replace("\t", "")
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in rest)
    assert not any("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" for char in rest)
    assert len(shown.split("\x1bE")) <= 13
    shown.encode()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ls", "ls"),
        ("a\nb\n", "a\x1bEb"),
        ("a\x1b[31m\x07\r\x9b", "a?[31m???"),
        ("x\ty", "x\ty"),
        ("a\udcffb", "a?b"),
        ("safe\u202egnp", "safe?gnp"),
        ("x" * 500, "x" * 400),
        ("\n".join("abcdefghijklmno"), "\x1bE".join("abcdefghijkl") + "\x1bE... (3 more lines)"),
    ],
)
def test_a_command_is_shown_as_its_first_lines(command: str, shown: str) -> None:
    assert shown_text(command) == shown


VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
ANY_COMMAND = st.one_of(
    VALUES, st.sampled_from(["#%%", "a #%%\n#%%\nb", "#| x #%%", "hxc #% job: 9 #%%\nx", "\n", "", "a\\"])
)


@given(ANY_COMMAND, VALUES, VALUES, st.one_of(st.none(), st.integers(min_value=0, max_value=10**12)))
def test_a_record_comes_back_as_it_was(command: str, owner: str, cwd: str, offset: int | None) -> None:
    pane = JobRecord("7", command, "pane", 1.5, owner, "%1", cwd, "panes/x/log.0", offset, "abc")
    plain = JobRecord("7", command, "plain", None, owner, "", cwd, "", offset, "", "nobody")
    assert parse_record(record_text(pane)) == pane
    assert parse_record(render_record(plain)) == plain
    assert record_text(pane).startswith("hxc #% ")
    assert record_text(pane).partition("\n")[2] == command


@given(ANY_COMMAND)
def test_the_header_of_a_panes_record_is_one_line_and_a_comment_to_any_shell(command: str) -> None:
    header = record_text(JobRecord("7", command, "pane", owner="a\nb", cwd="/x\n;id")).partition("\n")[0]
    assert header.endswith("#%%")
    assert header.startswith("hxc #% job: 7 ")


@pytest.mark.parametrize("text", ["", "#% job: 7\n", "hxc #% job: 7 #%", "echo x\n", "#%%"])
def test_a_record_without_a_whole_header_is_none(text: str) -> None:
    assert parse_record(text) is None


# -- versions


@pytest.mark.parametrize(
    ("text", "version", "flags"),
    [
        ("tmux 3.3a\n", TmuxVersion(3, 3, "a"), (True, True, False)),
        ("tmux 3.2", TmuxVersion(3, 2), (True, True, False)),
        ("tmux 3.1c", TmuxVersion(3, 1, "c"), (False, True, False)),
        ("tmux 3.0", TmuxVersion(3, 0), (False, True, False)),
        ("tmux 3.0-rc3", TmuxVersion(3, 0), (False, True, False)),
        ("tmux 2.9a", TmuxVersion(2, 9, "a"), (False, True, True)),
        ("tmux 2.6", TmuxVersion(2, 6), (False, False, True)),
        ("tmux next-3.6", TmuxVersion(3, 6), (True, True, False)),
        ("tmux openbsd-7.4", TmuxVersion(7, 4), (True, True, False)),
        ("tmux master", TmuxVersion(99, 0), (True, True, False)),
        ("3.5a", TmuxVersion(3, 5, "a"), (True, True, False)),
        ("tmux 10.12", TmuxVersion(10, 12), (True, True, False)),
    ],
)
def test_a_version_is_read_and_says_what_it_can(
    text: str, version: TmuxVersion, flags: tuple[bool, bool, bool]
) -> None:
    found = TmuxVersion.parse(text)
    assert found == version == require(text, "t")
    assert (found.client_flags, found.window_size, found.legacy_quoting) == flags


@pytest.mark.parametrize("text", ["", "sh: tmux: not found", "tmux", "tmux x.y"])
def test_no_version_is_no_tmux(text: str) -> None:
    assert TmuxVersion.parse(text) is None
    with pytest.raises(UnsupportedOperation, match="not installed"):
        require(text, "t")


@pytest.mark.parametrize("text", ["tmux 2.5", "tmux 1.8", "tmux 2.3"])
def test_an_old_tmux_is_refused_by_its_version(text: str) -> None:
    with pytest.raises(UnsupportedOperation, match=f"{text} is too old, 2.6"):
        require(text, "t")


def test_versions_are_ordered_as_they_were_released() -> None:
    names = ["2.6", "2.9", "2.9a", "3.0", "3.0a", "3.2", "3.3", "3.3a", "3.10"]
    versions = [TmuxVersion.parse(name) for name in names]
    assert versions == sorted(versions, key=lambda version: version or TmuxVersion(0, 0))
    assert [str(version) for version in versions] == names


# -- the foreground


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Foreground()),
        (
            "group=12\nname=vim\ncommand=vim a=b \nmodes=x -icanon -echo y\n",
            Foreground("vim", "vim a=b ", 12, False, True, False),
        ),
        ("group=12\nname=cat\ncommand=cat \nmodes=icanon echo\nreading=1\n", Foreground("cat", "cat ", 12, True)),
        ("group=x\nname=\nnoise\n", Foreground()),
    ],
)
def test_the_inspection_is_read(text: str, expected: Foreground) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("front", "words"),
    [
        (
            Foreground("sudo", "sudo -i ", 1, reading=True, echo=False),
            "sudo -i is waiting for hidden input (a password?)",
        ),
        (Foreground("vim", "vim x", 1, raw=True), "vim x is waiting for input"),
        (Foreground("cc", "", 1), "cc is running"),
        (Foreground(), "a program is running"),
    ],
)
def test_the_foreground_is_described_in_one_phrase(front: Foreground, words: str) -> None:
    assert front.describe() == words


# -- what is typed


@given(st.text(max_size=3000), st.sampled_from(["2.6", "3.3a", "3.7c", "master"]))
def test_a_typed_text_is_pasted_whole(text: str, version: str) -> None:
    commands = type_text(require(version if version == "master" else f"tmux {version}", None), "%1", text, "/f")
    typed = [command[-1] for command in commands if command[0] == "set-buffer"]
    assert "".join(typed) == text.replace("\0", "")
    assert sum(command[0] == "load-buffer" for command in commands) == text.count("\0")
    pastes = [command for command in commands if command[0] == "paste-buffer"]
    assert len(pastes) == len(typed) + text.count("\0")
    assert all(("-S" in paste) == (version in ("3.7c", "master")) for paste in pastes)


@pytest.mark.parametrize(
    ("body", "text"), [(WrappedCommand(), "7 sh 5ec2e7\n"), (WrappedCommand("wrapper"), "7 run 5ec2e7\n")]
)
def test_a_slot_names_the_job_and_its_file_and_holds_the_secret(body: WrappedCommand, text: str) -> None:
    job = PaneJob("7", Command("true"), "main", "", 0, "a1b2", OutputCollector(100), "5ec2e7")
    assert slot_text(job, body) == text
    assert job.secret not in render_record(JobRecord("7", "true", proof=job.proof))


def test_targets_that_read_alike_have_labels_of_their_own() -> None:
    long = "ssh://deploy@web1.eu-west-1.compute.example.org:2222"
    alike = [("ssh://a-b", ""), ("ssh://a.b", ""), ("container://app", "1f"), ("container://app", "2e")]
    alike += [(f"{long}+docker://app", ""), (f"{long}+docker://db", "")]
    labels = [target_label(Target.parse(url), identity) for url, identity in alike]
    assert len(set(labels)) == len(labels)
    assert all(check_name(label, "session") and len(label) <= 40 for label in labels)
    assert labels[2].startswith("container-app-")


async def test_marks_of_a_shell_that_was_left_change_nothing_also_when_they_come_with_the_leaving() -> None:
    pane = Pane("%0", "@0", "main", "u", "bash", "a" * 20)
    pane.push_shell(PaneShell("b" * 20, "bash"))
    left, late = f"\x1b]133;D;0;{'a' * 20};0\x07", f"\x1b]133;D;7;{'b' * 20};5\x07\x1b]133;P;{'b' * 20}\x07"
    told = f"\x1b]133;W;{'b' * 20};pid=12\x07"
    pane.feed((left + late + told).encode())
    assert ([shell.nonce[0] for shell in pane.shells], pane.phase, pane.last_ended) == (["a"], "ended", 0)
    pane.pop_shell("b" * 20)
    assert [shell.nonce[0] for shell in pane.shells] == ["a"]


def test_the_output_of_ended_commands_takes_a_bounded_amount_of_memory() -> None:
    jobs: dict[str, tuple[None, PaneJob]] = {}
    for number in range(1, 101):
        job = PaneJob(str(number), Command("true"), "main", "log", 0, "nonce", OutputCollector(1 << 20))
        job.start()
        job.feed(bytes(1 << 20))
        if number != 3:
            job.finish(Status.COMPLETED, 0)
        jobs[str(number)] = None, job
        forget_jobs(jobs)
    assert sum(job.collector.held for _, job in jobs.values()) <= MAX_HELD_BYTES
    assert "3" in jobs, "it still runs"
    assert "100" in jobs
    for number in range(101, 400):
        jobs[str(number)] = None, PaneJob(str(number), Command("true"), "main", "log", 0, "n", OutputCollector(9))
        forget_jobs(jobs)
    assert len(jobs) == MAX_HELD_JOBS
