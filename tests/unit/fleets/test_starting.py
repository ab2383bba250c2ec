"""Numbers and percentages of hosts, and the waves that they make."""

from __future__ import annotations

import pytest

from harness.fleets.starting import resolve_count, split_into_waves


@pytest.mark.parametrize(
    ("value", "total", "count"),
    [
        (3, 40, 3),
        ("3", 40, 3),
        (50, 40, 50),
        ("10%", 40, 4),
        ("10%", 49, 4),
        ("10%", 3, 1),
        ("29%", 100, 29),
        ("0.5%", 1000, 5),
        ("100%", 7, 7),
    ],
)
def test_a_percentage_is_rounded_down_and_at_least_one(value: int | str, total: int, count: int) -> None:
    assert resolve_count(value, total) == count


@pytest.mark.parametrize("value", [0, -1, "0", "0%", "101%", "1/2%", "1e1%", "", "%", "ten", "1.5", "5 %", "٣", True])
def test_what_is_not_a_number_of_hosts_is_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match="is not a number of hosts"):
        resolve_count(value, 10)


def test_hosts_are_split_into_waves() -> None:
    assert split_into_waves("abcde", None) == ["abcde"]
    assert split_into_waves("abcde", 2) == ["ab", "cd", "e"]
    assert split_into_waves("abcde", "40%") == ["ab", "cd", "e"]
    assert split_into_waves("abcde", [1, 3]) == ["a", "bcd", "e"]
    assert split_into_waves("abcde", [1, "100%"]) == ["a", "bcde"]
    assert split_into_waves("", 2) == []
    with pytest.raises(ValueError, match="size of a wave"):
        split_into_waves("abc", [])
