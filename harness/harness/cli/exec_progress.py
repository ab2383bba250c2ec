"""What ``harness exec`` says on stderr while the agent works: one line for what happens. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..agent.events import AgentPaused, AgentResumed, ConversationCompacted, ModelRetry, Notice
from ..toolkit.events import Event, Failure, SubagentStarted, ToolCallCompleted, ToolCallRequested
from ..toolkit.values import CallOutcome, CallStatus, ToolCall

__all__ = ["news_line", "progress_line"]

SUBJECTS = ("command", "path", "file_path", "url", "pattern", "query", "prompt", "literal_text", "job_id")
"""The arguments that say what a call is about, the first one that there is."""
SHOWN = 160


def news_line(event: Event) -> str:
    """What whoever reads the log of a run should know, watched or not; empty for the usual."""
    text = ""
    match event:
        case ModelRetry():
            text = f"the model is asked again in {event.seconds:.0f} s: {event.reason}"
        case Notice():
            text = event.text
        case Failure():
            text = event.message
        case AgentPaused():
            text = f"paused by {event.by}{f': {event.reason}' if event.reason else ''}"
        case AgentResumed():
            text = f"resumed by {event.by}"
        case ConversationCompacted():
            text = f"the conversation was put together: {event.before} messages are {event.after} now"
    return text


def progress_line(event: Event) -> str:
    """What happens, for people who watch; empty for what nobody needs to see."""
    match event:
        case ToolCallRequested():
            return f"{_who(event.call)}{event.call.name} {_subject(event.call)}".rstrip()
        case ToolCallCompleted() if event.outcome.status is not CallStatus.OK:
            return f"{_who(event.outcome.call)}{event.outcome.call.name}: {_ending(event.outcome)}"
        case SubagentStarted():
            return f"agent {event.agent_id} begins: {_cut(event.title or event.prompt)}"
    return ""


def _who(call: ToolCall) -> str:
    return f"[{call.agent_id}] " if call.agent_id not in ("", "agent") else ""


def _subject(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    texts = [value for name in SUBJECTS if isinstance(value := arguments.get(name), str) and value]
    return _cut(texts[0]) if texts else ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _ending(outcome: CallOutcome) -> str:
    first = outcome.result.text.strip().partition("\n")[0]
    return _cut(f"{outcome.status.value}: {first}" if first else outcome.status.value)
