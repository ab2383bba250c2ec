"""Conversations as they come out of accidents, and what each provider demands of the ones that it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

__all__ = ["PNG", "conversations", "problems", "user_texts"]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


# -- accidents

TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "yes", "df -h", "a\x00b", "<think>", "caf\u00e9", "\udc80 raw", "\U0001f600"]),
    st.text(st.characters(codec=None, categories=["Lu", "Ll", "Zs", "Cc", "Cs", "So"]), max_size=12),
)
IDS = st.sampled_from(["a", "b", "call_0", "call_0_2", "", "functions.run_shell:0", "x" * 70, "a|fc_1"])
NAMES = st.sampled_from(["run_shell", "read_file", "", "functions.x", "1st", "n" * 80])
ARGUMENTS = st.sampled_from(
    [
        *(None, "", "{}", '{"command": "df"}', '{"command": "d', "[1]", '{"x": NaN}', '{"x": "\udc80"}'),
        *({"x": 1.5}, {"x": float("inf")}, {"\udcff": ["\udc80"]}),
    ]
)
PROVIDERS = st.sampled_from([None, "openai", "anthropic", "google"])
DETAILS = st.sampled_from([None, {"thought_signature": "c2ln"}, {"raw_content": ["hm"]}])

prompts = st.one_of(
    st.builds(UserPromptPart, TEXTS, timestamp=st.just(NOW)),
    st.builds(UserPromptPart, st.lists(TEXTS, max_size=3), timestamp=st.just(NOW)),
    st.builds(SystemPromptPart, TEXTS, timestamp=st.just(NOW)),
    st.builds(lambda text: RetryFeedbackPart(text, retry=RetryInfo(cause="model_retry"), timestamp=NOW), TEXTS),
)
contents = st.one_of(
    TEXTS,
    st.lists(st.one_of(TEXTS, st.just(BinaryImage(PNG, media_type="image/png"))), max_size=2),
    st.sampled_from([None, {"exit_code": 1.5}, {"x": float("nan")}]),
)
results = st.builds(
    ToolReturnPart,
    NAMES,
    contents,
    IDS,
    outcome=st.sampled_from(["success", "failed", "denied"]),
    timestamp=st.just(NOW),
)
thoughts = st.builds(
    ThinkingPart,
    TEXTS,
    id=st.sampled_from([None, "rs_1", "content", "reasoning_content"]),
    signature=st.sampled_from([None, "", "c2lnbmVk"]),
    provider_name=PROVIDERS,
    provider_details=DETAILS,
)
answers = st.one_of(
    st.builds(TextPart, TEXTS, id=st.sampled_from([None, "msg_1"]), provider_name=PROVIDERS),
    thoughts,
    st.builds(
        ToolCallPart,
        NAMES,
        ARGUMENTS,
        IDS,
        id=st.sampled_from([None, "fc_1"]),
        provider_name=PROVIDERS,
        provider_details=DETAILS,
    ),
)
requests = st.builds(ModelRequest, st.lists(st.one_of(prompts, results), max_size=4), timestamp=st.just(NOW))
responses = st.builds(
    ModelResponse,
    st.lists(answers, max_size=4),
    timestamp=st.just(NOW),
    provider_name=PROVIDERS,
    state=st.sampled_from(["complete", "complete", "interrupted", "incomplete"]),
)


def conversations() -> st.SearchStrategy[list[ModelMessage]]:
    """Any requests and answers in any order: calls with and without results, results without calls, halves, nothing."""
    return st.lists(st.one_of(requests, responses), max_size=9)


def user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """All that was said to the model and is no result of a call, in its order."""
    found: list[str] = []
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                items = [part.content] if isinstance(part.content, str) else part.content
                found += [item for item in items if isinstance(item, str)]
            elif isinstance(part, SystemPromptPart | RetryFeedbackPart):
                found.append(str(part.content))
    return found


# -- what providers demand


def problems(messages: Sequence[ModelMessage]) -> list[str]:
    """What some provider would refuse a conversation for."""
    found: list[str] = []
    if messages and not isinstance(messages[0], ModelRequest):
        found.append("begins with an answer (Anthropic, Gemini)")
    for one, other in pairwise(messages):
        if type(one) is type(other):
            found.append("does not alternate (Anthropic, Gemini)")
    before: Sequence[ToolCallPart] = ()
    used: set[str] = set()
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            found += [f"{place}: {problem}" for problem in _answer_problems(message, used)]
            before = message.tool_calls
            if before and place + 1 == len(messages):
                found.append("ends with calls that nobody answered (all)")
        else:
            found += [f"{place}: {problem}" for problem in _request_problems(message, before)]
            before = ()
    return found


def _request_problems(request: ModelRequest, calls: Sequence[ToolCallPart]) -> list[str]:
    found = [] if request.parts else ["an empty request (Anthropic)"]
    given = [part for part in request.parts if isinstance(part, ToolReturnPart)]
    if [(call.tool_call_id, call.tool_name) for call in calls] != [(one.tool_call_id, one.tool_name) for one in given]:
        found.append("results do not match the calls (all)")
    if list(request.parts[: len(given)]) != given:
        found.append("something stands before a result (Anthropic, OpenAI chat)")
    for part in request.parts:
        if not isinstance(part, ToolReturnPart | UserPromptPart):
            found.append(f"{type(part).__name__} (Anthropic takes none in the middle)")
        elif any(isinstance(item, str) and not item.strip() for item in _items(part.content)):
            found.append("a blank text (Anthropic)")
        elif not _can_be_sent(part.content):
            found.append("what is no character, or no number (the HTTP client)")
    return found


def _items(content: object) -> Sequence[object]:
    return content if isinstance(content, list | tuple) else [content]


def _answer_problems(response: ModelResponse, used: set[str]) -> list[str]:
    found = [] if response.parts else ["an empty answer (OpenAI, Anthropic)"]
    if response.parts and isinstance(response.parts[-1], ThinkingPart):
        found.append("reasoning at the end (Anthropic, OpenAI responses)")
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            found += _call_problems(part, used)
        elif isinstance(part, TextPart) and not part.content.strip():
            found.append("a blank text (Anthropic)")
        elif isinstance(part, ThinkingPart) and (
            response.state != "complete" or not (part.signature or part.id or part.provider_details)
        ):
            found.append("reasoning that would be sent as words (all)")
        if not _can_be_sent(getattr(part, "content", "")):
            found.append("what is no character (the HTTP client)")
    return found


def _call_problems(call: ToolCallPart, used: set[str]) -> list[str]:
    found = []
    if call.tool_call_id in used:
        found.append("an id twice (Anthropic)")
    used.add(call.tool_call_id)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call.tool_call_id):
        found.append(f"the id {call.tool_call_id!r} (Anthropic, OpenAI)")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", call.tool_name):
        found.append(f"the name {call.tool_name!r} (OpenAI, Anthropic, Gemini)")
    if not _can_be_sent(call.args_as_dict()) or not _can_be_sent(call.args_as_json_str()):
        found.append("arguments that cannot be sent (the HTTP client)")
    return found


def _can_be_sent(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False, default=str).encode()
    except ValueError:
        return False
    return True
