"""Following a URL to its page, one request at a time, whoever makes the requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from harness.toolkit import Subject

from .headers import Sent
from .pages import Answer, Page, WebFailure
from .urls import WebUrl

__all__ = ["REDIRECTS", "Allow", "Getter", "follow"]

REDIRECTS = 10
"""How often a URL may lead to another one."""
MOVED = frozenset({301, 302, 303, 307, 308})

Allow = Callable[[tuple[Subject, ...]], Awaitable[None]]
"""Asks whether these may be touched; raises :class:`WebFailure` when not."""


class Getter(ABC):
    """Makes requests, from one machine or another."""

    def subjects(self, url: WebUrl, sent: Sent, most: int) -> tuple[Subject, ...]:
        """What one request touches, for the policy."""
        return (Subject("url", str(url)),)

    @abstractmethod
    async def get(self, url: WebUrl, sent: Sent, most: int, timeout: float) -> Answer:
        """One GET, which follows nothing.

        Args:
            most: bytes of the body, decompressed.
            timeout: seconds for all of it. When the body is not complete by then, what came is the answer.

        Raises:
            WebFailure: there is no answer.
        """


@dataclass(slots=True)
class _Time:
    """Seconds that are left of those for the network; what a person takes to answer is not counted."""

    left: float

    async def spend(self, work: Callable[[float], Awaitable[Answer]]) -> Answer:
        started = anyio.current_time()
        try:
            return await work(max(self.left, 0.1))
        finally:
            self.left -= anyio.current_time() - started


async def follow(url: WebUrl, sent: Sent, getter: Getter, allow: Allow, *, most: int, timeout: float) -> Page:
    """The page that a URL leads to. Every URL but the first, which is allowed already, is asked about.

    Raises:
        WebFailure: there is none, one of the URLs is refused, or the way to it is too long.
    """
    hops: list[WebUrl] = []
    time = _Time(timeout)
    while True:
        at, headers = url, sent
        answer = await time.spend(lambda left: getter.get(at, headers, most, left))  # noqa: B023  # awaited at once
        location = answer.headers.get("location", "")
        if answer.status not in MOVED or not location:
            return Page(url, answer, tuple(hops))
        if len(hops) == REDIRECTS:
            raise WebFailure("too_many_redirects", f"{hops[0]} redirects more than {REDIRECTS} times, now to {url}")
        following = _next(url, location)
        hops.append(url)
        url, sent = following, sent.toward(following)
        await allow(getter.subjects(url, sent, most))


def _next(url: WebUrl, location: str) -> WebUrl:
    """Where a response leads. Pure."""
    try:
        following = url.join(location)
    except ValueError as error:
        raise WebFailure("bad_redirect", f"{url} redirects to what is not fetched: {error}") from None
    if url.scheme == "https" and following.scheme == "http":
        text = (
            f"{url} redirects to {following}, which anybody on the way could read or change; fetch that URL if you want"
        )
        raise WebFailure("downgrade", text)
    return following
