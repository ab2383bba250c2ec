"""A policy on a target, tools that touch what they are told to, and approvers that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.toolbox import Reads, Trace, Words

from harness.command import Command
from harness.context import ExecutionContext
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context
from harness.toolkit import Arguments, Category, Registry, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.contract import CallNotes, PermissionRequest
from harness.toolkit.events import EventBus
from harness.toolkit.interfaces import Verdict
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.remembered_answers import TimedApproval
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.permissions.rules.store import RuleFile
from harness.toolkit.values import Subject, SubjectKind


class Anything(Arguments):
    """Any arguments: the subjects are given apart."""


class Stub(Tool[Anything]):
    """A tool of a category, which is never run."""

    def __init__(self, name: str, traits: Traits) -> None:
        super().__init__(name, "A tool.", Anything, traits)

    async def run(self, args: Anything, ctx: ToolContext) -> ToolResult:
        raise AssertionError


TRAITS = {
    "run_shell": Traits(Category.SHELL, mutating=True),
    "read_file": Traits(Category.FILE_READ),
    "write_file": Traits(Category.FILE_WRITE, mutating=True),
    "fetch_url": Traits(Category.NETWORK),
    "send_keys": Traits(Category.SHELL, mutating=True),
    "clock": Traits(),
    "change": Traits(Category.PLUGIN, mutating=True),
}
KINDS: dict[str, SubjectKind] = {
    "run_shell": "command",
    "read_file": "read",
    "write_file": "write",
    "fetch_url": "url",
    "send_keys": "keys",
}


@dataclass
class Says(Approver):
    """Answers as it is told, and keeps the questions."""

    answer: Callable[[ApprovalRequest], ApprovalDecision] = lambda question: ApprovalDecision(ApprovalScope.ONCE)
    questions: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(question)
        return self.answer(question)


def says(scope: ApprovalScope, **more: str) -> Says:
    """An approver that always answers this."""
    return Says(lambda question: ApprovalDecision(scope, **more))


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Desk:
    """A policy, and the context of its calls."""

    policy: RulePolicy
    ctx: ToolContext
    clock: Clock
    notes: dict[tuple[str, str], CallNotes] = field(default_factory=dict)
    """By session and call, each of which has its own."""

    def request(self, tool: str, *texts: str, arguments: Mapping[str, object] | None = None) -> PermissionRequest:
        traits = TRAITS[tool]
        subjects = tuple(Subject(KINDS.get(tool, "other"), text) for text in texts) or (Subject("other", tool),)
        call = ToolCall(tool, dict(arguments or {}), "c1", agent_id=self.ctx.agent_id)  # type: ignore[arg-type]  # JSON
        return PermissionRequest(
            call, Stub(tool, traits), subjects, traits.mutating, traits.mutating, self.ctx.execution.identity
        )

    async def decide(self, tool: str, *texts: str, session: str = "s1", **arguments: object) -> Verdict:
        ctx = replace(self.ctx, session_id=session)
        return await self.policy.decide(self.request(tool, *texts, arguments=arguments), ctx)

    async def allows(self, tool: str, *texts: str, session: str = "s1", **arguments: object) -> bool:
        return (await self.decide(tool, *texts, session=session, **arguments)).allowed


def found_nothing(command: Command) -> ScriptedReply:
    """What a target says when nothing is below a directory."""
    return ScriptedReply("end 0\n") if "find " in command.command else ScriptedReply()


def desk(
    approver: Approver | None = None,
    *,
    mode: Mode = Mode.ASK,
    file: Path | None = None,
    execution: ExecutionContext | None = None,
    backend: MemoryBackend | None = None,
    cwd: str | None = None,
    tools: Iterable[str] = TRAITS,
    **settings: object,
) -> Desk:
    """Make one; ``settings`` are fields of the permission settings."""
    clock = Clock()
    made = PermissionSettings(mode=mode, **settings)  # type: ignore[arg-type]  # fields of it, by name
    policy = RulePolicy(
        made,
        approver=approver,
        file=RuleFile(file) if file is not None else None,
        timed=TimedApproval(clock),
        clock=clock,
    )
    events = EventBus("s1")
    registry = Registry(Stub(name, TRAITS[name]) for name in tools)
    ctx = ToolContext(
        execution=execution or memory_context(backend or MemoryBackend(found_nothing)),
        registry=registry,
        events=events,
        reads=Reads(),
        redactor=Words(Trace()),
        session_id="s1",
        call_id="c1",
        agent_id="agent",
        cwd=cwd,
    )
    return Desk(policy, ctx, clock)
