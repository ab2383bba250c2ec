"""The hosts of a command for dashboards, grouped by what happened there: of limited size, however many there are."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread

from ...errors import HarnessError
from .state import short_text

if TYPE_CHECKING:
    from ...context import ExecutionContext
    from ...toolkit.redaction.redactor import Redactor
    from .job_output import StoredOutput

__all__ = ["HostGroup", "HostProgress", "HostsOfCommand", "RunningJob", "host_items", "limited_groups", "output_items"]

MAX_GROUPS = 200
"""Groups that are sent; further ones of the same state are combined."""
MAX_NAMED = 20
"""Hosts of a group that are named one by one; all of them are in its short text."""
MAX_ENDING_CHARS, MAX_REDACTED_CHARS = 300, 2_000
"""Characters of an ending that are shown, and from which it is cut before it is redacted."""
MIN_INTERVAL = 0.3
"""Seconds between two reports."""
MAX_SHARE = 20
"""Seconds of pause for each second that a report takes: thousands of hosts must not slow down their command."""


@dataclass(frozen=True, slots=True)
class HostProgress:
    """How far a command on many hosts is."""

    total: int
    running: int
    ok: int
    failed: int


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts in the same state, which ended alike. ``ending`` is an error, an exit code, or empty."""

    state: str
    hosts: tuple[str, ...]
    ending: str = ""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The job of a host's command, which runs."""

    execution: ExecutionContext
    job_id: str


class HostsOfCommand(Protocol):
    """The hosts of a command on many hosts; ``run`` is the number under which it is kept, None if it is not."""

    @property
    def run(self) -> int | None:
        """See above."""

    def progress(self) -> HostProgress:
        """Return how far the command is."""

    def groups(self) -> Sequence[HostGroup]:
        """Return all hosts, failed ones first."""

    def panes(self) -> Mapping[str, ExecutionContext]:
        """Return the hosts whose command runs in a pane, with their contexts."""

    def output_of(self, host: str) -> RunningJob | StoredOutput:
        """Return the output of a host.

        Raises:
            HarnessError: There is no such host, or it has none.
        """


async def host_items(
    hosts: HostsOfCommand, redact: Callable[[str], str], next_change: Callable[[], anyio.Event]
) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield all groups, now and after changes; each item replaces the one before.

    Args:
        hosts: The hosts.
        redact: Replaces secrets.
        next_change: Returns the event that is set with the next change.
    """
    while True:
        began, changed = time.monotonic(), next_change()
        groups = limited_groups(hosts.groups())
        shown = await to_thread.run_sync(_groups_json, groups, redact)
        yield {"type": "hosts", "run": hosts.run, "groups": shown}
        await anyio.sleep(max(MIN_INTERVAL, MAX_SHARE * (time.monotonic() - began)))
        await changed.wait()


async def output_items(hosts: HostsOfCommand, host: str, redactor: Redactor) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the output of a host, as it comes while its command runs.

    Raises:
        HarnessError: It is missing, or the command has ended before all of it was read.
    """
    from .job_output import job_items, stored_items

    output = hosts.output_of(host)
    if not isinstance(output, RunningJob):
        async for item in stored_items(output, redactor):
            yield item
        return
    try:
        async for item in job_items(output.execution, output.job_id, redactor):
            yield item
    except HarnessError as error:
        if isinstance(hosts.output_of(host), RunningJob):
            raise
        raise HarnessError("the command has ended", hint="show the output again to see the end of it") from error


def limited_groups(groups: Iterable[HostGroup]) -> list[HostGroup]:
    """Return the first groups, and the others combined by their state. Pure."""
    found: list[HostGroup] = []
    rest: dict[str, list[HostGroup]] = {}
    for group in groups:
        if len(found) < MAX_GROUPS:
            found.append(group)
        else:
            rest.setdefault(group.state, []).append(group)
    for state, others in rest.items():
        names = tuple(name for group in others for name in group.hosts)
        found.append(replace(others[0], state=state, hosts=names, ending=f"{len(others)} different results"))
    return found


def _groups_json(groups: Iterable[HostGroup], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    return [_group_json(group, redact) for group in groups]


def _group_json(group: HostGroup, redact: Callable[[str], str]) -> dict[str, Any]:
    from ...fleets.host_names import fold_names

    return {
        "state": group.state,
        "count": len(group.hosts),
        "folded": short_text(redact(fold_names(group.hosts))),
        "hosts": [redact(name) for name in group.hosts[:MAX_NAMED]],
        "ending": short_text(redact(_first_words(group.ending)), MAX_ENDING_CHARS),
    }


def _first_words(text: str) -> str:
    """Return a text that is short enough to be redacted for hundreds of groups; no word, as a secret is, is cut."""
    return text if len(text) <= MAX_REDACTED_CHARS else text[:MAX_REDACTED_CHARS].rpartition(" ")[0]
