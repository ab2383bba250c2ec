"""The events of a conversation and its calls, as lines for the operator."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...agent.events import (
    AgentPaused,
    AgentResumed,
    AnswerCompleted,
    AnswerDelta,
    BudgetNearlyUsed,
    ConversationCompacted,
    ModelChanged,
    ModelRetry,
    Notice,
    PromptQueued,
    ReasoningDelta,
    RequestStarted,
    TurnCompleted,
    TurnStarted,
)
from ...toolkit.events import (
    Event,
    InternalFailure,
    JobExited,
    JobStarted,
    PermissionAsked,
    PermissionReplied,
    SubagentCompleted,
    SubagentStarted,
    TodoChanged,
    ToolCallCompleted,
    ToolCallProgress,
    ToolCallRequested,
)
from ...toolkit.values import CallOutcome, CallStatus, Json, JsonObject, ToolCall, subject_of
from ..asking import wrapped
from ..named_commands import complete_commands
from .surface import Line, Role, Span, Surface, folded, line, one_line, output_lines, printable

__all__ = [
    "PLAIN",
    "TAIL",
    "EventView",
    "Output",
    "RunningCall",
    "StatusGlyphs",
    "completed",
    "cut_line",
]


# -- Tool calls: what runs where, the end of its output, and its outcome. Pure.


SHOWN_SUBJECT = 200
KEPT = 400
"""Lines of output that are kept for a running call."""
LONGEST_LINE = 2000
SHOWN_LINE = 400
"""Maximum number of characters of an output line below a call."""
TAIL = 4
"""Lines of output below a completed call."""
TAIL_OF_FAILURE = 8


@dataclass(frozen=True, slots=True)
class StatusGlyphs:
    """The signs at the start of lines."""

    runs: str = "▸"
    done: str = "●"
    failed: str = "✗"
    note: str = "·"
    asks: str = "▲"
    below: str = "│"


PLAIN: Final = StatusGlyphs("*", "*", "x", "-", "?", "|")


class Output:
    """The last lines of a command's output."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._open = ""
        self.count = 0
        """Number of lines so far."""
        self.missed = 0

    def add(self, text: str, missed: int = 0) -> list[str]:
        """Add output and return the lines that are complete now."""
        self.missed += missed
        whole, newline, rest = (self._open + text).rpartition("\n")
        self._open = rest[-LONGEST_LINE:]
        lines = [one[:LONGEST_LINE] for one in output_lines(whole)] if newline else []
        self._lines.extend(lines)
        self.count += len(lines)
        return lines

    @property
    def rest(self) -> str:
        """The incomplete last line."""
        return output_lines(self._open)[-1]

    def last(self, number: int) -> list[str]:
        """Return the last lines, including an incomplete one."""
        lines = [*self._lines, *([self.rest] if self.rest.strip() else [])]
        return lines[-number:] if number > 0 else []


@dataclass
class RunningCall:
    """A call that was requested and is not completed."""

    call: ToolCall
    started: float
    output: Output = field(default_factory=Output)
    asks: bool = False
    """Whether it waits for the operator's answer."""

    def lines(self, now: float, marks: StatusGlyphs, tail: int) -> list[Line]:
        """Return the lines shown while the call runs."""
        state = "waits for your answer" if self.asks else f"{now - self.started:.0f} s"
        head = line(
            Span(f"{marks.runs} ", "accent"),
            *_title(self.call),
            Span(f" · {state}", "dim"),
        )
        return [head, *(line(Span(f"  {marks.below} {one}", "dim")) for one in self.output.last(tail))]


def _title(call: ToolCall) -> tuple[Span, ...]:
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    who = "" if call.agent_id in ("", "agent") else f"[{one_line(call.agent_id, 24)}] "
    pane = arguments.get("pane")
    where = f" (pane {one_line(str(pane), 30)})" if pane else ""
    subject = one_line(subject_of(call), SHOWN_SUBJECT)
    return Span(f"{who}{one_line(call.name, 60)} ", "tool"), Span(f"{subject}{where}")


