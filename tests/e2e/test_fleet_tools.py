"""Tool calls on many hosts, each behind its own sshd: merged results, one decision for all, one audit record each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.fleet_hosts import SOCKET, FleetHosts, fleet_hosts

import harness
from harness.config import Config
from harness.errors import ConfigError
from harness.fleets import Inventory, read_inventory
from harness.settings import SettingsTable
from harness.toolkit import Executor, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_executor, open_toolkit
from harness.toolkit.catalog import ToolSettings
from harness.toolkit.contract import Arguments, Tool, ToolContext, Traits
from harness.toolkit.events import Event, PermissionAsked, ToolCallCompleted, ToolCallProgress, ToolCallRequested
from harness.toolkit.hooks.dispatch import HookResult, Hooks, Matcher
from harness.toolkit.permissions.approver import Approver, EventApprover
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings, settings_of
from harness.toolkit.registry import FixedSource
from harness.toolkit.values import CallOutcome, CallStatus, Category, Subject, ToolResult

__all__ = ["fleet_hosts"]

AUTO = PermissionSettings(Mode.AUTO)


@dataclass
class Answers(Approver):
    """An approver that answers with a scope and keeps what it was asked."""

    scope: ApprovalScope = ApprovalScope.ONCE
    change: Callable[[ToolCall], ToolCall | None] = lambda call: None
    asked: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(question)
        return ApprovalDecision(self.scope, "operator", call=self.change(question.call))


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit log and the settings of this test."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def config(hosts: FleetHosts) -> Config:
    return Config(ssh_config=str(hosts.directory / "ssh_config"), control_persist=5.0)


@asynccontextmanager
async def on_fleet(
    hosts: FleetHosts,
    permissions: PermissionSettings = AUTO,
    names: str = "web[1-3]",
    approver: Approver | None = None,
    inventory: Inventory | None = None,
) -> AsyncIterator[Executor]:
    async with (
        harness.fleet(names, config=config(hosts), inventory=inventory) as fleet,
        open_executor(fleet, ToolkitSettings(permissions=permissions), approver=approver) as executor,
    ):
        yield executor


async def call(executor: Executor, name: str, **arguments: Any) -> CallOutcome:
    return await executor.call(ToolCall(name, arguments))


def statuses(outcome: CallOutcome) -> dict[str, Any]:
    data: Any = outcome.result.data
    return {one["host"]: one.get("exit_code", one["status"]) for one in data["hosts"]}


def homes_with(hosts: FleetHosts, file: str) -> list[str]:
    return [name for name in hosts.servers if (hosts.home(name) / file).exists()]


# -- what a model is offered, and what it gets


async def test_the_tools_of_targets_require_hosts_and_others_do_not(fleet_hosts: FleetHosts) -> None:
    async with on_fleet(fleet_hosts) as executor:
        tools = {tool.name: tool for tool in executor.registry.list()}
        properties: Any = tools["run_shell"].schema["properties"]
        assert "of web[1-3]." in properties["hosts"]["description"]
        required: Any = tools["run_shell"].schema["required"]
        assert required[:2] == ["hosts", "command"]
        assert all(
            "hosts" in str(tools[name].schema["required"]) for name in ("read_file", "write_file", "edit", "glob")
        )
        assert "hosts" not in str(tools["time"].schema)
        assert not {"task", "capture_pane", "send_keys"} & tools.keys()


async def test_equal_results_are_shown_once_and_others_as_their_difference(fleet_hosts: FleetHosts) -> None:
    (fleet_hosts.home("web2") / "odd").touch()
    async with on_fleet(fleet_hosts) as executor:
        command = "seq 1 20; test -e ~/odd && echo odd || echo even; test ! -e ~/odd"
        outcome = await call(executor, "run_shell", hosts="*", command=command)
        assert outcome.status is CallStatus.ERROR
        text = outcome.result.text
        assert text.startswith("3 hosts: 2 exit code 0, 1 exit code 1\n\nweb[1,3] (2 hosts):\nexit code: 0\n")
        assert "web2 (1 host), compared with web[1,3]:\n@@ -1,2 +1,2 @@\n-exit code: 0\n+exit code: 1\n" in text
        assert (text.count("\n17\n"), "-even\n+odd" in text) == (1, True)
        assert statuses(outcome) == {"web1": 0, "web2": 1, "web3": 0}
        data: Any = outcome.result.data
        assert data["groups"][0] == {"hosts": "web[1,3]", "count": 2, "ending": "exit code 0"}


async def test_files_are_written_and_read_on_the_hosts_that_are_named(fleet_hosts: FleetHosts) -> None:
    async with on_fleet(fleet_hosts) as executor:
        written = await call(executor, "write_file", hosts="web[1-3],!web2", path="~/new", content="text\n")
        assert (written.status, homes_with(fleet_hosts, "new")) == (CallStatus.OK, ["web1", "web3"])
        read = await call(executor, "read_file", hosts=["web1", "web2"], path="~/new")
        assert read.result.text.startswith("2 hosts: 1 ok, 1 error\n\nweb1 (1 host):\ntext\n")
        assert read.result.is_error
        (fleet_hosts.home("web2") / "new").write_text("older\n")
        changed = await call(executor, "write_file", hosts="web[1-2]", path="~/new", content="more\n")
        assert statuses(changed) == {"web1": "ok", "web2": "error"}  # it was read on web1 only
        assert (fleet_hosts.home("web2") / "new").read_text() == "older\n"


async def test_the_panes_of_the_hosts_are_read_and_typed_into(fleet_hosts: FleetHosts, needs_tmux: None) -> None:
    settings = replace(config(fleet_hosts), tmux_socket=SOCKET)
    async with (
        harness.fleet("web[1-3]", tmux=True, config=settings) as fleet,
        open_executor(fleet, ToolkitSettings(permissions=AUTO), approver=Answers()) as executor,
    ):
        await call(executor, "run_shell", hosts="web[1-2]", command="cd /usr; echo here-$((6*7))")
        there = await call(executor, "run_shell", hosts="web[1-2]", command="pwd")
        assert "2 hosts: 2 exit code 0" in there.result.text
        assert "/usr" in there.result.text
        screens = await call(executor, "capture_pane", hosts="web[1-2]")
        assert screens.status is CallStatus.OK
        assert "here-42" in screens.result.text
        typed = await call(executor, "send_keys", hosts="web2", literal_text="touch ~/typed", enter=True)
        assert typed.status is CallStatus.OK
        await call(executor, "run_shell", hosts="web2", command="true")
    assert homes_with(fleet_hosts, "typed") == ["web2"]


@pytest.mark.parametrize("hosts", [None, "", "web9", "db1,web1", "@other", "local:"])
async def test_hosts_that_are_not_of_the_fleet_are_an_error_that_lists_them(
    fleet_hosts: FleetHosts, hosts: str | None
) -> None:
    async with on_fleet(fleet_hosts) as executor:
        given = {} if hosts is None else {"hosts": hosts}
        outcome = await call(executor, "run_shell", command="touch ~/ran", **given)
        assert outcome.result.error_code == "invalid_args"
        assert "the hosts are web[1-3]" in outcome.result.text
        assert homes_with(fleet_hosts, "ran") == []


@pytest.mark.parametrize("form", ["@x';{};'", "@x$({})", "web1,!@x';{};'", "root@@x';{};'"])
async def test_the_name_of_a_group_runs_nothing_on_this_machine(
    fleet_hosts: FleetHosts, tmp_path: Path, form: str
) -> None:
    ran = tmp_path / "ran"  # ClusterShell's own configuration reads groups with sed
    async with on_fleet(fleet_hosts) as executor:
        outcome = await call(executor, "run_shell", hosts=form.format(f"touch${{IFS}}{ran}"), command="true")
    assert (outcome.result.error_code, ran.exists()) == ("invalid_args", False)


async def test_jobs_that_are_left_running_are_named_by_host(fleet_hosts: FleetHosts) -> None:
    async with on_fleet(fleet_hosts) as executor:
        await call(executor, "run_shell", hosts="web1", command="true")  # so that the next job has another number
        started = await call(executor, "run_shell", hosts="web[1-2]", command="cat; echo end", wait=False)
        data: Any = started.result.data
        jobs = {one["host"]: one["job_id"] for one in data["hosts"]}
        assert len(set(jobs.values())) == 2
        named = ", ".join(f"{jobs[name]} on {name}" for name in ("web1", "web2"))
        assert f"web[1-2] (2 hosts):\n[JOB is {named}]\njob JOB is still running" in started.result.text
        for name, job in jobs.items():
            await call(executor, "kill_shell", hosts=name, job_id=job)


async def test_a_host_that_is_down_does_not_keep_the_others(fleet_hosts: FleetHosts) -> None:
    async with on_fleet(fleet_hosts, names="web1,down,down2") as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="echo up")
        assert statuses(outcome) == {"web1": 0, "down": "error", "down2": "error"}
        assert "down,down2 (2 hosts):\n" in outcome.result.text


async def test_a_long_result_is_within_the_limit_and_kept(fleet_hosts: FleetHosts) -> None:
    async with on_fleet(fleet_hosts) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="seq 1 9000; pwd; seq 1 9000")
        assert len(outcome.result.text) < 16_000
        assert outcome.result.text.count("\nweb") == 3
        handle = outcome.result.metadata["full_output"]
        assert f"[the whole is {handle}]" in outcome.result.text
        kept = await call(executor, "read_output", handle=handle, offset=1)
        assert not kept.result.is_error


async def test_large_outputs_that_differ_in_their_middle_are_not_equal(fleet_hosts: FleetHosts) -> None:
    (fleet_hosts.home("web2") / "odd").touch()
    async with on_fleet(fleet_hosts) as executor:
        middle = "test -e ~/odd && echo a || echo b"
        outcome = await call(executor, "run_shell", hosts="*", command=f"seq 1 20000; {middle}; seq 1 20000")
        data: Any = outcome.result.data
        assert [group["count"] for group in data["groups"]] == [1, 1, 1]


async def test_a_secret_is_redacted_in_merged_results_progress_and_audit(fleet_hosts: FleetHosts) -> None:
    secret = "ghp_" + "a1B2" * 9
    for name in ("web1", "web2"):
        (fleet_hosts.home(name) / "notes").write_text(f"token {secret}\n")
    (fleet_hosts.home("web3") / "notes").write_text(f"one\ntoken {secret[::-1]} {secret}\n")
    heard: list[Event] = []
    async with on_fleet(fleet_hosts) as executor:
        with executor.events.listening(heard.append):
            outcome = await call(executor, "run_shell", hosts="*", command="cat ~/notes")
    assert statuses(outcome) == {"web1": 0, "web2": 0, "web3": 0}
    assert secret not in repr(outcome)
    assert secret not in repr(heard)
    assert [type(one) for one in heard if not isinstance(one, ToolCallProgress)] == [
        ToolCallRequested,
        ToolCallCompleted,
    ]
    shown = "".join(one.text for one in heard if isinstance(one, ToolCallProgress))
    assert {line.partition(":")[0] for line in shown.splitlines()} == {"web1", "web2", "web3"}


@pytest.mark.parametrize(
    ("profile", "run", "read", "edit"), [("gofastr", "Bash", "Read", "Edit"), ("hex", "bash", "read_file", "edit")]
)
async def test_the_tools_of_a_profile_name_hosts(
    fleet_hosts: FleetHosts, profile: str, run: str, read: str, edit: str
) -> None:
    for name in fleet_hosts.servers:
        (fleet_hosts.home(name) / "note").write_text("one\ntwo\n")
    settings = ToolkitSettings(tools=ToolSettings(tool_profile=profile), permissions=AUTO)
    command = {"gofastr": "cmd", "hex": "command"}[profile]
    path = {"gofastr": "path", "hex": "file_path"}[profile]
    async with (
        harness.fleet("web[1-3]", config=config(fleet_hosts)) as fleet,
        open_toolkit(settings) as toolkit,
        toolkit.executor(fleet) as executor,
    ):
        tools = {tool.name: tool for tool in executor.registry.list()}
        required: Any = tools[run].schema["required"]
        assert required[:2] == ["hosts", command]
        assert tools[run].own.name == "run_shell"
        ran = await executor.call(ToolCall(run, {"hosts": "web[1-2]", command: "touch ~/ran; echo out; exit 3"}))
        assert ran.call.name == run
        assert "2 hosts: 2 exit code 3\n\nweb[1-2] (2 hosts):" in ran.result.text
        assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]
        home = (await executor.call(ToolCall(run, {"hosts": "web1", command: "echo ~"}))).result.text
        assert str(fleet_hosts.home("web1")) in home
        shown = await executor.call(ToolCall(read, {"hosts": "*", "path": "note"}))
        assert shown.result.text.count("two") == 1
        changes = {"old_string": "two", "new_string": "three", path: "note"}
        changed = await executor.call(ToolCall(edit, {"hosts": "web[1,3]", **changes}))
        assert not changed.result.is_error, changed.result.text
        contents = [(fleet_hosts.home(name) / "note").read_text().split()[1] for name in fleet_hosts.servers]
        assert contents == ["three", "two", "three"]
        missing = await executor.call(ToolCall(run, {command: "true"}))
        assert missing.result.error_code == "invalid_args"
        assert f"{run}: hosts: name the hosts on which it runs (the hosts are web[1-3])" in missing.result.text
        wrong = await executor.call(ToolCall(run, {"hosts": "web1", command: 7}))
        assert (wrong.result.error_code, f"{run}: {command}: " in wrong.result.text) == ("invalid_args", True)


class HostsOfItsOwn(Arguments):
    hosts: list[str]


class ScanTool(Tool[HostsOfItsOwn]):
    """A plugin's tool that would run on the target, with another argument ``hosts``."""

    def __init__(self) -> None:
        super().__init__("scan", "Scan hosts.", HostsOfItsOwn, Traits(Category.SHELL))

    async def run(self, args: HostsOfItsOwn, ctx: ToolContext) -> ToolResult:
        raise AssertionError


