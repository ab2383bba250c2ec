"""Tools that run a program of the target, declared in a file: declarations and calls."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from ..errors import ConfigError, ToolError
from ..results import ShellResult
from .contract import NAME, Arguments, MutatingArguments, Tool, ToolContext, Traits
from .results import BLOCK_LIMIT, note_job, progress_of, shell_result
from .values import Category, Json, JsonObject, Subject, Text, ToolResult

__all__ = [
    "CommandSpec",
    "CommandTool",
    "Parameter",
    "arguments_model",
    "command_words",
    "parse_specs",
    "quote_word",
]


# -- The declaration of a tool that runs a program of the target, and its validation.


FLAG = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]*")
BINARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*|(/[A-Za-z0-9_.+-]+)+")
TIMEOUT = 60.0
Kind = Literal["string", "integer", "number", "boolean", "array"]
Style = Literal["", "equals", "attached", "separate"]
TYPES: dict[Kind, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list[str]}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Parameter(_Strict):
    """One argument. It is passed with a ``flag``, as a positional, or on the program's standard input.

    ``style`` is how a value follows its flag: ``equals`` (``--depth=2``, the default for flags with two dashes),
    ``attached`` (``-d2``, for flags of one letter) or ``separate`` (``-depth 2``, for the others; the value may then
    not start with ``-``). A boolean passes its flag alone if true; an array passes each item. ``pattern`` is a regular
    expression that must match the complete text.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    type: Kind = "string"
    description: str = ""
    required: bool = False
    default: str | int | float | bool | list[str] | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    minimum: int | float | None = None
    maximum: int | float | None = None
    flag: str = ""
    style: Style = ""
    positional: bool = False

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.flag and self.positional:
            raise ValueError(f"{self.name}: flag and positional contradict each other")
        if self.flag and not FLAG.fullmatch(self.flag):
            raise ValueError(f"{self.name}: {self.flag!r} is not a flag")
        if self.type == "boolean" and not self.flag:
            raise ValueError(f"{self.name}: a boolean requires a flag")
        if (self.choices or self.pattern) and self.type != "string":
            raise ValueError(f"{self.name}: choices and pattern are for strings")
        if self.style == "equals" and not self.flag.startswith("--"):
            raise ValueError(f"{self.name}: only a flag with two dashes can have a value after '='")
        return self if self.style or not self.flag else self.model_copy(update={"style": self._usual_style()})

    def _usual_style(self) -> Style:
        if self.flag.startswith("--"):
            return "equals"
        return "attached" if len(self.flag) == 2 else "separate"


class CommandSpec(_Strict):
    """A declared tool. ``timeout`` is in seconds; ``success`` are the exit codes that are not errors.

    ``divider`` False: the program does not support ``--``, so positional values may not start with ``-``.
    """

    name: str
    description: str = Field(min_length=1)
    binary: str
    words: tuple[str, ...] = ()
    parameter: tuple[Parameter, ...] = ()
    stdin: str = ""
    divider: bool = True
    mutating: bool = True
    parallelizable: bool = False
    timeout: float = Field(TIMEOUT, gt=0, le=86400)
    success: tuple[int, ...] = (0,)
    requires: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    packs: tuple[str, ...] = ()

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("use letters, digits, _ and -, at most 64")
        return name

    @field_validator("binary")
    @classmethod
    def _program(cls, binary: str) -> str:
        if not BINARY.fullmatch(binary):
            raise ValueError("name a program, or give its absolute path")
        return binary

    @model_validator(mode="after")
    def _sound(self) -> Self:
        twice = [name for name, count in Counter(one.name for one in self.parameter).items() if count > 1]
        if twice:
            raise ValueError(f"the parameter {twice[0]} is declared twice")
        if "--" in self.words or any("\0" in word for word in self.words):
            raise ValueError("words contain '--' or a NUL byte")
        for one in self.parameter:
            if (one.name == self.stdin) is bool(one.flag or one.positional):
                raise ValueError(f"{one.name}: it must be exactly one of flag, positional and standard input")
        if self.stdin and self.stdin not in {one.name for one in self.parameter}:
            raise ValueError(f"stdin: unknown parameter {self.stdin}")
        return self


