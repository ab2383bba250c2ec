"""Every kind of provider, over HTTP: what is sent, what comes back, what failures mean, and where keys are not."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import ssl
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import trustme
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from tests.support.model_server import (
    Answer,
    Call,
    Cut,
    Failure,
    Gate,
    ModelServer,
    Raw,
    Reasoning,
    ReportedUsage,
    Script,
    Stop,
    Text,
    model_server,
    say,
)

from harness.agent.models import (
    EnvironmentKey,
    ModelFailure,
    ModelProfile,
    OpenModel,
    model_failure,
    open_model,
    unfinished,
)
from harness.agent.turn import ModelRequester, ModelRequestOptions
from harness.errors import ConfigError
from harness.toolkit.events import EventBus
from harness.toolkit.redaction.redactor import PatternRedactor

KEY = "harness-test-key-0123456789"


@dataclass(frozen=True)
class Kind:
    """A provider, and where the server speaks its protocol."""

    provider: str
    model: str
    url: Callable[[ModelServer], str]
    dialect: str

    def profile(self, server: ModelServer) -> ModelProfile:
        """A profile of it at this server."""
        return ModelProfile("it", self.provider, self.model, self.url(server), EnvironmentKey("K"), timeout=60)


KINDS = [
    Kind("openai", "gpt-test", lambda server: server.openai_url, "openai"),
    Kind("openai-responses", "gpt-test", lambda server: server.openai_url, "openai-responses"),
    Kind("anthropic", "claude-test", lambda server: server.anthropic_url, "anthropic"),
    Kind("google", "gemini-test", lambda server: server.google_url, "google"),
    Kind("openrouter", "somebody/model", lambda server: server.openrouter_url, "openrouter"),
    Kind("ollama", "qwen:8b", lambda server: server.ollama_url, "openai"),
    Kind("openai-compatible", "local", lambda server: server.openai_url, "openai"),
]
BEDROCK = Kind("bedrock", "anthropic.claude-test-v1:0", lambda server: server.bedrock_url, "bedrock")
KINDS.append(BEDROCK)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.provider)
TOOL = ToolDefinition(
    name="run_shell",
    description="Runs a command.",
    parameters_json_schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who issues the certificate of the server: Amazon's library sends keys over TLS only."""
    return trustme.CA()


Serve = Callable[..., AbstractContextManager[ModelServer]]


