"""How a tool that is a program of the target is declared, and what makes a declaration sound."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from ..errors import ConfigError
from .contract import NAME, Arguments, MutatingArguments

__all__ = ["CommandSpec", "Parameter", "arguments_model", "parse_specs"]

FLAG = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]*")
BINARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*|(/[A-Za-z0-9_.+-]+)+")
TIMEOUT = 60.0
Kind = Literal["string", "integer", "number", "boolean", "array"]
Style = Literal["", "equals", "attached", "separate"]
TYPES: dict[Kind, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list[str]}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Parameter(_Strict):
    """One argument. It goes to a ``flag``, to a position, or to the program's standard input.

    ``style`` says how a value is given to its flag: ``equals`` (``--depth=2``, the default of flags with two dashes),
    ``attached`` (``-d2``, of one letter) or ``separate`` (``-depth 2``, of the rest; the value may not start with ``-``
    then). A boolean is its flag alone, when it is true; an array is given item by item. ``pattern`` is a regular
    expression that the whole of a text must match.
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
            raise ValueError(f"{self.name}: {self.flag!r} is no flag")
        if self.type == "boolean" and not self.flag:
            raise ValueError(f"{self.name}: a boolean needs a flag")
        if (self.choices or self.pattern) and self.type != "string":
            raise ValueError(f"{self.name}: choices and pattern are for strings")
        if self.style == "equals" and not self.flag.startswith("--"):
            raise ValueError(f"{self.name}: only a flag with two dashes takes a value after '='")
        return self if self.style or not self.flag else self.model_copy(update={"style": self._usual_style()})

    def _usual_style(self) -> Style:
        if self.flag.startswith("--"):
            return "equals"
        return "attached" if len(self.flag) == 2 else "separate"


class CommandSpec(_Strict):
    """A declared tool. ``timeout`` is in seconds; ``success`` are the exit codes that are no error.

    ``divider`` False: the program does not know ``--``, so positional values may not start with ``-``.
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
            raise ValueError("use letters, digits, _ and -, 64 at most")
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
            raise ValueError(f"the parameter {twice[0]} is there twice")
        if "--" in self.words or any("\0" in word for word in self.words):
            raise ValueError("words hold '--' or a NUL byte")
        for one in self.parameter:
            if (one.name == self.stdin) is bool(one.flag or one.positional):
                raise ValueError(
                    f"{one.name}: say whether it is a flag, positional or the standard input, and only one"
                )
        if self.stdin and self.stdin not in {one.name for one in self.parameter}:
            raise ValueError(f"stdin: there is no parameter {self.stdin}")
        return self


def arguments_model(spec: CommandSpec) -> type[BaseModel]:
    """The model of the tool's arguments, in the order of the declaration.

    Raises:
        ValueError: a parameter's name, pattern or default cannot be had.
    """
    base = MutatingArguments if spec.mutating else Arguments
    taken = [one.name for one in spec.parameter if one.name in base.model_fields]
    if taken:
        raise ValueError(f"{spec.name}: {taken[0]} is an argument that every such tool has")
    fields: dict[str, Any] = {one.name: _field(one) for one in spec.parameter}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "json" and "copy" hide methods of models that nobody calls here
            for one in spec.parameter:
                if not one.required:  # so that a default that is none is found now, not at each call
                    create_model("default", **{one.name: fields[one.name]})()
            return create_model(f"{spec.name}_arguments", __base__=base, **fields)
    except (NameError, TypeError) as error:
        raise ValueError(f"{spec.name}: {error}") from error
    except Exception as error:
        raise ValueError(f"{spec.name}: a parameter cannot be had: {error}") from error


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
    """The declarations in a file's content.

    Raises:
        ConfigError: one of them is wrong; the message names the file and the key.
    """
    try:
        return _File.model_validate(raw).tool
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        reason = detail["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{origin}: {where}: {reason[:1].lower()}{reason[1:]}") from error