async def test_a_tool_that_cannot_work_on_many_hosts_is_an_error_at_the_start(fleet_hosts: FleetHosts) -> None:
    source = FixedSource("acme", (ScanTool(),))
    async with (
        harness.fleet("web1", config=config(fleet_hosts)) as fleet,
        open_toolkit(ToolkitSettings(), tool_sources=[source]) as toolkit,
    ):
        with pytest.raises(ConfigError, match="the tool 'scan' of acme does not work on many hosts") as caught:
            async with toolkit.executor(fleet):
                raise AssertionError
    assert "exclude" in caught.value.hint


# -- permission


async def test_without_an_approver_nothing_runs_anywhere(fleet_hosts: FleetHosts) -> None:
    (allowed := Rule(Action.ALLOW, "ssh://web1", "run_shell"),)
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK, (allowed,))) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
        assert outcome.status is CallStatus.DENIED
        assert "no approver is available" in outcome.result.text
        assert homes_with(fleet_hosts, "ran") == []
        alone = await call(executor, "run_shell", hosts="web1", command="touch ~/ran")
        assert (alone.status, homes_with(fleet_hosts, "ran")) == (CallStatus.OK, ["web1"])


async def test_one_approval_shows_the_command_once_and_what_differs(fleet_hosts: FleetHosts) -> None:
    rules = (Rule(Action.DENY, "ssh://web2", "run_shell"), Rule(Action.ALLOW, "ssh://web3", "run_shell"))
    approver = Answers()
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK, rules), approver=approver) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
    (question,) = approver.asked
    assert (question.what, question.target) == ("touch ~/ran", "web1 (1 host)")
    assert question.call.arguments == {"hosts": "*", "command": "touch ~/ran"}
    assert "also on web3 (1 host), where it requires no approval" in question.preview
    assert "not on web2 (1 host): matched rule: deny run_shell on ssh://web2" in question.preview
    assert homes_with(fleet_hosts, "ran") == ["web1", "web3"]
    assert statuses(outcome) == {"web1": 0, "web2": "denied", "web3": 0}


