"""Hooks around calls and messages: functions, and commands as real processes of this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import Toolbox, toolbox

from harness.errors import ToolError
from harness.system.child_process import ProgramOutput, run_program
from harness.toolkit import Arguments, CallOutcome, CallStatus, Tool, ToolCall, ToolContext, ToolResult
from harness.toolkit.events import InternalFailure
from harness.toolkit.hooks.command import CommandHook, answer_of
from harness.toolkit.hooks.dispatch import (
    EVENTS,
    IN_BACKGROUND,
    HookInvocation,
    HookResult,
    Hooks,
    Matcher,
    RegisteredHook,
    event_named,
)
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.values import Subject

REDACTOR = PatternRedactor()


class Write(Arguments):
    """Write something."""

    path: str = "/tmp/x"
    text: str = "hello"


class WriteTool(Tool[Write]):
    def __init__(self, name: str = "write") -> None:
        super().__init__(name, "Write something.", Write)
        self.written: list[Write] = []

    def subjects(self, args: Write) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    async def run(self, args: Write, ctx: ToolContext) -> ToolResult:
        self.written.append(args)
        return ToolResult.of(f"wrote {args.text}", data={"text": args.text})


class Box:
    """A tool behind hooks."""

    def __init__(self, hooks: Hooks) -> None:
        self.tool = WriteTool()
        self.box: Toolbox = toolbox([self.tool, WriteTool("other")], hooks=(hooks,))

    async def call(self, name: str = "write", **arguments: str) -> CallOutcome:
        return await self.box.executor.call(ToolCall(name, dict(arguments), call_id=""))


def command(tmp_path: Path, text: str, **options: Any) -> CommandHook:
    """A hook that is a Python program; ``asked`` is what it was given."""
    program = tmp_path / f"hook{len(list(tmp_path.iterdir()))}.py"
    head = "import json, os, sys, time\nasked = json.load(sys.stdin)\n"
    program.write_text(head + text)
    return CommandHook((sys.executable, "-S", "-E", str(program)), **{"timeout": 30.0, **options})


def says(tmp_path: Path, answer: object, **options: Any) -> CommandHook:
    return command(tmp_path, f"print({json.dumps(answer)!r})", **options)


def before(*hooks: CommandHook, matcher: Matcher | None = None) -> Box:
    return Box(Hooks(RegisteredHook("pre_tool", hook, matcher or Matcher()) for hook in hooks))


def after(*hooks: CommandHook) -> Box:
    return Box(Hooks(RegisteredHook("post_tool", hook) for hook in hooks))


# -- functions


async def test_functions_allow_change_and_deny() -> None:
    seen: list[HookInvocation] = []
    hooks = Hooks()
    hooks.on("pre_tool", seen.append)

    async def change(occasion: HookInvocation) -> HookResult:
        assert occasion.call is not None
        assert not isinstance(occasion.call.arguments, str)
        return HookResult("modify", arguments={**occasion.call.arguments, "text": "changed"})

    hooks.on("PreToolUse", change)
    hooks.on("pre_tool", lambda occasion: HookResult("deny", "not there"), Matcher(paths=("/etc/**",)))
    hooks.on("pre_tool", seen.append)
    box = Box(hooks)
    outcome = await box.call(path="/tmp/y")
    assert outcome.status is CallStatus.DENIED  # which file it is about is not known after a change
    assert outcome.result.text == "not allowed: not there"
    assert len(seen) == 1
    assert seen[0].paths == ("/tmp/y",)


async def test_changes_add_up_and_are_validated_again() -> None:
    hooks = Hooks()
    for letter in "ab":
        hooks.on(
            "pre_tool",
            lambda one, letter=letter: HookResult(
                "modify", arguments={"text": f"{one.call.arguments['text']}{letter}"}
            ),
        )  # type: ignore[misc]  # a lambda with a default
    box = Box(hooks)
    assert (await box.call(text="x")).result.text == "wrote xab"
    hooks.on("pre_tool", lambda one: HookResult("modify", arguments={"txet": "x"}))
    outcome = await box.call(text="x")
    assert "did you mean 'text'" in outcome.result.text
    assert len(box.tool.written) == 1


async def test_a_function_that_fails_denies_before_and_changes_nothing_after() -> None:
    def broken(occasion: HookInvocation) -> None:
        raise KeyError("oops")

    hooks = Hooks()
    hooks.on("post_tool", broken)
    box = Box(hooks)
    with box.box.events.subscribe() as events:
        assert (await box.call()).result.text == "wrote hello"
        assert [event.message for event in events.drain() if isinstance(event, InternalFailure)] == [
            "a hook failed: a hook failed: KeyError: 'oops'"
        ]
    hooks.on("pre_tool", broken)
    assert (await box.call()).status is CallStatus.DENIED
    assert len(box.tool.written) == 1


async def test_a_result_can_be_replaced_or_withheld() -> None:
    hooks = Hooks()
    hooks.on("post_tool", lambda one: HookResult("modify", result=f"{one.result.text}!"))  # type: ignore[union-attr]  # it has one
    box = Box(hooks)
    outcome = await box.call()
    assert (outcome.result.text, outcome.result.data, outcome.status) == ("wrote hello!", None, CallStatus.OK)
    hooks.on("post_tool", lambda one: HookResult("deny", "private"))
    outcome = await box.call()
    assert outcome.result.text == "it ran, and its result is withheld: private"
    assert outcome.result.is_error


async def test_messages_and_turns_of_a_session_have_hooks_too() -> None:
    hooks = Hooks()
    hooks.on("UserPromptSubmit", lambda one: HookResult("modify", message=one.message.upper()))
    hooks.on("pre_message", lambda one: HookResult("modify", message=one.message + "!"))
    hooks.on("session_start", lambda one: HookResult("deny", "closed") if one.data["source"] == "resume" else None)
    answer = await hooks.fire(HookInvocation("pre_message", message="hi"), REDACTOR)
    assert (answer.decision, answer.message) == ("modify", "HI!")
    assert (await hooks.fire(HookInvocation("session_start", data={"source": "new"}), REDACTOR)).decision == "allow"
    assert (await hooks.fire(HookInvocation("session_start", data={"source": "resume"}), REDACTOR)).reason == "closed"
    assert (await hooks.fire(HookInvocation("stop"), REDACTOR)) == HookResult()


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("PreToolUse", "pre_tool"),
        ("PostToolUse", "post_tool"),
        ("UserPromptSubmit", "pre_message"),
        *[(name.title().replace("_", ""), name) for name in EVENTS],
        *[(name, name) for name in EVENTS],
    ],
)
def test_events_have_the_names_of_other_products_too(name: str, event: str) -> None:
    assert event_named(name) == event


def test_a_mistyped_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown event 'pre_tol'; there are: pre_tool"):
        Hooks().on("pre_tol", lambda one: None)


# -- which calls

MATCHES = [
    (Matcher(), "write", "/a", True),
    (Matcher(tools=("write",)), "write", "/a", True),
    (Matcher(tools=("w*", "x")), "write", "/a", True),
    (Matcher(tools=("write",)), "other", "/a", False),
    (Matcher(targets=("memory:*",)), "write", "/a", True),
    (Matcher(targets=("ssh://*",)), "write", "/a", False),
    (Matcher(paths=("/etc/**",)), "write", "/etc/a/b", True),
    (Matcher(paths=("/etc/**",)), "write", "/tmp/../etc/a", True),
    (Matcher(paths=("/etc/**",)), "write", "//etc/a", True),
    (Matcher(paths=("/etc/**",)), "write", "/tmp/etc/a", False),
    (Matcher(paths=("/etc/ssl/**",)), "write", "/etc/ssl", True),
    (Matcher(paths=("/etc/ssl/**",)), "write", "/etc/", True),
    (Matcher(paths=("/etc/ssl/**",)), "write", "/", True),
    (Matcher(paths=("/etc/ssl/**",)), "write", "/etc/ss", False),
    (Matcher(paths=("/srv/*/keys/**",)), "write", "/srv/a", True),
    (Matcher(paths=("/srv/**/key",)), "write", "/srv/a/b", True),
    (Matcher(paths=("/srv/*/keys/**",)), "write", "/srv/a/b", False),
    (Matcher(paths=("*.pem",)), "write", "/x/y.pem", True),
    (Matcher(tools=("write",), paths=("*.pem",)), "write", "/x/y.txt", False),
]


@pytest.mark.parametrize(("matcher", "tool", "path", "runs"), MATCHES)
async def test_a_hook_runs_for_what_its_patterns_match(matcher: Matcher, tool: str, path: str, runs: bool) -> None:
    hooks = Hooks()
    hooks.on("pre_tool", lambda one: HookResult("deny", one.target), matcher)
    outcome = await Box(hooks).call(tool, path=path)
    assert (outcome.status is CallStatus.DENIED) is runs, outcome.result.text


async def test_a_relative_path_and_one_of_home_are_made_absolute() -> None:
    seen: list[HookInvocation] = []
    hooks = Hooks()
    hooks.on("pre_tool", seen.append)
    box = Box(hooks)
    home = box.box.executor.execution.capabilities.home
    await box.call(path="~/x")
    await box.call(path="x")
    box.box = replace(box.box, executor=replace(box.box.executor, cwd="/srv"))
    await box.call(path="./a/../x")
    assert [one.paths for one in seen] == [(f"{home}/x",), (f"{home}/x",), ("/srv/x",)]


# -- commands


@pytest.mark.usefixtures("needs_process")
async def test_a_command_gets_the_call_redacted_and_its_answer_counts(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    text = f"open({str(seen)!r}, 'w').write(json.dumps([asked, dict(os.environ), os.getcwd()]))"
    box = before(command(tmp_path, text, env={"MINE": "1"}), says(tmp_path, {"decision": "deny", "reason": "no"}))
    os.environ["SOME_API_KEY"] = "hunter2-of-harness"
    try:
        outcome = await box.call(path="/etc/x", text="password=hunter2")
    finally:
        del os.environ["SOME_API_KEY"]
    assert (outcome.status, outcome.result.text) == (CallStatus.DENIED, "not allowed: no")
    assert "hunter2" not in seen.read_text()
    asked, env, cwd = json.loads(seen.read_text())
    assert asked["event"] == "pre_tool"
    assert asked["call"] == {
        "id": outcome.call.call_id,
        "tool": "write",
        "arguments": {"path": "/etc/x", "text": "password=[redacted]"},
    }
    assert asked["paths"] == ["/etc/x"]
    assert (asked["session"], asked["agent"], asked["target"]) == ("s1", "agent", box.box.executor.execution.identity)
    assert env["HARNESS_HOOK_EVENT"] == "pre_tool"
    assert env["HARNESS_HOOK_TOOL"] == "write"
    assert env["MINE"] == "1"
    assert set(env) <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "MINE"),
        *(name for name in env if name.startswith(("LC_", "HARNESS_HOOK_"))),
    }
    assert cwd == os.getcwd()


@pytest.mark.usefixtures("needs_process")
async def test_a_text_is_a_command_of_the_shell() -> None:
    box = before(CommandHook('cat > /dev/null; test "$HARNESS_HOOK_TOOL" = write && echo \'{"decision": "allow"}\''))
    assert (await box.call()).status is CallStatus.OK


@pytest.mark.usefixtures("needs_process")
async def test_a_command_changes_arguments_and_keeps_the_secrets_that_it_was_not_shown(tmp_path: Path) -> None:
    text = "values = asked['call']['arguments'] | {'path': '/tmp/z'}\n"
    text += "print(json.dumps({'decision': 'modify', 'arguments': values}))"
    box = before(command(tmp_path, text))
    await box.call(path="/a", text="password=geheim")
    assert box.tool.written == [Write(path="/tmp/z", text="password=geheim")]


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_changes_a_text_around_a_secret_denies(tmp_path: Path) -> None:
    text = "print(json.dumps({'decision': 'modify', 'arguments': {'text': asked['call']['arguments']['text'] + '!'}}))"
    box = before(command(tmp_path, text))
    outcome = await box.call(text="password=hunter2")
    assert "a hook changed the argument 'text' around a secret" in outcome.result.text
    assert box.tool.written == []


FAILURES: dict[str, tuple[Callable[[Path], CommandHook], str]] = {
    "status": (lambda path: command(path, "sys.exit(3)"), "failed with status 3"),
    "its words": (
        lambda path: command(path, "sys.exit('not on Fridays, password=hunter2')"),
        "not on Fridays, password=[redacted]",
    ),
    "signal": (lambda path: command(path, "os.kill(os.getpid(), 9)"), "failed with signal 9"),
    "time": (lambda path: command(path, "time.sleep(60)", timeout=0.3), "took longer than 0.3 s"),
    "nonsense": (lambda path: command(path, "print('yes')"), "gave an invalid answer"),
    "a list": (lambda path: says(path, []), "gave an invalid answer"),
    "no decision": (lambda path: says(path, {"reason": "x"}), "gave an invalid answer: decision"),
    "another decision": (lambda path: says(path, {"decision": "maybe"}), "gave an invalid answer"),
    "another key": (lambda path: says(path, {"decision": "allow", "argument": {}}), "gave an invalid answer"),
    "nothing changed": (lambda path: says(path, {"decision": "modify"}), "gave an invalid answer"),
    "forgiving": (lambda path: command(path, "print('yes')", on_invalid_output="allow"), "gave an invalid answer"),
    "no program": (lambda path: CommandHook((str(path / "missing"),)), "could not be started: No such file"),
    "no rights": (lambda path: CommandHook((str(path),)), "could not be started: Permission denied"),
    "a NUL": (lambda path: CommandHook(("/bin/echo", "a\0b")), "could not be started"),
    "too much": (lambda path: command(path, "print(' ' * (1 << 21) + '{}')"), "gave an invalid answer"),
}


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("make", "reason"), FAILURES.values(), ids=FAILURES)
async def test_a_command_that_fails_denies(make: Callable[[Path], CommandHook], reason: str, tmp_path: Path) -> None:
    box = before(make(tmp_path))
    with anyio.fail_after(30):
        outcome = await box.call()
    assert outcome.status is CallStatus.DENIED
    assert reason in outcome.result.text
    assert box.tool.written == []


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("make", "reason"), FAILURES.values(), ids=FAILURES)
async def test_after_a_call_a_failed_command_leaves_the_result(
    make: Callable[[Path], CommandHook], reason: str, tmp_path: Path
) -> None:
    outcome = await after(make(tmp_path)).call()
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "wrote hello")


@pytest.mark.usefixtures("needs_process")
async def test_a_command_sees_the_result_and_can_replace_it(tmp_path: Path) -> None:
    text = "print(json.dumps({'decision': 'modify', 'result': json.dumps(asked['result'])}))"
    outcome = await after(command(tmp_path, text)).call(text="hunter2")
    assert json.loads(outcome.result.text) == {"text": "wrote [redacted]", "is_error": False, "error_code": ""}


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_says_nothing_or_reads_nothing_allows() -> None:
    box = before(CommandHook(("/bin/true",)))
    assert (await box.call(text="x" * (1 << 20))).status is CallStatus.OK


# -- nothing is left running


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


async def gone(pid: int) -> None:
    """Wait for the last moment of a process that was killed: its files are closed a little before it."""
    with suppress(ProcessLookupError):
        file = os.pidfd_open(pid)
        try:
            with anyio.fail_after(2):
                await anyio.wait_readable(file)
        finally:
            os.close(file)


async def run_hook(argv: list[str], env: dict[str, str], timeout: float) -> ProgramOutput:
    return await run_program(
        argv, data=b"", env=env, timeout=timeout, stdout_limit=100, stderr_limit=100, kills_group=True
    )


CHILDREN = """
import os, sys, time
pids = [os.getpid()]
for _ in range(2):
    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    pids.append(pid)
