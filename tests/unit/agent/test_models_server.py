"""The server of scripted models itself: it refuses what providers refuse, and does what a script says."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.model_server import Answer, Asked, Call, Failure, ModelServer, Text, When, call, model_server, say
from tests.support.model_wire.anthropic import AnthropicDialect
from tests.support.model_wire.chat import ChatDialect
from tests.support.model_wire.gemini import GeminiDialect
from tests.support.model_wire.responses import ResponsesDialect

ROOT = Path(__file__).parents[3]


def post(url: str, body: Mapping[str, Any] | None = None, **headers: str) -> tuple[int, str]:
    """The status and the body of the answer."""
    data = json.dumps(body or {}).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# -- what is refused

U: Mapping[str, Any] = {"role": "user", "content": "hi"}


def tool_call(one: str) -> dict[str, Any]:
    return {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def called(*ids: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(one) for one in ids], **more}


def result(one: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": one, "content": "x"}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([U], ""),
        ([U, called("a", "b"), result("b"), result("a"), U], ""),
        ([U, called("a"), result("a"), called("a"), result("a")], ""),
        ([], "too short"),
        ([U, called("a", "b"), result("a"), U], "did not have response messages: b"),
        ([U, called("a")], "did not have response messages: a"),
        ([U, result("a")], "must be a response to a preceeding message"),
        ([U, called("a"), result("a"), result("a")], "must be a response to a preceeding message"),
        ([U, called("a", "a"), result("a")], "Duplicate value"),
        ([U, called()], "empty array"),
        ([U, called("x" * 41)], "string too long"),
        ([U, {"role": "assistant", "content": None}], "expected a string, got null"),
        ([U, {"role": "user", "content": ""}], "expected a string, got null"),
    ],
)
def test_chat_completions_want_each_call_answered_once(messages: Sequence[Mapping[str, Any]], said: str) -> None:
    problem = ChatDialect().problem({"messages": messages})
    assert said in problem
    assert bool(problem) == bool(said)


def call_item(one: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"}


def output_item(one: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": one, "output": "x"}


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("hi", ""),
        ([U, call_item("a"), output_item("a"), U], ""),
        ([U, {"type": "reasoning", "id": "r"}, call_item("a"), output_item("a")], ""),
        ([], "Missing required parameter"),
        ([U, call_item("a"), U], "No tool output found for function call a"),
        ([U, output_item("a")], "No tool call found"),
        ([U, call_item("a"), output_item("a"), output_item("a")], "Duplicate item"),
        ([U, {"type": "reasoning", "id": "r"}, U], "without its required following item"),
        ([{"role": "user", "content": ""}], "got an empty one"),
    ],
)
def test_responses_want_each_call_answered_once(items: object, said: str) -> None:
    problem = ResponsesDialect().problem({"input": items})
    assert said in problem
    assert bool(problem) == bool(said)


def assistant(*blocks: Mapping[str, Any] | str) -> dict[str, Any]:
    return {"role": "assistant", "content": [block_of(one) for one in blocks]}


def user(*blocks: Mapping[str, Any] | str) -> dict[str, Any]:
    return {"role": "user", "content": [block_of(one) for one in blocks]}


def block_of(one: Mapping[str, Any] | str) -> Mapping[str, Any]:
    return {"type": "text", "text": one} if isinstance(one, str) else one


def use(one: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": one, "name": "f", "input": {}, **more}


def answer_to(one: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": one, "content": "x"}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([U], ""),
        ([user("a"), assistant("b", use("x"), use("y")), user(answer_to("y"), answer_to("x"), "go on")], ""),
        ([], "at least one message"),
        ([assistant("a")], 'first message must use the "user" role'),
        ([U, U], "roles must alternate"),
        ([U, assistant("a"), assistant("b")], "roles must alternate"),
        ([U, assistant(use("x"))], "without `tool_result` blocks immediately after: x"),
        ([U, assistant(use("x"), use("y")), user(answer_to("x"))], "immediately after: y"),
        ([U, assistant(use("x")), user("a"), assistant("b"), user(answer_to("x"))], "immediately after: x"),
        ([U, assistant("a"), user(answer_to("x"))], "unexpected `tool_use_id`"),
        ([U, assistant(use("x")), user(answer_to("x"), answer_to("x"))], "must have a single result"),
        ([U, assistant(use("x")), user("a", answer_to("x"))], "must come first"),
        ([U, assistant(use("x"), use("x")), user(answer_to("x"))], "must be unique"),
        ([U, assistant(use("a b")), user(answer_to("a b"))], "should match pattern"),
        ([U, assistant(use("x", input="{}")), user(answer_to("x"))], "valid dictionary"),
        ([user("")], "must be non-empty"),
        ([user(" \n")], "non-whitespace"),
        ([user()], "non-empty content"),
        ([U, assistant("a ")], "trailing whitespace"),
    ],
)
def test_anthropic_wants_results_at_once_and_roles_that_alternate(
    messages: Sequence[Mapping[str, Any]], said: str
) -> None:
    problem = AnthropicDialect().problem({"max_tokens": 10, "messages": messages})
    assert said in problem
    assert bool(problem) == bool(said)


def model(*parts: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def person(*parts: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


F = {"functionCall": {"name": "f", "args": {}}}
R = {"functionResponse": {"name": "f", "response": {}}}
T = {"text": "hi"}


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ([person(T)], ""),
        ([person(T), model(T, F, F), person(R, R, T), model(T)], ""),
        ([], "not specified"),
        ([person(T), model(F, F), person(R)], "number of function response parts"),
        ([person(T), model(F), person(T)], "number of function response parts"),
        ([person(T), person(R)], "number of function response parts"),
        ([person(T), model(F)], "answered by a function response"),
        ([model(F), person(R)], "immediately after a user turn"),
        ([person(T), model(T), model(F), person(R)], "immediately after a user turn"),
        ([person()], "must not be empty"),
        ([person({"text": ""})], "must have one initialized field"),
    ],
)
def test_gemini_wants_as_many_responses_as_calls(contents: Sequence[Mapping[str, Any]], said: str) -> None:
    problem = GeminiDialect().problem({"contents": contents})
    assert said in problem
    assert bool(problem) == bool(said)


@pytest.mark.parametrize(
    ("dialect", "tools"),
    [
        (ChatDialect(), [{"type": "function", "function": {"name": "a b"}}]),
        (ChatDialect(), [{"type": "function", "function": {"name": "a"}}] * 2),
        (ChatDialect(), [{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}]),
        (AnthropicDialect(), [{"name": "a.b", "input_schema": {"type": "object"}}]),
        (AnthropicDialect(), [{"name": "a", "input_schema": {}}]),
        (AnthropicDialect(), [{"name": "a", "input_schema": {"type": "object"}}] * 2),
        (GeminiDialect(), [{"functionDeclarations": [{"name": "1a"}]}]),
        (GeminiDialect(), [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]),
    ],
)
def test_tools_with_bad_names_or_schemas_are_refused(dialect: Any, tools: object) -> None:
    body = {"tools": tools, "messages": [U], "contents": [person(T)], "max_tokens": 1}
    assert dialect.problem(body)


# -- what a script does


def chat(server: ModelServer, text: str, **headers: str) -> tuple[int, dict[str, Any]]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    status, answer = post(f"{server.openai_url}/chat/completions", body, **headers)
    return status, json.loads(answer)


def said(answer: Mapping[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_replies_come_in_order_and_those_for_a_text_whenever_it_comes() -> None:
    with model_server([say("one"), When("special", say("for you")), say("two")]) as server:
        texts = [said(chat(server, text)[1]) for text in ("a", "something special", "b")]
        assert texts == ["one", "for you", "two"]
        assert server.refused == []
        status, answer = chat(server, "c")
        assert (status, answer["error"]["message"]) == (400, "the script of this server is at its end")
        assert server.refused == ["openai: the script of this server is at its end"]


def test_a_function_answers_every_request() -> None:
    def answer(asked: Asked) -> Answer:
        return call("echo", {"text": asked.body["messages"][-1]["content"]}, id="c1")

    with model_server(answer) as server:
        for text in ("a", "b"):
            message = chat(server, text)[1]["choices"][0]["message"]
            assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"text": text}


def test_a_bad_history_takes_no_reply_and_a_wrong_key_none_either() -> None:
    with model_server([say("one")], key="right") as server:
        assert chat(server, "a", Authorization="Bearer wrong")[0] == 401
        assert chat(server, "", Authorization="Bearer right")[0] == 400
        assert chat(server, "a", Authorization="Bearer right")[0] == 200
        assert [one.key for one in server.asked] == ["right"]
        assert "right" not in repr(server.asked)
        assert len(server.refused) == 1


@pytest.mark.usefixtures("needs_process")
def test_the_program_serves_a_script_with_gates(tmp_path: Path) -> None:
    script = [
        {"pieces": [{"text": "a"}, {"gate": "g"}, {"text": "b"}]},
        {"when": "special", "calls": [{"name": "f", "arguments": {"x": 1}, "id": "c"}], "usage": {"input": 7}},
        {"failure": {"kind": "rate_limit", "headers": {"Retry-After": "3"}}},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    argv = [sys.executable, "-m", "tests.support.model_server", str(tmp_path / "script.json")]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            urls = json.loads(server.stdout.readline())
            chat_url, hello = f"{urls['openai']}/chat/completions", {"model": "m", "messages": [U]}
            special = {"model": "m", "messages": [{"role": "user", "content": "special"}]}
            assert json.loads(post(chat_url, special)[1])["usage"]["prompt_tokens"] == 7
            assert post(f"{urls['url']}/_open/g")[0] == 200
            assert said(json.loads(post(chat_url, hello)[1])) == "ab"
            assert post(chat_url, hello)[0] == 429
            with urllib.request.urlopen(f"{urls['url']}/_reached/g", timeout=60) as answer:
                assert json.load(answer) == {"reached": True}
            with urllib.request.urlopen(f"{urls['url']}/_asked", timeout=60) as answer:
                assert len(json.load(answer)["asked"]) == 3
        finally:
            server.terminate()


def test_a_thread_can_wait_for_requests() -> None:
    with model_server([Answer((Text("a"), Call("f"))), Failure("server")]) as server:
        assert chat(server, "a")[0] == 200
        server.wait_for_requests(1)
        with pytest.raises(TimeoutError):
            server.wait_for_requests(2, timeout=0)