async def test_a_refused_approval_runs_nothing_also_where_none_is_required(fleet_hosts: FleetHosts) -> None:
    allowed = Rule(Action.ALLOW, "ssh://web3", "run_shell")
    approver = Answers(ApprovalScope.DENY_ONCE)
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK, (allowed,)), approver=approver) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
    assert len(approver.asked) == 1
    assert approver.asked[0].target == "web[1-2] (2 hosts)"
    assert (outcome.status, homes_with(fleet_hosts, "ran")) == (CallStatus.DENIED, [])


async def test_an_approval_for_the_session_does_not_cover_another_host(fleet_hosts: FleetHosts) -> None:
    approver = Answers(ApprovalScope.EXACT)
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK), approver=approver) as executor:
        await call(executor, "run_shell", hosts="web[1-2]", command="echo x >> ~/ran")
        await call(executor, "run_shell", hosts="web[1-2]", command="echo x >> ~/ran")
        assert len(approver.asked) == 1
        approver.scope = ApprovalScope.DENY_ONCE
        outcome = await call(executor, "run_shell", hosts="web[2-3]", command="echo x >> ~/ran")
        assert [question.target for question in approver.asked] == ["web[1-2] (2 hosts)", "web3 (1 host)"]
        assert (outcome.status, homes_with(fleet_hosts, "ran")) == (CallStatus.DENIED, ["web1", "web2"])
        assert (fleet_hosts.home("web2") / "ran").read_text() == "x\nx\n"


