"""Equal outcomes of many hosts as one group, and what an outcome differs in from the most frequent one."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from ..errors import HarnessError
from ..results import ShellResult
from .outcomes import HostOutcome

__all__ = ["OutcomeGroup", "difference", "error_text", "hide_names", "merge_outcomes"]

T = TypeVar("T")

MAX_COMPARED = 200_000
"""Bytes of the longest output that is compared line by line: the time grows with the square of the lines."""


@dataclass(slots=True)
class OutcomeGroup(Generic[T]):
    """Hosts with the same outcome; ``outcome`` is the first one's."""

    hosts: list[str]
    outcome: HostOutcome[T]
    text: str = ""
    """The text of their errors; what differs by host, such as the address, is left out if they are several."""


def merge_outcomes(
    outcomes: Iterable[HostOutcome[T]], key: Callable[[T], Hashable] | None = None
) -> list[OutcomeGroup[T]]:
    """Group equal outcomes, the largest group first, each group's hosts in the given order.

    Errors are equal if their kinds and texts are, without what differs by host: its name, the address that it has
    in the ssh configuration, the fingerprint of its key.

    Args:
        outcomes: The outcomes of any call.
        key: Returns what equal results have in common. The default takes results as they are, and of commands their
            output, status and exit code.
    """
    groups: dict[Hashable, OutcomeGroup[T]] = {}
    for outcome in outcomes:
        group = groups.setdefault(_key(outcome, key or _result_key), OutcomeGroup([], outcome))
        group.hosts.append(outcome.host)
        if outcome.error is not None:
            group.text = _shared_text(group, outcome)
    return sorted(groups.values(), key=lambda group: -len(group.hosts))


def _key(outcome: HostOutcome[T], key: Callable[[T], Hashable]) -> Hashable:
    if outcome.error is not None:
        return type(outcome.error), _hide_addresses(error_text(outcome))
    return key(cast("T", outcome.result))


def _result_key(result: object) -> Hashable:
    if isinstance(result, ShellResult):
        return result.status, result.exit_code, result.stdout_bytes, result.stderr_bytes, result.truncated
    return result


def _shared_text(group: OutcomeGroup[T], outcome: HostOutcome[T]) -> str:
    """Return the text of a group's errors, of which that of ``outcome`` is the newest."""
    if len(group.hosts) == 1:
        return error_text(outcome, named=True)
    text, before = error_text(outcome), error_text(group.outcome) if len(group.hosts) == 2 else group.text
    return text if text == before else _hide_addresses(text)


_ADDRESSES = (
    (re.compile(r"\[[^\[\]\s]+\]:\d+|[^\s'\"(]+ port \d+"), "HOST"),
    (
        re.compile(r"(resolve hostname|on host|not recorded for|ssh-keygen -R) '?[^\s,;()']+?'?(?=:? |[,;)]|$)"),
        r"\1 HOST",
    ),
    (re.compile(r"(\S+@)[^\s@]+(?=: Permission denied)"), r"\1HOST"),
    (re.compile(r"(the recorded key is in \S+):\d+"), r"\1"),
    (re.compile(r"SHA256:[\w+/=]+"), "SHA256:..."),
)
"""What differs by host in errors of ssh and asyncssh (address, known_hosts line, fingerprint), and its replacement."""


def _hide_addresses(text: str) -> str:
    """Return a text without the address of the host and the fingerprint of its key."""
    for pattern, replacement in _ADDRESSES:
        text = pattern.sub(replacement, text)
    return text


def error_text(outcome: HostOutcome[Any], *, named: bool = False) -> str:
    """Return the text of an outcome's error, without its target.

    Args:
        outcome: An outcome with an error.
        named: Keep the host's name; False replaces it by ``HOST``, so that the errors of several hosts are equal.
    """
    error = outcome.error
    assert isinstance(error, HarnessError)
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    return text if named else hide_names(text, outcome)


def hide_names(text: str, outcome: HostOutcome[Any]) -> str:
    """Replace the name and the target of an outcome's host by ``HOST``, so that the texts of several are equal."""
    names = sorted({outcome.target, outcome.host, _address(outcome.target)}, key=len, reverse=True)
    whole_words = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])"
    return re.sub(whole_words, "HOST", text)


def _address(target: str) -> str:
    return target.rpartition("//")[2].rpartition("@")[2]


def difference(most: bytes, other: bytes) -> list[str] | None:
    """Return the lines in which an output differs from the most frequent one, as ``diff -u`` shows them.

    Args:
        most: The whole of the most frequent output.
        other: The whole of the other one.

    Returns:
        Lines that begin with a space, ``-`` or ``+``; None where the whole output is shorter.
    """
    from difflib import unified_diff  # slow to import, and seldom needed

    sizes = (len(most), len(other))
    if not min(sizes) or max(sizes) > MAX_COMPARED:
        return None
    before, after = (data.decode("utf-8", "surrogateescape").splitlines() for data in (most, other))
    lines = list(unified_diff(before, after, lineterm="", n=1))[2:]
    return lines if len(lines) < len(after) else None
