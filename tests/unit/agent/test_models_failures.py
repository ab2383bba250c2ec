"""What a provider's failure means, when to ask again, and that no key is in any text about it."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, TextPart

from harness.agent.models import (
    EnvironmentKey,
    ModelFailure,
    ModelProfile,
    backoff,
    model_failure,
    read_key,
    unfinished,
)
from harness.agent.models.failures import MAX_BACKOFF, retry_after_of

PROFILE = ModelProfile("mine", "openai", "m")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def failed(*, retryable: bool = True, retry_after: float | None = None) -> ModelFailure:
    return ModelFailure("x", kind="rate_limit", retryable=retryable, retry_after=retry_after)


@given(
    attempt=st.integers(1, 10_000),
    retries=st.integers(0, 20),
    jitter=st.floats(0, 1),
    after=st.none() | st.floats(0, 1e6),
)
def test_a_wait_is_bounded_and_never_shorter_than_asked_for(
    attempt: int, retries: int, jitter: float, after: float | None
) -> None:
    seconds = backoff(failed(retry_after=after), attempt, retries, jitter)
    if attempt > retries or (after or 0) > MAX_BACKOFF:
        assert seconds is None
    else:
        assert seconds is not None
        assert max(0.5, after or 0) <= seconds <= MAX_BACKOFF


def test_waits_grow_with_the_attempts_and_a_failure_that_stays_is_not_tried_again() -> None:
    assert [backoff(failed(), attempt, 4, jitter=1.0) for attempt in range(1, 6)] == [1, 2, 4, 8, None]
    assert [backoff(failed(), attempt, 4, jitter=0.0) for attempt in range(1, 6)] == [0.5, 1, 2, 4, None]
    assert backoff(failed(retry_after=7.0), 1, 4) == 7.0
    assert backoff(failed(retryable=False), 1, 4) is None
    assert backoff(failed(), 1, 0) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2.0),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 -0000"}, 10.0),
        ({"retry-after": "Fri, 99 Jan 2026 03:04:15 GMT"}, None),
        (
            {"retry-after": "Thu, 01 Jan 2026 00:00:20 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"},
            20.0,
        ),
    ],
)
def test_when_to_ask_again_is_read_from_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers, NOW) == seconds


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "date"]), st.text(max_size=40)))
def test_no_header_breaks_the_reading(headers: dict[str, str]) -> None:
    found = retry_after_of(headers, NOW)
    assert found is None or found >= 0


class SomebodysError(Exception):
    """An error that nobody knows."""


class NoCredentialsError(Exception):
    """As the libraries of clouds call it."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "said"),
    [
        (
            exceptions.ModelHTTPError(400, "m", {"error": {"message": "maximum context length is 8"}}),
            "context_length",
            False,
            "maximum context",
        ),
        (
            exceptions.ModelHTTPError(400, "m", {"detail": "API key not valid"}),
            "auth",
            False,
            "check the variable OPENAI_API_KEY",
        ),
        (exceptions.ModelHTTPError(418, "m", "[1, 2]"), "other", True, "1"),
        (exceptions.ModelHTTPError(502, "m", "<html>x</html>"), "other", True, "HTTP 502"),
        (exceptions.ModelConnectionError("m", "x"), "connection", True, "the connection failed"),
        (exceptions.ModelRequestTimeout("m", 3.0), "connection", True, "the provider stopped responding"),
        (TimeoutError(), "connection", True, "the provider stopped responding"),
        (ConnectionResetError("gone"), "connection", True, "the connection failed: gone"),
        (caused(OSError("x"), socket.gaierror(-2, "Name")), "connection", True, "cannot resolve the server's name"),
        (caused(OSError("x"), ConnectionRefusedError()), "connection", True, "nothing listens at its usual address"),
        (caused(OSError("x"), ssl.SSLCertVerificationError()), "connection", False, "certificate is not trusted"),
        (exceptions.ContentFilterError("no"), "refused", False, "filter blocked"),
        (exceptions.UnexpectedModelBehavior("odd"), "other", True, "invalid response: odd"),
        (exceptions.UserError("bad"), "bad_request", False, "the request is invalid: bad"),
        (json.JSONDecodeError("bad", "", 0), "other", True, "invalid response"),
        (NoCredentialsError("none found"), "auth", False, "no credentials found: none found"),
        (SomebodysError("odd"), "other", False, "failed: SomebodysError: odd"),
        (ExceptionGroup("", [ConnectionResetError("gone")]), "connection", True, "gone"),
    ],
)
def test_every_error_becomes_one_with_a_kind_and_words(error: Exception, kind: str, retryable: bool, said: str) -> None:
    failure = model_failure(error, PROFILE)
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert str(failure).startswith("model mine (openai:m): ")
    assert said in str(failure)


