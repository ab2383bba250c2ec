"""Tools that are a program of the target, declared in a file instead of being written.

::

    [[tool]]
    name = "disk_usage"
    description = "How much room the directories below a path take."
    binary = "du"
    words = ["-k"]                  # always given, first

    [[tool.parameter]]
    name = "depth"
    type = "integer"
    description = "how many levels to show"
    flag = "--max-depth"            # --max-depth=2

    [[tool.parameter]]
    name = "path"
    required = true
    positional = true               # after --

The words of the command are, in this order: the binary, ``words``, the options in the order of their parameters,
``--``, and the positional values in the order of theirs. Each word is quoted, so that no value is more than one word,
and no value becomes an option: it is joined to its flag, or stands behind ``--``, or may not start with ``-``.

The program runs on the target. Its standard output is the result; when that is JSON, it is the result's data, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..errors import ToolError
from ..results import ShellResult
from .commandspec import CommandSpec, Parameter, arguments_model
from .context import ToolContext
from .contract import Tool, Traits
from .limits import BLOCK_LIMIT
from .shellresults import note_job, progress_of, shell_result
from .values import Category, Json, JsonObject, Subject, Text, ToolResult

__all__ = ["CommandTool", "command_words", "quote_word"]

PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")
SPECIAL = re.compile(r"(['\\])")


def quote_word(word: str) -> str:
    """One word for the shell of any pane. POSIX shells and fish differ in what a backslash in quotes means. Pure."""
    if PLAIN.fullmatch(word):
        return word
    pieces = [piece for piece in SPECIAL.split(word) if piece] or [""]
    doubled = {"'": '"\'"', "\\": r'"\\"'}
    return "".join(doubled.get(piece, f"'{piece}'") for piece in pieces)


def command_words(spec: CommandSpec, values: Mapping[str, Any]) -> list[str]:
    """The words of the command for arguments that are valid. Pure.

    Raises:
        ToolError: ``invalid_args``: a value would be taken for an option, or holds what no word can.
    """
    options = [word for one in spec.parameter if one.flag for word in _option(one, values.get(one.name))]
    operands = [word for one in spec.parameter if one.positional for word in _operand(spec, one, values.get(one.name))]
    divider = ["--"] if operands and spec.divider else []
    return [*_program(spec), *spec.words, *options, *divider, *operands]


def _program(spec: CommandSpec) -> list[str]:
    """A name is looked up on PATH alone: in an operator's shell it could be an alias or a function."""
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
        """The exact text that runs.

        Raises:
            ToolError: ``invalid_args``, as :func:`command_words`.
        """
        return " ".join(quote_word(word) for word in command_words(self.spec, dict(args)))

    def parse(self, raw: JsonObject) -> Any:
        """See :meth:`Tool.parse`; a value that would be taken for an option is a mistake, too."""
        args = super().parse(raw)
        self.command(args)
        return args

    def subjects(self, args: Any) -> tuple[Subject, ...]:
        """The command."""
        return (Subject("command", self.command(args)),)

    def told(self) -> frozenset[str]:
        """All but the standard input."""
        return frozenset(one.name for one in self.spec.parameter if one.name != self.spec.stdin)

    def private_arguments(self, args: Any) -> frozenset[str]:
        """The standard input."""
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
    """What the program printed, with its data when that is JSON; a failure is told as one of a command."""
    parsed = _parsed(done)
    data = result.data if parsed is None else parsed
    if result.is_error or done.exit_code not in success:
        return replace(result, data=data)
    errors = [f"stderr:\n{done.stderr}"] if done.stderr else []
    text = "\n".join([*([done.stdout] if done.stdout else []), *errors, *done.notices])
    return replace(result, content=(Text(text or "(no output)"),), data=data)


def _parsed(done: ShellResult) -> Json:
    """The output as data; None when it is none, or too much for clients that are sent data whole."""
    if done.truncated or len(done.stdout_bytes) > BLOCK_LIMIT:
        return None
    try:
        parsed: Json = json.loads(done.stdout_bytes, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    return parsed


def _no_json(word: str) -> Json:
    raise ValueError(f"{word} is no JSON")


def _traits(spec: CommandSpec) -> Traits:
    return Traits(
        category=Category.SHELL,
        mutating=spec.mutating,
        parallelizable=spec.parallelizable,
        requires=(spec.binary, *spec.requires),
        aliases=spec.aliases,
        packs=spec.packs,
    )
