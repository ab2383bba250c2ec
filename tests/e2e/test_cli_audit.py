"""``harness audit`` as a program: show, export, verify, and what a person decides."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.audits import STARTED, ended_process, entry, tamper, write_as
from tests.support.program import Program

from harness.toolkit import CallStatus
from harness.toolkit.audit import AuditPaths, this_process

CHECKER = Path(__file__).parents[2] / "docs" / "examples" / "check_export.py"


def place_of(program: Program) -> AuditPaths:
    return AuditPaths(program.home / "state" / "harness" / "audit")


@pytest.fixture
def audited(program: Program) -> Program:
    """Four calls: three that ended, one that is an orphan; and one of a process that runs."""
    place, dead = place_of(program), ended_process()
    old = entry("old", started=STARTED - 7200, backend="ssh://web1", tool="read", mutating=False, session="s0")
    write_as(place, dead, old, outcome=CallStatus.OK)
    write_as(place, dead, entry("made", backend="ssh://web1#host-1"), outcome=CallStatus.OK)
    write_as(place, dead, entry("failed", backend="local:"), outcome=CallStatus.ERROR)
    write_as(place, dead, entry("lost", backend="local:", arguments={"command": "echo \x1b[2J lost"}))
    write_as(place, this_process(), entry("runs", backend="ssh://web10"))
    return program


def shown(program: Program, *words: str) -> list[str]:
    done = program.run("--json", "audit", "show", *words)
    assert done.returncode == 0, done.stderr
    return [call["call"]["call_id"] for call in json.loads(done.stdout)]


def test_calls_are_listed_with_the_newest_at_the_end(audited: Program) -> None:
    done = audited.run("audit")
    assert done.returncode == 0
    header, *lines = done.stdout.decode().splitlines()
    assert header.split() == ["CALL", "TIME", "TARGET", "TOOL", "STATUS", "DECIDED", "BY", "WHAT"]
    assert [line.split()[5] for line in lines] == ["ok", "ok", "error", "unknown", "running"]
    assert lines[3].endswith(r"echo \x1b[2J lost")
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["old", "made", "failed", "lost", "runs"]),
        (("-n", "2"), ["lost", "runs"]),
        (("--since", "1h"), ["made", "failed", "lost", "runs"]),
        (("--until", "1h"), ["old"]),
        (("--since", "2020-01-01", "--until", "2020-01-02T10:00"), []),
        (("--tool", "read"), ["old"]),
        (("--status", "ok"), ["old", "made"]),
        (("--status", "ok", "-n", "1"), ["made"]),
        (("--status", "unknown"), ["lost"]),
        (("--status", "running"), ["runs"]),
        (("--session", "s0"), ["old"]),
        (("--ssh", "web1"), ["old", "made"]),
        (("--target", "ssh://web10"), ["runs"]),
        (("--target", "local:", "--status", "error"), ["failed"]),
    ],
)
def test_calls_are_chosen(audited: Program, words: tuple[str, ...], names: list[str]) -> None:
    assert shown(audited, *words) == names


def test_the_list_shows_what_a_call_is_about_and_not_what_it_writes(program: Program) -> None:
    wrote = entry("wrote", arguments={"content": "max = 20", "path": "/etc/limits"})
    write_as(place_of(program), ended_process(), wrote, outcome=CallStatus.OK)
    assert program.run("audit").stdout.decode().splitlines()[1].endswith(" /etc/limits")


def test_one_call_is_shown_with_all_that_is_known(audited: Program) -> None:
    done = audited.run("audit", "show", "3")
    text = done.stdout.decode()
    assert done.returncode == 0
    for line in ("call: 3", "status: ok", "decided_by: rule 3", "reason: it is harmless", "summary: done"):
        assert line in text.splitlines(), text
    missing = audited.run("audit", "show", "2")
    assert (missing.returncode, missing.stdout) == (125, b"")
    assert b"no call 2" in missing.stderr


def test_a_wrong_time_or_head_is_wrong_usage(audited: Program) -> None:
    for words in (("show", "--since", "yesterday"), ("verify", "--expect-head", "7")):
        done = audited.run("audit", *words)
        assert (done.returncode, done.stdout) == (125, b"")


def test_records_are_exported_as_they_were_hashed(audited: Program) -> None:
    lines = [json.loads(line) for line in audited.run("audit", "export").stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 9))
    before = "0" * 64
    for line in lines:
        digest = line.pop("hash")
        text = json.dumps(line, sort_keys=True, separators=(",", ":"))
        assert (hashlib.sha256(text.encode()).hexdigest(), line["prev"]) == (digest, before)
        before = digest
    some = [json.loads(line) for line in audited.run("audit", "export", "--status", "error").stdout.splitlines()]
    assert [(line["kind"], line["seq"]) for line in some] == [("intent", 5), ("outcome", 6)]


def test_an_export_is_checked_by_the_program_of_the_documentation(audited: Program) -> None:
    def check(exported: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, str(CHECKER)], input=exported, capture_output=True, timeout=20)

    exported = audited.run("audit", "export").stdout
    head = json.loads(audited.run("--json", "audit", "verify").stdout)["head"]
    assert check(exported).stdout.decode().split()[-1] == head
    assert check(exported.replace(b"echo made", b"echo more")).stderr == b"record 3 was changed\n"
    lines = exported.splitlines(keepends=True)
    assert check(b"".join(lines[:3] + lines[4:])).stderr == b"record 5 does not follow the one before it\n"
    assert check(b"").stdout == b"whole, up to nothing\n"


def test_an_untouched_audit_is_verified_and_a_changed_one_is_1(audited: Program) -> None:
    good = audited.run("--json", "audit", "verify")
    report = json.loads(good.stdout)
    assert (good.returncode, report["whole"], report["records"], report["problems"]) == (0, True, 8, [])
    assert audited.run("audit", "verify", "--expect-head", report["head"]).returncode == 0
    tamper(place_of(audited), "DELETE FROM records WHERE seq = 4")
    bad = audited.run("audit", "verify")
    assert bad.returncode == 1
    assert bad.stdout.decode().splitlines()[0] == "missing: 4"
    assert json.loads(audited.run("--json", "audit", "verify").stdout)["whole"] is False


def test_wrong_rights_of_the_directory_are_told_apart_from_a_changed_record(audited: Program) -> None:
    directory = place_of(audited).directory
    directory.chmod(0o755)
    done = audited.run("audit", "verify")
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[0] == "8 records, from 1 to 8, verified"
    assert f"{directory} is accessible to other users, and no call runs" in done.stderr.decode()
    assert f": chmod 700 {directory}" in done.stderr.decode()
    tamper(place_of(audited), "DELETE FROM records WHERE seq = 4")
    report = json.loads(audited.run("--json", "audit", "verify").stdout)
    assert (report["whole"], "missing: 4" in report["problems"]) == (False, True)
    assert "chmod 700" in report["wrong_rights"]


def test_an_audit_that_cannot_be_looked_at_is_not_called_changed(audited: Program) -> None:
    directory = place_of(audited).directory
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")
    done = audited.run("audit", "verify")
    assert (done.returncode, done.stdout) == (125, b"")
    assert f"the audit log in {directory} cannot be verified: it is not a directory" in done.stderr.decode()


def test_one_call_without_an_outcome_is_one(program: Program) -> None:
    write_as(place_of(program), ended_process(), entry("lost"))
    assert b"1 call has no known outcome; " in program.run("audit", "verify").stdout


def test_orphans_are_listed_and_resolved(audited: Program) -> None:
    (orphan,) = json.loads(audited.run("--json", "audit", "orphans").stdout)
    assert (orphan["number"], orphan["process"], orphan["call"]["call_id"]) == (7, "dead", "lost")
    assert "dead" in audited.run("audit", "orphans").stdout.decode().splitlines()[1]
    without_note = audited.run("audit", "resolve", "7", "succeeded")
    assert (without_note.returncode, b"note" in without_note.stderr) == (125, True)
    assert audited.run("audit", "resolve", "8", "failed").returncode == 125  # it runs
    note = ("--note", "I looked, with password=Tr0ub4dor-3x")
    assert audited.run("audit", "resolve", "7", "succeeded", *note).stdout == b"call 7: succeeded\n"
    assert audited.run("audit", "orphans").stdout == b""
    assert "I looked, with password=[redacted]" in audited.run("audit", "show", "7").stdout.decode()
    assert audited.run("audit", "resolve", "7", "failed").returncode == 125
    assert audited.run("audit", "verify").returncode == 0


def test_a_note_is_stored_without_the_secrets_of_the_settings(audited: Program) -> None:
    mine = audited.home / "config" / "harness" / "config.toml"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text('[env]\nDEPLOY_PASSWORD = "quiet-walnut-77"\n')
    done = audited.run("audit", "resolve", "7", "failed", "--note", "it was quiet-walnut-77 that failed")
    assert done.stdout == b"call 7: failed\n"
    assert b"it was [redacted] that failed" in audited.run("audit", "show", "7").stdout


def test_what_the_target_knows_of_an_orphan_is_asked_for(audited: Program) -> None:
    done = audited.run("run", "echo made it")
    assert done.returncode == 0
    (job,) = json.loads(audited.run("--json", "jobs").stdout)
    process = replace(ended_process(), pid=int(job["owner"].rpartition(":")[2]))
    write_as(
        place_of(audited),
        process,
        entry("found", backend="local:", arguments={"command": "echo made it"}, started=time.time()),
    )
    found = json.loads(audited.run("--json", "audit", "reconcile").stdout)
    assert found == {"settled": [9], "running": [], "unclear": [7], "retryable": []}
    assert audited.run("audit", "reconcile").stdout.decode().split()[:5] == ["FOUND", "CALL", "WHAT", "unclear", "7"]


def test_without_an_audit_nothing_is_wrong(program: Program) -> None:
    for words in (("show",), ("export",), ("verify",), ("orphans",)):
        done = program.run("audit", *words)
        assert (done.returncode, done.stdout) == (0, b""), words
        assert b"no audit" in done.stderr
    assert program.run("audit", "resolve", "1", "failed").returncode == 125
    assert not place_of(program).directory.exists()


def test_an_audit_that_others_may_read_is_an_error(audited: Program) -> None:
    place_of(audited).directory.chmod(0o755)
    done = audited.run("audit", "show")
    assert (done.returncode, b"chmod 700" in done.stderr) == (125, True)


def test_how_long_it_is_kept_is_set_in_trusted_files_only(program: Program) -> None:
    write_as(place_of(program), ended_process(), entry("old", started=STARTED - 7200), outcome=CallStatus.OK)
    mine = program.home / "config" / "harness" / "config.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text('[audit]\nmax_age = "1s"\n')
    refused = program.run("audit", "reconcile")
    assert (refused.returncode, b"audit.max_age: '1s' is not a time of an hour" in refused.stderr) == (125, True)
    mine.write_text('[audit]\nmax_age = "1h"\nmax_bytes = "2MiB"\n')
    assert program.run("audit", "reconcile").returncode == 0
    assert json.loads(program.run("--json", "audit", "verify").stdout)["first"] == 2
    Path(program.home / "harness.toml").write_text('[audit]\nmax_age = "2h"\n')
    refused = program.run("audit", "reconcile")
    assert (refused.returncode, b"may only be set by files that are trusted" in refused.stderr) == (125, True)
