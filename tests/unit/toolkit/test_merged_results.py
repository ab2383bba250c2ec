"""Results of one call on many hosts as one text within a limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.toolkit.contract import OutputLimit
from harness.toolkit.hosts.merging import HostResult, merge_results, merged_status
from harness.toolkit.values import CallOutcome, CallStatus, ToolCall, ToolResult

LIMIT = OutputLimit(15_000, 7_500)


def result(host: str, text: str, code: int = 0, job: str = "1") -> HostResult:
    data: Any = {"status": "completed", "exit_code": code, "job_id": job}
    made = ToolResult.failure("exit_code", text, data=data) if code else ToolResult.of(text, data=data)
    status = CallStatus.ERROR if code else CallStatus.OK
    return HostResult(host, f"ssh://{host}", CallOutcome(ToolCall("run_shell"), made, status))


def test_texts_that_differ_in_the_number_of_the_job_are_equal() -> None:
    texts = ["sh: 1: /srv/jobs/{}.sh: nope: not found", "see job {}"]
    for text in texts:
        merged = merge_results([result(f"web{job}", text.format(job), 1, str(job)) for job in (5, 7)], LIMIT)
        data: Any = merged.result.data
        assert [group["count"] for group in data["groups"]] == [2]
        assert "JOB" in merged.result.text
        assert ("[JOB is 5 on web5, 7 on web7]" in merged.result.text) is ("see job" in text)


def test_the_first_outcome_is_the_most_frequent_one() -> None:
    merged = merge_results([result("a", "one"), result("b", "two", 1), result("c", "two", 1)], LIMIT)
    assert merged.result.text == "3 hosts: 2 exit code 1, 1 exit code 0\n\nb,c (2 hosts):\ntwo\n\na (1 host):\none"
    assert (merged.result.error_code, merged.whole) == ("exit_code", "")


def test_many_different_outcomes_are_within_the_limit_and_all_counted() -> None:
    results = [result(f"web{number}", f"{number} {'x' * 5_000}", number % 3) for number in range(1, 301)]
    merged = merge_results(results, LIMIT)
    assert len(merged.result.text) <= LIMIT.characters
    assert "more outcomes of" in merged.result.text
    assert len(merged.whole) > 1_500_000
    assert merged_status(results) is CallStatus.ERROR


@pytest.mark.parametrize("size", [10, 300, 5_000])
@pytest.mark.parametrize("first", [10, 40_000])
def test_as_many_different_outcomes_are_shown_as_fit(size: int, first: int) -> None:
    results = [result("a1", "y" * first), result("a2", "y" * first)]
    results += [result(f"web{number}", f"{number}:{'x' * size}") for number in range(1000, 1600)]
    text = merge_results(results, LIMIT).result.text
    shown = text.count("(1 host)")
    assert LIMIT.characters // 2 < len(text) <= LIMIT.characters
    assert shown >= (LIMIT.characters // 2 - 1_500) // (min(size, 360) + 50)
    assert f"[{600 - shown} more outcomes of" in text
    if size <= 300:
        assert text.count("x" * size) == shown


def test_a_long_majority_leaves_room_for_the_others() -> None:
    merged = merge_results([result("a", "x" * 40_000), result("b", "x" * 40_000), result("c", "short")], LIMIT)
    assert len(merged.result.text) <= LIMIT.characters
    assert merged.result.text.endswith("c (1 host):\nshort")
    assert merged.result.text.count("x") > 12_000


@pytest.mark.parametrize("characters", [2_000, 15_000, 200_000])
def test_the_structured_result_has_the_limit_of_the_text(characters: int) -> None:
    results = [result(f"web{number}", "same") for number in range(1, 5_001)]
    results[4_000] = result("web4001", "other", 3)
    data: Any = merge_results(results, OutputLimit(characters, characters // 2)).result.data
    assert len(json.dumps(data)) <= min(characters, 64 << 10)
    assert {"host": "web4001", "status": "completed", "group": 1, "exit_code": 3} in [
        {name: value for name, value in one.items() if name not in ("job_id", "error_code")} for one in data["hosts"]
    ]
    assert [one["host"] for one in data["hosts"]][:2] == ["web1", "web2"]
    assert data["hosts_omitted"] == 5_000 - len(data["hosts"])
    assert [group["count"] for group in data["groups"]] == [4_999, 1]
    assert "groups_omitted" not in data


def test_many_different_outcomes_are_counted_in_the_structured_result() -> None:
    results = [result(f"host-{number}-{'x' * (number % 50)}", f"{number}") for number in range(3_000)]
    data: Any = merge_results(results, LIMIT).result.data
    assert LIMIT.characters // 2 < len(json.dumps(data)) <= LIMIT.characters
    assert data["groups_omitted"] == 3_000 - len(data["groups"])
    few: Any = merge_results([result("a", "one")], LIMIT).result.data
    assert few.keys() == {"hosts", "groups"}


def failed(host: str, text: str) -> HostResult:
    result = ToolResult.failure("file_not_found", text)
    return HostResult(host, f"ssh://{host}", CallOutcome(ToolCall("read_file"), result, CallStatus.ERROR))


def test_equal_errors_that_name_their_targets_are_one() -> None:
    merged = merge_results([failed(name, f"ssh://{name}: ~/x: no such file") for name in ("a", "b")], LIMIT)
    assert merged.result.text == "2 hosts: 2 error\n\na,b (2 hosts):\n~/x: no such file"


def test_the_word_job_in_the_result_of_a_tool_without_jobs_is_only_text() -> None:
    found = CallOutcome(ToolCall("read_file"), ToolResult.of("see job JOB"), CallStatus.OK)
    merged = merge_results([HostResult("a", "ssh://a", found)], LIMIT)
    assert merged.result.text == "1 host: 1 ok\n\na (1 host):\nsee job JOB"
