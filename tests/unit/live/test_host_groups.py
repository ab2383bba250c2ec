"""The hosts of a command for dashboards: failed ones first, equal ones together, and bounded for thousands."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

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
from harness.live.sessions.job_output import StoredOutput, job_items, stored_items
from harness.results import OutputPart, Status
from harness.toolkit.redaction.redactor import PatternRedactor

KNOWN = "opensesame-1-orca-battery"
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
    began = time.process_time()  # what other programs do meanwhile does not count
    item = await anext(items)
    assert time.process_time() - began < 5
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


KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n" * 20 + "-----END PRIVATE KEY-----"


@pytest.mark.parametrize("cut_at", range(len("see "), len(f"see {KNOWN} and then"), 3))
async def test_a_secret_that_a_gap_cuts_is_shown_in_no_part(cut_at: int) -> None:
    line = f"see {KNOWN} and then"
    data = f"first\n{line}\nlast\n".encode()
    head = len("first\n") + cut_at
    for position, rest in ((head, b"plain start\nlast\n"), (0, data[head:])):
        output = StoredOutput(data[:position] + rest, stdout_gap=(position, 4711))
        items = [item async for item in stored_items(output, PatternRedactor([KNOWN]))]
        text = "".join(item["text"] for item in items)
        assert "[... 4,711 bytes are not shown ...]\n" in text
        assert text.endswith("last\n")
        assert not any(KNOWN[start : start + 4] in text for start in range(len(KNOWN) - 3)), text


async def test_a_private_key_that_a_gap_cuts_is_not_shown() -> None:
    data = f"{KEY[300:]}\nshown\n".encode()
    for output in (StoredOutput(data, stdout_gap=(0, 300)), StoredOutput(KEY[:300].encode(), stdout_gap=(300, 900))):
        text = "".join([item["text"] async for item in stored_items(output, PatternRedactor())])
        assert "MII" not in text
        assert ("shown\n" in text) is (output.stdout == data)


async def test_output_that_a_job_did_not_keep_is_a_gap_as_well() -> None:
    job = SimpleNamespace(status=Status.COMPLETED)
    data = f"{KNOWN[8:]} tail of a line\nlast\n".encode()
    part = OutputPart(data, 4711, 4711 + len(data), 4711)

    class Execution:
        async def read_job(self, job_id: str, **arguments: Any) -> Any:
            return SimpleNamespace(job=job, stdout=part, stderr=OutputPart())

    items = [item async for item in job_items(cast(Any, Execution()), "7", PatternRedactor([KNOWN]))]
    assert "".join(item["text"] for item in items) == "\n[4711 bytes were not kept]\nlast\n"
