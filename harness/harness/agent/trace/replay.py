"""A trace as people read it: what was asked, answered, called and decided, one after the other. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...toolkit.values import JsonObject
from .reading import TracedTurn, number, text

__all__ = ["replayed"]

SHOWN = 12
"""Lines of an output that are shown."""
WIDTH = 500
"""Characters of one line that are shown."""


def replayed(turns: Sequence[TracedTurn], *, whole: bool = False) -> Iterator[str]:
    """The lines of a replay. Texts are as they were traced: whoever prints them makes control characters visible.

    Args:
        whole: all of every output, else the beginning and the end.
    """
    for turn in turns:
        began = turn.lines[0].at
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
        yield f"== turn {turn.place}, {when}"
        for line in turn.lines:
            shown = SHOWERS.get(line.kind)
            if shown is not None:
                head, body = shown(line.values)
                yield f"{line.at - began:9.3f} {'  ' if line.values.get('parent_call') else ''}{head}"
                yield from (f"          | {part}" for part in _cut(body, whole=whole))
        if turn.lines[-1].kind != "turn_completed":
            yield "          it has no end in this trace"


Shown = tuple[str, str]


def _started(values: JsonObject) -> Shown:
    return f"prompt ({text(values, 'origin') or 'operator'})", text(values, "prompt")


def _request(values: JsonObject) -> Shown:
    sizes = f"{_count(number(values, 'messages'), 'message')}, {number(values, 'new_bytes'):g} bytes of them new"
    return f"request {number(values, 'step'):g} to {text(values, 'model')}: {sizes}", ""


def _response(values: JsonObject) -> Shown:
    usage = _object(values, "usage")
    used = f"{number(usage, 'input_tokens'):g} tokens in, {number(usage, 'output_tokens'):g} out"
    first = values.get("first_seconds")
    began = f", the first after {first:.2f} s" if isinstance(first, int | float) else ""
    return f"answer after {number(values, 'seconds'):.2f} s{began}: {used}", ""


def _failure(values: JsonObject) -> Shown:
    return f"no answer after {number(values, 'seconds'):.2f} s", text(values, "error")


def _retry(values: JsonObject) -> Shown:
    return f"asked again in {number(values, 'seconds'):.1f} s", text(values, "reason")


def _answer(values: JsonObject) -> Shown:
    calls = number(values, "calls")
    return "said" + (f", with {_count(calls, 'call')}" if calls else ""), text(values, "text")


def _call(values: JsonObject) -> Shown:
    call = _object(values, "call")
    arguments = call.get("arguments")
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"call {text(call, 'name')} [{text(call, 'call_id')[:8]}]", shown


def _outcome(values: JsonObject) -> Shown:
    outcome = _object(values, "outcome")
    call, content = _object(outcome, "call"), _object(outcome, "result").get("content")
    blocks = content if isinstance(content, list) else []
    said = "\n".join(text(block, "text") or f"[{_media(block)}]" for block in blocks if isinstance(block, dict))
    name, call_id = text(call, "name"), text(call, "call_id")[:8]
    waited = number(outcome, "waited")
    leave = f", of which {waited:.2f} s waiting for leave" if waited >= 0.01 else ""
    return f"{name} [{call_id}] {text(outcome, 'status')} after {number(outcome, 'seconds'):.2f} s{leave}", said


def _media(block: JsonObject) -> str:
    return f"{text(block, 'media_type')}, {number(_object(block, 'data'), 'bytes'):g} bytes"


def _asked(values: JsonObject) -> Shown:
    return f"approval asked: {text(values, 'reason')}", text(values, "what")


def _replied(values: JsonObject) -> Shown:
    answer = "allowed" if values.get("allowed") is True else "refused"
    return f"{answer} by {text(values, 'by')}", text(values, "reason")


def _ended(values: JsonObject) -> Shown:
    seconds, steps = number(values, "seconds"), number(values, "steps")
    answers = _count(steps, "answer")
    return f"the turn {text(values, 'status')} after {seconds:.2f} s and {answers}", text(values, "failure")


def _job(values: JsonObject) -> Shown:
    return f"job {text(values, 'job_id')} is left running", text(values, "command")


def _job_ended(values: JsonObject) -> Shown:
    code = values.get("exit_code")
    return f"job {text(values, 'job_id')} has ended" + (f" with exit code {code}" if code is not None else ""), ""


def _link(values: JsonObject) -> Shown:
    return f"the link to {text(values, 'target')} was lost, and is back after {number(values, 'seconds'):.1f} s", ""


def _plain(head: str, body: str = "") -> Callable[[JsonObject], Shown]:
    return lambda values: (head, text(values, body) if body else "")


SHOWERS: Mapping[str, Callable[[JsonObject], Shown]] = {
    "turn_started": _started,
    "model_request": _request,
    "model_response": _response,
    "model_failure": _failure,
    "model_retry": _retry,
    "answer_completed": _answer,
    "tool_call_requested": _call,
    "tool_call_completed": _outcome,
    "permission_asked": _asked,
    "permission_replied": _replied,
    "job_started": _job,
    "job_exited": _job_ended,
    "link_back": _link,
    "subagent_started": _plain("a sub-agent begins", "prompt"),
    "subagent_completed": _plain("the sub-agent has ended"),
    "agent_paused": _plain("paused", "reason"),
    "agent_resumed": _plain("resumed", "meanwhile"),
    "conversation_compacted": _plain("older messages were put together", "summary"),
    "model_changed": _plain("another model", "name"),
    "failure": _plain("failure", "message"),
    "notice": _plain("notice", "text"),
    "turn_completed": _ended,
}


def _count(number_of: float, what: str) -> str:
    return f"{number_of:g} {what}" if number_of == 1 else f"{number_of:g} {what}s"


def _object(values: JsonObject, name: str) -> JsonObject:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _cut(body: str, *, whole: bool) -> list[str]:
    lines = body.splitlines()
    if whole:
        return lines
    lines = [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]
    if len(lines) <= SHOWN:
        return lines
    half = SHOWN // 2
    return [*lines[:half], f"[{len(lines) - 2 * half} lines]", *lines[-half:]]