def completed(outcome: CallOutcome, output: Output | None, marks: StatusGlyphs, *, tail: int = TAIL) -> list[Line]:
    """Return the lines for a completed call: its description, its outcome, and the end of its output."""
    word, role = _ending(outcome)
    failed = role == "error"
    head = line(
        Span(f"{marks.failed if failed else marks.done} ", role),
        *_title(outcome.call),
        Span(" · "),
        Span(word, role),
        Span(_times(outcome), "dim"),
    )
    return [head, *_below(outcome, output, marks, TAIL_OF_FAILURE if failed and tail else tail)]


def _times(outcome: CallOutcome) -> str:
    ran = f" · {outcome.running:.1f} s" if outcome.running >= 0.05 else ""
    return f"{ran} · waited {outcome.waited:.0f} s for approval" if outcome.waited >= 1 else ran


def _below(outcome: CallOutcome, output: Output | None, marks: StatusGlyphs, number: int) -> list[Line]:
    if output is not None and (output.count or output.rest):
        every = _written(outcome, output, number)
        shown = every[-number:] if number > 0 else []
        left = output.count + bool(output.rest.strip()) - len(shown)
    elif outcome.status is CallStatus.OK:
        return []
    else:
        every = [one for one in output_lines(outcome.result.text) if one.strip()]
        shown, left = every[:number], 0
    more = [line(Span(f"  {marks.below} … {left} earlier lines", "dim"))] if left > 0 and number else []
    return [*more, *(line(Span(f"  {marks.below} {cut_line(one)}", "dim")) for one in shown)]


def cut_line(text: str) -> str:
    """Return a line of output, truncated for display. Pure."""
    return text if len(text) <= SHOWN_LINE else f"{text[:SHOWN_LINE]}…"


def _written(outcome: CallOutcome, output: Output, number: int) -> list[str]:
    """Return the last lines of output, from the result if it has them, as progress may be incomplete."""
    data = outcome.result.data
    facts: JsonObject = data if isinstance(data, Mapping) else {}
    stdout = facts.get("stdout")
    if not isinstance(stdout, str) or not stdout.strip() or facts.get("stderr"):
        return output.last(number)
    return output_lines(stdout.rstrip("\n")[-LONGEST_LINE * max(1, number) :])


def _ending(outcome: CallOutcome) -> tuple[str, Role]:
    data = outcome.result.data
    facts: JsonObject = data if isinstance(data, Mapping) else {}
    match outcome.status:
        case CallStatus.DENIED:
            return "denied", "warn"
        case CallStatus.CANCELLED:
            return "cancelled", "warn"
        case CallStatus.TIMEOUT:
            return "timed out", "error"
        case CallStatus.UNKNOWN:
            return "outcome unknown", "error"
        case _:
            return _result(outcome, facts)


def _result(outcome: CallOutcome, facts: JsonObject) -> tuple[str, Role]:
    code = facts.get("exit_code")
    if facts.get("status") == "running":
        return f"still running as job {_text(facts.get('job_id'))}", "warn"
    if isinstance(code, int):
        return f"exit code {code}", "ok" if code == 0 else "error"
    if outcome.result.is_error or outcome.status is CallStatus.ERROR:
        return one_line(outcome.result.error_code, 40) or "failed", "error"
    return "cached" if outcome.cached else "done", "ok"


def _named(exited: Sequence[JobExited]) -> str:
    """Return the names of jobs that have ended alike."""
    if not exited[0].host:
        return exited[0].job_id
    from ...toolkit.hosts.merging import jobs_on_hosts

    return jobs_on_hosts((event.job_id, event.host) for event in exited)


def _text(value: Json) -> str:
    return one_line(str(value), 40)


# -- The view of a conversation: events in, lines on a surface out.


log = logging.getLogger(__name__)
TAILS = 8
"""Maximum total number of output lines of running calls."""
SHOWN_PLAIN = 30
"""Maximum number of output lines of a call that are shown as they arrive in line mode."""
WORDS = (RequestStarted, AnswerDelta, ReasoningDelta, AnswerCompleted, ModelRetry)
"""Events between an agent and its model."""


