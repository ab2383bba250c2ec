"""Whether a request that failed may have cost something: whoever has sent it, and waits, may pay for it."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["causes", "may_cost"]

NEVER_SENT = frozenset(
    {"ConnectError", "ConnectTimeout", "ConnectTimeoutError", "PoolTimeout", "EndpointConnectionError"}
)
"""Errors of the libraries underneath: there was no connection."""
SENT = frozenset(
    {
        *("ReadTimeout", "ReadTimeoutError", "ReadError", "RemoteProtocolError", "ConnectionClosedError"),
        *("WriteTimeout", "WriteError", "IncompleteRead", "ServerDisconnectedError", "SocketTimeoutError"),
    }
)
"""There was one, and the answer did not come to its beginning."""
GATEWAY = frozenset({504, 524})
"""Codes of whoever stands before a provider, and has waited for it in vain."""


def may_cost(error: BaseException) -> bool:
    """Whether the provider may have worked on a request that failed before its answer began. Pure.

    What it refused costs nothing, and neither does what never reached it.
    """
    found = tuple(causes(error))
    codes = {code for one in found if isinstance(code := getattr(one, "status_code", None), int)}
    if codes:
        return bool(codes & GATEWAY)
    names = {type(one).__name__ for one in found}
    return bool(names & SENT) and not names & NEVER_SENT


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it comes from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__
