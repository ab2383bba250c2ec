"""One approval request for a call on many hosts: what runs once, the folded hosts, and what differs by host. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...fleets.host_names import fold_names
from ...wording import counted
from ..values import JsonObject, ToolCall
from .questions import ApprovalDecision, ApprovalRequest, ApprovalScope

__all__ = ["HOSTS", "HostQuestion", "merge_questions", "single_answer"]

HOSTS = "hosts"
"""The argument of the call that names the hosts."""


@dataclass(frozen=True, slots=True)
class HostQuestion:
    """The approval request that one host would need on its own."""

    name: str
    question: ApprovalRequest


def merge_questions(
    asked: Sequence[HostQuestion],
    call: ToolCall,
    *,
    allowed: Sequence[str] = (),
    denied: Sequence[tuple[str, str]] = (),
) -> ApprovalRequest:
    """Return one request for all hosts that require approval.

    Args:
        asked: the requests of the hosts.
        call: the call for all hosts, as it was made.
        allowed: the hosts on which it runs without a request of their own, if this one is approved.
        denied: the hosts on which it does not run, with the reasons, redacted.
    """
    first = asked[0].question
    names = [one.name for one in asked]
    notes = [
        *([f"also on {_hosts(allowed)}, where it requires no approval"] if allowed else []),
        *(f"not on {_hosts(hosts)}: {reason}" for reason, hosts in _grouped((why, name) for name, why in denied)),
    ]
    preview = _by_host([(one.question.preview, one.name) for one in asked], ":\n")
    return replace(
        first,
        request_id=uuid.uuid4().hex,
        call=replace(call, arguments=_arguments([one.question.call.arguments for one in asked], call)),
        what=_by_host([(one.question.what, one.name) for one in asked], ":\n"),
        reason="; ".join(_by_host([(one.question.reason, one.name) for one in asked], ": ").splitlines()),
        target=_hosts(names),
        scopes=tuple(scope for scope in first.scopes if all(scope in one.question.scopes for one in asked)),
        preview="\n".join([*([preview] if preview else []), *notes]),
        broken=any(one.question.broken for one in asked),
        unseen=next((one.question.unseen for one in asked if one.question.unseen), ""),
    )


def _arguments(asked: Sequence[JsonObject | str], call: ToolCall) -> JsonObject:
    """Return the redacted arguments that would run, which hooks or the approver may have changed.

    Args:
        asked: those of the hosts' own requests; empty if they must not be shown.
        call: the call for all hosts.

    Returns:
        Those that all hosts have in common, and the hosts.
    """
    each = [one for one in asked if not isinstance(one, str)]
    if not all(each) or isinstance(call.arguments, str):
        return {}
    common = {name: value for name, value in each[0].items() if all(one.get(name) == value for one in each)}
    return {HOSTS: call.arguments.get(HOSTS), **common}


def single_answer(answer: ApprovalDecision, call: ToolCall) -> ApprovalDecision:
    """Return the decision as it applies to each host: a changed call without its argument ``hosts``.

    Args:
        answer: the decision.
        call: the call for all hosts.

    Returns:
        The decision; a denial if it would change the hosts, because other hosts may have other rules.
    """
    if answer.call is None or not answer.scope.allows:
        return answer
    changed, known = answer.call.arguments, call.arguments
    assert not isinstance(known, str)
    if isinstance(changed, str) or changed.get(HOSTS) != known.get(HOSTS):
        reason = "an approval cannot change the hosts of a call"
        return ApprovalDecision(ApprovalScope.DENY_ONCE, answer.by, reason)
    own = {name: value for name, value in changed.items() if name != HOSTS}
    return replace(answer, call=replace(answer.call, arguments=own))


def _hosts(names: Sequence[str]) -> str:
    return f"{fold_names(names)} ({counted(len(names), 'host')})"


def _by_host(texts: Sequence[tuple[str, str]], separator: str) -> str:
    """Return the text that all hosts have in common, or each text with its hosts."""
    groups = _grouped(texts)
    if len(groups) == 1:
        return groups[0][0]
    return "\n".join(f"on {_hosts(names)}{separator}{text}" for text, names in groups if text)


def _grouped(texts: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return each text with the names that have it, in the order of their first appearance."""
    groups: dict[str, list[str]] = {}
    for text, name in texts:
        groups.setdefault(text, []).append(name)
    return list(groups.items())
