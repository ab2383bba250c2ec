"""Results of one call on many hosts as one result: equal ones once with their hosts, then what others differ in."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...fleets import HostOutcome, OutcomeGroup, merge_outcomes
from ...fleets.host_names import fold_names
from ...fleets.merging import difference, hide_names
from ...wording import counted
from ..contract import OutputLimit
from ..results import cut
from ..values import BLOCK_LIMIT, CallOutcome, CallStatus, Json, ToolResult

__all__ = ["HostResult", "MergedResult", "jobs_on_hosts", "merge_results", "merged_status"]

JOB = "JOB"
"""Stands for the job ID in a text, which differs by host."""
MAX_JOBS_SHOWN = 1_000
"""Characters of the list of jobs of one outcome."""
MIN_SHARE = 300
"""Characters that each shown outcome gets at least, if it has them; further outcomes are only counted."""
SEPARATORS = 3
"""The line breaks of one outcome."""
NOTICE = 60
"""Characters of the notice about the omitted part of one outcome."""
ROOM_FOR_COUNTS = 100
"""Characters of the structured result apart from its hosts and groups."""
MAX_FOLDED_CHARS = 1_000
"""Characters of the folded hosts of one group in the structured result."""
ROOM_FOR_REST = 1_000
"""Characters for the folded hosts of outcomes that are not shown."""


@dataclass(frozen=True, slots=True)
class HostResult:
    """The outcome of a call on one host, redacted."""

    host: str
    target: str
    outcome: CallOutcome

    @property
    def data(self) -> Mapping[str, Json]:
        """The tool's structured result; empty if it has none."""
        data = self.outcome.result.data
        return data if isinstance(data, dict) else {}

    @property
    def job_id(self) -> str:
        """The job of the command; empty without one."""
        job = self.data.get("job_id")
        return job if isinstance(job, str) else ""

    @property
    def status(self) -> str:
        """The status of the command, or that of the call."""
        status = self.data.get("status")
        return status if isinstance(status, str) else self.outcome.status.value

    @property
    def ending(self) -> str:
        """A phrase that counts this outcome among others: ``exit code 3``, ``denied``."""
        code = self.data.get("exit_code")
        return f"exit code {code}" if code is not None else self.status

    @property
    def text(self) -> str:
        """The text of the result, without what differs on all hosts: the host's name and the job."""
        text = self.outcome.result.text
        if self.job_id:
            number = re.escape(self.job_id)
            text = re.sub(rf"\bjob {number}\b", f"job {JOB}", text)
            text = re.sub(rf"(?<=/jobs/){number}(?=\.sh\b)", JOB, text)  # the script that a shell names in its errors
        if self.outcome.result.is_error and not self.data:
            text = text.removeprefix(f"{self.target}: ")  # as errors name where they happened
        failed = self.outcome.error is not None or self.outcome.status is CallStatus.DENIED
        return hide_names(text, HostOutcome(self.host, self.target)) if failed else text


@dataclass(frozen=True, slots=True)
class MergedResult:
    """The merged result within the limit, and its complete text; empty if nothing is left out."""

    result: ToolResult
    whole: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """One group of hosts, for display."""

    head: str
    body: str

    @property
    def text(self) -> str:
        return f"{self.head}\n{self.body}"


def merge_results(results: Sequence[HostResult], limit: OutputLimit) -> MergedResult:
    """Merge the outcomes of one call: the most frequent one first, then the others. Pure.

    Args:
        results: The outcomes, in the order of the hosts.
        limit: How much of the text is kept.
    """
    groups = merge_outcomes([HostOutcome(one.host, one.target, one) for one in results], _key)
    parts = _parts(groups, {one.host: one.job_id for one in results})
    counts = ", ".join(f"{count} {ending}" for ending, count in Counter(one.ending for one in results).most_common())
    head = f"{counted(len(results), 'host')}: {counts}"
    whole = "\n\n".join([head, *(part.text for part in parts)])
    room = min(limit.characters, BLOCK_LIMIT)
    text = whole if len(whole) <= room else _fitted(head, groups, parts, replace(limit, characters=room))
    codes = {one.outcome.result.error_code for one in results if one.outcome.result.is_error}
    data = _data(results, groups, room)
    if codes:
        result = ToolResult.failure(codes.pop() if len(codes) == 1 else "some_hosts_failed", text, data=data)
    else:
        result = ToolResult.of(text, data=data)
    return MergedResult(result, "" if text == whole else whole)


