"""The situation: current screens and running jobs of the target, valid for one request only.

It is the last part of a request and is never stored, because it is soon outdated; all messages before it stay
unchanged, so that providers can cache them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
from pydantic_ai.messages import CachePoint, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model

from ...errors import HarnessError
from ...login import use_prompter
from ...results import PaneInfo
from ...toolkit.contract import PermissionRequest, ToolContext
from ...toolkit.events import Event, EventBus, JobExited, JobStarted
from ...toolkit.executor import Executor
from ...toolkit.hosts.merging import jobs_on_hosts
from ...toolkit.permissions.policy import RulePolicy
from ...toolkit.permissions.rules.rule import Action
from ...toolkit.providers.base import well_formed
from ...toolkit.values import ToolCall
from .marked_text import marked

__all__ = ["RunningJobs", "TargetSnapshot", "described", "situation", "with_situation"]

SCREEN = 2_500
"""Maximum characters of screens in one request."""
SCREENS = 2
LIMIT = 1.0
LINE = 200
"""Maximum characters of a name, a directory or a command."""
JOBS = 20
SHELLS = frozenset({"", "sh", "bash", "zsh", "dash", "ash", "fish", "ksh", "mksh", "busybox", "tcsh", "csh"})
CAPTURE = "capture_pane"
"""The tool that shows a screen; a model that may not call it without approval gets no screens here."""


class RunningJobs:
    """The running jobs that calls of one session left in the background."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], str] = {}

    def heard(self, event: Event) -> None:
        """Record the start or the end of a job."""
        if isinstance(event, JobStarted):
            self._running[event.host, event.job_id] = event.command
        elif isinstance(event, JobExited):
            self._running.pop((event.host, event.job_id), None)

    def now(self) -> tuple[tuple[str, str], ...]:
        """Return their ids and commands, the oldest first; those of one command on many hosts once, with the hosts."""
        found: dict[str, list[tuple[str, str]]] = {}
        own = []
        for (host, job_id), command in self._running.items():
            if host:
                found.setdefault(command, []).append((job_id, host))
            else:
                own.append((job_id, command))
        return (*own, *((jobs_on_hosts(jobs), command) for command, jobs in found.items()))


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """The state of a target. ``screens`` are pane names with their screens; ``own`` is the name of the default pane."""

    panes: tuple[PaneInfo, ...] = ()
    own: str = ""
    screens: tuple[tuple[str, str], ...] = ()
    jobs: tuple[tuple[str, str], ...] = ()


async def situation(executor: Executor, jobs: RunningJobs | None = None, *, limit: float = LIMIT) -> str:
    """Return the current state of the target as text for the next request.

    A pane's screen is included if a program runs in it and the policy lets the model capture it without approval.
    Errors of the target are not raised, and no password is prompted for.

    Args:
        executor: the executor of the session.
        jobs: the jobs that calls left running.
        limit: maximum seconds; what is not known by then is omitted.

    Returns:
        The text, or an empty string if there is nothing to report.
    """
    running = jobs.now() if jobs is not None else ()
    seen = TargetSnapshot(jobs=running)
    if executor.execution.has_terminal:
        with anyio.move_on_after(limit), suppress(HarnessError), use_prompter(None):
            seen = await _seen(executor, running)  # the next call reports a lost connection
    return executor.services.redactor.text(described(seen, os.urandom(4).hex()))


def with_situation(messages: Sequence[ModelMessage], text: str, model: Model | None = None) -> list[ModelMessage]:
    """Return a copy of the messages with ``text`` as the last part of the last request; the copy is never stored.

    Some models of Anthropic accept their reasoning back only if everything before it is unchanged, so each situation
    costs them the reasoning so far. A ``model`` of that kind gets a situation only if something is running.
    """
    if not text or not messages or not isinstance(last := messages[-1], ModelRequest):
        return list(messages)
    if model is not None and model.profile.get("anthropic_binds_thinking_blocks", False) and is_idle(text):
        return list(messages)
    part = UserPromptPart([CachePoint(), text])  # the messages before it can be cached
    return [*messages[:-1], replace(last, parts=[*last.parts, part])]


def is_idle(text: str) -> bool:
    """Return whether a situation only reports a terminal at its prompt. Pure."""
    lines = text.splitlines()[2:-1]  # between the marks
    return len(lines) == 1 and ": at the prompt" in lines[0]


# -- reading the target


