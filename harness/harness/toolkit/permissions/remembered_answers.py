"""Timed approvals, and decisions of a session that also apply to its sub-agents."""

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


# -- ``/approve ask|all|none|15m``: approvals in advance, for a time.


TimedState = Literal["ask", "all", "none"]
LONGEST = 86400.0
"""Maximum seconds of an approval in advance."""


def elapsed() -> float:
    """Return monotonic seconds that include system sleep, so that a timed approval also expires while suspended."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux the monotonic clock stops during sleep; macOS has only that one, and it does not stop."""


class TimedApproval:
    """State in which approval requests are allowed for a time (``all``) or denied (``none``).

    It only decides approval requests: denied calls stay denied, and what always asks still asks.

    Args:
        clock: monotonic seconds, independent of the time of day.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._state: TimedState = "ask"
        self._until: float | None = None
        self._target = ""

    def set(self, text: str, target: str = "") -> None:
        """Set the state.

        Args:
            text: ``ask``, ``all`` (until changed), ``none``, or a duration such as ``15m`` for which all is approved.
            target: the target, with its identity, on which all is approved; empty for every target.

        Raises:
            ValueError: the text is not one of these, or a duration longer than a day.
        """
        if text in get_args(TimedState):
            self._state, self._until, self._target = cast(TimedState, text), None, target
            return
        seconds = parse_duration(text)
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"{text!r} is not a valid approval time: use 15m or 1h, at most a day")
        self._state, self._until, self._target = "all", self._clock() + seconds, target

    def approves(self, target: str) -> bool:
        """Return whether approval requests for that target are allowed now."""
        return self.state == "all" and self._target in ("", target)

    @property
    def state(self) -> TimedState:
        """The current state."""
        if self._until is not None and self._clock() >= self._until:
            self._state, self._until = "ask", None
        return self._state

    @property
    def remaining(self) -> float | None:
        """Seconds until the state is ``ask`` again; None if it does not expire."""
        return None if self.state == "ask" or self._until is None else self._until - self._clock()


# -- Decisions of a session, and which of them apply to its sub-agents.
#
# The session of a sub-agent is named after that of its parent. Decisions apply to the session in which they were made
# and to its sub-agents, never to parent or sibling sessions.


_AGENT = re.compile(r"[0-9a-f]{12}")


def sessions_above(session_id: str) -> Iterator[str]:
    """Yield the parent sessions of this one, the nearest first. Pure."""
    above, dot, last = session_id.rpartition(".")
    while above and dot and _AGENT.fullmatch(last):
        yield above
        above, dot, last = above.rpartition(".")


class _Session:
    """The decisions of one session, also combined with those of its parent sessions."""

    def __init__(self) -> None:
        self.own = RuleIndex()
        self.turn = anyio.Lock()
        self._made: tuple[tuple[RuleIndex, ...], RuleIndex] = ((), RuleIndex())

    def with_above(self, above: Sequence[tuple[str, RuleIndex]]) -> RuleIndex:
        """Return its own rules before those of its parent sessions, which are named in their origin."""
        parts = (self.own, *(index for _, index in above))
        if self._made[0] != parts:
            inherited = (_from_above(rule, session) for session, index in above for rule in index.rules)
            self._made = parts, RuleIndex((*self.own.rules, *inherited))
        return self._made[1]


def _from_above(rule: Rule, session: str) -> Rule:
    return replace(rule, origin=f"{rule.origin} for the agents of session {session}".strip())


class SessionGrants:
    """The decisions of sessions and of their sub-agents."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def rules(self, session_id: str) -> RuleIndex:
        """Return the rules that apply to a session."""
        known = self._sessions
        above = [(name, known[name].own) for name in sessions_above(session_id) if name in known]
        granted = [(name, index) for name, index in above if index.rules]
        if session_id not in known and not granted:
            return RuleIndex()
        return self._of(session_id).with_above(granted) if granted else self._of(session_id).own

    def own(self, session_id: str) -> tuple[Rule, ...]:
        """Return the decisions of the session itself, the latest first."""
        known = self._sessions.get(session_id)
        return known.own.rules if known else ()

    def add(self, session_id: str, rules: Sequence[Rule]) -> None:
        """Add the rules of a decision; the latest go first."""
        session = self._of(session_id)
        session.own = RuleIndex((*rules, *session.own.rules))

    def turn(self, session_id: str) -> anyio.Lock:
        """Return the lock for asking: a session and its sub-agents ask the operator one request at a time."""
        first = session_id
        for above in sessions_above(session_id):
            first = above
        return self._of(first).turn

    def end(self, session_id: str) -> None:
        """Forget the decisions of a session and of its sub-agents."""
        for name in [name for name in self._sessions if session_id in (name, *sessions_above(name))]:
            del self._sessions[name]

    def _of(self, session_id: str) -> _Session:
        return self._sessions.setdefault(session_id, _Session())
