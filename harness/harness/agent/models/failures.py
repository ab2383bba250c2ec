"""Failures of model requests: their classification, and whether a failed request may be billed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from ...errors import HarnessError
from ...system.background_tasks import single_error
from ...wording import single_line
from .keys import known_keys
from .model import ModelProfile

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic_ai.messages import ModelResponse

__all__ = [
    "MAX_BACKOFF",
    "FailureKind",
    "ModelFailure",
    "backoff",
    "exception_chain",
    "may_be_billed",
    "model_failure",
    "retry_after_of",
    "unfinished",
]


# -- Whether a failed request may be billed: a provider may charge for a request that the client stopped waiting for.


NEVER_SENT = frozenset(
    {"ConnectError", "ConnectTimeout", "ConnectTimeoutError", "PoolTimeout", "EndpointConnectionError"}
)
"""Names of errors of HTTP libraries that were raised before there was a connection."""
SENT = frozenset(
    {
        *("ReadTimeout", "ReadTimeoutError", "ReadError", "RemoteProtocolError", "ConnectionClosedError"),
        *("WriteTimeout", "WriteError", "IncompleteRead", "ServerDisconnectedError", "SocketTimeoutError"),
    }
)
"""Names of errors of HTTP libraries that were raised on a connection, before a response started."""
GATEWAY_TIMEOUT_CODES = frozenset({504, 524})
"""HTTP codes of a gateway that got no response from the provider in time."""


def may_be_billed(error: BaseException) -> bool:
    """Return whether the provider may have processed a request that failed before its response started. Pure.

    Rejected requests, and those that never reached the provider, are not billed.
    """
    found = tuple(exception_chain(error))
    codes = {code for one in found if isinstance(code := getattr(one, "status_code", None), int)}
    if codes:
        return bool(codes & GATEWAY_TIMEOUT_CODES)
    names = {type(one).__name__ for one in found}
    return bool(names & SENT) and not names & NEVER_SENT


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all of its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__


# -- Classification of failures, for the operator and for retries.
#
# All errors of providers become a :class:`ModelFailure`. Its texts contain no key that this process has read, and
# nothing that looks like one: some providers quote what they reject.


FailureKind = Literal[
    "auth", "rate_limit", "overloaded", "context_length", "bad_request", "connection", "refused", "other"
]

MAX_BACKOFF = 120.0
"""Maximum seconds; if a provider asks for more, the request is not retried."""
INITIAL_BACKOFF = 1.0
SAY_THE_END = frozenset({"anthropic", "bedrock", "google", "google-cloud", "openai-responses"})
"""Providers whose streams always give the reason for their end."""
LONGEST_WORD = 6
"""Maximum characters of a JSON word or escape, of which only a part may have been received."""
LOOKED_AT = 8 << 10
SAID = 300
"""Maximum characters of a provider's own message."""

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|input is too long|too many (input )?tokens"
    r"|exceeds? the (maximum|model's|limit).{0,40}tokens|input token count|maximum number of tokens",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"api[ _-]?key (is )?(not valid|invalid|incorrect|expired|missing)|invalid.{0,10}api[ _-]?key", re.I
)


class ModelFailure(HarnessError):
    """A request to a model failed.

    Args:
        message: what happened, with the model's name.
        kind: the kind of failure.
        retryable: whether the same request may succeed later.
        retry_after: seconds after which the provider asks for a retry; None: not given.
        hint: the remedy.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind = "other",
        retryable: bool = False,
        retry_after: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: FailureKind = kind
        self.retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class _Classification:
    kind: FailureKind
    retryable: bool
    what: str
    hint: str = ""


def backoff(failure: ModelFailure, attempt: int, retries: int, jitter: float = 0.5) -> float | None:
    """Return the seconds to wait before the next attempt.

    Args:
        failure: the failure of the last attempt.
        attempt: the number of failed attempts, from 1.
        retries: maximum attempts after the first.
        jitter: from 0 to 1, spreads the requests of many processes.

    Returns:
        The seconds, or None if the request must not be retried.
    """
    if not failure.retryable or attempt > retries:
        return None
    own = min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(attempt - 1, 16)) * (0.5 + jitter / 2)
    if failure.retry_after is None:
        return own
    return None if failure.retry_after > MAX_BACKOFF else max(own, failure.retry_after)


def model_failure(error: Exception, profile: ModelProfile) -> ModelFailure:
    """Classify a provider's error."""
    error = single_error(error)
    if isinstance(error, ModelFailure):
        return error
    said = _said(error)
    if said.startswith("<") and hasattr(error, "status_code"):
        said = f"HTTP {error.status_code}"  # a proxy's HTML page
    verdict = _verdict(error, said, profile)
    after = _retry_after(error)
    wait = f"; it asks to wait {round(after, 1):g} s" if after else ""
    return ModelFailure(
        f"model {_name(profile)}: {verdict.what}{wait}{f': {said}' if said else ''}",
        kind=verdict.kind,
        retryable=verdict.retryable and getattr(error, "provider_retry_hint", None) is not False,
        retry_after=after,
        hint=verdict.hint,
    )