class EventView:
    """View of events on a surface; call :meth:`heard` with each event, and :meth:`tick` while :attr:`moving`.

    Args:
        surface: Where to show events.
        show_reasoning: Whether to show the model's reasoning as it arrives, instead of one line that can be expanded.
        words: Called with the model's text as it arrives.
        state: Returns a short description of the target's state.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        surface: Surface,
        *,
        show_reasoning: bool = False,
        words: Callable[[str], None] | None = None,
        state: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._surface = surface
        self.show_reasoning = show_reasoning
        self._words = words
        self._state = state
        self._clock = clock
        self._marks = StatusGlyphs() if surface.is_live else PLAIN
        self._running: dict[str, RunningCall] = {}
        self._asking: dict[str, str] = {}
        self._reasoning = ""
        self._thought = ""
        self._asked_at: float | None = None
        self._answered = False
        self._notice = ""
        self._in_turn = False
        self._waited: set[int] = set()
        self._ended: set[tuple[str, str]] = set()
        self.jobs: dict[tuple[str, str], str] = {}
        """The running jobs of this prompt: their hosts (empty on one target), IDs and commands."""
        self._reactions: dict[type[Event], Callable[..., None]] = {
            TurnStarted: self._turn_started,
            RequestStarted: self._request_started,
            AnswerDelta: self._answer_delta,
            ReasoningDelta: self._reasoning_delta,
            AnswerCompleted: self._answer_completed,
            ModelRetry: self._retry,
            TurnCompleted: self._turn_completed,
            ToolCallRequested: self._call_requested,
            ToolCallProgress: self._call_progress,
            ToolCallCompleted: self._call_completed,
            PermissionAsked: self._permission_asked,
            PermissionReplied: self._permission_replied,
            PromptQueued: self._prompt_queued,
            JobStarted: self._job_started,
            JobExited: self._job_exited,
            SubagentStarted: lambda event: self.note(f"agent {event.agent_id} starts: {event.title or event.prompt}"),
            SubagentCompleted: self._subagent_completed,
            TodoChanged: self._todos,
            ConversationCompacted: lambda event: self.note(f"compacted {event.before} messages into {event.after}"),
            ModelChanged: lambda event: self.note(f"switched to model {event.name} ({event.model})"),
            AgentPaused: self._paused,
            AgentResumed: lambda event: self.note(f"resumed by {event.by}"),
            BudgetNearlyUsed: lambda event: self.note(event.text, "warn"),
            Notice: lambda event: self.note(event.text, "warn"),
            InternalFailure: self._failed,
        }

    # -- events

    def heard(self, event: Event) -> None:
        """Show an event; of sub-agents only the calls, as their text is for the parent agent.

        An event that cannot be shown is reported and does no other harm.
        """
        reaction = self._reactions.get(type(event))
        if reaction is None or (event.parent_call and isinstance(event, WORDS)):
            return
        try:
            reaction(event)
            self.tick()
        except Exception as error:
            log.debug("cannot show an event", exc_info=True)
            self.note(f"cannot show {type(event).__name__}: {type(error).__name__}: {error}", "error")

    def heard_of_jobs(self, event: Event) -> None:
        """Show job events of the operator's own commands."""
        if isinstance(event, JobStarted | JobExited):
            self.heard(event)

    def changed(self, call: ToolCall) -> None:
        """Replace a call that waits for approval by the one that the operator changed."""
        if call.call_id in self._running:
            self._running[call.call_id].call = call
            self.tick()

    def tick(self) -> None:
        """Update the lines that change with time."""
        self._surface.live(self._going_on())

    @property
    def moving(self) -> bool:
        """Whether lines are shown that change with time."""
        return bool(self._running) or self._asked_at is not None

    def note(self, text: str, role: Role = "dim") -> None:
        """Show a notice in lines of its own."""
        rows = [
            row
            for one in printable(complete_commands(text)).split("\n")
            for row in wrapped(one, self._surface.width - 3)
        ]
        signs = (f"{self._marks.note} ", *["  "] * len(rows))
        self._surface.show(*(line(Span(sign + row, role)) for sign, row in zip(signs, rows, strict=False)))

    def begins(self, text: str) -> None:
        """Show that work on an earlier input starts now."""
        self.note(f"now: {one_line(text, 200)}", "accent")

    def open_reasoning(self) -> None:
        """Show the model's last reasoning."""
        thought = (self._reasoning or self._thought).strip()
        if not thought:
            self.note("no reasoning was received")
            return
        lines = printable(thought).split("\n")
        self._surface.show(*(line(Span(f"{self._marks.below} {one}", "quote")) for one in lines))

    # -- running work

    def _going_on(self) -> list[Line]:
        now = self._clock()
        lines: list[Line] = []
        if self._asked_at is not None:
            lines.append(self._thinking(now))
        tail = max(1, TAILS // max(1, len(self._running)) - 1)
        for running in list(self._running.values())[-TAILS:]:
            lines += running.lines(now, self._marks, tail)
        return lines

    def _thinking(self, now: float) -> Line:
        seconds = now - (self._asked_at or now)
        if self._notice:
            return line(Span(f"{self._marks.note} {self._notice}", "warn"))
        state = "answering" if self._answered else "thinking"
        folded = f" · {len(self._reasoning)} characters of reasoning, Ctrl-O shows it" if self._reasoning else ""
        return line(Span(f"{self._marks.note} {state} · {seconds:.0f} s{folded}", "dim"))

    # -- the model

    def _prompt_queued(self, event: PromptQueued) -> None:
        if self._in_turn:
            self._waited.add(event.place)

    def _turn_started(self, event: TurnStarted) -> None:
        self._in_turn = True
        if event.origin in ("jobs", "resume"):
            self.note(event.prompt, "accent")
        elif event.place in self._waited:
            self.begins(event.prompt)
        self._waited.discard(event.place)
        self._asked_at = self._clock()

    def _request_started(self, event: RequestStarted) -> None:
        self._asked_at, self._answered, self._notice = self._clock(), False, ""

    def _answer_delta(self, event: AnswerDelta) -> None:
        if not event.text:
            return
        self._fold_reasoning()
        self._answered, self._notice = True, ""
        self._surface.answer(event.text)
        if self._words is not None:
            self._words(event.text)

    def _reasoning_delta(self, event: ReasoningDelta) -> None:
        self._notice = ""
        self._reasoning += event.text
        if not self.show_reasoning:
            return
        *whole, rest = self._reasoning.split("\n")
        self._surface.show(*(line(Span(f"{self._marks.below} {one}", "quote")) for one in whole))
        self._thought += "".join(f"{one}\n" for one in whole)
        self._reasoning = rest

    def _fold_reasoning(self) -> None:
        if not self._reasoning:
            return
        if self.show_reasoning:
            self._surface.show(line(Span(f"{self._marks.below} {self._reasoning}", "quote")))
        else:
            self._thought = self._reasoning
            seconds = self._clock() - (self._asked_at or self._clock())
            how = "; Ctrl-O shows it" if self._surface.is_live else ""
            self._surface.show(line(Span(f"{self._marks.note} thought for {seconds:.0f} s{how}", "dim")))
        self._reasoning = ""

    def _answer_completed(self, event: AnswerCompleted) -> None:
        self._fold_reasoning()
        if event.text and not self._answered:
            self._answer_delta(AnswerDelta(turn_id=event.turn_id, text=event.text))
        if self._answered and self._words is not None:
            self._words("\n")
        self._surface.answer_ended()
        self._asked_at, self._answered = None, False

    def _retry(self, event: ModelRetry) -> None:
        began = self._answered
        self._surface.answer_ended()
        self._reasoning, self._answered = "", False
        if began:
            self.note("the response above was interrupted and discarded", "warn")
        self._notice = f"{one_line(event.reason)}; retrying in {event.seconds:.0f} s (attempt {event.attempt})"
        self.note(self._notice, "warn")

    def _turn_completed(self, event: TurnCompleted) -> None:
        self._in_turn = False
        self._fold_reasoning()
        self._surface.answer_ended()
        self._asked_at, self._answered, self._notice = None, False, ""
        if event.status != "completed":
            self._say_how_it_ended(event)
        if self._surface.is_live:
            self._surface.show(line())

    def _say_how_it_ended(self, event: TurnCompleted) -> None:
        words = {"cancelled": "the turn was cancelled", "failed": "the turn failed", "limit": "the turn was stopped"}
        reason = f": {event.failure}" if event.failure else ""
        state = self._state() if event.status == "cancelled" else ""
        left = f". Current state of the target: {state}" if state else ""
        self.note(f"{words[event.status]}{reason}{left}", "warn" if event.status == "cancelled" else "error")

    # -- calls

    def _call_requested(self, event: ToolCallRequested) -> None:
        self._surface.answer_ended()
        self._running[event.call.call_id] = running = RunningCall(event.call, self._clock())
        if not self._surface.is_live:
            self._surface.show(running.lines(running.started, self._marks, 0)[0])

    def _call_progress(self, event: ToolCallProgress) -> None:
        running = self._running.get(event.call_id)
        if running is None:
            return
        before = running.output.count
        new = running.output.add(event.text, event.missed)
        if not self._surface.is_live:
            shown = new[: max(0, SHOWN_PLAIN - before)]
            self._surface.show(*(line(Span(f"  {self._marks.below} {cut_line(one)}")) for one in shown))

    def _call_completed(self, event: ToolCallCompleted) -> None:
        running = self._running.pop(event.outcome.call.call_id, None)
        if running is None:
            self._show_completed(completed(event.outcome, None, self._marks))
            return
        outcome, output = replace(event.outcome, call=running.call), running.output
        seen = not self._surface.is_live and 0 < output.count <= SHOWN_PLAIN and not output.rest
        self._show_completed(completed(outcome, output, self._marks, tail=0 if seen else TAIL))

    def _show_completed(self, lines: Sequence[Line]) -> None:
        head, *output = lines
        self._surface.show(*folded(head, self._surface.width - 1), *output)

    def _permission_asked(self, event: PermissionAsked) -> None:
        self._asking[event.request_id] = event.call.call_id
        if event.call.call_id in self._running:
            self._running[event.call.call_id].asks = True

    def _permission_replied(self, event: PermissionReplied) -> None:
        running = self._running.get(self._asking.pop(event.request_id, ""))
        if running is not None:
            running.asks = False
            running.started = self._clock()
        if event.by in ("timeout", "approver"):
            self.note(f"denied: {event.reason}", "warn")

    # -- everything else

    def _job_started(self, event: JobStarted) -> None:
        self.jobs[event.host, event.job_id] = event.command
        self._ended.discard((event.host, event.job_id))
        if not event.host:  # the call's result names the jobs of many hosts
            self.note(f"job {event.job_id} is running in the background: {one_line(event.command, 120)}")

    def _job_exited(self, event: JobExited) -> None:
        self.jobs_exited([event])

    def jobs_exited(self, exited: Sequence[JobExited]) -> None:
        """Show that jobs have ended, equal ends of one command on many hosts as one line."""
        ends: dict[tuple[int | None, str, str], list[JobExited]] = {}
        for event in exited:
            job = (event.host, event.job_id)
            if job in self._ended:  # the conversation and the prompt may both watch it
                continue
            self._ended.add(job)
            command, apart = self.jobs.pop(job, ""), "" if event.host else event.job_id
            ends.setdefault((event.exit_code, command, apart), []).append(event)
        for (exit_code, command, _), events in ends.items():
            how = "outcome unknown" if exit_code is None else f"exit code {exit_code}"
            self.note(f"job {_named(events)} has ended: {how}  {one_line(command, 120)}".rstrip(), "accent")

    def _subagent_completed(self, event: SubagentCompleted) -> None:
        self.note(f"agent {event.agent_id} {'failed' if event.is_error else 'has ended'}")

    def _todos(self, event: TodoChanged) -> None:
        todos = event.todos if isinstance(event.todos, list) else []
        done = [one for one in todos if isinstance(one, dict) and one.get("status") in ("completed", "done")]
        self.note(f"todos: {len(done)} of {len(todos)} done")

    def _paused(self, event: AgentPaused) -> None:
        self.note(f"paused by {event.by}{f': {event.reason}' if event.reason else ''}; /resume resumes", "warn")

    def _failed(self, event: InternalFailure) -> None:
        if not event.call_id:  # else the completed call shows it
            self.note(event.message, "error")