async def _seen(executor: Executor, jobs: tuple[tuple[str, str], ...]) -> TargetSnapshot:
    execution = executor.execution
    panes = await execution.list_panes()
    own = next((pane.name for pane in panes if _is_own(pane, execution.pane)), "")
    panes.sort(key=lambda pane: pane.name != own)
    seen = TargetSnapshot(tuple(panes), own, (), jobs)
    busy = [pane for pane in panes if is_busy(pane)]
    if not busy or not await _may_look(executor):
        return seen
    screens = [(pane.name, await execution.capture_pane(pane=pane.name)) for pane in busy[:SCREENS]]
    return replace(seen, screens=tuple(screens))


def _is_own(pane: PaneInfo, chosen: str | None) -> bool:
    return pane.default if chosen is None else chosen in (pane.name, pane.pane_id)


def is_busy(pane: PaneInfo) -> bool:
    """Return whether a pane runs something other than a shell at its prompt. Pure."""
    return bool(pane.busy) or pane.foreground.lstrip("-") not in SHELLS


async def _may_look(executor: Executor) -> bool:
    policy, tool = executor.services.policy, executor.registry.own.get(CAPTURE)
    if tool is None or not isinstance(policy, RulePolicy):
        return False
    call = ToolCall(CAPTURE, {}, agent_id=executor.agent_id)
    request = PermissionRequest(call, tool, (), False, False, executor.execution.identity)
    decision = await policy.explain(request, _context(executor))
    return decision.action is Action.ALLOW


def _context(executor: Executor) -> ToolContext:
    return ToolContext(
        execution=executor.execution,
        registry=executor.registry.own,
        events=EventBus(),
        reads=executor.reads,
        redactor=executor.services.redactor,
        session_id=executor.session_id,
        agent_id=executor.agent_id,
        cwd=executor.cwd,
    )


# -- text for the model


def described(seen: TargetSnapshot, mark: str) -> str:
    """Return the situation as text for the model, or an empty string if there is nothing to report. Pure.

    Args:
        seen: the state of the target.
        mark: the mark around text from the target, including names and directories; it must be unknown there.
    """
    lines = [f"- {line}" for line in (*_of_panes(seen), *_of_jobs(seen.jobs))]
    if not lines:
        return ""
    head = "[situation: added by harness, valid for this request only; not written by the user]"
    return "\n".join((head, marked("\n".join(lines), mark), *_of_screens(seen.screens, mark)))


def _of_panes(seen: TargetSnapshot) -> list[str]:
    told = [pane for pane in seen.panes if pane.name == seen.own or is_busy(pane)]
    return [_of_pane(pane, "your pane " if pane.name == seen.own else "pane ") for pane in told]


def _of_pane(pane: PaneInfo, what: str) -> str:
    where = f", in {_line(pane.cwd)}" if pane.cwd else ""
    program = _line(pane.foreground)
    if pane.busy:
        return f"{what}{_line(pane.name)}: {_line(pane.busy)} runs ({program}){where}"
    if is_busy(pane):
        return f"{what}{_line(pane.name)}: {program} runs, possibly started by an operator{where}"
    return f"{what}{_line(pane.name)}: at the prompt{where}"


def _of_jobs(jobs: Sequence[tuple[str, str]]) -> list[str]:
    told = [f"job {job_id} runs in the background: {_line(command)}" for job_id, command in jobs[:JOBS]]
    return told if len(jobs) <= JOBS else [*told, f"and {len(jobs) - JOBS} more jobs"]


def _of_screens(screens: Sequence[tuple[str, str]], mark: str) -> list[str]:
    found: list[str] = []
    left = SCREEN
    for name, screen in screens:
        text = last_lines(screen, left)
        left -= len(text)
        if text:
            found.append(marked(f"screen of {_line(name)}:\n{text}", mark))
    return found


def last_lines(screen: str, limit: int) -> str:
    """Return the end of a screen: as many whole lines as fit into ``limit`` characters. Pure."""
    text = _shown(screen, keep="\n").strip("\n")
    lines = [line.rstrip() for line in text.split("\n")]
    text = "\n".join(lines).strip("\n")
    if len(text) <= limit:
        return text
    note = "[lines above are left out]\n"
    tail = text[len(text) - max(0, limit - len(note)) :]
    whole = tail.partition("\n")[2]
    return f"{note}{whole or tail}" if limit > len(note) else ""


def _line(text: str) -> str:
    line = " ".join(_shown(text).split())
    return line if len(line) <= LINE else f"{line[:LINE]}..."


def _shown(text: str, keep: str = "") -> str:
    """Return the text with control characters and unprintable characters replaced by spaces."""
    return "".join(one if one.isprintable() or one in keep else " " for one in well_formed(text))