async def test_a_changed_command_runs_on_all_hosts_or_on_none(fleet_hosts: FleetHosts) -> None:
    def other(call: ToolCall) -> ToolCall:
        assert not isinstance(call.arguments, str)
        return replace(call, arguments={**call.arguments, "command": "touch ~/other"})

    allowed = Rule(Action.ALLOW, "ssh://web3", "run_shell", "touch ~/ran")
    approver = Answers(change=other)
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK, (allowed,)), approver=approver) as executor:
        approver.change = lambda call: other(call) if len(approver.asked) == 1 else None
        await call(executor, "run_shell", hosts="*", command="touch ~/ran")
    assert [question.target for question in approver.asked] == ["web[1-2] (2 hosts)", "web3 (1 host)"]
    assert approver.asked[1].call.arguments == {"hosts": "*", "command": "touch ~/other"}
    assert (homes_with(fleet_hosts, "ran"), homes_with(fleet_hosts, "other")) == ([], ["web1", "web2", "web3"])


async def test_an_approver_cannot_change_the_hosts(fleet_hosts: FleetHosts) -> None:
    def other(call: ToolCall) -> ToolCall:
        assert not isinstance(call.arguments, str)
        return replace(call, arguments={**call.arguments, "hosts": "web3"})

    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK), approver=Answers(change=other)) as executor:
        outcome = await call(executor, "run_shell", hosts="web1", command="touch ~/ran")
    assert "cannot change the hosts" in outcome.result.text
    assert (outcome.status, homes_with(fleet_hosts, "ran")) == (CallStatus.DENIED, [])


