"""Asking, one question at a time in a session: announce it, wait for the answer, say what came of it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ..contract import Intent
from ..events import PermissionAsked, PermissionReplied
from ..seams import PermissionRequest
from ..values import JsonObject
from .answers import Answer, Question, Scope, may_be_kept
from .approver import Approver
from .claims import Claim
from .decide import Decision, Step
from .hiding import ADVICE, unseen
from .lookalikes import odd_characters
from .previews import places_of, preview_of

if TYPE_CHECKING:
    from ..context import ToolContext

__all__ = ["ask", "no_approver", "question_of"]

logger = logging.getLogger(__name__)

NO_APPROVER = "nobody is there to approve it"
REPAIR = "repair or remove the file of rules first"
RULE = "allow it with a rule (harness permissions add)"
MODE = 'set permissions.mode = "auto" in the settings file'
TIMEOUT = "nobody answered"


def no_approver(scopes: Sequence[Scope], *, broken: bool = False) -> str:
    """That nobody can be asked, and what would allow it: not all that is asked can be answered in advance. Pure.

    ``broken``: the file of rules cannot be read; until it can, no rule can be added, and no mode allows anything.
    """
    if Scope.ALWAYS not in scopes:
        return f"{NO_APPROVER}, and no rule or mode allows it"
    if broken:
        return f"{NO_APPROVER}; {REPAIR}"
    if Scope.SESSION not in scopes:
        return f"{NO_APPROVER}; {RULE} for exactly this text"
    return f"{NO_APPROVER}; {RULE}, or {MODE}"


def question_of(request: PermissionRequest, decision: Decision, ctx: ToolContext) -> Question:
    """The question, as it may be shown: redacted, and without the text of what is typed into a password prompt."""
    secret = any(claim.secret for claim in decision.asks)
    what = "\n".join(map(_shown, decision.asks))
    arguments = request.call.arguments if not isinstance(request.call.arguments, str) else {}
    odd, scopes = odd_characters(what), may_be_kept(decision.asks)
    redact = ctx.redactor.text
    content = "" if secret else preview_of(request.preview, scopes, redact)
    below = [*places_of(decision.asks, arguments.get("pane"), redact), *([content] if content else [])]
    return Question(
        request_id=uuid.uuid4().hex,
        call=replace(request.call, arguments={} if secret else ctx.redactor.json(arguments)),
        what=redact(what),
        reason=redact(f"{decision.reason}; {odd}" if odd not in decision.reason else decision.reason),
        target=redact(request.place) or request.backend,
        scopes=scopes,
        details=ctx.redactor.json(_details(arguments)),
        session_id=ctx.session_id,
        preview="\n".join(below),
        broken=decision.step is Step.BROKEN,
        unseen=unseen(decision.asks, redact),
    )


def _shown(claim: Claim) -> str:
    """Commands and keys have lines; the name of a file with a line's end in it must not pass for two files."""
    return claim.shown if claim.kind in ("command", "keys") else claim.shown.replace("\n", "\\n")


def _details(arguments: JsonObject) -> JsonObject:
    return {name: arguments[name] for name in Intent.model_fields if arguments.get(name) is not None}


async def ask(approver: Approver, question: Question, timeout: float, ctx: ToolContext) -> Answer:
    """The answer, or a denial when none comes in time, or when an agent would allow. Each question gets one reply."""
    question = replace(question, timeout=timeout)
    if question.unseen and approver.by_sight:
        return Answer(Scope.DENY_ONCE, "policy", f"{question.unseen}: {ADVICE}")
    try:
        approver.expect(question)
    except Exception as error:
        return _failed(error)
    answer = Answer(Scope.DENY_ONCE, "nobody", "the question was given up")
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


async def _answer(approver: Approver, question: Question, timeout: float) -> Answer:
    try:
        with anyio.fail_after(timeout):
            answer: object = await approver.ask(question)
        if not isinstance(answer, Answer):
            raise TypeError(f"it answered {type(answer).__name__}, not Answer")
        return answer
    except TimeoutError:
        return Answer(Scope.DENY_ONCE, "timeout", f"{TIMEOUT} within {timeout:g} s")
    except Exception as error:  # an approver that fails has approved nothing
        return _failed(error)


def _failed(error: Exception) -> Answer:
    logger.error("the approver failed, so the call is denied", exc_info=error)
    return Answer(Scope.DENY_ONCE, "approver", f"the approver failed: {type(error).__name__}: {error}")


def _checked(answer: Answer, question: Question) -> Answer:
    if answer.agent_id and answer.scope.allows:
        return Answer(Scope.DENY_ONCE, f"agent {answer.agent_id}", "an agent cannot approve; a person must")
    if answer.scope not in question.scopes:
        return replace(answer, scope=Scope.ONCE if answer.scope.allows else Scope.DENY_ONCE)
    return answer
