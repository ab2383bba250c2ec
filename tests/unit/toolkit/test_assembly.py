"""What the settings make of the toolkit: which tools there are, who may change that, and everything together once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from harness import ExecutionContext, connect
from harness.errors import ConfigError, HarnessError
from harness.settings import SettingsTable
from harness.toolkit import CallStatus, ToolCall, registry
from harness.toolkit.assembly import ToolkitSettings, load_toolkit_settings, open_executor, open_toolkit
from harness.toolkit.catalog import ToolSettings, load_catalogue, tool_settings_of
from harness.toolkit.events import JobExited, JobStarted, Subscription
from harness.toolkit.hooks.dispatch import HookResult as HookAnswer
from harness.toolkit.hooks.dispatch import Hooks
from harness.toolkit.middleware import DenyList
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.registry import OPT_IN, schema_gaps
from harness.toolkit.result_cache import ResultCache
from harness.toolkit.session.notebook import Todo
from harness.toolkit.session.notebook_stores import SqliteNotebook


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def execution(needs_process: None, home: Path) -> AsyncIterator[ExecutionContext]:
    """This machine."""
    async with connect("local:") as opened:
        yield opened


# -- settings


def table(trusted: bool = True, **values: Any) -> SettingsTable:
    return SettingsTable("file.toml", values, trusted)


def test_later_files_count_and_what_is_kept_out_adds_up() -> None:
    found = tool_settings_of(
        [
            table(
                packs=["core"],
                exclude=["time"],
                cache=False,
                disabled_plugins=["a"],
                redact_patterns=["x"],
                tool_profile="hex",
                max_agent_depth=1,
                cache_max_results=7,
                cache_max_bytes="2MiB",
                cache_max_age="30s",
            ),
            table(trusted=False, exclude=["run_shell", "time"], read_only=True),
            table(
                packs=["dev"],
                extra_packs=["web"],
                allow_overwrite_after_partial_read=True,
                disabled_plugins=["b"],
                max_agent_depth=3,
            ),
            table(cache_max_age=9),
        ]
    )
    assert found == ToolSettings(
        packs=("dev",),
        extra_packs=("web",),
        tool_profile="hex",
        max_agent_depth=3,
        exclude=("time", "run_shell"),
        read_only=True,
        disabled_plugins=("a", "b"),
        cache=False,
        cache_max_results=7,
        cache_max_bytes=2 << 20,
        cache_max_age=9.0,
        allow_overwrite_after_partial_read=True,
        redact_patterns=("x",),
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"packs": "core"}, "file.toml: tools.packs: input should be a valid list"),
        ({"read_only": "yes"}, "file.toml: tools.read_only: "),
        ({"pack": []}, "file.toml: tools.pack: extra inputs"),
        ({"max_agent_depth": -1}, "file.toml: tools.max_agent_depth: "),
        ({"max_agent_depth": 11}, "file.toml: tools.max_agent_depth: "),
        ({"max_agent_depth": "2"}, "file.toml: tools.max_agent_depth: "),
        ({"cache_max_results": 0}, "file.toml: tools.cache_max_results: "),
        ({"cache_max_bytes": "much"}, "file.toml: tools.cache_max_bytes: "),
        ({"cache_max_age": True}, "file.toml: tools.cache_max_age: "),
        ({"cache_max_age": "2d"}, "file.toml: tools.cache_max_age: "),
    ],
)
def test_a_wrong_setting_names_the_file_and_the_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tool_settings_of([table(**values)])


@pytest.mark.parametrize(
    "values",
    [
        *({"packs": ["core"]}, {"include": ["x"]}, {"disabled_plugins": ["x"]}, {"cache": True}, {"read_only": False}),
        *({"extra_packs": ["dev"]}, {"tool_profile": "hex"}, {"max_agent_depth": 9}, {"max_agent_depth": 0}),
    ],
)
def test_a_file_that_is_not_trusted_may_only_take_tools_away(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="may only be set by files that are trusted"):
        tool_settings_of([table(trusted=False, **values)])


def test_the_settings_come_from_the_users_file(home: Path) -> None:
    file = home / "xdg_config_home" / "harness" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[tools]\nexclude = ["time"]\n[permissions]\nmode = "deny"\n')
    found = load_toolkit_settings()
    assert (found.tools.exclude, found.permissions.mode) == (("time",), Mode.DENY)


# -- the catalogue


def names(settings: ToolSettings | None = None) -> list[str]:
    return [tool.name for tool in load_catalogue(settings).registry.list()]


ALWAYS_THERE = {"read_file", "read_output", "run_shell", "time", "write_file"}
"""Tools that every target can serve."""


def packs_of(settings: ToolSettings) -> set[str]:
    """The packs of the tools that belong to one alone."""
    found = [tool.traits.packs for tool in load_catalogue(settings).registry.list()]
    return {packs[0] for packs in found if len(packs) == 1}


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (ToolSettings(include=("bash", "time")), ["run_shell", "time"]),
        (ToolSettings(include=("bash", "time"), exclude=("time", "read_file")), ["run_shell"]),
        (ToolSettings(include=("sig",)), ["sig"]),
        (ToolSettings(include=("sig",), extra_packs=("dev",)), ["sig"]),
    ],
)
def test_the_settings_choose_the_tools(settings: ToolSettings, left: list[str]) -> None:
    assert names(settings) == left


def test_what_lacks_a_library_is_known_and_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "ddgs" else find_spec(name))
    for settings in (ToolSettings(extra_packs=("web",)), ToolSettings(include=("web_search", "fetch_url"))):
        found = load_catalogue(settings)
        assert found.known.get("web_search") is not None
        assert found.registry.get("web_search") is None
        assert found.registry.get("fetch_url") is not None
        assert "web_search" not in {tool.name for tool in found.registry.aside}
    faced = load_catalogue(ToolSettings(tool_profile="buddy")).registry
    assert (faced.get("web_search"), faced.get("fetch_url") is None) == (None, False)


def test_what_has_to_be_asked_for_is_offered_when_it_is() -> None:
    assert set(names()) >= ALWAYS_THERE
    assert packs_of(ToolSettings()).isdisjoint(OPT_IN)
    assert packs_of(ToolSettings(extra_packs=("dev",))) & OPT_IN == {"dev"}
    assert set(names(ToolSettings(extra_packs=("dev",)))) > set(names())
    assert packs_of(ToolSettings(packs=("core",))) >= {"core"}
    assert packs_of(ToolSettings(packs=("core",))).isdisjoint({"dev", "search"})
    assert set(names(ToolSettings(packs=("core",), extra_packs=("dev",)))) > set(names(ToolSettings(packs=("core",))))
    known = {tool.name for tool in load_catalogue().known.list()}
    assert known > set(names())
    assert known >= set(names(ToolSettings(extra_packs=("dev",))))


def test_only_what_changes_nothing_is_left_or_nothing_of_one_source() -> None:
    assert not any(tool.traits.mutating for tool in load_catalogue(ToolSettings(read_only=True)).known.list())
    without = load_catalogue(ToolSettings(disabled_plugins=("builtin:core",))).known
    assert "builtin:core" not in {without.source_of(tool.name) for tool in without.list()}
    assert without.get("read_output") is not None


def test_the_settings_choose_a_profile_of_what_they_leave() -> None:
    found = load_catalogue(ToolSettings(tool_profile="buddy", exclude=("time",)))
    shown = {tool.name for tool in found.registry.list()}
    assert shown >= {"run_shell", "read_file", "write_file", "capture-pane", "send-keys"}
    assert "time" not in shown
    assert found.known.get("time") is None
    assert found.known.get("sig") is not None, "a profile has the packs that it needs"
    assert names(ToolSettings(tool_profile="none")) == names()
    with pytest.raises(ConfigError, match="unknown profile 'budy'"):
        load_catalogue(ToolSettings(tool_profile="budy"))


@pytest.mark.parametrize(
    "settings", [{"packs": ("cor",)}, {"include": ("tme",)}, {"exclude": ("run_shel",)}, {"extra_packs": ("devv",)}]
)
def test_a_setting_that_names_nothing_is_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\[tools\] of the settings: unknown"):
        load_catalogue(ToolSettings(**settings))


def test_every_tool_describes_what_it_requires() -> None:
    assert {tool.name: schema_gaps(tool) for tool in load_catalogue().known.list() if schema_gaps(tool)} == {}


DECLARED = '[[tool]]\nname = "{name}"\ndescription = "D."\nbinary = "df"\nmutating = false\n'


def declare(home: Path, **files: str) -> Path:
    folder = home / "xdg_config_home" / "harness" / "tools"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
        (folder / f"{name}.toml").chmod(0o600)
    return folder


def test_declared_tools_are_found_beside_the_settings_and_what_is_wrong_is_said(home: Path) -> None:
    folder = declare(
        home,
        good=DECLARED.format(name="disks"),
        broken='[[tool]]\nname = "x"\n',
        garbled="[[tool",
        taken=DECLARED.format(name="time"),
        open=DECLARED.format(name="other"),
    )
    (folder / "open.toml").chmod(0o666)
    os.mkfifo(folder / "pipe.toml")
    found = load_catalogue()
    offered = [tool.name for tool in found.registry.list()]
    assert ("disks" in offered, "other" in offered, set(offered) >= ALWAYS_THERE) == (True, False, True)
    assert found.registry.source_of("disks") == "file:good.toml"
    problems = "\n".join(found.problems)
    for part in (
        "broken.toml: tool.0.description: field required",
        "garbled.toml: ",
        "file:taken.toml are skipped: a tool is already called 'time'",
        "open.toml is writable by others",
        "pipe.toml is not a regular file",
    ):
        assert part in problems
    assert len(found.problems) == 5


# -- all of it


class Recorder(Approver):
    def __init__(self, scope: ApprovalScope = ApprovalScope.ONCE) -> None:
        self.scope = scope
        self.questions: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(question)
        return ApprovalDecision(self.scope)


async def test_without_an_approver_nothing_is_changed(execution: ExecutionContext, home: Path) -> None:
    async with open_executor(execution) as executor:
        refused = await executor.call(ToolCall("write_file", {"path": str(home / "f"), "content": "x"}))
        looked = await executor.call(ToolCall("run_shell", {"command": "pwd"}))
    assert (refused.status, (home / "f").exists()) == (CallStatus.DENIED, False)
    assert looked.status is CallStatus.OK, looked.result.text


async def test_files_start_where_commands_do(execution: ExecutionContext, home: Path) -> None:
    (home / "here").write_text("x")
    async with open_executor(execution) as executor:
        assert (await executor.call(ToolCall("read_file", {"path": "here"}))).result.text == "x"
        assert str(home) in (await executor.call(ToolCall("run_shell", {"command": "pwd"}))).result.text
    (home / "sub").mkdir()
    (home / "sub/there").write_text("y")
    async with connect("local:", cwd=str(home / "sub")) as below, open_executor(below) as executor:
        assert (await executor.call(ToolCall("read_file", {"path": "there"}))).result.text == "y"


async def test_the_middleware_of_a_program_is_around_its_calls(execution: ExecutionContext) -> None:
    async with open_executor(execution, middleware=(DenyList(["time"]),)) as executor:
        outcome = await executor.call(ToolCall("time"))
    assert (outcome.status, outcome.result.text) == (CallStatus.DENIED, "not allowed: time is not allowed")


async def test_a_call_is_asked_run_and_written_down(execution: ExecutionContext, home: Path) -> None:
    approver = Recorder()
    arguments = {"path": str(home / "f"), "content": "x", "why": "to see", "risk": "low"}
    async with open_executor(execution, approver=approver, session_id="s1") as executor:
        done = await executor.call(ToolCall("write_file", arguments, "c1"))
    assert (done.status, (home / "f").read_text()) == (CallStatus.OK, "x")
    assert dict(approver.questions[0].details) == {"why": "to see", "risk": "low"}
    database = home / "xdg_state_home" / "harness" / "audit" / "audit.db"
    with sqlite3.connect(database) as opened:
        tables = [row[0] for row in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        text = repr([opened.execute(f"SELECT * FROM {name}").fetchall() for name in tables])
    opened.close()
    assert "c1" in text
    assert "to see" in text


async def test_only_what_the_target_can_serve_is_offered(execution: ExecutionContext, home: Path) -> None:
    declare(home, mine=DECLARED.format(name="disks") + 'requires = ["no-such-program"]\n')
    async with open_executor(execution) as executor:
        offered = [tool.name for tool in executor.registry.list()]
    assert set(offered) >= ALWAYS_THERE
    assert set(offered).isdisjoint({"disks", "capture_pane", "send_keys"})


async def test_sessions_share_what_is_remembered_and_not_what_they_have_read(
    execution: ExecutionContext, home: Path
) -> None:
    (home / "f").write_text("old")
    write = ToolCall("write_file", {"path": str(home / "f"), "content": "new"})
    async with open_toolkit(ToolkitSettings(permissions=PermissionSettings(Mode.AUTO))) as toolkit:
        async with toolkit.executor(execution) as one, toolkit.executor(execution) as two:
            await one.call(ToolCall("read_file", {"path": str(home / "f")}))
            assert (await two.call(write)).result.error_code == "not_read"
            assert (await one.call(write)).status is CallStatus.OK
            assert one.session_id != two.session_id
            one.events.publish(JobStarted(job_id="9", command="make"))
            target = toolkit.results._targets[execution.identity]
            assert target.jobs == {"9"}
        assert toolkit.problems == ()


class TodosInMemory:
    """A store of to-do lists; ``broken`` says why it cannot be written. It is empty, and so false, at first."""

    def __init__(self, broken: str = "") -> None:
        self.lists: dict[str, Sequence[Todo]] = {}
        self.broken = broken

    def __len__(self) -> int:
        return len(self.lists)

    async def todos(self, session_id: str) -> Sequence[Todo]:
        return list(self.lists.get(session_id, []))

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        if self.broken:
            raise HarnessError(self.broken)
        self.lists[session_id] = todos


WRITE_TODO = ToolCall("todo_write", {"todos": [{"content": "look", "status": "pending"}]})


async def test_one_store_of_the_program_leaves_the_other_as_it_is(execution: ExecutionContext, home: Path) -> None:
    store = TodosInMemory()
    async with open_toolkit(todo_store=store) as toolkit, toolkit.executor(execution, session_id="s") as executor:
        assert (await executor.call(WRITE_TODO)).status is CallStatus.OK
        assert (await executor.call(ToolCall("remember", {"content": "a port", "why": "test"}))).status is CallStatus.OK
        assert toolkit.notebook is not None
        assert await toolkit.notebook.todos("s") == (Todo("look"),)
    assert await SqliteNotebook().todos("s") == ()
    assert [one.content for one in await SqliteNotebook().memories()] == ["a port"]
    assert store.lists == {"s": [Todo("look")]}


async def test_a_store_that_fails_is_an_error_of_the_tool(execution: ExecutionContext, home: Path) -> None:
    store = TodosInMemory(broken="the database of the team is read-only")
    async with open_toolkit(todo_store=store) as toolkit, toolkit.executor(execution) as executor:
        outcome = await executor.call(WRITE_TODO)
    assert outcome.result.is_error
    assert "the database of the team is read-only" in outcome.result.text


async def test_the_limits_of_the_cache_are_the_settings_or_the_programs(
    execution: ExecutionContext, home: Path
) -> None:
    settings = ToolkitSettings(tools=ToolSettings(cache_max_results=2, cache_max_age=1.5))
    async with open_toolkit(settings) as toolkit:
        assert (toolkit.results.stats.capacity, toolkit.results.stats.max_bytes) == (2, 16 << 20)
        assert toolkit.settings.tools.cache_max_age == 1.5
    async with open_toolkit(settings, cache_max_results=1, cache_max_bytes=4096, cache_max_age=60) as toolkit:
        assert toolkit.settings.tools.cache_max_age == 60
        for name in "ab":
            (home / name).write_text("x" * 100)
        async with toolkit.executor(execution) as executor:
            calls = [ToolCall("read_file", {"path": str(home / name)}) for name in "aab"]
            assert [(await executor.call(one)).cached for one in calls] == [False, True, False]
        stats = toolkit.results.stats
        assert (stats.hits, stats.misses, stats.evictions, stats.size, stats.max_bytes) == (1, 2, 1, 1, 4096)
        assert 100 <= stats.bytes < 4096


async def test_the_cache_can_be_switched_off(execution: ExecutionContext, home: Path) -> None:
    (home / "f").write_text("old")
    read = ToolCall("read_file", {"path": str(home / "f")})
    for cache, hit in ((True, True), (False, False)):
        async with open_executor(execution, ToolkitSettings(tools=ToolSettings(cache=cache))) as executor:
            await executor.call(read)
            assert (await executor.call(read)).cached is hit
            assert isinstance(executor.services.results, ResultCache)


async def test_secrets_of_the_environment_and_of_the_settings_are_taken_out(
    execution: ExecutionContext, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "correct-horse-battery")
    (home / "f").write_text("correct-horse-battery and ticket-1234")
    settings = ToolkitSettings(tools=ToolSettings(redact_patterns=(r"ticket-\d+",)))
    async with open_executor(execution, settings) as executor:
        text = (await executor.call(ToolCall("read_file", {"path": str(home / "f")}))).result.text
    assert "horse" not in text
    assert "1234" not in text


async def test_what_was_cut_out_of_a_result_can_be_read_on(execution: ExecutionContext, home: Path) -> None:
    command = ToolCall("run_shell", {"command": "seq 1 20000"})
    async with open_executor(execution, ToolkitSettings(permissions=PermissionSettings(Mode.AUTO))) as executor:
        cut = (await executor.call(command)).result
        handle = str(cut.metadata["full_output"])
        assert handle in cut.text
        found, offset = "", 0
        while offset is not None:
            arguments = {"handle": handle, "offset": offset, "limit": 50_000}
            page = (await executor.call(ToolCall("read_output", arguments))).result
            found += page.text.rpartition("\n[characters ")[0]
            assert isinstance(page.data, dict)
            offset = page.data["next"]  # type: ignore[assignment]  # a number or None
        tail = (await executor.call(ToolCall("read_output", {"handle": handle, "offset": -10}))).result.text
        forged = await executor.call(ToolCall("read_output", {"handle": "output:../../../etc/passwd"}))
    assert found == "exit code: 0\nstdout:\n" + "\n".join(map(str, range(1, 20001)))
    assert tail.startswith("9999\n20000\n[characters ")
    assert (forged.result.error_code, forged.error) == ("file_not_found", None)


async def test_hooks_of_the_settings_guard_calls_and_see_the_session_begin_and_end(
    execution: ExecutionContext, home: Path
) -> None:
    program = home / "guard"
    program.write_text(
        f'#!/bin/sh\njson=$(cat)\necho "$HARNESS_HOOK_EVENT" >> {home}/events\n'
        'case $json in *forbidden*) echo \'{"decision": "deny", "reason": "not this"}\' ;;\n'
        '*) echo \'{"decision": "allow"}\' ;; esac\n'
    )
    program.chmod(0o700)
    file = home / "xdg_config_home" / "harness" / "config.toml"
    file.parent.mkdir(parents=True)
    entries = "".join(
        f'[[hooks.{name}]]\ncommand = ["{program}"]\n' for name in ("pre_tool", "session_start", "session_end")
    )
    file.write_text(entries)
    async with open_executor(execution, load_toolkit_settings()) as executor:
        ran = await executor.call(ToolCall("time"))
        refused = await executor.call(ToolCall("run_shell", {"command": "echo forbidden"}))
    assert (ran.status, refused.status) == (CallStatus.OK, CallStatus.DENIED)
    assert "not this" in refused.result.text
    assert (home / "events").read_text().split() == ["session_start", "pre_tool", "pre_tool", "session_end"]


async def test_hooks_of_the_program_serve_several_sessions_from_begin_to_end(execution: ExecutionContext) -> None:
    heard: list[tuple[str, str]] = []
    hooks = Hooks()
    for event in ("session_start", "pre_tool", "session_end"):
        hooks.on(event, lambda occasion: heard.append((occasion.session_id, occasion.event)))
    async with (
        open_toolkit() as toolkit,
        toolkit.executor(execution, session_id="a", hooks=hooks) as one,
        toolkit.executor(execution, session_id="b", hooks=hooks) as two,
        toolkit.executor(execution, session_id="c") as three,
    ):
        for executor in (one, two, three):
            await executor.call(ToolCall("time"))
    steps = ["session_start", "pre_tool", "session_end"]
    assert [event for session, event in heard if session == "a"] == steps
    assert [event for session, event in heard if session == "b"] == steps
    assert "c" not in dict(heard)
    async with open_executor(execution, hooks=hooks) as alone:
        hooks.on("pre_tool", lambda occasion: HookAnswer("deny", "too late"))
        assert (await alone.call(ToolCall("time"))).status is CallStatus.OK
    assert heard[-1] == (alone.session_id, "session_end")


async def test_while_a_real_job_goes_on_nothing_is_given_again(execution: ExecutionContext, home: Path) -> None:
    os.mkfifo(home / "fifo")
    (home / "f").write_text("old")
    read = ToolCall("read_file", {"path": str(home / "f")})
    job = ToolCall("run_shell", {"command": f"read line < '{home}/fifo'", "wait": False})
    settings = ToolkitSettings(permissions=PermissionSettings(Mode.AUTO))
    async with open_toolkit(settings) as toolkit, toolkit.executor(execution) as executor:
        started = (await executor.call(job)).result.data
        assert isinstance(started, dict)
        assert [(await executor.call(read)).cached for _ in range(2)] == [False, False]
        with executor.events.subscribe() as events, anyio.fail_after(60):
            await to_thread.run_sync((home / "fifo").write_text, "go on\n")
            ended = [event async for event in _first_exit(events)]
        assert [(event.job_id, event.exit_code) for event in ended] == [(started["job_id"], 0)]
        assert [(await executor.call(read)).cached for _ in range(2)] == [False, True]


async def _first_exit(events: Subscription) -> AsyncIterator[JobExited]:
    async for event in events:
        if isinstance(event, JobExited):
            yield event
            return


async def test_nobody_writes_back_the_mark_that_stands_for_a_secret(execution: ExecutionContext, home: Path) -> None:
    before = "key=AKIAIOSFODNN7EXAMPLE\nsize=1\n"
    (home / "f").write_text(before)
    async with open_executor(execution, approver=Recorder()) as executor:
        shown = await executor.call(ToolCall("read_file", {"path": str(home / "f")}))
        content = shown.result.text.replace("size=1", "size=2")
        done = await executor.call(ToolCall("write_file", {"path": str(home / "f"), "content": content}))
    assert "[redacted]" in content
    assert (done.status, (home / "f").read_text()) == (CallStatus.DENIED, before)