async def test_the_operator_is_not_asked_if_a_hook_refuses_a_host(fleet_hosts: FleetHosts) -> None:
    hooks = Hooks()
    matcher = Matcher(targets=("ssh://web2",))
    hooks.on("permission_request", lambda occasion: HookResult("deny", reason="not today"), matcher)
    approver, allowed = Answers(), Rule(Action.ALLOW, "ssh://web3", "run_shell")
    permissions = PermissionSettings(Mode.ASK, (allowed,))
    async with (
        harness.fleet("web[1-3]", config=config(fleet_hosts)) as fleet,
        open_toolkit(ToolkitSettings(permissions=permissions)) as toolkit,
        toolkit.executor(fleet, approver=approver, hooks=hooks) as executor,
    ):
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
    assert (approver.asked, outcome.status, homes_with(fleet_hosts, "ran")) == ([], CallStatus.DENIED, [])
    assert "web[1,3] (2 hosts):\nnot allowed: it was not approved for web2: not today" in outcome.result.text


async def test_no_host_starts_before_all_are_decided(fleet_hosts: FleetHosts) -> None:
    @dataclass
    class Looks(Answers):
        ran: Sequence[str] = ("not asked",)

        async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
            self.ran = homes_with(fleet_hosts, "ran")
            return await Answers.ask(self, question)

    allowed = Rule(Action.ALLOW, "ssh://web[12]", "run_shell")
    approver = Looks()
    async with on_fleet(fleet_hosts, PermissionSettings(Mode.ASK, (allowed,)), approver=approver) as executor:
        await call(executor, "run_shell", hosts="web1,web2", command="true")  # they are connected, web3 is not
        await call(executor, "run_shell", hosts="*", command="touch ~/ran")
    assert (approver.ran, homes_with(fleet_hosts, "ran")) == ([], ["web1", "web2", "web3"])


