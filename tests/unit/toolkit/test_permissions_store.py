"""The file of lasting rules: private, whole, locked, and never taken for empty when it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.store import RuleFile, rule_file_path

RULE = Rule(Action.ALLOW, "ssh://web1:22#k1", "run_shell", "uptime", cwd="/srv")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "harness" / "permissions.json"


def test_what_is_added_is_there_once_and_private(file: Path) -> None:
    RuleFile(file).add([RULE, Rule(Action.DENY, argument="/etc/*", match=Match.GLOB)])
    RuleFile(file).add([RULE])
    stored = RuleFile(file).load()
    assert [str(rule) for rule in stored.rules] == [
        "allow run_shell 'uptime' on ssh://web1:22#k1 in /srv",
        "deny * '/etc/*'",
    ]
    assert {rule.origin for rule in stored.rules} == {str(file)}
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(file.read_text())["version"] == 1
    assert [path.name for path in sorted(file.parent.iterdir())] == ["permissions.json", "permissions.lock"]


def test_a_rule_is_removed_by_its_id(file: Path) -> None:
    RuleFile(file).add([RULE])
    assert RuleFile(file).remove("no such") is None
    removed = RuleFile(file).remove(RULE.rule_id)
    assert removed is not None
    assert removed.argument == "uptime"
    assert RuleFile(file).load().rules == ()


def test_no_file_is_no_rules(file: Path) -> None:
    assert RuleFile(file).load() == RuleFile(file).load()
    assert RuleFile(file).load().failure == ""


def test_a_change_by_another_is_seen_and_an_unchanged_file_is_not_read_again(file: Path) -> None:
    one, other = RuleFile(file), RuleFile(file)
    one.add([RULE])
    first = other.load()
    assert other.load() is first
    one.add([Rule(Action.DENY)])
    assert len(other.load().rules) == 2


RULES = '{"version": 1, "rules": [RULE]}'
ENTRY = '{"action": "allow", "target": "*", "tool": "*"}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 2, "rules": []}',
        '{"version": "1", "rules": []}',
        '{"version": 1, "rules": [], "more": 1}',
        '{"version": 1, "rules": [{}]}',
        ENTRY,
        RULES.replace("RULE", ENTRY)[:-2],
        RULES.replace("RULE", ENTRY.replace("allow", "permit")),
        RULES.replace("RULE", ENTRY.replace("}", ', "match": "regex"}')),
        RULES.replace("RULE", ENTRY.replace("}", ', "colour": "red"}')),
        RULES.replace("RULE", ENTRY.replace('"*"', "null")),
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_a_corrupt_file_is_a_failure_and_is_left_as_it_is(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    stored = RuleFile(file).load()
    assert str(file) in stored.failure
    assert stored.rules == ()
    with pytest.raises(ConfigError):
        RuleFile(file).add([RULE])
    assert file.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize("rest", ['"rules": []', '"rules": {}, "more": 1'])
def test_a_file_of_a_newer_harness_is_said_to_be_one(file: Path, rest: str) -> None:
    file.parent.mkdir()
    file.write_text(f'{{"version": 2, {rest}}}')
    file.chmod(0o600)
    assert RuleFile(file).load().failure == f"{file} was written by a newer version of harness (format 2)"
    with pytest.raises(ConfigError, match="use that version of harness"):
        RuleFile(file).add([RULE])


def open_to_others(file: Path) -> None:
    file.chmod(0o640)


def a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def open_directory(file: Path) -> None:
    file.parent.chmod(0o777)


@pytest.mark.parametrize("spoil", [open_to_others, a_link, a_directory, a_pipe, open_directory])
def test_a_file_that_others_may_have_written_is_a_failure(file: Path, spoil: Callable[[Path], None]) -> None:
    RuleFile(file).add([RULE])
    spoil(file)
    assert RuleFile(file).load().failure
    with pytest.raises(ConfigError):
        RuleFile(file).remove(RULE.rule_id)


def test_a_link_is_called_one(file: Path) -> None:
    RuleFile(file).add([RULE])
    a_link(file)
    assert RuleFile(file).load().failure == f"{file}: is a symbolic link"


def test_a_file_of_another_user_is_a_failure(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RuleFile(file).add([RULE])
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert (
        "belongs to another user" in RuleFile(file).load().failure or "of another user" in RuleFile(file).load().failure
    )


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RuleFile(file).add([RULE])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="no space left"):
        RuleFile(file).add([Rule(Action.DENY)])
    monkeypatch.undo()
    assert len(RuleFile(file).load().rules) == 1
    assert len(list(file.parent.iterdir())) == 2


ADD = """
import sys
from pathlib import Path
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.permissions.rules.store import RuleFile
file = RuleFile(Path(sys.argv[1]))
sys.stdin.read()
for number in range(20):
    file.add([Rule(Action.ALLOW, argument=f"{sys.argv[2]} {number}")])
"""


@pytest.mark.usefixtures("needs_process")
def test_processes_that_write_at_once_lose_nothing_of_each_other(file: Path) -> None:
    argv = [sys.executable, "-c", ADD, str(file)]
    writers = [subprocess.Popen([*argv, str(number)], stdin=subprocess.PIPE) for number in range(3)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(RuleFile(file).load().rules) == 60


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("needs_process")
def test_a_lock_that_is_not_given_back_is_an_error_and_no_hang(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RuleFile(file).add([RULE])
    monkeypatch.setattr("harness.toolkit.permissions.rules.store.LOCK_LIMIT", 0.1)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file.with_suffix(".lock"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="locked by another process"):
            RuleFile(file).add([Rule(Action.DENY)])
        holder.stdin.close()
    RuleFile(file).add([Rule(Action.DENY)])
    assert len(RuleFile(file).load().rules) == 2


TEXT = st.text(max_size=20) | st.just("\udc80") | st.just("/tmp/\udcff")


@given(st.builds(Rule, st.sampled_from(list(Action)), TEXT, TEXT, st.none() | TEXT, st.sampled_from(list(Match))))
def test_every_rule_comes_back_as_it_was(file: Path, rule: Rule) -> None:
    file.unlink(missing_ok=True)
    RuleFile(file).add([rule])
    assert RuleFile(file).load().rules[0].rule_id == rule.rule_id


def test_it_is_beside_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert rule_file_path() == tmp_path / "harness" / "permissions.json"