def merged_status(results: Sequence[HostResult]) -> CallStatus:
    """Return the status of the call: the hosts' own if it is the same, otherwise the one that needs most attention."""
    found = {one.outcome.status for one in results}
    if len(found) == 1:
        return found.pop()
    for status in (CallStatus.UNKNOWN, CallStatus.CANCELLED, CallStatus.TIMEOUT):
        if status in found:
            return status
    return CallStatus.ERROR


def _key(one: HostResult) -> tuple[object, ...]:
    result = one.outcome.result
    apart = one.host if result.metadata.get("truncated") else ""  # what is left out may differ
    return one.outcome.status, result.error_code, one.ending, one.text, apart


def _first(group: OutcomeGroup[HostResult]) -> HostResult:
    assert group.outcome.result is not None
    return group.outcome.result


def _parts(groups: Sequence[OutcomeGroup[HostResult]], jobs: Mapping[str, str]) -> list[_Part]:
    first = _first(groups[0])
    parts = [_Part(f"{_hosts(groups[0])}:{_jobs(groups[0], jobs)}", first.text)]
    for group in groups[1:]:
        text = _first(group).text
        lines = difference(first.text.encode("utf-8", "surrogateescape"), text.encode("utf-8", "surrogateescape"))
        if lines is None or not (_ran(first) and _ran(_first(group))):
            parts.append(_Part(f"{_hosts(group)}:{_jobs(group, jobs)}", text))
        else:
            head = f"{_hosts(group)}, compared with {fold_names(groups[0].hosts)}:{_jobs(group, jobs)}"
            parts.append(_Part(head, "\n".join(lines)))
    return parts


def _jobs(group: OutcomeGroup[HostResult], jobs: Mapping[str, str]) -> str:
    """Return a line with the job of each host, if the text of the group names it."""
    if not _first(group).job_id or f"job {JOB}" not in _first(group).text:
        return ""
    return f"\n[{JOB} is {jobs_on_hosts((jobs[name], name) for name in group.hosts)}]"


def jobs_on_hosts(jobs: Iterable[tuple[str, str]]) -> str:
    """Return jobs with the hosts that have them: ``12 on web[1-3], 7 on web4``; cut if there are very many.

    Args:
        jobs: Each job's ID and its host.
    """
    hosts_of: dict[str, list[str]] = {}
    for job_id, name in jobs:
        hosts_of.setdefault(job_id, []).append(name)
    text = ", ".join(f"{job_id} on {fold_names(names)}" for job_id, names in hosts_of.items())
    return text if len(text) <= MAX_JOBS_SHOWN else f"{text[:MAX_JOBS_SHOWN]}\u2026"


def _ran(one: HostResult) -> bool:
    return one.outcome.error is None and one.outcome.status is not CallStatus.DENIED


def _hosts(group: OutcomeGroup[HostResult]) -> str:
    return f"{fold_names(group.hosts)} ({counted(len(group.hosts), 'host')})"