def arguments_model(spec: CommandSpec) -> type[BaseModel]:
    """Build the model of the tool's arguments, in the order of the declaration.

    Raises:
        ValueError: a parameter's name, pattern or default is invalid.
    """
    base = MutatingArguments if spec.mutating else Arguments
    taken = [one.name for one in spec.parameter if one.name in base.model_fields]
    if taken:
        raise ValueError(f"{spec.name}: {taken[0]} is a reserved argument name")
    fields: dict[str, Any] = {one.name: _field(one) for one in spec.parameter}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "json" and "copy" hide model methods that are not used here
            for one in spec.parameter:
                if not one.required:  # detects an invalid default now, not at each call
                    create_model("default", **{one.name: fields[one.name]})()
            return create_model(f"{spec.name}_arguments", __base__=base, **fields)
    except (NameError, TypeError) as error:
        raise ValueError(f"{spec.name}: {error}") from error
    except Exception as error:
        raise ValueError(f"{spec.name}: a parameter is invalid: {error}") from error


def _field(parameter: Parameter) -> tuple[Any, Any]:
    kind: Any = Literal[parameter.choices] if parameter.choices else TYPES[parameter.type]
    optional = not parameter.required and parameter.default is None
    default = ... if parameter.required else parameter.default
    limits: dict[str, Any] = (
        {"ge": parameter.minimum, "le": parameter.maximum} if parameter.type in ("integer", "number") else {}
    )
    pattern = f"^(?:{parameter.pattern})$" if parameter.pattern else None
    return (
        kind | None if optional else kind,
        Field(default, description=parameter.description or None, pattern=pattern, validate_default=True, **limits),
    )


class _File(_Strict):
    tool: tuple[CommandSpec, ...] = ()


def parse_specs(raw: dict[str, Any], origin: str | Path) -> tuple[CommandSpec, ...]:
    """Parse the declarations in a file.

    Raises:
        ConfigError: one of them is invalid; the message names the file and the key.
    """
    try:
        return _File.model_validate(raw).tool
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        reason = detail["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{origin}: {where}: {reason[:1].lower()}{reason[1:]}") from error


# -- Tools that run a program of the target, declared in a file instead of in Python.
#
# ::
#
#     [[tool]]
#     name = "disk_usage"
#     description = "Show the disk usage of the directories below a path."
#     binary = "du"
#     words = ["-k"]                  # always passed first
#
#     [[tool.parameter]]
#     name = "depth"
#     type = "integer"
#     description = "how many levels to show"
#     flag = "--max-depth"            # --max-depth=2
#
#     [[tool.parameter]]
#     name = "path"
#     required = true
#     positional = true               # after --
#
# The words of the command are, in this order: the binary, ``words``, the options in the order of their parameters,
# ``--``, and the positional values in the order of theirs. Each word is quoted, so a value is always one word. No value
# can be parsed as an option: it is joined to its flag, follows ``--``, or may not start with ``-``.
#
# The program runs on the target. Its standard output is the result; if it is JSON, it is also the result's data.


PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")
SPECIAL = re.compile(r"(['\\])")


def quote_word(word: str) -> str:
    """Quote a word for the shell of any pane; POSIX shells and fish treat quoted backslashes differently. Pure."""
    if PLAIN.fullmatch(word):
        return word
    pieces = [piece for piece in SPECIAL.split(word) if piece] or [""]
    doubled = {"'": '"\'"', "\\": r'"\\"'}
    return "".join(doubled.get(piece, f"'{piece}'") for piece in pieces)


def command_words(spec: CommandSpec, values: Mapping[str, Any]) -> list[str]:
    """Return the words of the command for valid arguments. Pure.

    Raises:
        ToolError: ``invalid_args``: a value would be parsed as an option or contains a NUL byte.
    """
    options = [word for one in spec.parameter if one.flag for word in _option(one, values.get(one.name))]
    operands = [word for one in spec.parameter if one.positional for word in _operand(spec, one, values.get(one.name))]
    divider = ["--"] if operands and spec.divider else []
    return [*_program(spec), *spec.words, *options, *divider, *operands]


def _program(spec: CommandSpec) -> list[str]:
    """Return the words for the program; a name is only searched in PATH, never as an alias or a function."""
    return [spec.binary] if "/" in spec.binary else ["command", spec.binary]


