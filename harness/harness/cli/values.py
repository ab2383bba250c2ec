"""Kinds of values that options take: times and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import click

from ..command import parse_duration

__all__ = ["NO_LIMIT", "Pause", "Size", "TimeLimit", "pause_option", "time_limit_option"]

NO_LIMIT: Final = 366 * 86400.0
"""What ``none`` means, in seconds; a longer time is refused."""

_Function = Callable[..., int | None]


class Pause(click.ParamType[float]):
    """Seconds, or ``500ms``, ``30s``, ``10m``, ``1h``, from 0 on."""

    name = "duration"
    forms = "write 0, 90, 500ms, 30s, 10m, 1h"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = parse_duration(cast("str | float", value))
        except ValueError:
            self.fail(f"{value!r} is not a duration: {self.forms}", param, ctx)
        if seconds > NO_LIMIT:
            self.fail(f"{value!r} is more than a year: {self.forms}", param, ctx)
        return seconds


class TimeLimit(Pause):
    """As :class:`Pause`, but never 0; ``none`` for no limit."""

    forms = "write 90, 500ms, 30s, 10m, 1h, or none for no limit"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == "none":
            return NO_LIMIT
        seconds = super().convert(value, param, ctx)
        if seconds == 0:
            self.fail(f"{value!r} leaves no time: {self.forms}", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """Bytes, or ``64k``, ``1M``, ``2G``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ..settings_schema import parse_size

        try:
            return min(parse_size(cast("str | int", value)), 1 << 40)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def time_limit_option(*names: str, **settings: object) -> Callable[[_Function], _Function]:
    """An option that takes a :class:`TimeLimit`."""
    return click.option(*names, type=TimeLimit(), metavar="TIME", **settings)  # type: ignore[arg-type]  # passed through


def pause_option(*names: str, **settings: object) -> Callable[[_Function], _Function]:
    """An option that takes a :class:`Pause`."""
    return click.option(*names, type=Pause(), metavar="TIME", **settings)  # type: ignore[arg-type]  # passed through