def unfinished(response: ModelResponse, profile: ModelProfile) -> ModelFailure | None:
    """Return the failure of an incomplete response, such as one that a proxy cut off; None if it is complete.

    A response from a server that need not give a reason for the end counts as complete, unless the arguments of a call
    are incomplete.
    """
    if profile.provider in SAY_THE_END:
        ends = response.finish_reason is not None
    else:
        ends = "finish_reason" in (response.provider_details or {}) or not _has_half_a_call(response)
    if response.state == "complete" and ends:
        return None
    return ModelFailure(f"model {_name(profile)}: the response was cut off", kind="connection", retryable=True)


def _has_half_a_call(response: ModelResponse) -> bool:
    """Return whether the arguments of a call are an incomplete JSON object."""
    return any(isinstance(call.args, str) and _is_half(call.args) for call in response.tool_calls)


def _is_half(text: str) -> bool:
    import json

    text = text.rstrip()
    try:
        json.loads(text or "{}")
    except json.JSONDecodeError as error:
        at_the_end = len(text) if text.endswith("}") else len(text) - LONGEST_WORD
        return error.pos >= at_the_end or error.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return False


def _name(profile: ModelProfile) -> str:
    return profile.name if profile.name == profile.label else f"{profile.name} ({profile.label})"


# -- kinds of errors


def _verdict(error: Exception, said: str, profile: ModelProfile) -> _Classification:
    found = next((verdict for kind, verdict in _verdicts() if isinstance(error, kind)), _of_others(error))
    if found.kind in {"bad_request", "other"} and _TOO_LONG.search(said):
        found = _CONTEXT
    elif found.kind in {"bad_request", "other"} and _BAD_KEY.search(said):
        found = _AUTH
    if found.kind == "connection":
        return _connection(error, found, profile)
    if found.kind == "auth":
        return _Classification("auth", False, found.what, _about_key(profile))
    return found


_CONTEXT = _Classification(
    "context_length", False, "the conversation exceeds the model's context limit", "compact it, or choose another model"
)
_AUTH = _Classification("auth", False, "the provider does not accept the key")
_NO_CREDENTIALS = _Classification("auth", False, "no credentials found")
_CONNECTION = _Classification("connection", True, "the connection failed", "check base_url and the network")
_SILENT = _Classification(
    "connection", True, "the provider stopped responding", "increase timeout in the profile to wait longer"
)
_QUOTA = _Classification(
    "rate_limit", False, "the account's quota or credit is used up", "see the provider's billing page"
)
_RATE = _Classification("rate_limit", True, "the rate limit is reached", "wait, or choose another model")
_BUSY = _Classification("overloaded", True, "the provider is overloaded", "wait, or choose another model")
_BROKEN = _Classification("other", True, "the provider failed")
_MISSING = _Classification(
    "bad_request", False, "the provider has no such model", "check model and base_url of the profile"
)
_REJECTED = _Classification("bad_request", False, "the provider rejected the request")
_REFUSED = _Classification("refused", False, "the provider's filter blocked the response", "rephrase the prompt")
_NONSENSE = _Classification("other", True, "the provider sent an invalid response")
_MISUSED = _Classification("bad_request", False, "the request is invalid")


