"""Who wrote what a pane shows at its prompt: harness itself, a late shell, or a person."""

from __future__ import annotations

import pytest

from harness_backends.tmux.operator_watch import is_typing, keys_since

PERSON, ROBOT, WATCHER = "0 0 {} @1", "1 0 {} @1", "0 1 {} @1"


@pytest.mark.parametrize(
    ("seconds", "ours", "since"),
    [
        (2.0, 1.9, None),
        (2.0, 2.0, 99),
        (2.0, 5.5, 98),
        (1.4, 70.0, 99),
        (2.0, 70.0, 98),
    ],
)
def test_keys_since(seconds: float, ours: float, since: int | None) -> None:
    assert keys_since(100, seconds, ours) == since


@pytest.mark.parametrize(
    ("clients", "typing"),
    [
        (PERSON.format(99), True),
        (PERSON.format(98), False),
        (f"{ROBOT.format(100)}\n{WATCHER.format(100)}\n0 0 100 @2", False),
        (f"{ROBOT.format(100)}\n{PERSON.format(100)}", True),
        ("rubbish", False),
    ],
)
def test_only_a_person_who_looks_at_the_window_and_may_type_counts(clients: str, typing: bool) -> None:
    assert is_typing(clients, "@1", 99) == typing
