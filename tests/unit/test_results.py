"""Result values."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import FileContent, ShellResult, Status
from harness import results as results_module


@given(st.binary())
def test_text_and_bytes_are_the_same_output(data: bytes) -> None:
    result = ShellResult("x", Status.COMPLETED, 0, stdout_bytes=data, stderr_bytes=data)
    for text in (result.stdout, result.stderr, FileContent(data, len(data), 0o644, "v", "/x").text):
        assert text.encode("utf-8", "surrogateescape") == data


@pytest.mark.parametrize(
    ("status", "code", "ok"),
    [
        (Status.COMPLETED, 0, True),
        (Status.COMPLETED, 1, False),
        (Status.SHELL_EXITED, 0, False),
        (Status.RUNNING, None, False),
        (Status.TIMED_OUT, None, False),
        (Status.INTERRUPTED, 0, False),
        (Status.UNKNOWN, None, False),
    ],
)
def test_only_a_completed_command_with_code_0_is_ok(status: Status, code: int | None, ok: bool) -> None:
    assert ShellResult("x", status, code).ok is ok


def test_a_status_is_its_name() -> None:
    assert [str(status) for status in Status] == [
        "completed",
        "running",
        "timed_out",
        "interrupted",
        "shell_exited",
        "unknown",
    ]
    assert Status("running") is Status.RUNNING


@pytest.mark.parametrize("name", [name for name in results_module.__all__ if name not in ("Status", "without_helpers")])
def test_results_are_frozen_values_without_a_dict(name: str) -> None:
    kind = getattr(results_module, name)
    assert dataclasses.is_dataclass(kind)
    assert kind.__setattr__ is not object.__setattr__
    assert "__slots__" in vars(kind)
