"""Blocking functions that may take longer than the program runs, such as the lookup of a host name."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import anyio

__all__ = ["run_in_daemon_thread"]

T = TypeVar("T")


async def run_in_daemon_thread(function: Callable[[], T]) -> T:
    """Return the result of a blocking function, for which nothing waits once the caller is cancelled.

    The threads of anyio and of the event loop are waited for at the end of the program.

    Raises:
        Exception: What the function raised.
    """
    results: list[T] = []
    failures: list[Exception] = []
    reading, writing = os.pipe()

    def work() -> None:
        try:
            results.append(function())
        except Exception as error:
            failures.append(error)
        finally:
            with suppress(OSError):
                os.close(writing)  # what the caller waits for

    try:
        try:
            Thread(target=work, name="harness blocking call", daemon=True).start()
        except BaseException:
            os.close(writing)
            raise
        await anyio.wait_readable(reading)
    finally:
        os.close(reading)
    if failures:
        raise failures[0]
    return results[0]