def rules_of(table: dict[str, Any], mode: str = "ask") -> PermissionSettings:
    return settings_of([SettingsTable("the settings", {"mode": mode, **table})])


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "hosts.ini"
    path.write_text("[web]\nweb1\n[db]\nweb2\nweb3\n")
    return read_inventory(path)


async def test_a_rule_that_denies_on_a_group_holds_on_its_hosts_only(
    fleet_hosts: FleetHosts, inventory: Inventory
) -> None:
    rules = rules_of({"deny": [{"tool": "run_shell", "argument": "touch *", "hosts": "@db,!web3"}]}, "auto")
    async with on_fleet(fleet_hosts, rules, names="*", inventory=inventory) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
        assert statuses(outcome) == {"web1": 0, "web2": "denied", "web3": 0}
        assert "deny run_shell 'touch *' on hosts @db,!web3" in outcome.result.text
        assert homes_with(fleet_hosts, "ran") == ["web1", "web3"]


async def test_a_rule_that_allows_on_a_group_allows_nothing_elsewhere(
    fleet_hosts: FleetHosts, inventory: Inventory
) -> None:
    rules = rules_of({"allow": [{"tool": "run_shell", "argument": "touch *", "hosts": "@db"}]})
    async with on_fleet(fleet_hosts, rules, names="*", inventory=inventory) as executor:
        await call(executor, "run_shell", hosts="web1", command="touch ~/ran")
        assert homes_with(fleet_hosts, "ran") == []
        await call(executor, "run_shell", hosts="@db", command="touch ~/ran")
        assert homes_with(fleet_hosts, "ran") == ["web2", "web3"]


async def test_a_rule_about_a_group_that_is_not_known_asks(fleet_hosts: FleetHosts, inventory: Inventory) -> None:
    rules = rules_of({"deny": [{"tool": "run_shell", "hosts": "@prod"}], "allow": ["touch *"]}, "auto")
    async with on_fleet(fleet_hosts, rules, names="*", inventory=inventory) as executor:
        outcome = await call(executor, "run_shell", hosts="*", command="touch ~/ran")
        assert "its group of hosts is not known here" in outcome.result.text
        assert (outcome.status, homes_with(fleet_hosts, "ran")) == (CallStatus.DENIED, [])


async def test_rules_about_hosts_hold_in_a_session_on_one_target(fleet_hosts: FleetHosts) -> None:
    rules = rules_of({"deny": [{"hosts": "web1"}]}, "auto")
    for name in ("web1", "web2"):
        async with (
            harness.connect(f"ssh://{name}", config=config(fleet_hosts)) as context,
            open_executor(context, ToolkitSettings(permissions=rules)) as executor,
        ):
            await call(executor, "run_shell", command="touch ~/ran")
    assert homes_with(fleet_hosts, "ran") == ["web2"]


@pytest.mark.parametrize("pattern", ["", "web[1", "a b"])
def test_a_wrong_pattern_in_a_rule_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"the settings: permissions\.deny: hosts: "):
        rules_of({"deny": [{"hosts": pattern}]})