@pytest.fixture
def serve(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Starts a server for a kind of provider."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    def start(kind: Kind, script: Script, *, key: str = "") -> AbstractContextManager[ModelServer]:
        if kind is not BEDROCK:
            return model_server(script, key=key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return model_server(script, key=key, tls=context)

    return start


async def ask(opened: OpenModel, *messages: ModelMessage) -> ModelResponse:
    async with model_request_stream(
        opened.model,
        messages,
        model_settings=opened.settings,
        model_request_parameters=ModelRequestParameters(function_tools=[TOOL]),
    ) as stream:
        async for _ in stream:
            pass
        return stream.get()


async def failure_of(profile: ModelProfile) -> ModelFailure:
    """What the one request comes to."""
    async with open_model(profile, environ={"K": KEY}) as opened:
        return await failed(opened)


async def failed(opened: OpenModel) -> ModelFailure:
    try:
        response = await ask(opened, ModelRequest.user_text_prompt("hi"))
    except Exception as error:
        return model_failure(error, opened.profile)
    failure = unfinished(response, opened.profile)
    assert failure is not None, response
    return failure


@every_kind
async def test_a_conversation_with_reasoning_and_parallel_calls_goes_over_the_wire(
    kind: Kind, serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-that-is-not-sent")
    both = (Call("run_shell", {"command": "df -h"}), Call("run_shell", {"command": "uptime"}))
    usage = ReportedUsage(input=100, output=20, cache_read=50, reasoning=0)
    first = Answer((Reasoning("Let me think."), Text("I look at it."), *both), usage=usage)
    with serve(kind, [first, say("The disk is full.")], key=KEY) as server:
        profile = replace(kind.profile(server), max_output_tokens=512, temperature=0.5, reasoning="low")
        async with open_model(profile, environ={"K": KEY}) as opened:
            asked = ModelRequest([UserPromptPart("What is wrong?")], instructions="You look after hosts.")
            answer = await ask(opened, asked)
            results = [
                ToolReturnPart(call.tool_name, "100%", tool_call_id=call.tool_call_id) for call in answer.tool_calls
            ]
            last = await ask(opened, asked, answer, ModelRequest(list(results)))
            shown = [repr(opened), str(opened), repr(opened.model), repr(profile), repr(server.asked[0])]
    assert server.refused == []
    assert [one.dialect for one in server.asked] == [kind.dialect] * 2
    assert [one.model for one in server.asked] == [kind.model] * 2
    assert {one.key for one in server.asked} == {KEY}
    assert all(one.streamed for one in server.asked)
    assert [type(part).__name__ for part in answer.parts] == [
        "ThinkingPart",
        "TextPart",
        "ToolCallPart",
        "ToolCallPart",
    ]
    assert [part.content for part in answer.parts if isinstance(part, ThinkingPart | TextPart)] == [
        "Let me think.",
        "I look at it.",
    ]
    assert [call.args_as_dict() for call in answer.tool_calls] == [{"command": "df -h"}, {"command": "uptime"}]
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens) == (100, 20, 50)
    assert last.text == "The disk is full."
    for text in ("What is wrong?", "You look after hosts.", "Runs a command."):
        assert text in server.asked[0].text
    assert "512" in server.asked[0].text
    assert server.asked[1].text.count("100%") == 2
    assert KEY not in caplog.text
    assert KEY not in "".join(shown)
    assert unfinished(answer, profile) is None


FAILURES = [
    (Failure("auth"), "auth", False),
    (Failure("rate_limit"), "rate_limit", True),
    (Failure("overloaded"), "overloaded", True),
    (Failure("overloaded", status=503), "overloaded", True),
    (Failure("context_length"), "context_length", False),
    (Failure("bad_request"), "bad_request", False),
    (Failure("missing"), "bad_request", False),
    (Failure("server"), "other", True),
    (Failure("server", status=502, body="<html>proxy</html>"), "other", True),
    (Failure("auth", message=f"{KEY} is no key"), "auth", False),
    (Answer((Cut(),)), "connection", True),
    (Answer((Text("half"), Call("run_shell", '{"command": "rm'), Cut())), "connection", True),
    (Answer((Text("half"), Failure("overloaded"))), "overloaded", True),
    (Answer((Text("half"), Failure("rate_limit"))), "rate_limit", True),
    (Answer((Text("half"), Raw(b"event: content_block_delta\ndata: {nonsense\n\n"))), "other", True),
]


@every_kind
async def test_every_failure_is_told_apart_and_names_no_key(kind: Kind, serve: Serve) -> None:
    with serve(kind, [reply for reply, _, _ in FAILURES]) as server:
        async with open_model(kind.profile(server), environ={"K": KEY}) as opened:
            for reply, wanted, retryable in FAILURES:
                failure = await failed(opened)
                assert (failure.kind, failure.retryable) == (wanted, retryable), (reply, str(failure))
                assert f"model it ({kind.provider}:{kind.model}): " in str(failure)
                assert KEY not in str(failure)
        assert len(server.asked) == len(FAILURES), "nothing is asked twice behind our back"


@every_kind
async def test_a_provider_says_when_to_ask_again(kind: Kind, serve: Serve) -> None:
    headers = [{"Retry-After": "7"}, {"retry-after-ms": "1500"}, {"Retry-After": "2.5"}]
    date = {"Date": "Thu, 01 Jan 2026 00:00:00 GMT", "Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT"}
    with serve(kind, [Failure("rate_limit", headers=one) for one in [*headers, date]]) as server:
        async with open_model(kind.profile(server), environ={"K": KEY}) as opened:
            waits = [(await failed(opened)).retry_after for _ in range(4)]
    assert waits[:3] == [7.0, 1.5, 2.5]
    assert waits[3] in {
        20.0,
        0.0,
    }  # a server's own Date header comes before ours, and which one counts is the library's


@pytest.mark.parametrize("kind", [*KINDS[:5], BEDROCK], ids=lambda kind: kind.provider)
async def test_an_answer_that_is_cut_off_cleanly_is_not_taken_for_a_whole_one(kind: Kind, serve: Serve) -> None:
    with serve(kind, [Answer((Text("half"), Call("run_shell", '{"command": "rm'), Stop()))]) as server:
        failure = await failure_of(kind.profile(server))
    assert failure.retryable


@pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: kind.provider)
async def test_a_cancel_reaches_the_provider_at_once_and_the_client_is_closed(kind: Kind) -> None:
    gate = Gate()
    with model_server([Answer((Text("I begin."), gate, Text("I end.")))]) as server:
        with anyio.fail_after(100):
            async with (
                open_model(kind.profile(server), environ={"K": KEY}) as opened,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(ask, opened, ModelRequest.user_text_prompt("hi"))
                await gate.reached()
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(server.asked[0].abandoned.wait, abandon_on_cancel=True)
        with pytest.raises(Exception):  # noqa: B017, PT011  # every provider says in its own way that it is closed
            await ask(opened, ModelRequest.user_text_prompt("hi"))
        assert len(server.asked) == 1


async def test_silence_ends_with_a_failure() -> None:
    with model_server([Answer((Text("x"), Gate()))]) as server:
        failure = await failure_of(replace(KINDS[2].profile(server), timeout=0.3))
    assert (failure.kind, failure.retryable) == ("connection", True)


async def test_no_key_of_the_provider_goes_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, KEY)
    with model_server([say("hi")] * len(KINDS[:-1])) as server:
        for kind in KINDS[:-1]:
            async with open_model(replace(kind.profile(server), key=None)) as opened:
                await ask(opened, ModelRequest.user_text_prompt("hi"))
        assert KEY not in "".join(str(one.headers) for one in server.asked)
        assert {one.key for one in server.asked} == {"none"}


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (ModelProfile("a", "openai", "m"), "model a: the variable OPENAI_API_KEY is not set"),
        (ModelProfile("a", "google", "m"), "model a: the variable GOOGLE_API_KEY is not set"),
        (ModelProfile("a", "openai", "m", key=EnvironmentKey("NONE")), "model a: the variable NONE is not set"),
        (ModelProfile("a", "openai-compatible", "m"), "model a: openai-compatible needs a base_url"),
        (ModelProfile("a", "litellm", "m"), "model a: litellm needs a base_url"),
        (ModelProfile("a", "vllm", "m"), "model a: Set the `VLLM_BASE_URL` environment variable"),
        (ModelProfile("a", "azure", "m", key=EnvironmentKey("K")), "model a: Must provide the `azure_endpoint`"),
        (ModelProfile("a", "google-cloud", "m"), "model a (google-cloud:m): no credentials found"),
        (ModelProfile("a", "nobody", "m", base_url="http://localhost:1"), "model a: unknown provider 'nobody'"),
    ],
)
async def test_a_model_that_cannot_be_opened_says_why(
    profile: ModelProfile, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in tuple(os.environ):
        if name.startswith(("VLLM_", "AZURE_", "GOOGLE_", "GEMINI_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    gc.collect()
    before = asyncio.all_tasks()
    with pytest.raises(ConfigError) as caught:
        async with open_model(profile, environ={"K": KEY}):
            raise AssertionError("it must not open")
    assert said in str(caught.value)
    del caught
    gc.collect()  # what was half made is gone by now, and begins nothing in this loop
    assert asyncio.all_tasks() <= {asyncio.current_task()} | before


async def test_the_first_usual_variable_that_is_set_counts() -> None:
    with model_server([say("hi")]) as server:
        profile = ModelProfile("a", "google", "gemini-test")
        async with open_model(profile, environ={"GEMINI_API_KEY": KEY}) as opened:
            client = opened.model.provider.client  # type: ignore[union-attr]  # a provider of Google has one
            client._api_client._http_options.base_url = server.google_url
            await ask(opened, ModelRequest.user_text_prompt("hi"))
        assert server.asked[0].key == KEY


async def test_settings_go_with_every_request_and_only_those_that_are_set() -> None:
    with model_server([say("hi"), say("hi")]) as server:
        for profile in (
            KINDS[0].profile(server),
            replace(KINDS[0].profile(server), max_output_tokens=99, temperature=0.0, top_p=0.5),
        ):
            async with open_model(profile, environ={"K": KEY}) as opened:
                await ask(opened, ModelRequest.user_text_prompt("hi"))
                assert opened.settings.get("max_retries") == 0
        plain, full = (one.body for one in server.asked)
    assert not {"temperature", "top_p", "max_completion_tokens", "reasoning_effort"} & set(plain)
    assert (full["temperature"], full["top_p"], full["max_completion_tokens"]) == (0.0, 0.5, 99)


async def test_an_answer_that_stopped_early_is_asked_for_again_and_an_echoed_key_is_in_no_traceback() -> None:
    cut = Answer((Text("half"), Call("run_shell", '{"command": "rm'), Stop()))
    wanted = ModelRequestOptions([ModelRequest.user_text_prompt("hi")], "", [TOOL])
    with model_server([cut, say("whole"), Failure("auth", message=f"{KEY} is no key")]) as server:
        async with open_model(KINDS[2].profile(server), environ={"K": KEY}) as opened:
            requester = ModelRequester(EventBus(), PatternRedactor(), "turn")
            assert (await requester.ask(opened, wanted)).text == "whole"
            with pytest.raises(ModelFailure) as caught:
                await requester.ask(opened, wanted)
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_openai_is_asked_not_to_keep_what_hosts_say() -> None:
    with model_server([say("hi")]) as server:
        async with open_model(KINDS[1].profile(server), environ={"K": KEY}) as opened:
            await ask(opened, ModelRequest.user_text_prompt("hi"))
        assert server.asked[0].body["store"] is False


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], KINDS[3]], ids=lambda kind: kind.provider)
async def test_a_certificate_is_verified_by_the_authorities_that_the_operator_names(
    kind: Kind, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with model_server([say("hi")], tls=context) as server:
        failure = await failure_of(kind.profile(server))
        assert (failure.kind, failure.retryable) == ("connection", False)
        assert "certificate is not trusted" in failure.message
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with open_model(kind.profile(server), environ={"K": KEY}) as opened:
            assert (await ask(opened, ModelRequest.user_text_prompt("hi"))).text == "hi"
