"""``harness demo --agent``: a complete agent run, offline, with a scripted model.

Everything but the model is real: the SSH server and the tmux session, the tools, the policy and its approval requests,
the audit log, the background job and the notice of its end. Each run is the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..live.sessions.agent_session import show_agent
from ..live.sessions.approvals import share_approver
from ..system.private_files import state_home
from ..toolkit.assembly import Toolkit, ToolkitSettings
from ..toolkit.audit import open_audit_log
from ..toolkit.catalog import ToolSettings, load_catalogue
from ..toolkit.events import Event, JobExited, JobStarted, PermissionAsked, ToolCallCompleted, ToolCallRequested
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ..toolkit.permissions.rules.settings import PermissionSettings
from ..toolkit.permissions.rules.store import RuleFile
from ..toolkit.redaction.redactor import PatternRedactor
from ..toolkit.result_cache import ResultCache
from ..toolkit.session.file_versions import ReadTracker
from ..toolkit.session.notebook_stores import SqliteNotebook
from ..toolkit.session.output_store import OutputStore
from .demo import PACK, DemoEnvironment, Say, open_place, say_how_to_attach, wait_for_a_signal

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.models import ModelProfile, OpenModel
    from ..agent.models.scripted import Step
    from ..agent.storage import ConversationLog
    from ..live.announcement import Announcement

__all__ = ["PROMPT", "run_agent_demo", "run_web_session"]

PROMPT = "The logs fill the disk of web1. Find the big ones, have them rotated daily, and pack what is there."
JOB_TIMEOUT = 60.0
APPROVAL_TIMEOUT = 86_400.0
"""Seconds for the reader to answer in the dashboard."""
SHOWN = 6
"""Maximum lines of a result that are shown."""
MAX_COLUMNS = 80
"""The width of a terminal and of a documentation page; longer lines are wrapped."""
CONTINUED = "    "
"""The prefix of the rest of a wrapped line, after the line's own indentation."""


async def run_agent_demo(*, keep: bool = False, say: Say = print) -> None:
    """Run the demo and clean up after it, even if it is cancelled.

    Args:
        keep: leave the server and the session, so that the reader can attach, until a SIGINT, SIGTERM or SIGHUP.
        say: receives each line of the story.

    Raises:
        ConfigError: the extra ``agent`` is missing.
        UnsupportedOperation: a program or an extra is missing; the hint shows how to install it.
        HarnessError: a step had an unexpected result.
    """
    from ..agent.opening import load_agent

    await to_thread.run_sync(load_agent)
    show = _wrapped(say)
    async with open_place() as place:
        _introduce(show)
        story = _Story(show, place.home)
        async with _agent(place, _DemoApprover(show)) as agent:
            with agent.events.listening(story.heard):
                await _tell(agent, story)
        _check(place.home)
        show("\nWith a model of yours: harness --ssh web1 --tmux (harness models says how to configure one).")
        if keep:
            say_how_to_attach(place.ctx, say, keep=True)  # a command to copy: unwrapped
            await wait_for_a_signal()
    show("Cleaned up: the session, the server and its files are gone.")


async def run_web_session(*, say: Say = print) -> None:
    """Run the demo's agent for a dashboard, which answers its requests, until a SIGINT, SIGTERM or SIGHUP.

    Its conversation and audit log are stored in the state directory of this process, where the dashboard finds them.

    Args:
        say: Receives each line of the story.

    Raises:
        HarnessError: As for :func:`run_agent_demo`.
    """
    from ..agent.opening import load_agent
    from ..live.announcement import announce

    await to_thread.run_sync(load_agent)
    show = _wrapped(say)
    async with open_place() as place, announce("python") as announcement:
        _introduce(show)
        story = _Story(show, place.home)
        own = replace(place, state=state_home())
        async with _agent(own, _DashboardApprover(show), announcement) as agent:
            with agent.events.listening(story.heard):
                await _tell(agent, story)
            show("\nThe agent is done. Its session, recorded calls and pane stay in the dashboard until C-c.")
            await wait_for_a_signal()
    show("Cleaned up: the session, the server and its files are gone.")


def _wrapped(say: Say) -> Say:
    return lambda text: say(_wrap(text))


