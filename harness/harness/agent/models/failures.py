"""What goes wrong with a provider, told in one way, and whether the request may have cost something."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from ...errors import HarnessError
from .keys import known_keys
from .profiles import ModelProfile

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


# -- Whether a request that failed may have cost something: whoever has sent it, and waits, may pay for it.


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
GATEWAY_TIMEOUT_CODES = frozenset({504, 524})
"""Codes of whoever stands before a provider, and has waited for it in vain."""


def may_be_billed(error: BaseException) -> bool:
    """Whether the provider may have worked on a request that failed before its answer began. Pure.

    What it refused costs nothing, and neither does what never reached it.
    """
    found = tuple(exception_chain(error))
    codes = {code for one in found if isinstance(code := getattr(one, "status_code", None), int)}
    if codes:
        return bool(codes & GATEWAY_TIMEOUT_CODES)
    names = {type(one).__name__ for one in found}
    return bool(names & SENT) and not names & NEVER_SENT


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it comes from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__


# -- What went wrong with a provider, in words for the operator, and whether it helps to ask again.
#
# The providers' own errors become one class here. No text of it holds a key that this process has read, or anything
# that looks like one: some providers send back what they refuse.


FailureKind = Literal[
    "auth", "rate_limit", "overloaded", "context_length", "bad_request", "connection", "refused", "other"
]

MAX_BACKOFF = 120.0
"""Seconds. A provider that asks for more is not waited for."""
INITIAL_BACKOFF = 1.0
SAY_THE_END = frozenset({"anthropic", "bedrock", "google", "google-cloud", "openai-responses"})
"""Providers whose streams always say why they end."""
LONGEST_WORD = 6
"""Characters of a word or an escape of JSON, of which a part may be there."""
LOOKED_AT = 8 << 10
SAID = 300
"""Characters of a provider's own words."""

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
        kind: what sort of failure it is.
        retryable: the same request may succeed later.
        retry_after: seconds after which the provider wants to be asked again; None: it did not say.
        hint: what the operator can do.
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
    """Seconds to wait before the request is sent again; None: not again.

    Args:
        attempt: how many attempts have failed, from 1.
        retries: how many may follow the first one.
        jitter: from 0 to 1, spreads the requests of many harnesses.
    """
    if not failure.retryable or attempt > retries:
        return None
    own = min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(attempt - 1, 16)) * (0.5 + jitter / 2)
    if failure.retry_after is None:
        return own
    return None if failure.retry_after > MAX_BACKOFF else max(own, failure.retry_after)


def model_failure(error: Exception, profile: ModelProfile) -> ModelFailure:
    """What a provider's error means."""
    error = _innermost(error)
    if isinstance(error, ModelFailure):
        return error
    said = _said(error)
    if said.startswith("<") and hasattr(error, "status_code"):
        said = f"HTTP {error.status_code}"  # the page of a proxy
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
    """The failure of an answer whose stream stopped before its end, as that of a proxy may; None when it is whole.

    A server that need not say why an answer ends is believed, unless a call is in the middle of its arguments.
    """
    if profile.provider in SAY_THE_END:
        ends = response.finish_reason is not None
    else:
        ends = "finish_reason" in (response.provider_details or {}) or not _has_half_a_call(response)
    if response.state == "complete" and ends:
        return None
    return ModelFailure(f"model {_name(profile)}: the answer stopped before its end", kind="connection", retryable=True)


def _has_half_a_call(response: ModelResponse) -> bool:
    """Whether the arguments of a call are the beginning of a JSON object, and no more."""
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


def _innermost(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


# -- what the error is


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
    "context_length", False, "the conversation is longer than the model takes", "compact it, or choose another model"
)
_AUTH = _Classification("auth", False, "the provider does not accept the key")
_NO_CREDENTIALS = _Classification("auth", False, "there are no credentials")
_CONNECTION = _Classification("connection", True, "the connection failed", "check base_url and the network")
_SILENT = _Classification(
    "connection", True, "the provider fell silent", "a higher timeout in the profile waits longer"
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
_REJECTED = _Classification("bad_request", False, "the provider refuses the request")
_REFUSED = _Classification("refused", False, "the provider's filter refuses an answer", "say it in other words")
_NONSENSE = _Classification("other", True, "the provider's answer is not understood")
_MISUSED = _Classification("bad_request", False, "the request cannot be made")


@cache
def _verdicts() -> tuple[tuple[type[Exception], _Classification], ...]:
    """The first that fits counts. The library is loaded by whoever had such an error."""
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
    """An error that the library let through."""
    if isinstance(error, TimeoutError):
        return _SILENT
    if "Credential" in type(error).__name__:
        return _NO_CREDENTIALS  # as the libraries of clouds say it
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) or module in {"httpx", "httpx2", "httpcore", "httpcore2", "anyio"}:
        return _CONNECTION
    if isinstance(error, ValueError | TypeError | AttributeError | LookupError | UserWarning):
        return _NONSENSE  # values of another kind than the protocol says
    return _Classification("other", False, f"failed: {type(error).__name__}")


def _connection(error: Exception, found: _Classification, profile: ModelProfile) -> _Classification:
    import socket
    import ssl

    found_in = tuple(exception_chain(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in found_in):
        hint = "SSL_CERT_FILE names the certificates of your own authority"
        return _Classification("connection", False, "the server's certificate is not trusted", hint)
    if any(isinstance(cause, socket.gaierror) for cause in found_in):
        return _Classification("connection", True, "the server's name is not found", found.hint)
    if any(isinstance(cause, ConnectionRefusedError) for cause in found_in):
        where = profile.base_url or "its usual address"
        return _Classification("connection", True, f"nothing listens at {where}", "check base_url, and whether it runs")
    return found


def _about_key(profile: ModelProfile) -> str:
    sources = profile.key_sources
    if sources:
        return f"check {' or '.join(str(source) for source in sources)}"
    if profile.base_url:
        return 'a profile with a base_url names its key: key = { env = "NAME" }'
    return "check the provider's credentials on this machine"


# -- what the provider says


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    try:
        return _clean(str(error) if body is None else _words_of(body))
    except RecursionError:
        return ""  # nobody writes such a body to be understood


def _words_of(body: object) -> str:
    """The message in an error's body, whichever form it has."""
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
    """What the provider behind a router said, which the router's own words leave out."""
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
    """One line of it, without keys."""
    import os

    from ...toolkit.redaction.redactor import PatternRedactor

    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:LOOKED_AT]).split())
    redactor = PatternRedactor.with_environment(os.environ, secrets=known_keys())  # now: half a secret is not known
    return redactor.text(line)[:SAID].rstrip(". ")


# -- when it wants to be asked again


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
    """Seconds from ``retry-after-ms`` or ``retry-after`` (a number or a date); None when neither says.

    Args:
        headers: with names in lower case. Their ``date`` is what a date is counted from, for clocks differ.
        now: the time, for a server that sends none.
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