def test_a_failure_stays_what_it_is() -> None:
    failure = failed()
    assert model_failure(failure, PROFILE) is failure


def test_a_provider_that_says_not_to_ask_again_is_not_asked() -> None:
    error = exceptions.ModelHTTPError(503, "m", None, headers={"x-should-retry": "false"})
    assert not model_failure(error, PROFILE).retryable


async def test_neither_a_key_that_was_read_nor_what_looks_like_one_is_in_a_message() -> None:
    key = "unusual.key.of.ours-0123"
    await read_key(EnvironmentKey("K"), {"K": key})
    for body in (
        f"bad {key}",
        {"error": {"message": f"{key} or sk-ant-api03-{'Ab1' * 20}"}},
        json.dumps({"message": key}),
    ):
        failure = model_failure(exceptions.ModelHTTPError(401, "m", body), PROFILE)
        assert key not in str(failure)
        assert "Ab1Ab1" not in str(failure)


def test_what_the_provider_behind_a_router_said_is_passed_on() -> None:
    raw = json.dumps({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}})
    body = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "Somebody"}}
    failure = model_failure(exceptions.ModelHTTPError(400, "m", body), PROFILE)
    assert "Provider returned error: prompt is too long" in failure.message
    assert failure.kind == "context_length"


@pytest.mark.parametrize(
    "body", ["[" * 200_000, '{"error":' * 200_000, "x" * 20_000_000], ids=["lists", "objects", "text"]
)
def test_a_body_that_is_meant_to_harm_does_none(body: str) -> None:
    assert len(model_failure(exceptions.ModelHTTPError(500, "m", body), PROFILE).message) < 500


def test_a_message_is_one_line_and_not_long() -> None:
    failure = model_failure(exceptions.ModelHTTPError(500, "m", "line\n\x1b[31m" * 1000), PROFILE)
    assert str(failure).isprintable()
    assert len(str(failure)) < 500


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "message", "detail", "x"]), inner),
        max_leaves=8,
    )
)
def test_any_body_of_an_error_gives_a_message(body: object) -> None:
    assert model_failure(exceptions.ModelHTTPError(500, "m", body), PROFILE).message


@pytest.mark.parametrize(
    ("provider", "finish", "state", "whole"),
    [
        ("anthropic", "stop", "complete", True),
        ("anthropic", "length", "complete", True),
        ("anthropic", None, "complete", False),
        ("google", None, "complete", False),
        ("openai-responses", None, "incomplete", False),
        ("scripted", None, "complete", True),
        ("scripted", None, "interrupted", False),
    ],
)
def test_an_answer_that_stopped_before_its_end_is_a_failure_that_may_pass(
    provider: str, finish: str | None, state: str, whole: bool
) -> None:
    response = ModelResponse([TextPart("x")], finish_reason=finish, state=state)  # type: ignore[arg-type] # as strings
    failure = unfinished(response, ModelProfile("a", provider, "m"))
    assert whole if failure is None else (failure.kind == "connection" and failure.retryable and not whole)
