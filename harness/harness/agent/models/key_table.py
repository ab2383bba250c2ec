"""Validates tables of settings files that say where a secret is kept, such as the ``key`` of a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...command import parse_duration
from .keys import CommandKey, EnvironmentKey, FileKey, KeyringKey, KeySource

__all__ = ["Duration", "KeyTable"]


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_seconds), Field(ge=0.1, le=86_400, strict=False, allow_inf_nan=False)]


class KeyTable(BaseModel):
    """A table that says where a secret is kept: one of four sources."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, hide_input_in_errors=True)

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None
    command: Annotated[list[str], Field(min_length=1)] | None = None
    timeout: Duration | None = None
    keyring: Annotated[str, Field(min_length=1)] | None = None
    user: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> KeyTable:
        places = [one for one in (self.env, self.file, self.command, self.keyring) if one is not None]
        if len(places) != 1:
            raise ValueError("give one of env, file, command and keyring")
        if (self.timeout is not None and self.command is None) or (self.command is not None and not self.command[0]):
            raise ValueError("timeout goes with a command, which is a list of words")
        if (self.user is None) != (self.keyring is None):
            raise ValueError("keyring and user go together")
        return self

    def source(self) -> KeySource:
        """Return the validated value."""
        if self.env is not None:
            return EnvironmentKey(self.env)
        if self.file is not None:
            return FileKey(self.file)
        if self.command is not None:
            return CommandKey(tuple(self.command), *([] if self.timeout is None else [self.timeout]))
        return KeyringKey(self.keyring or "", self.user or "")