def _items(parameter: Parameter, value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list | tuple) else () if value is None else (value,):
        text = item if isinstance(item, str) else json.dumps(item)
        if "\0" in text:
            raise _refused(parameter, "it holds a NUL byte")
        yield text


def _option(parameter: Parameter, value: Any) -> Iterator[str]:
    if parameter.type == "boolean":
        yield from (parameter.flag,) * bool(value)
        return
    for text in _items(parameter, value):
        if parameter.style == "equals":
            yield f"{parameter.flag}={text}"
        elif parameter.style == "attached":
            if not text:
                raise _refused(parameter, "it is empty, and the next word would be taken for it")
            yield f"{parameter.flag}{text}"
        else:
            yield from (parameter.flag, _no_option(parameter, text))


def _operand(spec: CommandSpec, parameter: Parameter, value: Any) -> Iterator[str]:
    for text in _items(parameter, value):
        yield text if spec.divider else _no_option(parameter, text)


def _no_option(parameter: Parameter, text: str) -> str:
    if text.startswith("-"):
        raise _refused(parameter, "it starts with '-' and would be taken for an option")
    return text


def _refused(parameter: Parameter, reason: str) -> ToolError:
    return ToolError(f"{parameter.name}: {reason}", code="invalid_args")


class CommandTool(Tool[Any]):
    """A declared tool.

    Raises:
        ValueError: the declaration contradicts itself.
    """

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec.name, spec.description, arguments_model(spec), _traits(spec))
        self.spec = spec

    def command(self, args: Any) -> str:
        """Return the exact command line.

        Raises:
            ToolError: ``invalid_args``, as :func:`command_words`.
        """
        return " ".join(quote_word(word) for word in command_words(self.spec, dict(args)))

    def parse(self, raw: JsonObject) -> Any:
        """See :meth:`Tool.parse`; a value that would be parsed as an option is also an error."""
        args = super().parse(raw)
        self.command(args)
        return args

    def subjects(self, args: Any) -> tuple[Subject, ...]:
        """Return the command."""
        return (Subject("command", self.command(args)),)

    def covered_arguments(self) -> frozenset[str]:
        """Return all arguments but the standard input."""
        return frozenset(one.name for one in self.spec.parameter if one.name != self.spec.stdin)

    def private_arguments(self, args: Any) -> frozenset[str]:
        """Return the standard input."""
        return frozenset({self.spec.stdin}) if self.spec.stdin else frozenset()

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        given = [value for name, value in args if name == self.spec.stdin]
        done = await ctx.execution.run_shell(
            self.command(args),
            timeout=self.spec.timeout,
            on_timeout="kill",
            cwd=ctx.cwd,
            stdin=_stdin(given[0]) if given and given[0] is not None else None,
            tty=False,
            on_output=progress_of(ctx),
        )
        note_job(done, ctx)
        return _with_data(shell_result(done, success=self.spec.success, ctx=ctx), done, self.spec.success)


def _stdin(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _with_data(result: ToolResult, done: ShellResult, success: Collection[int]) -> ToolResult:
    """Return the program's output as the result, with its JSON as data; a failure has a command's format."""
    parsed = _parsed(done)
    data = result.data if parsed is None else parsed
    if result.is_error or done.exit_code not in success:
        return replace(result, data=data)
    errors = [f"stderr:\n{done.stderr}"] if done.stderr else []
    text = "\n".join([*([done.stdout] if done.stdout else []), *errors, *done.notices])
    return replace(result, content=(Text(text or "(no output)"),), data=data)


def _parsed(done: ShellResult) -> Json:
    """Return the output as JSON; None if it is not JSON, or too large for clients that receive all data."""
    if done.truncated or len(done.stdout_bytes) > BLOCK_LIMIT:
        return None
    try:
        parsed: Json = json.loads(done.stdout_bytes, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    return parsed


def _no_json(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _traits(spec: CommandSpec) -> Traits:
    return Traits(
        category=Category.SHELL,
        mutating=spec.mutating,
        parallelizable=spec.parallelizable,
        requires=(spec.binary, *spec.requires),
        aliases=spec.aliases,
        packs=spec.packs,
    )