def _introduce(show: Say) -> None:
    show("The model is scripted: what it says was written beforehand.")
    show("Everything else is real: an SSH server, a tmux session, the tools,")
    show("the approvals, the audit.\n")


async def _tell(agent: Agent, story: _Story) -> None:
    story.say(f"you: {PROMPT}")
    await _turn(agent, PROMPT)
    if not story.has_job:  # its call was denied, in a dashboard
        return
    job = await story.ended()
    news = f"[harness: the background job {job.job_id} has ended, with exit code {job.exit_code}.]"
    story.say(f"\nharness tells the model: {news}")
    await _turn(agent, news)


async def _turn(agent: Agent, prompt: str) -> None:
    result = await agent.turn(prompt)
    if result.status != "completed":
        raise HarnessError(f"the turn was not completed: {result.failure or result.status}")


def _check(home: Path) -> None:
    """Check that the host was changed as the story reports."""
    packed = sorted(path.name for path in (home / "var/log").iterdir())
    if "daily" not in (home / "logrotate.conf").read_text() or not all(name.endswith(".gz") for name in packed):
        raise HarnessError("the agent did not do what it was asked to")


# -- display


def _wrap(text: str) -> str:
    """Break lines that are longer than a terminal is wide; keep shorter ones unchanged."""
    return "\n".join(_wrap_line(line) for line in text.split("\n"))


def _wrap_line(line: str) -> str:
    if len(line) <= MAX_COLUMNS:
        return line
    indent = line[: len(line) - len(line.lstrip())] + CONTINUED
    return textwrap.fill(line, MAX_COLUMNS, subsequent_indent=indent, break_on_hyphens=False, tabsize=8)


class _Story:
    """A listener that shows events like the prompt."""

    def __init__(self, say: Say, home: Path) -> None:
        self.say = say
        self._home = str(home)
        self.has_job = False
        """Whether a background job was started."""
        self._exit: JobExited | None = None
        self._ended = anyio.Event()

    def heard(self, event: Event) -> None:
        """Show an event."""
        from ..agent.events import AnswerCompleted

        match event:
            case AnswerCompleted() if event.text:
                self.say(f"\nmodel (scripted): {event.text}")
            case ToolCallRequested():
                self.say(f"  > {event.call.name} {_subject(event)}")
            case PermissionAsked():
                self.say(f"    asks: may it? ({event.reason})")
            case ToolCallCompleted():
                self._show(event.outcome.result.text)
            case JobStarted():
                self.has_job = True
                self.say(f"    [job {event.job_id} goes on in the background]")
            case JobExited():
                self._exit = event
                self._ended.set()

    def _show(self, text: str) -> None:
        lines = text.rstrip().replace(self._home, "~").splitlines()
        for line in lines[:SHOWN]:
            self.say(f"    {line}")
        if len(lines) > SHOWN:
            self.say(f"    ... {len(lines) - SHOWN} more lines")

    async def ended(self) -> JobExited:
        """Wait for the end of the background job."""
        with anyio.move_on_after(JOB_TIMEOUT):
            await self._ended.wait()
        if self._exit is None:
            raise HarnessError(f"the background job did not end within {JOB_TIMEOUT:g} s")
        return self._exit


def _subject(event: ToolCallRequested) -> str:
    arguments = event.call.arguments if not isinstance(event.call.arguments, str) else {}
    for name in ("command", "path", "bash_id"):
        if name in arguments:
            return str(arguments[name])
    return ""


class _DemoApprover(Approver):
    """An approver that answers instead of the viewer, and shows that it does."""

    def __init__(self, say: Say) -> None:
        self._say = say

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Allow the call once."""
        self._say("    you: yes (the demo answers for you)")
        return ApprovalDecision(ApprovalScope.ONCE, "demo")


class _DashboardApprover(Approver):
    """An approver that leaves the answer to a dashboard, however long it takes."""

    def __init__(self, say: Say) -> None:
        self._say = say

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Wait until a dashboard has answered."""
        self._say("    answer it in the dashboard")
        while True:
            await anyio.sleep_forever()

    def answered_elsewhere(self, question: ApprovalRequest, answer: ApprovalDecision) -> None:
        """Show who answered."""
        self._say(f"    {answer.by}: {'yes' if answer.scope.allows else 'no'}")


# -- the agent


