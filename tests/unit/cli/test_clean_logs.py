"""What is logged holds no secret, whoever logs it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from harness.cli.runtime import logs_cleaned
from harness.toolkit.redaction.redactor import PatternRedactor

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def clean() -> Iterator[None]:
    with logs_cleaned(PatternRedactor().text):
        yield


@pytest.mark.usefixtures("clean")
def test_secrets_are_taken_out_of_words_arguments_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    library = logging.getLogger("some.library")
    with caplog.at_level(logging.DEBUG):
        library.debug("Request options: %s", {"json_data": {"messages": [{"content": f"use {SECRET}"}]}})
        library.debug(f"sent {SECRET}")
        try:
            raise ValueError(f"no {SECRET}")
        except ValueError:
            library.exception("it failed")
    assert SECRET not in caplog.text
    assert caplog.text.count("[redacted]") == 3


@pytest.mark.usefixtures("clean")
def test_a_record_without_secrets_keeps_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("some.library").warning("%s is back after %.1f s", "ssh://web1", 2.0)
    assert caplog.records[0].args == ("ssh://web1", 2.0)
    assert caplog.messages == ["ssh://web1 is back after 2.0 s"]


def test_afterwards_records_are_made_as_before() -> None:
    before = logging.getLogRecordFactory()
    with logs_cleaned(str.upper):
        assert logging.getLogRecordFactory() is not before
    assert logging.getLogRecordFactory() is before