def _fitted(head: str, groups: Sequence[OutcomeGroup[HostResult]], parts: Sequence[_Part], limit: OutputLimit) -> str:
    """Return the text within the limit: each shown part gets its share, and the rest is counted."""
    room = limit.characters - len(head) - ROOM_FOR_REST
    shown = _shown(parts, room)
    space = room - sum(len(part.head) + _extra(part) for part in shown)
    texts = [head]
    for part, share in zip(shown, _shares([len(part.body) for part in shown], max(space, MIN_SHARE)), strict=True):
        tail = share * limit.tail // max(1, limit.characters)
        texts.append(f"{part.head}\n{cut(part.body, OutputLimit(share, tail))}")
    if rest := groups[len(shown) :]:
        names = fold_names(name for group in rest for name in group.hosts)
        count = sum(len(group.hosts) for group in rest)
        names = names if len(names) < ROOM_FOR_REST // 2 else f"{names[: ROOM_FOR_REST // 2]}\u2026"
        texts.append(f"[{len(rest)} more outcomes of {counted(count, 'host')} are not shown: {names}]")
    return cut("\n\n".join(texts), limit)


def _shown(parts: Sequence[_Part], room: int) -> list[_Part]:
    """Return the first of the parts, as many as get their least share beside up to half of the room for the first."""
    shown, left = [parts[0]], room - len(parts[0].head) - _extra(parts[0]) - min(len(parts[0].body), room // 2)
    for part in parts[1:]:
        left -= len(part.head) + _extra(part) + min(len(part.body), MIN_SHARE)
        if left < 0:
            break
        shown.append(part)
    return shown


def _extra(part: _Part) -> int:
    """Return the characters between this part and the next one, and of its notice if it may be shortened."""
    return SEPARATORS if len(part.body) <= MIN_SHARE else SEPARATORS + NOTICE


def _shares(sizes: Sequence[int], space: int) -> list[int]:
    """Return how many characters each text gets: the first up to half of the space or what others leave. Pure."""
    others = sum(sizes[1:])
    first = min(sizes[0], max(space // 2, space - others)) if len(sizes) > 1 else min(sizes[0], space)
    shares, left = {0: first}, space - first
    by_size = sorted(range(1, len(sizes)), key=lambda number: sizes[number])
    for place, number in enumerate(by_size):
        shares[number] = min(sizes[number], left // (len(by_size) - place))
        left -= shares[number]
    return [shares[number] for number in range(len(sizes))]


def _data(results: Sequence[HostResult], groups: Sequence[OutcomeGroup[HostResult]], room: int) -> Json:
    """Return each host with its status, and the groups of equal results, in so many characters of JSON.

    What does not fit is counted. Hosts whose result is not the most frequent one have precedence.
    """
    group_of = {name: number for number, group in enumerate(groups) for name in group.hosts}
    folded = _fitting([_group(group) for group in groups], room // 2)
    left = room - ROOM_FOR_COUNTS - sum(map(_size, folded))
    deviating = [one for one in results if group_of[one.host]] + [one for one in results if not group_of[one.host]]
    fitting = _fitting([_host(one, group_of[one.host]) for one in deviating], left)
    kept = {one.host for one in deviating[: len(fitting)]}
    hosts: list[Json] = [_host(one, group_of[one.host]) for one in results if one.host in kept]
    omitted = {"hosts_omitted": len(results) - len(hosts), "groups_omitted": len(groups) - len(folded)}
    return {"hosts": hosts, "groups": [*folded], **{name: count for name, count in omitted.items() if count}}


def _group(group: OutcomeGroup[HostResult]) -> dict[str, Any]:
    names = fold_names(group.hosts)
    shown = names if len(names) <= MAX_FOLDED_CHARS else f"{names[:MAX_FOLDED_CHARS]}\u2026"
    return {"hosts": shown, "count": len(group.hosts), "ending": _first(group).ending}


def _fitting(values: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """Return the first values, as many as fit into so many characters of JSON."""
    found = []
    for value in values:
        room -= _size(value)
        if room < 0:
            break
        found.append(value)
    return found


def _size(value: object) -> int:
    return len(json.dumps(value)) + len(", ")


def _host(one: HostResult, group: int) -> dict[str, Any]:
    found: dict[str, Any] = {"host": one.host, "status": one.status, "group": group}
    found |= {name: one.data[name] for name in ("exit_code", "job_id") if one.data.get(name) is not None}
    return found | ({"error_code": one.outcome.result.error_code} if one.outcome.result.is_error else {})
