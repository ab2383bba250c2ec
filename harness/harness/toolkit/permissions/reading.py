"""From a request to its claims: what the target says of each subject. Everything after this is decided without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ..contract import Intent
from ..reads import target_path
from ..seams import PermissionRequest
from ..values import JsonObject, Subject
from .claims import Claim, Piece
from .commandclaims import CommandReader, extras_of
from .harddenials import HardDenials
from .keyclaims import key_claims
from .lookalikes import odd_characters
from .pathclaims import path_claim
from .rules import Subjected
from .settings import PermissionSettings

if TYPE_CHECKING:
    from ..context import ToolContext

__all__ = ["read_claims"]


async def read_claims(
    request: PermissionRequest, ctx: ToolContext, settings: PermissionSettings, denials: HardDenials
) -> tuple[Claim, ...]:
    """The claims of a call, in the order of its subjects; a call without a subject claims itself.

    Of many subjects the target is asked at once.

    Raises:
        HarnessError: the link was lost.
        ExceptionGroup: the same, of one of several subjects.
    """
    reader = _Reader(request, ctx, settings, denials)
    subjects = request.subjects or (Subject("other", request.call.name),)
    if len(subjects) == 1:
        return await reader.claims(subjects[0])
    found: dict[int, tuple[Claim, ...]] = {}

    async def one(number: int, subject: Subject) -> None:
        found[number] = await reader.claims(subject)

    async with anyio.create_task_group() as tasks:
        for number, subject in enumerate(subjects):
            tasks.start_soon(one, number, subject)
    return tuple(claim for number in range(len(subjects)) for claim in found[number])


class _Reader:
    def __init__(
        self, request: PermissionRequest, ctx: ToolContext, settings: PermissionSettings, denials: HardDenials
    ) -> None:
        self._request = request
        self._ctx = ctx
        self._settings = settings
        self._denials = denials
        self._tool = request.call.name

    async def claims(self, subject: Subject) -> tuple[Claim, ...]:
        if subject.kind == "command":
            return (await self._command(subject),)
        if subject.kind == "keys":
            return await key_claims(subject, self._tool, self._ctx, self._typed)
        if subject.kind in ("read", "write"):
            return (await self._path(subject),)
        return (self._text(subject),)

    async def _typed(self, subject: Subject) -> Claim:
        return await self._command(subject, keys=True)

    async def _command(self, subject: Subject, *, keys: bool = False) -> Claim:
        reader = CommandReader(
            self._ctx.execution,
            self._denials,
            self._settings.blocked,
            self._tool,
            "" if keys else self._start(subject),  # keys go where the pane's shell is, whatever the call's directory
            "" if keys else self._extras(),
            lookups=self._settings.network_lookups,
        )
        return await reader.claim(subject)

    def _extras(self) -> str:
        """What decides what the command does, and is not in its text."""
        arguments, told = self._request.call.arguments, self._request.tool.told()
        if not isinstance(arguments, Mapping):
            return extras_of(arguments)
        return extras_of({name: value for name, value in arguments.items() if name not in told})

    async def _path(self, subject: Subject) -> Claim:
        return await path_claim(
            subject, self._tool, self._start(subject), self._ctx.execution, self._denials, read_only=self._is_harmless()
        )

    def _start(self, subject: Subject) -> str:
        """The directory that the subject starts from, as far as the call says; empty is not at all."""
        return target_path(self._ctx, subject.cwd) if subject.cwd else self._ctx.cwd or ""

    def _is_harmless(self) -> bool:
        return not self._request.mutating and not self._request.requires_approval

    def _text(self, subject: Subject) -> Claim:
        text = self._call_text() if subject.text == self._tool else subject.text
        kind = "url" if subject.kind == "url" else "text"
        whole = Subjected(self._ctx.execution.identity, self._tool, text, "text" if kind == "text" else "url")
        named = replace(whole, text=subject.text)
        return Claim(
            kind=subject.kind,
            shown=text,
            whole=whole,
            pieces=(Piece(text, (whole, named) if subject.text != self._tool else (whole,), False),),
            must_ask=odd_characters(text) if kind == "url" else "",
        )

    def _call_text(self) -> str:
        """The call itself, for a tool that names no subject: a grant for it covers these arguments and no others."""
        arguments = self._request.call.arguments
        if not isinstance(arguments, Mapping):
            return f"{self._tool} {arguments}"
        kept: JsonObject = {name: value for name, value in arguments.items() if name not in Intent.model_fields}
        return f"{self._tool} {json.dumps(kept, sort_keys=True, ensure_ascii=False)}" if kept else self._tool
