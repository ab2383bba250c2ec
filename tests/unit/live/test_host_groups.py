"""The hosts of a command for dashboards: failed ones first, equal ones together, and bounded for thousands."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import anyio
import pytest

from harness.errors import HarnessError
from harness.live.protocol import StreamItem, encode
from harness.live.sessions.host_groups import (
    MAX_GROUPS,
    MAX_NAMED,
    HostGroup,
    HostProgress,
    RunningJob,
    host_items,
    limited_groups,
)
from harness.live.sessions.job_output import StoredOutput, stored_items
from harness.toolkit.redaction.redactor import PatternRedactor

SECRET = "ghp_" + "Zx9" * 12


class Hosts:
    """Hosts of a test."""

    run = 7

    def __init__(self, groups: Sequence[HostGroup]) -> None:
        self.found = groups

    def progress(self) -> HostProgress:
        return HostProgress(len(self.found), 0, 0, 0)

    def groups(self) -> Sequence[HostGroup]:
        return self.found

    def output_of(self, host: str) -> RunningJob | StoredOutput:
        raise HarnessError(f"this run has no host {host}")


def test_groups_beyond_the_limit_are_combined_by_state_and_no_host_is_missing() -> None:
    groups = [HostGroup("failed", (f"web{number}",), f"exit code {number}") for number in range(300)]
    groups += [HostGroup("ok", (f"db{number}", f"db{number}b")) for number in range(300)]
    found = limited_groups(groups)
    assert found[:MAX_GROUPS] == groups[:MAX_GROUPS]
    assert [(one.state, len(one.hosts), one.ending) for one in found[MAX_GROUPS:]] == [
        ("failed", 100, "100 different results"),
        ("ok", 600, "300 different results"),
    ]
    assert {name for one in found for name in one.hosts} == {name for one in groups for name in one.hosts}


async def test_five_thousand_hosts_that_all_differ_fit_into_one_quick_message() -> None:
    groups = [HostGroup("failed", (f"web{number:04}.example",), f"{SECRET} {number} " * 500) for number in range(5_000)]
    event = anyio.Event()
    items = host_items(Hosts(groups), PatternRedactor().text, lambda: event)
    began = time.monotonic()
    item = await anext(items)
    assert time.monotonic() - began < 5
    await items.aclose()
    encode(StreamItem(1, item))  # fits into a message
    assert SECRET not in json.dumps(item)
    assert sum(group["count"] for group in item["groups"]) == 5_000
    assert max(len(group["hosts"]) for group in item["groups"]) == MAX_NAMED


async def test_a_change_is_reported_once_and_nothing_is_without_one() -> None:
    hosts = Hosts([HostGroup("running", ("web1", "web2"))])
    event = anyio.Event()
    items = host_items(hosts, str, lambda: event)
    assert (await anext(items))["groups"][0]["folded"] in ("web[1-2]", "web1,web2")
    with anyio.move_on_after(1) as waiting:
        await anext(items)
    assert waiting.cancelled_caught
    items = host_items(hosts, str, lambda: event)
    await anext(items)
    hosts.found = [HostGroup("ok", ("web1", "web2"))]
    event.set()
    event = anyio.Event()
    with anyio.fail_after(5):
        assert (await anext(items))["groups"][0]["state"] == "ok"
    await items.aclose()


@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_stored_output_is_redacted_whole_and_ends_with_how_it_ended(size: int) -> None:
    data = b"x" * size + b" " + SECRET.encode() + b"\nlast \xc3\xa9"
    output = StoredOutput(data, b"problem\n", "exit code 3")
    items = [item async for item in stored_items(output, PatternRedactor())]
    text = {name: "".join(one["text"] for one in items if one["stream"] == name) for name in ("stdout", "stderr")}
    assert SECRET not in text["stdout"]
    assert text["stdout"].startswith("x" * size)
    assert text["stdout"].endswith("\nlast é")
    assert text["stderr"] == "problem\n[exit code 3]\n"
