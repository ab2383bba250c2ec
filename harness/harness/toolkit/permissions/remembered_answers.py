"""Answers in advance for a time, and what was answered in a session that holds for its sub-agents."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

import anyio

from ...command import parse_duration
from .rules.rule import Rule, RuleIndex

__all__ = [
    "SessionGrants",
    "TimedApproval",
    "TimedState",
    "elapsed",
    "sessions_above",
]


# -- ``/approve ask|all|none|15m``: answers in advance, for a time.


TimedState = Literal["ask", "all", "none"]
LONGEST = 86400.0
"""Seconds that an approval in advance may last."""


def elapsed() -> float:
    """Seconds that only grow, also while the machine sleeps: a laptop that wakes up has not saved its 15 minutes."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the monotonic one in sleep; macOS has only that, and does not."""


class TimedApproval:
    """What would be asked is allowed for a time (``all``), or denied (``none``).

    It answers questions, and nothing else: what is denied stays denied, and what must be asked each time is asked.

    Args:
        clock: seconds that only grow, whoever sets the time of day.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._state: TimedState = "ask"
        self._until: float | None = None
        self._target = ""

    def set(self, text: str, target: str = "") -> None:
        """``ask``, ``all`` (until it is changed), ``none``, or a time such as ``15m``, for which all is approved.

        Args:
            target: the one, with its identity, on which all is approved; empty for any.

        Raises:
            ValueError: the text is none of these, or a time longer than a day.
        """
        if text in get_args(TimedState):
            self._state, self._until, self._target = cast(TimedState, text), None, target
            return
        seconds = parse_duration(text)
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"{text!r} is no time to approve for: write 15m, 1h, and a day at most")
        self._state, self._until, self._target = "all", self._clock() + seconds, target

    def approves(self, target: str) -> bool:
        """Whether what would be asked on that target runs unasked now."""
        return self.state == "all" and self._target in ("", target)

    @property
    def state(self) -> TimedState:
        """What holds now."""
        if self._until is not None and self._clock() >= self._until:
            self._state, self._until = "ask", None
        return self._state

    @property
    def remaining(self) -> float | None:
        """Seconds until the state is ``ask`` again; None when it has no end."""
        return None if self.state == "ask" or self._until is None else self._until - self._clock()


# -- What was answered in a session, and what of that holds for the agents that it has started.
#
# A sub-agent's session is named after the one that started it. Answers hold for the session in which they were
# given and for the agents below it, never for those above or beside it: nobody asked for more there.


_AGENT = re.compile(r"[0-9a-f]{12}")


def sessions_above(session_id: str) -> Iterator[str]:
    """The sessions that have started this one, the nearest first. Pure."""
    above, dot, last = session_id.rpartition(".")
    while above and dot and _AGENT.fullmatch(last):
        yield above
        above, dot, last = above.rpartition(".")


class _Session:
    """What was answered in one session, and the same with what holds for it from above."""

    def __init__(self) -> None:
        self.own = RuleIndex()
        self.turn = anyio.Lock()
        self._made: tuple[tuple[RuleIndex, ...], RuleIndex] = ((), RuleIndex())

    def with_above(self, above: Sequence[tuple[str, RuleIndex]]) -> RuleIndex:
        """Its own rules before those from above, whose origin says where they are from."""
        parts = (self.own, *(index for _, index in above))
        if self._made[0] != parts:
            inherited = (_from_above(rule, session) for session, index in above for rule in index.rules)
            self._made = parts, RuleIndex((*self.own.rules, *inherited))
        return self._made[1]


def _from_above(rule: Rule, session: str) -> Rule:
    return replace(rule, origin=f"{rule.origin} for the agents of session {session}".strip())


class SessionGrants:
    """The answers of sessions and of their sub-agents."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def rules(self, session_id: str) -> RuleIndex:
        """The rules that hold in a session."""
        known = self._sessions
        above = [(name, known[name].own) for name in sessions_above(session_id) if name in known]
        granted = [(name, index) for name, index in above if index.rules]
        if session_id not in known and not granted:
            return RuleIndex()
        return self._of(session_id).with_above(granted) if granted else self._of(session_id).own

    def own(self, session_id: str) -> tuple[Rule, ...]:
        """What was answered in the session itself, the latest first."""
        known = self._sessions.get(session_id)
        return known.own.rules if known else ()

    def add(self, session_id: str, rules: Sequence[Rule]) -> None:
        """Keep an answer: the latest goes first."""
        session = self._of(session_id)
        session.own = RuleIndex((*rules, *session.own.rules))

    def turn(self, session_id: str) -> anyio.Lock:
        """Who asks now: one person answers for a session and its sub-agents, one question after the other."""
        first = session_id
        for above in sessions_above(session_id):
            first = above
        return self._of(first).turn

    def end(self, session_id: str) -> None:
        """Forget what was answered in a session, and by its sub-agents."""
        for name in [name for name in self._sessions if session_id in (name, *sessions_above(name))]:
            del self._sessions[name]

    def _of(self, session_id: str) -> _Session:
        return self._sessions.setdefault(session_id, _Session())
