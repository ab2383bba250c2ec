"""The claims of keys: what they would make the foreground of a pane do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..values import Subject
from .claims import Claim, Piece
from .rules import Subjected

if TYPE_CHECKING:
    from ..context import ToolContext
    from .keysjudge import KeysJudgement

__all__ = ["TYPED_SECRET", "key_claims"]

TYPED_SECRET = "<password>"  # noqa: S105  # a name for one
"""The argument by which rules may deny what is typed at a question for a secret; no rule allows it."""
_MAX_LINE_CHARS = 200


async def key_claims(
    subject: Subject, tool: str, ctx: ToolContext, command: Callable[[Subject], Awaitable[Claim]]
) -> tuple[Claim, ...]:
    """What typing these keys would do; ``command`` makes the claim of the command that they are run as.

    The tool is told of that command, so that what runs is what was judged.

    Raises:
        HarnessError: the link was lost.
    """
    from .keysjudge import judge_keys

    ctx.notes.keys_command = None
    judged = await judge_keys(subject, ctx)
    if judged.rule == "command" and judged.command is not None:
        ctx.notes.keys_command = judged.command
        return (await command(judged.command),)
    if judged.rule == "password":
        return (_secret(judged, tool, ctx),)
    return (_plain(subject, judged, tool, ctx),)


def _secret(judged: KeysJudgement, tool: str, ctx: ToolContext) -> Claim:
    """Asked each time, kept nowhere, and never shown."""
    whole = Subjected(ctx.execution.identity, tool, TYPED_SECRET, allows="none")
    shown = f"type a secret: {judged.reason}"
    return Claim("keys", shown, whole, (Piece(shown, (whole,)),), must_ask=judged.reason, unkept=True, secret=True)


def _plain(subject: Subject, judged: KeysJudgement, tool: str, ctx: ToolContext) -> Claim:
    """Keys that are harmless, or go to a program: the same keys in another program are other keys."""
    harmless = judged.rule == "harmless"
    into = f" (into {judged.program})" if judged.program else ""
    text = f"{subject.text}{into}"
    whole = Subjected(ctx.execution.identity, tool, text, allows="broad" if harmless else "exact")
    piece = Piece(text, (whole,), read_only=harmless)
    line = f"; the last line there is {judged.line[:_MAX_LINE_CHARS]!r}" if judged.line else ""
    asks = "" if harmless else f"{judged.reason}{line}"
    return Claim("keys", text, whole, (piece,), must_ask=asks, unkept=judged.rule == "unknown")