@cache
def _verdicts() -> tuple[tuple[type[Exception], _Classification], ...]:
    """Return the classification by class of error; the first match is used. An error implies a loaded library."""
    from pydantic_ai import exceptions as known

    return (
        (known.ModelQuotaExceededError, _QUOTA),
        (known.ModelRateLimitError, _RATE),
        (known.ModelUnavailableError, _BUSY),
        (known.ModelContextWindowExceededError, _CONTEXT),
        (known.ModelAuthenticationError, _AUTH),
        (known.ModelNotFoundError, _MISSING),
        (known.ModelRequestRejectedError, _REJECTED),
        (known.ModelTimeoutError, _SILENT),
        (known.ModelRequestTimeout, _SILENT),
        (known.ModelConnectionError, _CONNECTION),
        (known.ModelServerError, _BROKEN),
        (known.ContentFilterError, _REFUSED),
        (known.UnexpectedModelBehavior, _NONSENSE),
        (known.ModelAPIError, _BROKEN),
        (known.UserError, _MISUSED),
    )


def _of_others(error: Exception) -> _Classification:
    """Classify an error that the library did not convert."""
    if isinstance(error, TimeoutError):
        return _SILENT
    if "Credential" in type(error).__name__:
        return _NO_CREDENTIALS  # errors of cloud libraries
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) or module in {"httpx", "httpx2", "httpcore", "httpcore2", "anyio"}:
        return _CONNECTION
    if isinstance(error, ValueError | TypeError | AttributeError | LookupError | UserWarning):
        return _NONSENSE  # values that violate the protocol
    return _Classification("other", False, f"failed: {type(error).__name__}")


def _connection(error: Exception, found: _Classification, profile: ModelProfile) -> _Classification:
    import socket
    import ssl

    found_in = tuple(exception_chain(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in found_in):
        hint = "set SSL_CERT_FILE to the certificates of your own authority"
        return _Classification("connection", False, "the server's certificate is not trusted", hint)
    if any(isinstance(cause, socket.gaierror) for cause in found_in):
        return _Classification("connection", True, "cannot resolve the server's name", found.hint)
    if any(isinstance(cause, ConnectionRefusedError) for cause in found_in):
        where = profile.base_url or "its usual address"
        return _Classification("connection", True, f"nothing listens at {where}", "check base_url and that it runs")
    return found


def _about_key(profile: ModelProfile) -> str:
    sources = profile.key_sources
    if sources:
        return f"check {' or '.join(str(source) for source in sources)}"
    if profile.base_url:
        return 'a profile with a base_url needs its own key: key = { env = "NAME" }'
    return "check the provider's credentials on this machine"


# -- the provider's message


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    try:
        return _clean(str(error) if body is None else _words_of(body))
    except RecursionError:
        return ""  # a body that is nested this deep is not a message


def _words_of(body: object) -> str:
    """Return the message in an error's body, in any of the common forms."""
    import json

    if isinstance(body, str):
        return _words_of(parsed) if (parsed := _parsed(body)) is not None else body
    if isinstance(body, Mapping):
        lower = {str(key).lower(): value for key, value in body.items()}
        for key in ("error", "message", "detail"):
            if lower.get(key):
                return _words_of(lower[key]) + _passed_on(lower.get("metadata"))
    if isinstance(body, list) and body:
        return _words_of(body[0])
    return "" if body is None or isinstance(body, list) else json.dumps(body, default=str)


def _passed_on(metadata: object) -> str:
    """Return the message of the provider behind a router, which the router's message omits."""
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return f": {_words_of(raw)}" if raw else ""


def _parsed(text: str) -> dict[str, object] | list[object] | None:
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _clean(text: str) -> str:
    """Return the text as one line, without keys."""
    import os

    from ...toolkit.redaction.redactor import PatternRedactor

    line = single_line(text[:LOOKED_AT])
    redactor = PatternRedactor.with_environment(os.environ, secrets=known_keys())  # before half a key is cut off
    return redactor.text(line)[:SAID].rstrip(". ")


# -- the provider's retry delay


def _retry_after(error: Exception) -> float | None:
    from datetime import UTC, datetime

    headers = getattr(error, "headers", None)
    if isinstance(headers, Mapping):
        lower = {str(name).lower(): str(value) for name, value in headers.items()}
        if (found := retry_after_of(lower, datetime.now(UTC))) is not None:
            return found
    after = getattr(error, "retry_after", None)
    return float(after) if isinstance(after, int | float) else None


def retry_after_of(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds in ``retry-after-ms`` or ``retry-after`` (a number or a date); None if there are none.

    Args:
        headers: with names in lower case. A date is relative to their ``date``, because clocks differ.
        now: the time, for a server that sends no ``date``.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is not None:
        return seconds
    then = _date(text)
    return None if then is None else max(0.0, (then - (_date(headers.get("date", "")) or now)).total_seconds())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(text: str) -> datetime | None:
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
