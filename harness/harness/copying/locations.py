"""The arguments of a copy: a path of this machine, or ``HOST:PATH`` as ``scp`` reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

__all__ = ["Location", "parse_location", "path_on_target"]

_URL = re.compile(r"(?P<host>[a-z][a-z0-9]*://.+?):(?!//)(?P<path>[/~.].*|)", re.DOTALL)
_BRACKETED = re.compile(r"(?P<host>(?:[^@/:\s]+@)?\[[^\]/]+\](?::\d+)?):(?P<path>.*)", re.DOTALL)
_LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class Location:
    """A path and where it is.

    ``host`` is None for this machine, empty for the target of the options (``:PATH``), and else a host as ``--ssh``
    takes it, the name of a target or a target URL.
    """

    path: str
    host: str | None = None

    def __str__(self) -> str:
        return self.path if self.host is None else f"{self.host}:{self.path}"


def parse_location(text: str) -> Location:
    """Read an argument of a copy.

    As with ``scp``, a colon before the first slash ends the name of a host; ``./a:b`` is a file of this machine. After
    a target URL, the path starts with ``/``, ``~`` or ``.``.

    Raises:
        ValueError: It is empty, holds a NUL byte, or is a URL without a path.
    """
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a path")
    if text.startswith(_LOCAL):
        return Location(text.removeprefix(_LOCAL) or ".")
    if re.match(r"[a-z][a-z0-9]*://", text):
        match = _URL.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} has no path: write URL:/PATH, or ./{text} for a file of this machine")
        return Location(match["path"] or ".", match["host"])
    match = _BRACKETED.fullmatch(text)
    if match is not None:
        return Location(match["path"] or ".", match["host"])
    host, colon, path = text.partition(":")
    if not colon or "/" in host:
        return Location(text)
    return Location(path or ".", host)


def path_on_target(place: Location) -> str:
    """Return the path for its target: one of this machine is absolute, as its shell starts in the home directory."""
    if place.host is not None or place.path.startswith("/"):
        return place.path
    return f"{os.getcwd().rstrip('/')}/{place.path}"
