"""What is logged, without secrets: with ``-vvv`` the libraries of providers log whole requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["logs_cleaned"]

_tracebacks = logging.Formatter()


@contextmanager
def logs_cleaned(redact: Callable[[str], str]) -> Iterator[None]:
    """Redact every record that is made inside, by any thread, for any handler. One without secrets stays as it is."""
    before = logging.getLogRecordFactory()

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = before(*args, **named)
        _clean(record, redact)
        return record

    logging.setLogRecordFactory(made)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def _clean(record: logging.LogRecord, redact: Callable[[str], str]) -> None:
    try:
        text = record.getMessage()
    except Exception:  # the words do not fit their arguments: logging itself tells who wrote them
        return
    clean = redact(text)
    if clean != text:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redact(_tracebacks.formatException(record.exc_info))