open({place!r}, "w").write(" ".join(map(str, pids)))
"""


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_takes_too_long_is_killed_with_all_its_children(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    text = CHILDREN.format(place=str(place)) + "time.sleep(60)"
    with anyio.fail_after(20):
        found = await run_hook([sys.executable, "-S", "-E", "-c", text], {}, 2.0)
    assert found.code is None
    pids = [int(word) for word in place.read_text().split()]
    assert len(pids) == 3
    for pid in pids:
        await gone(pid)


@pytest.mark.usefixtures("needs_process")
async def test_what_a_command_leaves_running_neither_holds_us_up_nor_stays(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    text = CHILDREN.format(place=str(place)) + "print('done')"
    with anyio.fail_after(20):
        found = await run_hook([sys.executable, "-S", "-E", "-c", text], {}, 15.0)
    assert (found.code, found.stdout) == (0, b"done\n")
    for pid in map(int, place.read_text().split()):
        await gone(pid)


@pytest.mark.usefixtures("needs_process")
async def test_a_cancelled_call_leaves_no_command(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    os.mkfifo(place)
    text = CHILDREN.format(place=str(place)) + "time.sleep(60)"
    pids: list[int] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_hook, [sys.executable, "-S", "-E", "-c", text], {}, 60.0)
            pids += map(int, (await anyio.Path(place).read_text()).split())
            assert all(map(alive, pids))
            tasks.cancel_scope.cancel()
    assert len(pids) == 3
    for pid in pids:
        await gone(pid)


@pytest.mark.usefixtures("needs_process")
async def test_a_daemon_that_left_the_group_does_not_hold_us_up_for_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "pid"
    text = f"setsid sleep 60 & echo $! > {place}; while [ ! -s {place} ]; do :; done"
    try:
        with anyio.fail_after(20):
            found = await run_hook(["/bin/sh", "-c", text], {"PATH": os.environ["PATH"]}, 10.0)
        assert found.code == 0
    finally:
        pid = int(place.read_text())
        if alive(pid):
            os.kill(pid, 9)
            assert "left a process running" in caplog.text


# -- in the background


async def test_a_hook_in_the_background_is_not_waited_for_and_ends_with_the_session() -> None:
    started, go = anyio.Event(), anyio.Event()
    done: list[str] = []

    async def slow(occasion: HookInvocation) -> None:
        started.set()
        await go.wait()
        done.append(occasion.event)

    hooks = Hooks()
    hooks.on("post_tool", slow, background=True)
    with anyio.fail_after(10):
        async with hooks:
            assert (await Box(hooks).call()).status is CallStatus.OK
            await started.wait()
            assert done == []
            go.set()
    assert done == ["post_tool"]


async def test_there_is_a_bound_to_hooks_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    running: list[HookInvocation] = []

    async def forever(occasion: HookInvocation) -> None:
        running.append(occasion)
        await anyio.sleep_forever()

    hooks = Hooks()
    hooks.on("post_message", forever, background=True)
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with hooks:
            for _ in range(IN_BACKGROUND + 3):
                await hooks.fire(HookInvocation("post_message"), REDACTOR)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert len(running) == IN_BACKGROUND
    assert caplog.text.count("was skipped") == 3


async def test_a_hook_in_the_background_that_fails_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def broken(occasion: HookInvocation) -> None:
        raise ToolError("password=hunter2 was wrong")

    hooks = Hooks()
    hooks.on("post_tool", broken, background=True)
    async with hooks:
        await hooks.fire(HookInvocation("post_tool"), REDACTOR)
    assert "password=[redacted] was wrong" in caplog.text


def test_only_what_nothing_waits_for_runs_in_the_background() -> None:
    with pytest.raises(ValueError, match="a hook of pre_tool cannot run in the background"):
        Hooks().on("pre_tool", lambda one: None, background=True)


@pytest.mark.parametrize("stdout", [b"", b" \n", b'{"decision": "allow"}', b'{"decision": "allow", "reason": "fine"}'])
def test_answers_that_allow(stdout: bytes) -> None:
    assert answer_of(ProgramOutput(0, stdout, b"")).decision == "allow"


@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        (b'{"decision": "deny", "decision": "allow"}', "duplicate key 'decision'"),
        (b"[" * 200_000, "nested too deeply"),
        (b"yes", "Expecting value"),
        (b"\xff", "decode"),
    ],
)
def test_what_is_no_answer_is_refused(stdout: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer_of(ProgramOutput(0, stdout, b""))


@pytest.mark.usefixtures("needs_process")
async def test_an_answer_after_a_call_that_is_none_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Hooks([RegisteredHook("post_tool", command(tmp_path, "print('yes')"))]) as hooks:
        await hooks.fire(HookInvocation("post_tool"), REDACTOR)
    assert "gave an invalid answer" in caplog.text
