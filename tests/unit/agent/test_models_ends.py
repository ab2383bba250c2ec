"""Streams that end early: of servers that say why an answer ends, that only say that it does, and that say nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart

from harness.agent.models import ModelFailure, ModelProfile, open_model
from harness.agent.models.failures import unfinished
from harness.agent.models.provider_clients import StreamEndDetector, may_be_cut
from harness.agent.turn import ModelRequester, ModelRequestOptions
from harness.toolkit.events import EventBus
from harness.toolkit.redaction.redactor import PatternRedactor

LIMIT = 60.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
DONE = b"data: [DONE]\n\n"
WHOLE, HALF = '{"command": "true"}', '{"command": "rm -rf /var'


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


def words(text: str) -> bytes:
    return chunk({"role": "assistant", "content": text})


def called(arguments: str) -> bytes:
    function = {"name": "run_shell", "arguments": arguments}
    return chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]})


END = chunk({}, "stop")


@asynccontextmanager
async def served(body: bytes, *, chunked: bool) -> AsyncIterator[str]:
    """A server that answers everything with a body whose end is a last chunk, or that of the connection."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += await stream.receive()
            head, _, rest = asked.partition(b"\r\n\r\n")
            length = next(int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:"))
            while len(rest) < length:
                rest += await stream.receive()
            framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            coding = b"Transfer-Encoding: chunked\r\n" if chunked else b""
            await stream.send(HEAD + coding + b"Connection: close\r\n\r\n" + (framed if chunked else body))

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/v1"
        tasks.cancel_scope.cancel()


CASES = [
    # what is sent, by whom it is framed, and whether it is an answer
    (words("hi") + END + DONE, False, True),
    (words("hi") + END, False, True),
    (words("hi") + DONE, False, True),
    (words("hi") + DONE, True, True),
    (words("hi"), True, True),  # nothing says that it was cut
    (words("hi"), False, False),
    (words('no "finish_reason": "stop" and no\ndata: [DONE]\n'), False, False),
    (b"", False, False),
    (called(WHOLE) + END + DONE, False, True),
    (called(WHOLE) + DONE, False, True),
    (called(WHOLE), True, True),
    (called(WHOLE), False, False),
    (called(HALF), True, False),
    (called(HALF), False, False),
    (called(HALF) + DONE, False, False),
    (called('{"command": }') + DONE, False, True),  # the model's mistake, of which it is told
    (called(HALF) + END + DONE, False, True),  # the same: the call is refused for its arguments
]


@pytest.mark.parametrize("provider", ["openai-compatible", "ollama"])
async def test_an_answer_that_was_cut_off_is_none_also_where_servers_need_not_say_why_one_ends(provider: str) -> None:
    wrong = []
    with anyio.fail_after(2 * LIMIT):
        for body, chunked, whole in CASES:
            async with served(body, chunked=chunked) as url:
                profile = ModelProfile("it", provider, "m", url, retries=0)
                async with open_model(profile, environ={}) as opened:
                    requester = ModelRequester(EventBus(), PatternRedactor(), "turn")
                    failure: ModelFailure | None = None
                    try:
                        await requester.ask(opened, ModelRequestOptions([ModelRequest.user_text_prompt("hi")], "", ()))
                    except ModelFailure as error:
                        failure = error
            if (failure is None) is not whole or (failure is not None and failure.kind != "connection"):
                wrong.append((body[-80:], chunked, failure))
    assert wrong == []


@given(st.lists(st.integers(1, 40), max_size=40), st.sampled_from([END, DONE]), st.booleans())
def test_the_end_is_found_however_the_bytes_come(sizes: list[int], end: bytes, there: bool) -> None:
    data = words('[DONE] data: [DONE] "finish_reason": "stop" ' * 3) + (end if there else b"")
    looking = StreamEndDetector()
    for size in [*sizes, *[1] * len(data)]:
        looking.feed(data[:size])
        data = data[size:]
    assert looking.told is there


@pytest.mark.parametrize(
    ("headers", "version", "cut"),
    [
        ({"content-type": "text/event-stream; charset=utf-8"}, "HTTP/1.1", True),
        ({"content-type": "text/event-stream"}, "HTTP/1.0", True),
        ({"content-type": "text/event-stream"}, "HTTP/2", False),
        ({"content-type": "text/event-stream", "transfer-encoding": "Chunked"}, "HTTP/1.1", False),
        ({"content-type": "text/event-stream", "content-length": "5"}, "HTTP/1.1", False),
        ({"content-type": "text/event-stream", "content-encoding": "gzip"}, "HTTP/1.1", False),
        ({"content-type": "application/json"}, "HTTP/1.1", False),
        ({}, "HTTP/1.1", False),
    ],
)
def test_only_a_stream_that_ends_with_its_connection_may_be_cut_unseen(
    headers: dict[str, str], version: str, cut: bool
) -> None:
    assert may_be_cut(200, version, headers) is cut
    assert not may_be_cut(500, version, headers)


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=8), st.booleans(), st.integers())), st.data())
def test_no_part_of_arguments_is_taken_for_all_of_them(arguments: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(arguments)
    cut = text[: data.draw(st.integers(1, len(text)))]
    response = ModelResponse([ToolCallPart("t", cut, "a")], finish_reason="stop")
    found = unfinished(response, ModelProfile("m", "openai-compatible", "m"))
    assert (found is None) is (cut == text)
