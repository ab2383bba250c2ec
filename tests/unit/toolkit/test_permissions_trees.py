"""Commands that take whole directories: harness's own files in them, and what ``.aiexclude`` keeps back, ask."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.own_home import here
from tests.support.permits import Desk, desk, found_nothing

from harness.context import ExecutionContext
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit.permissions.paths import hard_denials
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell.paths import AffectedDirectories, feeds, listed, trees_of

__all__ = ["here"]

LIST = tomllib.loads((Path(__file__).parents[2] / "data/shell_attacks.toml").read_text(encoding="utf-8"))["tree"]
ASKING = [command for entry in LIST if entry["asks"] for command in entry["commands"]]
RUNNING = [command for entry in LIST if not entry["asks"] for command in entry["commands"]]

RAN = ("the mode is auto", "it only reads")


@pytest.fixture
def home(here: ExecutionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home that the list of attacks describes."""
    monkeypatch.setattr(hard_denials, "SECONDS", 100.0)  # a machine that does much else may be slow
    made = tmp_path / "home"
    for name in (".config/harness", ".config/other", ".local/state/harness", "app/db/old", "app/src/x", "app/docs"):
        (made / name).mkdir(parents=True)
    for name in ("app/src/x/a.py", "app/a.txt", "app/db/old/dump.sql", "app/db/readme", ".config/harness/config.toml"):
        (made / name).write_text("text\n")
    (made / "app/.aiexclude").write_text("# not for agents\n*.sql\n")
    return made


def there(here: ExecutionContext, home: Path, **more: object) -> Desk:
    file = home / ".config/harness/permissions.json"
    return desk(mode=Mode.AUTO, file=file, execution=here, cwd=str(home / "app"), **more)  # type: ignore[arg-type]  # settings


async def test_what_takes_whole_directories_asks_in_mode_auto(here: ExecutionContext, home: Path) -> None:
    assert len(ASKING) >= 60
    made = there(here, home)
    assert [command for command in ASKING if await made.allows("run_shell", command)] == []


async def test_ordinary_work_beside_them_runs(here: ExecutionContext, home: Path) -> None:
    made = there(here, home)
    refused = {one: (await made.decide("run_shell", one)).reason for one in RUNNING}
    assert {one: why for one, why in refused.items() if why not in RAN} == {}


async def test_a_pattern_that_allows_the_command_says_nothing_of_what_it_does_not_name(
    here: ExecutionContext, home: Path
) -> None:
    patterns = tuple(
        Rule(Action.ALLOW, tool="run_shell", argument=f"{name} *", match=Match.GLOB) for name in ("mv", "tar")
    )
    made = there(here, home, rules=patterns)
    assert await made.allows("run_shell", "mv src /tmp/x")
    assert not await made.allows("run_shell", "mv ~/.config x")
    assert not await made.allows("run_shell", "tar c db")
    exact = Rule(Action.ALLOW, tool="run_shell", argument="tar c db")
    assert await there(here, home, rules=(exact,)).allows("run_shell", "tar c db")


async def test_patterns_of_every_kind_are_looked_for(here: ExecutionContext, home: Path) -> None:
    made = there(here, home, aiexclude_cache_seconds=0.0)
    app, file = home / "app", home / "app/.aiexclude"
    (app / "src/.hid den/deep").mkdir(parents=True)
    (app / "src/.hid den/deep/k[1].txt").write_text("x")
    cases = {
        "nothing": True, "k*": False, "deep/": False, ".hid\\ den": False, "/src/.hid den": False, "src/**/k*": False,
        "docs/k*": True, "**/k[[]1].txt": False, "*": False, "k*\n!k*": True, "# k*": True, "K*": True,
        "'; touch /tmp/evil; '": True, "src/x/../x": True,
    }  # fmt: skip  # each pattern beside what it means
    for text, runs in cases.items():
        file.write_text(f"{text}\n")
        assert await made.allows("run_shell", "grep -r x src") is runs, text
    file.unlink()
    (app / "src/.hid den/.aiexclude").write_text("*.txt\n")
    assert not await made.allows("run_shell", "grep -r x src")
    (app / "src/.hid den/.aiexclude").write_text("*.doc\n")
    assert await made.allows("run_shell", "grep -r x src")


