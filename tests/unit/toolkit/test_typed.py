"""What is typed may be a password: nothing shows or keeps it before it was judged to be none."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import toolbox

from harness.toolkit import CallOutcome, CallStatus, Tool, ToolCall, ToolContext, ToolResult
from harness.toolkit.contract import Next, PermissionRequest, Policy
from harness.toolkit.events import ToolCallRequested
from harness.toolkit.hooks.command import CommandHook
from harness.toolkit.hooks.dispatch import HookInvocation, HookResult, Hooks, RegisteredHook
from harness.toolkit.interfaces import Verdict
from harness.toolkit.pipeline import refused
from harness.toolkit.redaction.redactor import MARK, PatternRedactor
from harness_tools.shell import RunShell
from harness_tools.terminal import SendKeys, _Send

CALL = ToolCall("send_keys", {"literal_text": "s3same", "keys": ["s", "3"], "enter": True, "pane": "main", "why": "w"})
MASKED = {"literal_text": MARK, "keys": [MARK, MARK], "enter": True, "pane": "main", "why": "w"}


class Types(SendKeys):
    """Keeps what would be typed."""

    def __init__(self) -> None:
        super().__init__()
        self.typed: list[str | None] = []

    async def run(self, args: _Send, ctx: ToolContext) -> ToolResult:
        self.typed.append(args.literal_text)
        return ToolResult.of("typed")


def denies(occasion: HookInvocation) -> HookResult:
    """A function hook: it sees the call as it is."""
    assert occasion.call is not None
    assert occasion.call.arguments == CALL.arguments
    return HookResult("deny", "no")


async def refuses(call: ToolCall, ctx: ToolContext, step: Next) -> CallOutcome:
    return CallOutcome(call, refused("no", "a test"), CallStatus.DENIED)


async def test_the_event_of_a_call_does_not_show_what_is_typed() -> None:
    made = toolbox([Types(), RunShell()])
    with made.events.subscribe() as events:
        await made.executor.call(CALL)
        await made.executor.call(ToolCall("run_shell", {"command": "true"}))
        keys, shell = (event.call for event in events.drain() if isinstance(event, ToolCallRequested))
    assert keys.arguments == MASKED
    assert shell.arguments == {"command": "true"}


@pytest.mark.parametrize("by", ["hook", "middleware"])
async def test_the_audit_of_what_a_hook_or_middleware_refuses_does_not_keep_what_is_typed(by: str) -> None:
    hooks = Hooks()
    hooks.on("pre_tool", denies)
    made = toolbox([Types()], hooks=(hooks,)) if by == "hook" else toolbox([Types()], middleware=(refuses,))
    assert (await made.executor.call(CALL)).status is CallStatus.DENIED
    (entry,) = made.ledger.denied
    assert (entry.verdict.by, entry.call.arguments, entry.status) == (by, MASKED, CallStatus.DENIED)


@pytest.mark.usefixtures("needs_process")
async def test_a_command_hook_does_not_get_what_is_typed_and_may_send_it_back(tmp_path: Path) -> None:
    program = (
        "import json, sys; given = json.load(sys.stdin); "
        "open(sys.argv[1], 'a').write(json.dumps(given) + chr(10)); "
        "before = {'decision': 'modify', 'arguments': {**given['call']['arguments'], 'why': 'x'}}; "
        "print(json.dumps(before if given['event'] == 'pre_tool' else {'decision': 'allow'}))"
    )
    hook, tool = CommandHook((sys.executable, "-c", program, str(tmp_path / "seen")), timeout=20.0), Types()
    made = toolbox([tool], hooks=(Hooks([RegisteredHook("pre_tool", hook), RegisteredHook("post_tool", hook)]),))
    assert (await made.executor.call(CALL)).status is CallStatus.OK
    assert tool.typed == ["s3same"]
    seen = [json.loads(line)["call"]["arguments"] for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen == [MASKED, {**MASKED, "why": "x"}]


class Undecided(Policy):
    """Its question is never answered."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(
    ("tool", "call", "kept"),
    [(Types(), CALL, MASKED), (RunShell(), ToolCall("run_shell", {"command": "true"}), {"command": "true"})],
)
async def test_a_call_that_is_cancelled_at_its_question_is_kept_as_cancelled(
    tool: Tool[Any], call: ToolCall, kept: object
) -> None:
    made, policy = toolbox([tool]), Undecided()
    executor = replace(made.executor, services=replace(made.executor.services, policy=policy))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.call, call)
            await policy.asked.wait()
            tasks.cancel_scope.cancel()
    (entry,) = made.ledger.denied
    assert (made.ledger.begun, entry.status, entry.verdict.allowed) == ([], CallStatus.CANCELLED, False)
    assert entry.call.arguments == kept
    assert "cancelled during or before the approval request" in entry.verdict.reason


# -- standard input


class Reads(RunShell):
    """Keeps what a command would read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[object] = []

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        self.read.append(args.stdin)
        return ToolResult.of("read")


INPUTS = [
    ("sudo -S id", "s3same\n", MARK),
    ("docker login -u bob --password-stdin", "s3same", MARK),
    ("su -c id", "s3same\n", MARK),
    ("ssh web1 sudo -S id", "s3same\n", MARK),
    ("cat > key", "s3same", MARK),
    ("sh -s", "rm -rf build", "rm -rf build"),
    ("ssh web1 bash", "DB_PASSWORD=s3same make", f"DB_PASSWORD={MARK} make"),
    ("cat", "", ""),
]


@pytest.mark.parametrize(("command", "given", "kept"), INPUTS)
async def test_the_audit_and_the_events_keep_no_input_that_may_be_a_password(
    command: str, given: str, kept: str
) -> None:
    tool = Reads()
    made = toolbox([tool])
    made.executor = replace(made.executor, services=replace(made.executor.services, redactor=PatternRedactor()))
    call = ToolCall("run_shell", {"command": command, "stdin": given})
    with made.events.subscribe() as events:
        assert (await made.executor.call(call)).status is CallStatus.OK
        (requested,) = (event.call for event in events.drain() if isinstance(event, ToolCallRequested))
    assert requested.arguments == {"command": command, "stdin": kept}
    assert [entry.call.arguments for entry in made.ledger.begun] == [requested.arguments]
    assert tool.read == [given]


@pytest.mark.usefixtures("needs_process")
async def test_a_command_hook_gets_no_input_and_may_send_the_call_back(tmp_path: Path) -> None:
    program = (
        "import json, sys; given = json.load(sys.stdin); open(sys.argv[1], 'w').write(json.dumps(given)); "
        "print(json.dumps({'decision': 'modify', 'arguments': {**given['call']['arguments'], 'why': 'x'}}))"
    )
    hook, tool = CommandHook((sys.executable, "-c", program, str(tmp_path / "seen")), timeout=20.0), Reads()
    made = toolbox([tool], hooks=(Hooks([RegisteredHook("pre_tool", hook)]),))
    call = ToolCall("run_shell", {"command": "sudo -S id", "stdin": "s3same"})
    assert (await made.executor.call(call)).status is CallStatus.OK
    assert "s3same" not in (tmp_path / "seen").read_text()
    assert tool.read == ["s3same"]
