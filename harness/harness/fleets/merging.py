"""Equal outcomes of many hosts as one group, and what an outcome differs in from the most frequent one."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from ..errors import HarnessError
from ..results import ShellResult
from .calls import HostOutcome

__all__ = ["OutcomeGroup", "difference", "error_text", "merge_outcomes"]

MAX_COMPARED = 200_000
"""Bytes of the longest output that is compared line by line: the time grows with the square of the lines."""


@dataclass(slots=True)
class OutcomeGroup:
    """Hosts with the same outcome; ``outcome`` is the first one's."""

    hosts: list[str]
    outcome: HostOutcome[ShellResult]


def merge_outcomes(outcomes: Iterable[HostOutcome[ShellResult]]) -> list[OutcomeGroup]:
    """Group equal outcomes, the largest group first, each group's hosts in the given order.

    Results are equal if their output, status and exit code are. Errors are equal if their kinds and texts are, without
    the host's name.
    """
    groups: dict[Hashable, OutcomeGroup] = {}
    for outcome in outcomes:
        group = groups.setdefault(_key(outcome), OutcomeGroup([], outcome))
        group.hosts.append(outcome.host)
    return sorted(groups.values(), key=lambda group: -len(group.hosts))


def _key(outcome: HostOutcome[ShellResult]) -> Hashable:
    if outcome.error is not None:
        return type(outcome.error), error_text(outcome)
    result = outcome.result
    assert result is not None
    return result.status, result.exit_code, result.stdout_bytes, result.stderr_bytes, result.truncated


def error_text(outcome: HostOutcome[Any], *, named: bool = False) -> str:
    """Return the text of an outcome's error, without its target.

    Args:
        outcome: An outcome with an error.
        named: Keep the host's name; False replaces it by ``HOST``, so that the errors of several hosts are equal.
    """
    error = outcome.error
    assert isinstance(error, HarnessError)
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    if named:
        return text
    names = sorted({outcome.target, outcome.host, _address(outcome.target)}, key=len, reverse=True)
    whole_words = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])"
    return re.sub(whole_words, "HOST", text)


def _address(target: str) -> str:
    return target.rpartition("//")[2].rpartition("@")[2]


def difference(most: ShellResult, other: ShellResult) -> list[str] | None:
    """Return the lines in which an output differs from the most frequent one, as ``diff -u`` shows them.

    Returns:
        Lines that begin with a space, ``-`` or ``+``; None where the whole output is shorter or was cut.
    """
    sizes = (len(most.stdout_bytes), len(other.stdout_bytes))
    if not min(sizes) or max(sizes) > MAX_COMPARED or most.truncated or other.truncated:
        return None
    before, after = most.stdout.splitlines(), other.stdout.splitlines()
    lines = list(unified_diff(before, after, lineterm="", n=1))[2:]
    return lines if len(lines) < len(after) else None