async def test_in_mode_ask_a_search_over_what_is_kept_back_asks_too(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    assert await made.allows("run_shell", "grep -r x src")
    verdict = await made.decide("run_shell", "grep -r x db")
    assert not verdict.allowed
    assert f"{os.path.realpath(home)}/app/db/old/dump.sql is below" in verdict.reason


@pytest.mark.parametrize(
    ("reply", "runs"),
    [
        (ScriptedReply("end 0\n"), True),
        (ScriptedReply("end 1\n", stderr="find: /top/x: Permission denied\n"), True),
        (ScriptedReply("end 127\n"), False),
        (ScriptedReply(), False),
        (ScriptedReply(status=Status.TIMED_OUT), False),
        (ScriptedReply("./odd\nend 0\n"), False),
        (ScriptedReply("x" * 300_000), False),
    ],
)
async def test_what_could_not_be_found_out_asks(reply: ScriptedReply, runs: bool) -> None:
    backend = MemoryBackend(lambda command: reply)
    made = desk(mode=Mode.AUTO, backend=backend)
    await made.ctx.execution.mkdir("/top")
    assert await made.allows("run_shell", "cp -r /top /x") is runs
    assert backend.received[0].timeout == hard_denials.SECONDS
    as_root = await made.allows("run_shell", "sudo cp -r /top /x")
    assert as_root is (runs and reply.stdout == "end 0\n")


async def test_the_audit_and_what_was_accepted_of_servers_are_protected_wherever_they_are(
    here: ExecutionContext, home: Path
) -> None:
    made = there(here, home)  # its XDG_STATE_HOME is the home
    for name in ("audit/audit.db", "audit/head", "audit.head", "mcp/notes.json", "mcp-token"):
        verdict = await made.decide("write_file", f"{home}/harness/{name}")
        assert (verdict.allowed, verdict.by) == (False, "hard denial"), name
    assert await made.allows("write_file", f"{home}/harness/outputs/x")
    assert not await made.allows("run_shell", "rm -r ~/harness")


async def test_what_was_found_below_is_taken_for_known_for_a_moment() -> None:
    backend = MemoryBackend(found_nothing)
    made = desk(mode=Mode.AUTO, backend=backend, aiexclude_cache_seconds=5.0)
    await made.ctx.execution.mkdir("/top")
    for seconds, looks in ((0.0, 1), (4.9, 1), (0.2, 2), (0.0, 2)):
        made.clock.now += seconds
        assert await made.allows("run_shell", "grep -r x /top")
        assert len(backend.received) == looks


async def test_on_another_machine_only_a_harness_that_is_there_has_files_to_protect() -> None:
    made = desk(mode=Mode.AUTO)
    await made.ctx.execution.mkdir("/home/user/.config/other", parents=True)
    assert await made.allows("run_shell", "chmod -R 700 ~")
    assert await made.allows("run_shell", "cp -r ~ /x")
    await made.ctx.execution.mkdir("/home/user/.ssh")
    assert not await made.allows("run_shell", "cp -r ~ /x")
    assert await made.allows("run_shell", "chmod -R 700 ~")
    await made.ctx.execution.mkdir("/home/user/.config/harness", parents=True)
    assert not await made.allows("run_shell", "chmod -R 700 ~")


@given(
    st.sampled_from(["tar", "cp", "mv", "rm", "rsync", "find", "7z", "unzip", "grep", "rg", "git", "chmod", "ln", "x"]),
    st.lists(
        st.one_of(st.text(max_size=6), st.sampled_from(["-r", "-C", "-x", "--", "-", "~", ".", "-t", "--get", "a/"]))
    ),
    st.booleans(),
)
def test_any_words_are_judged(name: str, words: list[str], read_only: bool) -> None:
    found = trees_of([name, *words], read_only=read_only)
    assert feeds([name, *words]) in (True, False)
    every = {*found.reads, *found.changes, *listed([name, *words])}
    assert all(isinstance(word, str) for word in every)
    plain = [word for word in words if word and not word.startswith("-") and "=" not in word]
    if name == "rm" and "-r" in words and "--" not in words:
        assert set(plain) <= set(found.changes)


def test_a_command_without_directories_has_none() -> None:
    assert trees_of([], read_only=True) == AffectedDirectories()
    assert trees_of(["mv"], read_only=False) == AffectedDirectories()
    assert trees_of(["7z"], read_only=False) == AffectedDirectories()
    assert trees_of(["tar"], read_only=False) == AffectedDirectories()
    assert trees_of(["unknown", "-x", "--to=/a", "b"], read_only=False) == AffectedDirectories(
        changes=("b", "/a"), guessed=True
    )
