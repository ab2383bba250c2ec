"""Slash commands: how lines are read and completed, and what each command does without a model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.own_home import here  # noqa: F401  # a fixture
from tests.support.slash import Desk, slash_desk

from harness.cli.named_commands import use_target_options
from harness.cli.prompt.commands.base import BadArguments, Deadlines, brief, duration
from harness.cli.prompt.commands.jobs_and_limits import KillTarget, TimeoutRequest, parse_timeout, parse_victims
from harness.cli.prompt.commands.state import tokens
from harness.cli.prompt.commands.table import COMMANDS, InvalidCommand, Parsed, completions, is_command, parse
from harness.context import ExecutionContext
from harness.results import Status
from harness.system.background_tasks import open_background_tasks

TURN, JOB = KillTarget("turn"), KillTarget("job", "12")


# -- reading


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/help", True),
        ("/", True),
        ("/kill 12", True),
        ("/etc/hosts has a wrong entry", False),
        ("/var/log is full", False),
        ("why is /var full", False),
        ("", False),
        (" /help", False),
    ],
)
def test_a_line_that_begins_with_a_path_is_a_prompt(line: str, is_one: bool) -> None:
    assert is_command(line) is is_one


@pytest.mark.parametrize(
    ("line", "name", "args"),
    [
        ("/help", "help", ""),
        ("/?", "help", ""),
        ("/exit", "quit", ""),
        ("/q", "quit", ""),
        ("/KILL  12  13 ", "kill", "12  13"),
        ("/kill\t12", "kill", "12"),
        ("/memory add it is\nin two lines", "memory", "add it is\nin two lines"),
        ("/models", "model", ""),
    ],
)
def test_names_and_aliases_are_read_in_any_case(line: str, name: str, args: str) -> None:
    parsed = parse(line)
    assert isinstance(parsed, Parsed)
    assert (parsed.command.name, parsed.args) == (name, args)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/hepl", "did you mean /help?"),
        ("/contxt", "did you mean /context?"),
        ("/xyzzy", "/help lists them"),
        ("/", "/help"),
    ],
)
def test_an_unknown_command_names_the_nearest(line: str, said: str) -> None:
    parsed = parse(line)
    assert isinstance(parsed, InvalidCommand)
    assert said in parsed.message


def test_every_command_that_was_promised_is_there() -> None:
    promised = "status context ps kill timeout approve session compact model theme tools jobs attach permissions"
    assert {one.name for one in COMMANDS} == {*promised.split(), "pause", "resume", "todos", "memory", "help", "quit"}
    names = [name for one in COMMANDS for name in (one.name, *one.aliases)]
    assert len(names) == len(set(names))


def test_every_command_is_documented_as_it_is_written() -> None:
    document = (Path(__file__).parents[3] / "docs/slash-commands.md").read_text()
    written = [line.split("`")[1].replace("\\|", "|") for line in document.splitlines() if line.startswith("| `/")]
    assert written == [command.synopsis for command in COMMANDS]


@pytest.mark.parametrize(
    ("args", "victims"),
    [("turn", (TURN,)), ("12", (JOB,)), ("#3 12 12", (KillTarget("prompt", "3"), JOB)), ("turn 12", (TURN, JOB))],
)
def test_kill_reads_what_is_to_end(args: str, victims: tuple[KillTarget, ...]) -> None:
    assert parse_victims(args) == victims


@pytest.mark.parametrize("args", ["", "#", "#0", "#x"])
def test_kill_refuses_what_names_nothing(args: str) -> None:
    with pytest.raises(BadArguments):
        parse_victims(args)


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ("10m", TimeoutRequest(TURN, 600)),
        ("90", TimeoutRequest(TURN, 90)),
        ("1h 12", TimeoutRequest(JOB, 3600)),
        ("none 12", TimeoutRequest(JOB, None)),
    ],
)
def test_timeout_reads_a_time_and_what_it_is_for(args: str, wanted: TimeoutRequest) -> None:
    assert parse_timeout(args) == wanted


@pytest.mark.parametrize("args", ["0", "soon", "8d", "10m 12 13", "10m #2", "-5"])
def test_timeout_refuses_what_is_no_time(args: str) -> None:
    with pytest.raises(BadArguments):
        parse_timeout(args)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (120, "2 min"), (3599, "1 h"), (7500, "2 h 5 min")]
)
def test_times_are_said_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1.0k"), (999_949, "999.9k"), (999_950, "1.0M")]
)
def test_tokens_are_said_as_people_do(count: int, text: str) -> None:
    assert tokens(count) == text


def test_a_command_of_many_lines_is_shown_as_its_first() -> None:
    assert brief("make\nmake install") == "make..."
    assert brief("x" * 61) == "x" * 57 + "..."
    assert brief("") == ""


# -- with a target, and no model


@pytest.fixture
async def desk(here: ExecutionContext) -> AsyncIterator[Desk]:  # noqa: F811  # the fixture
    async with slash_desk(here) as made:
        yield made


async def test_commands_are_completed_with_their_arguments(desk: Desk) -> None:
    def offered(line: str) -> list[tuple[str, int]]:
        return [(one.text, one.start) for one in completions(line, desk.context)]

    assert offered("/st") == [("/status", 0)]
    assert offered("/exit") == [("/quit", 0)]
    assert ("/help", 0) in offered("/")
    assert offered("/approve al") == [("all", 9)]
    assert offered("/approve all ") == []
    assert offered("/theme l") == [("light", 7)]
    assert ("read_file", 7) in offered("/tools read_")
    assert offered("/help mod") == [("model", 6)]
    assert offered("/nothing x") == []
    assert offered("why") == []
    for command in COMMANDS:
        completions(f"/{command.name} ", desk.context)
        completions(f"/{command.name} x y ", desk.context)


async def test_help_lists_every_command_and_explains_each(desk: Desk) -> None:
    said = await desk.type("/help")
    for command in COMMANDS:
        assert f"{command.synopsis} | {command.about}" in said
        assert command.about in await desk.type(f"/help /{command.name}")
    assert "/exit" in await desk.type("/help quit")
    assert "did you mean 'kill'?" in await desk.type("/help kil")


async def test_without_a_model_commands_that_need_one_say_how_to_get_one(desk: Desk) -> None:
    for line in ("/context", "/compact", "/pause", "/resume", "/session"):
        said = await desk.type(line)
        assert said.startswith("! "), line
        assert "harness models" in said, line
    assert "harness models" in await desk.type("/status")
    assert await desk.type("/kill turn") == "! /kill: no turn is running"
    assert await desk.type("/timeout 10m") == "! /timeout: no turn is running"
    assert await desk.type("/session list") == "! /session: conversations are not stored here"


async def test_arguments_that_mean_nothing_are_answered_with_the_usage(desk: Desk) -> None:
    for line in (
        "/status x",
        "/ps x",
        "/todos x",
        "/kill",
        "/approve maybe",
        "/attach x",
        "/memory x",
        "/theme x",
        "/quit x",
    ):
        said = await desk.type(line)
        assert said.startswith("! /"), line
        assert "(usage: /" in said, line
    assert desk.front.done == []


async def test_status_says_where_commands_run_and_what_may_run(desk: Desk) -> None:
    said = await desk.type("/status")
    assert re.search(r"^target: +local: no terminal", said, re.MULTILINE)
    assert re.search(r"^approvals: +ask$", said, re.MULTILINE)
    assert re.search(
        r"^cache: +0 of 0 read-only calls answered from the cache; 0 results, 0 bytes$", said, re.MULTILINE
    )
    await desk.type("/approve 15m")
    assert re.search(r"^approvals: +all approved for 15 min$", await desk.type("/status"), re.MULTILINE)


async def test_approvals_are_set_for_a_time_or_until_they_are_changed(desk: Desk) -> None:
    assert "approvals: calls that would ask run without asking on local:" in await desk.type("/approve all")
    assert desk.context.timed.state == "all"
    assert "for 60 min" not in await desk.type("/approve 1h")
    assert desk.context.timed.remaining is not None
    assert await desk.type("/approve none") == "approvals: calls that would ask are denied"
    assert await desk.type("/approve ASK") == "approvals: calls ask"
    assert desk.context.timed.state == "ask"
    await desk.type("/approve 2d")
    assert desk.context.timed.state == "ask"


async def test_jobs_are_listed_shown_and_ended(desk: Desk) -> None:
    assert await desk.type("/jobs") == "there are no jobs on the target"
    assert await desk.type("/ps") == "nothing is running"
    execution = desk.context.execution
    done = await execution.run_shell("echo token=abcdef0123456789abcdef; seq 3000", wait=False)
    running = await execution.run_shell("sleep 600", wait=False)
    assert done.job_id is not None
    assert running.job_id is not None
    assert (await execution.wait(done.job_id, timeout=60)).ok
    assert f"{running.job_id} | running |  | " in await desk.type("/jobs")
    use_target_options(" --ssh w")
    said = await desk.type(f"/jobs {done.job_id}")
    use_target_options("")
    assert f"(harness --ssh w jobs tail {done.job_id})" in said
    assert "exit code: 0" in said
    assert said.endswith("2999\n3000")
    assert "the last 4096 of" in said
    assert re.search(rf"^job \| {running.job_id} \| running .* sleep 600$", await desk.type("/ps"), re.MULTILINE)
    said = await desk.type(f"/kill {running.job_id} nothere")
    assert said.startswith(f"job {running.job_id}: ")
    assert "! /kill: unknown job 'nothere'" in said
    assert (await execution.job(running.job_id)).status is not Status.RUNNING
    assert "had already ended" in await desk.type(f"/kill {running.job_id}")
    assert "had" not in await desk.type("/ps")
    assert "unknown job 'x'" in await desk.type("/jobs x")


async def test_what_tools_ran_for_their_own_work_is_listed_only_on_demand(desk: Desk) -> None:
    await desk.context.execution.run_helper("grep -c x /dev/null")
    assert await desk.type("/jobs") == "there are no jobs on the target"
    for word in ("all", "--all"):
        said = await desk.type(f"/jobs {word}")
        (row,) = re.findall(r"^(\S+) \| completed \| 1 \| .* \| grep -c x /dev/null$", said, re.MULTILINE)
    assert "for:       the work of a tool" in await desk.type(f"/jobs {row}")


async def test_a_job_is_ended_when_its_time_is_over(desk: Desk) -> None:
    execution = desk.context.execution
    job = await execution.run_shell("sleep 600", wait=False)
    assert job.job_id is not None
    assert await desk.type(f"/timeout 1h {job.job_id}") == f"job {job.job_id} will be ended in 1 h"
    assert await desk.type("/timeout") == f"job {job.job_id} will be ended in 1 h"
    assert f"job {job.job_id} will be ended in 1 h (/timeout)" in await desk.type("/ps")
    assert await desk.type(f"/timeout none {job.job_id}") == f"job {job.job_id} has no deadline any more"
    assert await desk.type("/timeout") == "no deadlines are set"
    await desk.type(f"/timeout 10ms {job.job_id}")
    with anyio.fail_after(60):
        assert (await execution.wait(job.job_id)).status is not Status.RUNNING
        await desk.output.warned.wait()
    assert desk.output.warnings[0].startswith(f"deadline expired (/timeout): job {job.job_id}: ")
    assert "has ended" in await desk.type(f"/timeout 10m {job.job_id}")
    assert "unknown job 'x'" in await desk.type("/timeout 10m x")


async def test_a_command_or_a_deadline_with_a_fault_ends_nothing_else(desk: Desk) -> None:
    failed = anyio.Event()

    async def fails() -> None:
        failed.set()
        raise KeyError("no")

    desk.context.deadlines.set("it", 0, fails)
    with anyio.fail_after(30):
        await failed.wait()
    broken = desk.with_(execution=None)
    assert "/ps: internal error: AttributeError" in await broken.type("/ps")
    assert await desk.type("/ps") == "nothing is running"


async def test_a_deadline_that_was_replaced_or_dropped_ends_nothing() -> None:
    ended: list[str] = []
    over = anyio.Event()

    async def first() -> None:
        ended.append("first")

    async def second() -> None:
        ended.append("second")
        over.set()

    async with open_background_tasks() as tasks:
        deadlines = Deadlines(tasks)
        deadlines.set("turn", 0.01, first)
        deadlines.set("turn", 0.02, second)
        deadlines.set("job 1", 0.0, first)
        assert deadlines.drop("job 1")
        assert not deadlines.drop("job 1")
        with anyio.fail_after(30):
            await over.wait()
        assert deadlines.all == ()
    assert ended == ["second"]


async def test_tools_are_listed_and_described(desk: Desk) -> None:
    assert re.search(r"^run_shell \| yes \| ", await desk.type("/tools"), re.MULTILINE)
    said = await desk.type("/tools read_file")
    assert said.startswith("read_file\n")
    assert "  path: " in said
    assert "did you mean 'read_file'?" in await desk.type("/tools raed_file")


async def test_permissions_show_the_mode_and_the_rules_with_their_origin(desk: Desk) -> None:
    from harness.toolkit.permissions.rules.rule import Action, Rule

    assert "mode: ask" in await desk.type("/permissions")
    assert "no rules" in await desk.type("/permissions")
    desk.context.toolkit.rules.add([Rule(Action.DENY, "local:", "run_shell", "reboot", cwd="/srv")])
    assert "deny | local: | run_shell | reboot (in /srv) | " in await desk.type("/permissions")


async def test_memories_are_written_down_listed_and_forgotten(desk: Desk) -> None:
    assert "no memories are stored" in await desk.type("/memory")
    said = await desk.type("/memory add the database is on db2")
    number = said.split()[2]
    assert f"{number} | host | the database is on db2" in await desk.type("/memory")
    assert "secret" in await desk.type("/memory add password=Tr0ub4dor3hunter2hunter2")
    assert "such as m12" in await desk.type("/memory forget it")
    assert "unknown memory 'm999'" in await desk.type("/memory forget m999")
    assert await desk.type(f"/memory forget {number}") == "removed: the database is on db2"
    assert "the todo list is empty" in await desk.type("/todos")


async def test_the_loop_is_told_to_leave_and_how_to_look(desk: Desk) -> None:
    await desk.type("/exit")
    await desk.type("/theme light")
    assert "* | light" in await desk.type("/theme")
    assert desk.front.done == [("leave",)]
    assert "needs a terminal" in await desk.type("/attach")
    assert desk.front.done == [("leave",)]


async def test_no_conversation_is_left_while_a_turn_runs(desk: Desk) -> None:
    for line in ("/session new", "/session resume x"):
        assert (
            await desk.type(line, in_turn=True)
            == "! /session: not while a turn is running; C-c or /kill turn cancels it"
        )
    assert desk.front.done == []
    assert "nothing is running" in await desk.type("/ps", in_turn=True)
