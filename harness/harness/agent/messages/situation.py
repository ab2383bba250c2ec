"""What holds for one request alone: what the target's terminal shows, and what runs there.

It is the last thing in a request and is never kept: it would be wrong a moment later, and everything before it stays as
it was, which is what providers can keep.
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
from ...toolkit.contract import ToolContext
from ...toolkit.events import Event, EventBus, JobExited, JobStarted
from ...toolkit.executor import Executor
from ...toolkit.interfaces import PermissionRequest
from ...toolkit.permissions.policy import RulePolicy
from ...toolkit.permissions.rules.rule import Action
from ...toolkit.providers.base import well_formed
from ...toolkit.values import ToolCall
from .marked_text import marked

__all__ = ["RunningJobs", "TargetSnapshot", "described", "situation", "with_situation"]

SCREEN = 2_500
"""Characters of screens in one request."""
SCREENS = 2
LIMIT = 1.0
LINE = 200
"""Characters of a name, a directory or a command."""
JOBS = 20
SHELLS = frozenset({"", "sh", "bash", "zsh", "dash", "ash", "fish", "ksh", "mksh", "busybox", "tcsh", "csh"})
CAPTURE = "capture_pane"
"""The tool that shows a screen: who may not call it unasked does not see one here either."""


class RunningJobs:
    """The commands that calls of one session have left running, and whose end was not heard of."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}

    def heard(self, event: Event) -> None:
        """Take note of a job that begins or ends."""
        if isinstance(event, JobStarted):
            self._running[event.job_id] = event.command
        elif isinstance(event, JobExited):
            self._running.pop(event.job_id, None)

    def now(self) -> tuple[tuple[str, str], ...]:
        """Their ids and commands, the oldest first."""
        return tuple(self._running.items())


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """What was seen of a target. ``screens`` are names of panes with what they show; ``own`` is the usual pane."""

    panes: tuple[PaneInfo, ...] = ()
    own: str = ""
    screens: tuple[tuple[str, str], ...] = ()
    jobs: tuple[tuple[str, str], ...] = ()


async def situation(executor: Executor, jobs: RunningJobs | None = None, *, limit: float = LIMIT) -> str:
    """How things stand on the target, as text for the next request; empty when there is nothing to say.

    The screen of a pane is shown where something runs in it, and where the policy lets the model look without being
    asked. It never raises for the target, and asks nobody for a password.

    Args:
        jobs: what calls have left running.
        limit: seconds that it may take; what is not known by then is left out.
    """
    running = jobs.now() if jobs is not None else ()
    seen = TargetSnapshot(jobs=running)
    if executor.execution.has_terminal:
        with anyio.move_on_after(limit), suppress(HarnessError), use_prompter(None):
            seen = await _seen(executor, running)  # who calls next is told when the link is lost
    return executor.services.redactor.text(described(seen, os.urandom(4).hex()))


def with_situation(messages: Sequence[ModelMessage], text: str, model: Model | None = None) -> list[ModelMessage]:
    """The messages with ``text`` as the last part of the last request; a copy, which is never stored.

    Some models of Anthropic give their reasoning back only when everything before it is as it was, so that each
    situation costs them the reasoning so far: ``model``, if it is one of these, is told only of what runs.
    """
    if not text or not messages or not isinstance(last := messages[-1], ModelRequest):
        return list(messages)
    if model is not None and model.profile.get("anthropic_binds_thinking_blocks", False) and is_idle(text):
        return list(messages)
    part = UserPromptPart([CachePoint(), text])  # what is before it will be the same next time
    return [*messages[:-1], replace(last, parts=[*last.parts, part])]


def is_idle(text: str) -> bool:
    """Whether a situation says no more than where a terminal is at its prompt. Pure."""
    lines = text.splitlines()[2:-1]  # between the marks
    return len(lines) == 1 and ": at the prompt" in lines[0]


# -- looking


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
    """Whether something else than a shell's prompt is in a pane. Pure."""
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


# -- telling


def described(seen: TargetSnapshot, mark: str) -> str:
    """What was seen, in words for the model; empty for nothing. Pure.

    Args:
        mark: what begins and ends what the target says, names and directories too; nothing there knows it.
    """
    lines = [f"- {line}" for line in (*_of_panes(seen), *_of_jobs(seen.jobs))]
    if not lines:
        return ""
    head = "[situation: told by harness, true at this moment only; the user did not write this]"
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
        return f"{what}{_line(pane.name)}: {program} runs, which a person may have started{where}"
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
    """The end of a screen, whole lines as far as they fit into ``limit`` characters. Pure."""
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
    """The text without what moves a cursor or is no character."""
    return "".join(one if one.isprintable() or one in keep else " " for one in well_formed(text))
