"""News of links to targets that were lost and are back, which the backends log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["link_news"]

LOGGER = "harness_backends.links"


class _Listener(logging.Handler):
    """Hands on what the news is about: the target's URL, and the seconds that it was out of reach."""

    def __init__(self, report: Callable[[str, float], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) == 2:
            target, seconds = record.args
            if isinstance(target, str) and isinstance(seconds, float):
                self._report(target, seconds)


@contextmanager
def link_news(report: Callable[[str, float], None]) -> Iterator[None]:
    """Call ``report`` with the target and the seconds whenever a link is back; it may not raise.

    What is shown of it on the screen stays as the operator chose.
    """
    logger, listener = logging.getLogger(LOGGER), _Listener(report)
    level, propagate = logger.level, logger.propagate
    logger.propagate = propagate and logger.isEnabledFor(logging.INFO)
    logger.setLevel(logging.INFO if not logger.isEnabledFor(logging.INFO) else level)
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate
