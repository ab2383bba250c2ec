"""What is learnt about a server's limit on sessions, against a model of a server."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_backends.ssh import channel_limit
from harness_backends.ssh.channel_limit import ChannelLease, ChannelLimiter

MOST = 9


@dataclass(eq=False)
class Session:
    """One session as the server sees it: open until it is ended, and forgotten a moment later."""

    ticket: ChannelLease
    is_over: bool = False
    is_known: bool = False
    """True when we have heard that it is open."""


@dataclass
class Server:
    """Allows ``limit`` sessions at once; ``others`` are those of other harnesses on the same connection."""

    limit: int
    others: int = 0
    sessions: list[Session] = field(default_factory=list)

    def has_room(self) -> bool:
        return len(self.sessions) + self.others < self.limit


@dataclass
class Play:
    """A server, a budget, and what is on its way between them."""

    server: Server
    budget: ChannelLimiter
    asked: list[ChannelLease] = field(default_factory=list)
    ended: list[Session] = field(default_factory=list)
    refusals: int = 0

    async def moves(self, moves: list[tuple[str, int]]) -> None:
        for move, number in moves:
            if move == "ask" and len(self.budget._out) < self.budget.limit:
                self.asked.append(await self.budget.take(1))
            elif move == "serve" and self.asked:
                self.serve(self.asked.pop(number % len(self.asked)), again=bool(number % 2))
            elif move in ("hear", "end", "close"):
                getattr(self, move)(number)

    def serve(self, ticket: ChannelLease, *, again: bool = False) -> None:
        """The server answers."""
        if self.server.has_room():
            self.server.sessions.append(Session(ticket))
        elif again and not ticket.is_refused:
            self.budget.note_transient_refusal(ticket)
            self.asked.append(ticket)
        else:
            self.refusals += 1
            self.budget.refused(ticket)

    def hear(self, number: int) -> None:
        """The answer for an open session arrives."""
        unheard = [session for session in self.server.sessions if not session.is_known]
        if unheard:
            session = unheard[number % len(unheard)]
            session.is_known = True
            self.budget.opened(session.ticket, lambda: session.is_over)

    def end(self, number: int) -> None:
        """A session ends, and the server forgets it."""
        known = [session for session in self.server.sessions if session.is_known]
        if known:
            session = known[number % len(known)]
            session.is_over = True
            self.server.sessions.remove(session)
            self.ended.append(session)

    def close(self, number: int) -> None:
        """Its owner here notices."""
        if self.ended:
            self.budget.give_back(self.ended.pop(number % len(self.ended)).ticket)

    def settle(self) -> None:
        """Everything that is on its way arrives."""
        while self.asked:
            self.serve(self.asked.pop())


MOVES = st.tuples(st.sampled_from(["ask", "ask", "serve", "serve", "hear", "end", "close"]), st.integers(0, 20))


@given(limit=st.integers(1, 12), moves=st.lists(MOVES, max_size=120))
async def test_what_is_learnt_is_never_more_than_the_server_allows(limit: int, moves: list[tuple[str, int]]) -> None:
    budget = ChannelLimiter(MOST)
    play = Play(Server(limit), budget)
    await play.moves(moves)
    play.settle()
    assert 1 <= budget.limit <= MOST
    if play.refusals and budget.limit < MOST:
        assert budget.limit <= max(limit, sum(ticket.may_be_open for ticket in budget._out))
    if limit >= MOST:
        assert (play.refusals, budget.limit) == (0, MOST)


@pytest.mark.parametrize("limit", range(1, MOST))
async def test_all_at_once_learns_the_exact_limit(limit: int) -> None:
    play = Play(Server(limit), ChannelLimiter(MOST))
    await play.moves([("ask", 0)] * MOST + [("serve", 0)] * limit + [("hear", 0)] * limit)
    play.settle()
    assert (play.refusals, play.budget.limit) == (MOST - limit, limit)


async def test_a_session_whose_end_was_not_yet_noticed_does_not_count() -> None:
    """The third is opened when the first has ended on the server, and nobody has looked at the first since."""
    play = Play(Server(2), ChannelLimiter(MOST))
    one = [("ask", 0), ("serve", 0), ("hear", 0)]
    await play.moves([*one, *one, ("end", 0), *one, ("ask", 0), ("serve", 0)])
    assert (play.refusals, play.budget.limit) == (1, 2)


async def test_a_refusal_while_one_comes_in_does_not_lower_the_limit_for_good() -> None:
    budget = ChannelLimiter(MOST)
    first, second, third = [await budget.take(1) for _ in range(3)]
    budget.opened(first, lambda: False)
    budget.refused(third)  # the server has opened the second, and we have not heard of it
    assert budget.limit == 2
    budget.opened(second, lambda: False)
    assert budget.limit == 2


async def test_a_limit_shrinks_when_others_use_the_connection_too() -> None:
    play = Play(Server(9), ChannelLimiter(MOST))
    await play.moves([("ask", 0), ("serve", 0), ("hear", 0)] * 6 + [("end", 0), ("close", 0)] * 4)
    play.server.others = 7
    await play.moves([("ask", 0), ("serve", 0)])
    assert (play.refusals, play.budget.limit) == (1, 2)


async def test_a_limit_grows_again_while_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_limit, "GROW_AFTER", 0.05)
    budget = ChannelLimiter(3)
    first, second = await budget.take(1), await budget.take(1)
    budget.opened(first, lambda: False)
    assert budget.refused(second)
    assert budget.limit == 1
    third = await budget.take(5)  # nobody gave one back
    assert budget.limit == 2
    assert budget.refused(third)
    assert budget.limit == 1


async def test_tickets_are_limited_and_come_back() -> None:
    budget = ChannelLimiter(2)
    first, _ = await budget.take(1), await budget.take(1)
    with pytest.raises(TimeoutError):
        await budget.take(0.01)
    budget.give_back(first)
    budget.give_back(first)
    await budget.take(1)
    with pytest.raises(TimeoutError):
        await budget.take(0.01)


async def test_a_refusal_is_waited_out_when_one_of_ours_ended_meanwhile() -> None:
    budget = ChannelLimiter(MOST)
    first, second = await budget.take(1), await budget.take(1)
    budget.opened(first, lambda: True)
    budget.give_back(first)
    assert budget.refused(second)


async def test_a_refusal_of_the_only_one_cannot_be_waited_out() -> None:
    budget = ChannelLimiter(MOST)
    assert not budget.refused(await budget.take(1))
    assert budget.limit == MOST
