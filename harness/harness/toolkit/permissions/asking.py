"""Approval requests: building one, asking for a decision, and text that a request must not hide."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from ...wording import counted
from ..contract import Intent, PermissionRequest
from ..events import PermissionAsked, PermissionReplied
from ..redaction.redactor import MARK
from ..values import JsonObject
from .approver import Approver, places_of, preview_of
from .decision import Decision, DecisionStep
from .lookalikes import odd_characters
from .questions import AccessRequest, ApprovalDecision, ApprovalRequest, ApprovalScope, may_be_kept

if TYPE_CHECKING:
    from ..contract import ToolContext

__all__ = [
    "ADVICE",
    "ask",
    "hidden_text_risk",
    "no_approver",
    "question_of",
]


# -- Redacted text in a request, which must not be text that would run. Pure.


RUNS: Final = frozenset(" \t\r\n\"'`$;&|<>(){}[]\\")
"""Characters that may end a word of a command or start another command; in a path, also ``/``."""
ADVICE: Final = "keep the secret in a file or a variable, and write the rest separately"


def hidden_text_risk(claims: Sequence[AccessRequest], redact: Callable[[str], str]) -> str:
    """Return why the redacted texts may hide what would run; empty if they do not.

    A text can be written so that a command in it looks like part of a password.

    Args:
        claims: what the call would access.
        redact: replaces secrets in a text.
    """
    for claim in claims:
        shown = redact(claim.shown)
        if shown != claim.shown and not claim.secret and _may_matter(claim, shown):
            hidden = sum(map(len, _hidden(claim.shown, shown)))
            count = counted(hidden, "character")
            return f"{count} of it are redacted and may be more than a secret, so the call cannot be reviewed"
    return ""


def _may_matter(claim: AccessRequest, shown: str) -> bool:
    if claim.kind == "url":
        return False
    matters = RUNS | {"/"} if claim.is_path else RUNS
    if any(matters & set(part) for part in _hidden(claim.shown, shown)):
        return True
    return claim.kind == "command" and _programs(claim.shown) != _programs(shown)


def _hidden(text: str, shown: str) -> Iterator[str]:
    """Yield the parts that the redaction marks replace; together they are complete, even if the bounds are inexact."""
    first, *rest = shown.split(MARK)
    at = len(first) if text.startswith(first) else 0
    for number, piece in enumerate(rest, 1):
        end = len(text) - len(piece) if number == len(rest) else text.find(piece, at)
        if end < at:
            yield text[at:]
            return
        yield text[at:end]
        at = end + len(piece)


def _programs(text: str) -> tuple[str, ...]:
    from .shell.classification import classify_command  # load the parser with the first command only

    return tuple(command.argv[0] if command.argv else "" for command in classify_command(text).commands)


# -- Asking: publish the request, wait for the decision, publish the decision.


logger = logging.getLogger(__name__)

NO_APPROVER = "no approver is available"
REPAIR = "repair or remove the rule file first"
RULE = "allow it with a rule (harness permissions add)"
MODE = 'set permissions.mode = "auto" in the settings file'
TIMEOUT = "the approval request timed out"


def no_approver(scopes: Sequence[ApprovalScope], *, broken: bool = False) -> str:
    """Return the message that no approver is available, with what would allow the call. Pure.

    Not every call that asks can be allowed in advance.

    Args:
        scopes: the scopes that the request offers.
        broken: the rule file cannot be read; until it is repaired, no rule can be added and no mode allows anything.
    """
    if ApprovalScope.ALWAYS not in scopes:
        return f"{NO_APPROVER}, and no rule or mode allows it"
    if broken:
        return f"{NO_APPROVER}; {REPAIR}"
    if ApprovalScope.SESSION not in scopes:
        return f"{NO_APPROVER}; {RULE} for exactly this text"
    return f"{NO_APPROVER}; {RULE}, or {MODE}"


def question_of(request: PermissionRequest, decision: Decision, ctx: ToolContext) -> ApprovalRequest:
    """Build the approval request: redacted, and without text typed into a password prompt."""
    secret = any(claim.secret for claim in decision.asks)
    what = "\n".join(map(_shown, decision.asks))
    arguments = request.call.arguments if not isinstance(request.call.arguments, str) else {}
    odd, scopes = odd_characters(what), may_be_kept(decision.asks)
    redact = ctx.redactor.text
    content = "" if secret else preview_of(request.preview, scopes, redact)
    below = [*places_of(decision.asks, arguments.get("pane"), redact), *([content] if content else [])]
    return ApprovalRequest(
        request_id=uuid.uuid4().hex,
        call=replace(request.call, arguments={} if secret else ctx.redactor.json(arguments)),
        what=redact(what),
        reason=redact(f"{decision.reason}; {odd}" if odd not in decision.reason else decision.reason),
        target=redact(request.place) or request.backend,
        scopes=scopes,
        details=ctx.redactor.json(_details(arguments)),
        session_id=ctx.session_id,
        preview="\n".join(below),
        broken=decision.step is DecisionStep.BROKEN,
        unseen=hidden_text_risk(decision.asks, redact),
    )


def _shown(claim: AccessRequest) -> str:
    """Return the text of a claim; a line break in a file name is escaped, so that it does not look like two files."""
    return claim.shown if claim.kind in ("command", "keys", "sudo") else claim.shown.replace("\n", "\\n")


def _details(arguments: JsonObject) -> JsonObject:
    return {name: arguments[name] for name in Intent.model_fields if arguments.get(name) is not None}


async def ask(approver: Approver, question: ApprovalRequest, timeout: float, ctx: ToolContext) -> ApprovalDecision:
    """Ask the approver and publish the request and its decision.

    Args:
        approver: who decides.
        question: the request.
        timeout: seconds to wait.
        ctx: the context of the tool call.

    Returns:
        The decision; a denial on timeout, if the approver fails, or if an agent would allow.
    """
    question = replace(question, timeout=timeout)
    if question.unseen and approver.by_sight:
        return ApprovalDecision(ApprovalScope.DENY_ONCE, "policy", f"{question.unseen}: {ADVICE}")
    try:
        approver.expect(question)
    except Exception as error:
        return _failed(error)
    answer = ApprovalDecision(ApprovalScope.DENY_ONCE, "nobody", "the approval request was cancelled")
    asked = anyio.current_time()
    try:
        ctx.publish(
            PermissionAsked(
                request_id=question.request_id,
                call=question.call,
                what=question.what,
                reason=question.reason,
                details=question.details,
                preview=question.preview,
            )
        )
        answer = _checked(await _answer(approver, question, timeout), question)
        return answer
    finally:
        ctx.notes.waited += anyio.current_time() - asked
        approver.forget(question)
        ctx.publish(
            PermissionReplied(
                request_id=question.request_id,
                allowed=answer.scope.allows,
                by=answer.by,
                reason=ctx.redactor.text(answer.reason),
            )
        )


async def _answer(approver: Approver, question: ApprovalRequest, timeout: float) -> ApprovalDecision:
    try:
        with anyio.fail_after(timeout):
            answer: object = await approver.ask(question)
        if not isinstance(answer, ApprovalDecision):
            raise TypeError(f"it returned {type(answer).__name__}, not ApprovalDecision")
        return answer
    except TimeoutError:
        return ApprovalDecision(ApprovalScope.DENY_ONCE, "timeout", f"{TIMEOUT} after {timeout:g} s")
    except Exception as error:  # a failed approver has not approved the call
        return _failed(error)


def _failed(error: Exception) -> ApprovalDecision:
    logger.error("the approver failed; the call is denied", exc_info=error)
    return ApprovalDecision(
        ApprovalScope.DENY_ONCE, "approver", f"the approver failed: {type(error).__name__}: {error}"
    )


def _checked(answer: ApprovalDecision, question: ApprovalRequest) -> ApprovalDecision:
    if answer.agent_id and answer.scope.allows:
        return ApprovalDecision(
            ApprovalScope.DENY_ONCE, f"agent {answer.agent_id}", "an agent cannot approve; the operator must"
        )
    if answer.scope not in question.scopes:
        return replace(answer, scope=ApprovalScope.ONCE if answer.scope.allows else ApprovalScope.DENY_ONCE)
    return answer
