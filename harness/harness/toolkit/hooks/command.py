"""Hooks that are programs: their settings, and how they run."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ...deprecated_names import renamed_fields
from ...errors import ConfigError, ToolError
from ...settings import SettingsTable
from ...system.child_process import ProgramOutput, run_program
from ..arguments import unique_keys
from ..pipeline import redact_typed_input, without_private
from ..redaction.patterns import MARK
from ..redaction.redactor import Redactor
from ..values import Json, JsonObject, ToolResult
from .dispatch import BEFORE, HookInvocation, HookResult, Matcher, RegisteredHook, event_named

__all__ = [
    "CommandHook",
    "answer_of",
    "environment",
    "hooks_of",
    "written",
]


# -- A hook that is a command: JSON on its standard input, JSON as its answer.
#
# A command that fails, times out or gives an invalid answer denies what it was asked about.


TIMEOUT = 5.0
STDOUT_KEPT = 1 << 20
"""Maximum bytes of an answer; a longer one is invalid."""
STDERR_KEPT = 1_024
"""Maximum bytes of standard error, for messages."""
log = logging.getLogger(__name__)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ")
_PREFIX = "HARNESS_HOOK_"
"""Not only ``HARNESS_``: ``HARNESS_TARGET`` would direct a harness that the hook starts to the target."""


class _HookOutput(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    decision: Literal["allow", "deny", "modify"]
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None
    result: str | None = None
    message: str | None = None


@renamed_fields(malformed="on_invalid_output")
@dataclass(frozen=True, slots=True)
class CommandHook:
    """A command that runs on this machine, never on the target.

    Args:
        command: words, or a command line for ``/bin/sh``.
        timeout: seconds.
        on_invalid_output: the decision for an invalid answer. Before a tool it is always to deny.
        env: variables in addition to the few that every hook gets.
    """

    command: tuple[str, ...] | str
    timeout: float = TIMEOUT
    on_invalid_output: Literal["deny", "allow"] | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, occasion: HookInvocation, redactor: Redactor) -> HookResult:
        argv = ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else self.command
        shown = written(occasion, redactor)
        data = json.dumps(shown).encode()
        try:
            found = await run_program(
                argv,
                data=data,
                env=environment(occasion, os.environ, self.env),
                timeout=self.timeout,
                stdout_limit=STDOUT_KEPT,
                stderr_limit=STDERR_KEPT,
                kills_group=True,
            )
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise ToolError(f"the hook {self.name} could not be started: {said}") from error
        answer = self._answer(found, occasion, redactor)
        return _restored(answer, occasion, shown)

    @property
    def name(self) -> str:
        """The program's name, for messages."""
        words = self.command.split() if isinstance(self.command, str) else self.command
        return os.path.basename(words[0]) if words else "without a command"

    def _answer(self, found: ProgramOutput, occasion: HookInvocation, redactor: Redactor) -> HookResult:
        if found.code is None:
            raise ToolError(f"the hook {self.name} took longer than {self.timeout:g} s")
        if found.code != 0:
            said = redactor.text(found.stderr.decode("utf-8", "replace")).strip()
            raise ToolError(said or f"the hook {self.name} failed with {_ended(found.code)}")
        try:
            return answer_of(found)
        except ValueError as error:
            if self._forgives(occasion):
                log.warning("the hook %s gave an invalid answer: %s", self.name, error)
                return HookResult()
            raise ToolError(f"the hook {self.name} gave an invalid answer: {error}") from error

    def _forgives(self, occasion: HookInvocation) -> bool:
        if occasion.event == "pre_tool":
            return False
        return self.on_invalid_output == "allow" or (self.on_invalid_output is None and occasion.event not in BEFORE)


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def answer_of(found: ProgramOutput) -> HookResult:
    """Parse the answer of a command; an empty answer allows. Pure.

    Raises:
        ValueError: the answer is invalid.
    """
    if len(found.stdout) > STDOUT_KEPT:
        raise ValueError(f"it is longer than {STDOUT_KEPT} bytes")
    if not found.stdout.strip():
        return HookResult()
    try:
        json.loads(found.stdout, object_pairs_hook=unique_keys)
        said = _HookOutput.model_validate_json(found.stdout)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    changes = (said.arguments, said.result, said.message)
    if (said.decision == "modify") == (changes == (None, None, None)):
        raise ValueError("modify requires arguments, result or message, and the other decisions must not have them")
    arguments = cast("JsonObject | None", said.arguments)
    return HookResult(said.decision, said.reason, arguments, said.result, said.message)