@asynccontextmanager
async def _agent(
    place: DemoEnvironment, approver: Approver, announcement: Announcement | None = None
) -> AsyncIterator[Agent]:
    """Open the demo's agent; an announcement shows it in dashboards, which share the approver."""
    from ..agent.opening import HumanHandlers, open_agent
    from ..agent.settings import AgentSettings

    opened = await to_thread.run_sync(_scripted)
    shared = share_approver(announcement, approver) if announcement is not None else None

    @asynccontextmanager
    async def open_one(profile: ModelProfile) -> AsyncIterator[OpenModel]:
        yield opened

    async with (
        _toolkit(place) as toolkit,
        _stored(place, opened, stores=announcement is not None) as (log, session_id),
        open_agent(
            place.ctx,
            toolkit,
            opened.profile,
            settings=AgentSettings(on_job_exit="next_turn"),
            handlers=HumanHandlers(shared or approver),
            log=log,
            session_id=session_id,
            open_one=open_one,
        ) as agent,
    ):
        with show_agent(announcement, agent, shared) if announcement is not None else nullcontext():
            yield agent


@asynccontextmanager
async def _stored(
    place: DemoEnvironment, opened: OpenModel, *, stores: bool
) -> AsyncIterator[tuple[ConversationLog, str]]:
    """Yield where the conversation is stored, and its ID, with which a dashboard finds what was said before."""
    from ..agent.storage import ConversationStore, MemoryLog, NewConversation

    if not stores:
        yield MemoryLog(), ""
        return
    store = ConversationStore()
    start = NewConversation(target=str(place.ctx.target), identity=place.ctx.identity, model=opened.profile.name)
    created = await store.create(start)
    async with store.writing(created.session_id) as log:
        yield log, created.session_id


@asynccontextmanager
async def _toolkit(place: DemoEnvironment) -> AsyncIterator[Toolkit]:
    """Open a toolkit without the user's rules and tools, with an audit log that is removed with the demo."""
    permissions = PermissionSettings(approval_timeout=APPROVAL_TIMEOUT)
    settings = ToolkitSettings(tools=ToolSettings(packs=("core", "background")), permissions=permissions)
    nowhere = place.state / "none"
    known = await to_thread.run_sync(lambda: load_catalogue(settings.tools, directory=nowhere))
    async with open_audit_log(place.state / "audit") as ledger:
        yield Toolkit(
            settings=settings,
            registry=known.registry,
            known=known.known,
            ledger=ledger,
            redactor=PatternRedactor(),
            results=ResultCache(),
            reads=ReadTracker(),
            rules=RuleFile(place.state / "rules.json"),
            outputs=OutputStore(place.state / "outputs"),
            notebook=SqliteNotebook(place.state / "notebook"),
        )


def _scripted() -> OpenModel:
    from ..agent.models.scripted import open_scripted

    return open_scripted(_script())


def _script() -> Sequence[Step]:
    from ..agent.models.scripted import ScriptedCall, Step

    def shell(command: str, why: str, **more: Any) -> ScriptedCall:
        return ScriptedCall("run_shell", {"command": command, "why": why, **more})

    changes: dict[str, Any] = {"risk": "low", "mutation": True, "privesc": False}
    edit = {"path": "~/logrotate.conf", "old_string": "rotate weekly", "new_string": "rotate daily"}
    return (
        Step(
            "I look at the sizes, and at how they are rotated.",
            calls=(
                shell("cd ~/var/log && wc -c *.log | sort -rn | head -4", "find the big ones"),
                ScriptedCall("read_file", {"path": "~/logrotate.conf"}),
            ),
        ),
        Step(
            "access.log is the biggest, and they are rotated once a week only. I change that first.",
            calls=(ScriptedCall("edit", {**edit, "why": "rotate daily", **changes}),),
        ),
        Step(
            "Now I pack what is there. It takes a while, so it goes on in the background.",
            calls=(shell(f"cd ~/var/log && {PACK}", "free the disk", wait=False, **changes),),
        ),
        Step("They are rotated daily from now on. I say more when the packing has ended."),
        Step("It has ended. I check what is left.", calls=(shell("ls -1 ~/var/log", "check"),)),
        Step("Done: all logs are packed, and logrotate.conf says daily. Nothing else was changed."),
    )
