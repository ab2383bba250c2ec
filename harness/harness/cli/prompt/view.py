"""What happens in a conversation, as the operator sees it: events in, lines on a surface out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...agent.events import (
    AgentPaused,
    AgentResumed,
    AnswerCompleted,
    AnswerDelta,
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
    Failure,
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
from ...toolkit.values import ToolCall
from ..asked import wrapped
from .callview import PLAIN, TAIL, Marks, RunningCall, completed, cut_line
from .printable import one_line, printable
from .surface import Surface
from .themes import Line, Role, Span, folded, line

__all__ = ["View"]

log = logging.getLogger(__name__)
TAILS = 8
"""Lines of output of all running calls together."""
SHOWN_PLAIN = 30
"""Lines of one call that are shown as they come where nothing is drawn over."""
WORDS = (RequestStarted, AnswerDelta, ReasoningDelta, AnswerCompleted, ModelRetry)
"""What happens between an agent and its model."""


class View:
    """Shows events. Its reader calls :meth:`heard` with each, and :meth:`tick` while :attr:`moving`.

    Args:
        show_reasoning: what the model thinks is shown as it comes, instead of one line that can be opened.
        words: is called with the assistant's words alone, as they come.
        state: says in a few words how the target is.
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
        self._marks = Marks() if surface.is_live else PLAIN
        self._running: dict[str, RunningCall] = {}
        self._asking: dict[str, str] = {}
        self._reasoning = ""
        self._thought = ""
        self._asked_at: float | None = None
        self._answered = False
        self._notice = ""
        self._in_turn = False
        self._waited: set[int] = set()
        self._ended: set[str] = set()
        self.jobs: dict[str, str] = {}
        """Jobs that this prompt left running, with their commands."""
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
            SubagentStarted: lambda event: self.note(f"agent {event.agent_id} begins: {event.title or event.prompt}"),
            SubagentCompleted: self._subagent_completed,
            TodoChanged: self._todos,
            ConversationCompacted: lambda event: self.note(
                f"older messages were put together: {event.before} messages are {event.after} now"
            ),
            ModelChanged: lambda event: self.note(f"model {event.name} ({event.model}) answers from now on"),
            AgentPaused: self._paused,
            AgentResumed: lambda event: self.note(f"resumed by {event.by}"),
            Notice: lambda event: self.note(event.text, "warn"),
            Failure: self._failed,
        }

    # -- what it is told

    def heard(self, event: Event) -> None:
        """Show an event. Of sub-agents the calls are shown; their words are for the agent that they work for.

        What cannot be shown is said, and harms nothing but the view.
        """
        reaction = self._reactions.get(type(event))
        if reaction is None or (event.parent_call and isinstance(event, WORDS)):
            return
        try:
            reaction(event)
            self.tick()
        except Exception as error:
            log.debug("an event could not be shown", exc_info=True)
            self.note(f"{type(event).__name__} could not be shown: {type(error).__name__}: {error}", "error")

    def heard_of_jobs(self, event: Event) -> None:
        """Take note of what the operator's own commands leave running."""
        if isinstance(event, JobStarted | JobExited):
            self.heard(event)

    def changed(self, call: ToolCall) -> None:
        """A call that waits for an approval will run as the operator changed it."""
        if call.call_id in self._running:
            self._running[call.call_id].call = call
            self.tick()

    def tick(self) -> None:
        """Show again what changes with time."""
        self._surface.live(self._going_on())

    @property
    def moving(self) -> bool:
        """Something is shown that changes with time."""
        return bool(self._running) or self._asked_at is not None

    def note(self, text: str, role: Role = "dim") -> None:
        """Say something in a line of its own."""
        rows = [row for one in printable(text).split("\n") for row in wrapped(one, self._surface.width - 3)]
        signs = (f"{self._marks.note} ", *["  "] * len(rows))
        self._surface.show(*(line(Span(sign + row, role)) for sign, row in zip(signs, rows, strict=False)))

    def begins(self, text: str) -> None:
        """Say that what was entered a while ago is worked on now: other things have been shown since."""
        self.note(f"now: {one_line(text, 200)}", "accent")

    def open_reasoning(self) -> None:
        """Show what the model thought last."""
        thought = (self._reasoning or self._thought).strip()
        if not thought:
            self.note("there is nothing to open")
            return
        lines = printable(thought).split("\n")
        self._surface.show(*(line(Span(f"{self._marks.below} {one}", "quote")) for one in lines))

    # -- what goes on

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
        folded = f" · {len(self._reasoning)} characters of reasoning, Ctrl-O opens it" if self._reasoning else ""
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
            how = "; Ctrl-O opens it" if self._surface.is_live else ""
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
            self.note("the answer above was cut off and does not count", "warn")
        self._notice = f"{one_line(event.reason)}; asked again in {event.seconds:.0f} s (attempt {event.attempt})"
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
        words = {"cancelled": "the turn was cancelled", "failed": "the turn failed", "limit": "the turn was ended"}
        reason = f": {event.failure}" if event.failure else ""
        state = self._state() if event.status == "cancelled" else ""
        left = f". The target now: {state}" if state else ""
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
        self.jobs[event.job_id] = event.command
        self._ended.discard(event.job_id)
        self.note(f"job {event.job_id} runs on in the background: {one_line(event.command, 120)}")

    def _job_exited(self, event: JobExited) -> None:
        if event.job_id in self._ended:  # a conversation and the prompt itself may both have watched it
            return
        self._ended.add(event.job_id)
        command = self.jobs.pop(event.job_id, "")
        how = "nobody knows how" if event.exit_code is None else f"exit code {event.exit_code}"
        self.note(f"job {event.job_id} has ended: {how}  {one_line(command, 120)}".rstrip(), "accent")

    def _subagent_completed(self, event: SubagentCompleted) -> None:
        self.note(f"agent {event.agent_id} {'failed' if event.is_error else 'has ended'}")

    def _todos(self, event: TodoChanged) -> None:
        todos = event.todos if isinstance(event.todos, list) else []
        done = [one for one in todos if isinstance(one, dict) and one.get("status") in ("completed", "done")]
        self.note(f"things to do: {len(done)} of {len(todos)} done")

    def _paused(self, event: AgentPaused) -> None:
        self.note(f"paused by {event.by}{f': {event.reason}' if event.reason else ''}; /resume goes on", "warn")

    def _failed(self, event: Failure) -> None:
        if not event.call_id:  # else the end of the call says it
            self.note(event.message, "error")