def _restored(answer: HookResult, occasion: HookInvocation, shown: JsonObject) -> HookResult:
    """Return the answer with the call's own values where the hook returned redacted ones.

    Raises:
        ToolError: a changed value still contains a redaction mark, so its real value is unknown.
    """
    answer = _restored_message(answer, occasion, shown)
    if answer.arguments is None or occasion.call is None or isinstance(occasion.call.arguments, str):
        return answer
    own = occasion.call.arguments
    redacted = cast("dict[str, Json]", cast("dict[str, Json]", shown["call"])["arguments"])
    values: dict[str, Json] = {}
    for name, value in answer.arguments.items():
        same = name in redacted and redacted[name] == value
        if not same and MARK in json.dumps(value):
            raise ToolError(f"a hook changed the argument {name!r} around a secret that it was not shown")
        values[name] = own[name] if same else value
    return HookResult(answer.decision, answer.reason, values, answer.result, answer.message)


def _restored_message(answer: HookResult, occasion: HookInvocation, shown: JsonObject) -> HookResult:
    if answer.message is None or MARK not in answer.message:
        return answer
    if answer.message == shown.get("message"):
        return replace(answer, message=occasion.message)
    raise ToolError("a hook changed the message around a secret that it was not shown")


def written(occasion: HookInvocation, redactor: Redactor) -> JsonObject:
    """Return the invocation as JSON for a command, redacted and without input typed into a pane. Pure."""
    value: dict[str, Json] = {
        "event": occasion.event,
        "target": occasion.target,
        "session": occasion.session_id,
        "agent": occasion.agent_id,
        "cwd": occasion.cwd,
        "data": dict(redactor.json(occasion.data)),
    }
    if occasion.call is not None:
        arguments = occasion.call.arguments
        shown: Json = redactor.text(arguments) if isinstance(arguments, str) else _shown(occasion, redactor, arguments)
        value["call"] = {"id": occasion.call.call_id, "tool": occasion.call.name, "arguments": shown}
        value["paths"] = [redactor.text(path) for path in occasion.paths or ()]
    if occasion.result is not None:
        value["result"] = _result(redactor.result(occasion.result))
    if occasion.message:
        value["message"] = redactor.text(occasion.message)
    return value


def _shown(occasion: HookInvocation, redactor: Redactor, arguments: JsonObject) -> dict[str, Json]:
    return dict(without_private(redact_typed_input(redactor.json(arguments), occasion.typed_into), occasion.private))


def _result(result: ToolResult) -> Json:
    return {"text": result.text, "is_error": result.is_error, "error_code": result.error_code}


def environment(occasion: HookInvocation, ours: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return a command's complete environment: basic variables, no secrets, and facts about the invocation. Pure."""
    kept = {name: value for name, value in ours.items() if name in _KEPT or name.startswith("LC_")}
    about = {
        "EVENT": occasion.event,
        "TARGET": occasion.target,
        "SESSION": occasion.session_id,
        "AGENT": occasion.agent_id,
        "TOOL": occasion.call.name if occasion.call is not None else "",
        "CALL": occasion.call.call_id if occasion.call is not None else "",
    }
    return {**kept, **more, **{_PREFIX + name: value.replace("\0", "") for name, value in about.items() if value}}


# -- The ``[hooks]`` table of the settings files: commands by event.


LONGEST = 300.0


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    command: str | list[str] = Field(min_length=1)
    tools: list[str] = []
    targets: list[str] = []
    paths: list[str] = []
    timeout: float = Field(TIMEOUT, gt=0, le=LONGEST)
    on_invalid_output: Literal["deny", "allow"] | None = None
    background: bool = Field(False, alias="async")
    env: dict[str, str] = {}


def hooks_of(tables: Iterable[SettingsTable]) -> tuple[RegisteredHook, ...]:
    """Return the hooks of all files in order, those of the user's own file first.

    Raises:
        ConfigError: an event is unknown, an entry is invalid, or a file that is not trusted has entries.
    """
    return tuple(one for table in tables for one in _of(table))


def _of(table: SettingsTable) -> Iterable[RegisteredHook]:
    if table.values and not table.trusted:
        raise ConfigError(
            f"{table.origin}: hooks run programs on this machine, and this directory is not trusted",
            hint="after reading the file, add the directory to trusted_dirs in your own settings",
        )
    for name, entries in table.values.items():
        where = f"{table.origin}: hooks.{name}"
        if not isinstance(entries, list):
            raise ConfigError(f"{where} is not a list of tables", hint=f"write [[hooks.{name}]]")
        for entry in entries:
            yield _registered(where, name, entry)


def _registered(where: str, name: str, entry: Mapping[str, Any]) -> RegisteredHook:
    try:
        event = event_named(name)
        found = _Entry.model_validate(entry)
        if found.on_invalid_output == "allow" and event == "pre_tool":
            raise ValueError(
                "on_invalid_output = 'allow' is not possible for pre_tool: an invalid answer always denies"
            )
        command = found.command if isinstance(found.command, str) else tuple(found.command)
        handler = CommandHook(command, found.timeout, found.on_invalid_output, dict(found.env))
        matcher = Matcher(tuple(found.tools), tuple(found.targets), tuple(found.paths))
        return RegisteredHook(event, handler, matcher, found.background)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}.{key}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