class Later(Tool[Arguments]):
    """A tool that asks for a command while it runs."""

    def __init__(self) -> None:
        super().__init__("later", "Do it later.", Arguments, Traits(category=Category.SHELL))

    async def run(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        verdict = await ctx.permitted((Subject("command", "touch ~/ran"),))
        return ToolResult.of(str(verdict.allowed))


async def test_an_approval_request_of_a_running_call_reaches_those_who_listen(fleet_hosts: FleetHosts) -> None:
    approver = EventApprover()
    permissions = PermissionSettings(Mode.ASK, approval_timeout=5.0)
    async with (
        harness.fleet("web[1-2]", config=config(fleet_hosts)) as fleet,
        open_toolkit(ToolkitSettings(permissions=permissions), tool_sources=[FixedSource("test", (Later(),))]) as kit,
        kit.executor(fleet, approver=approver) as executor,
    ):

        def heard(event: Event) -> None:
            if isinstance(event, PermissionAsked):
                scope = ApprovalScope.ONCE if len(asked) else ApprovalScope.DENY_ONCE
                asked.append(event.what)
                approver.answer(event.request_id, ApprovalDecision(scope))

        asked: list[str] = []
        with executor.events.listening(heard):
            outcome = await call(executor, "later", hosts="*")
    assert asked == ["touch ~/ran", "touch ~/ran"]
    assert ("False" in outcome.result.text, "True" in outcome.result.text) == (True, True)


# -- audit


async def test_the_audit_log_has_a_record_for_each_host_under_one_call(fleet_hosts: FleetHosts) -> None:
    denied = Rule(Action.DENY, "ssh://web2", "run_shell")
    permissions = PermissionSettings(Mode.AUTO, (denied,))
    async with (
        harness.fleet("web[1-2],down", config=config(fleet_hosts)) as fleet,
        open_toolkit(ToolkitSettings(permissions=permissions)) as toolkit,
        toolkit.executor(fleet) as executor,
    ):
        outcome = await call(executor, "run_shell", hosts="*", command="exit 3")
        assert not isinstance(toolkit.ledger, type(None))
        found = await toolkit.ledger.calls_of(executor.session_id)  # type: ignore[union-attr]  # the disk is not full
    assert {one.call["call_id"] for one in found} == {outcome.call.call_id}
    by_target = {one.call["backend"]: one for one in found}
    assert {name: one.status for name, one in by_target.items()} == {
        "ssh://web1": "error",
        "ssh://web2": "denied",
        "ssh://down": "error",
    }
    assert all(one.call["arguments"] == {"command": "exit 3"} for one in found)


async def test_a_cancelled_call_ends_on_all_hosts_and_is_recorded_for_each(fleet_hosts: FleetHosts) -> None:
    async with (
        harness.fleet("web[1-2]", config=config(fleet_hosts)) as fleet,
        open_toolkit(ToolkitSettings(permissions=AUTO)) as toolkit,
        toolkit.executor(fleet) as executor,
        anyio.create_task_group() as tasks,
    ):
        found: list[CallOutcome] = []

        async def run() -> None:
            command = "echo started; sleep 60; touch ~/ran"
            found.append(await call(executor, "run_shell", hosts="*", command=command))

        with executor.events.subscribe() as events:
            tasks.start_soon(run)
            shown = ""
            async for event in events:
                shown += event.text if isinstance(event, ToolCallProgress) else ""
                if {"web1: started", "web2: started"} <= set(shown.splitlines()):
                    executor.cancel()
                    break
            async for event in events:
                if isinstance(event, ToolCallCompleted):
                    break
        recorded = await toolkit.ledger.calls_of(executor.session_id)  # type: ignore[union-attr]  # the disk is not full
    assert [outcome.status for outcome in found] == [CallStatus.CANCELLED]
    assert "it may have changed something" in found[0].result.text
    assert sorted((one.call["backend"], one.status) for one in recorded) == [
        ("ssh://web1", "cancelled"),
        ("ssh://web2", "cancelled"),
    ]
    assert homes_with(fleet_hosts, "ran") == []
