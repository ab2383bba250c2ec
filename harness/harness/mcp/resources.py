"""What a client may look at: jobs and their output, screens of panes, the session's notes, and where this is. Pure.

Each address stands for a call of one of the tools in :mod:`.resource_tools`, so that looking is judged, redacted and
recorded as every other call is.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ..toolkit.values import JsonObject

__all__ = [
    "DESCRIBE",
    "JOBS",
    "LOG_TEMPLATE",
    "MEMORIES",
    "SCREEN_TEMPLATE",
    "TODOS",
    "Place",
    "parse_uri",
    "screen_uri",
]

SCHEME = "harness"
JOBS = "harness://jobs"
DESCRIBE = "harness://describe"
TODOS = "harness://todos"
MEMORIES = "harness://memories"
LOG_TEMPLATE = "harness://job/{id}/log{?offset,limit}"
SCREEN_TEMPLATE = "harness://pane/{name}/screen"


@dataclass(frozen=True, slots=True)
class Place:
    """What an address stands for: a tool and its arguments, and which kind of content comes back."""

    uri: str
    tool: str
    arguments: JsonObject
    mime_type: str = "application/json"


def screen_uri(pane: str) -> str:
    """The resource with a pane's screen."""
    return f"harness://pane/{quote(pane, safe='')}/screen"


def parse_uri(uri: str) -> Place:
    """What an address stands for.

    Raises:
        ValueError: it is none of ours.
    """
    try:
        parts = urlsplit(uri)
        words = [parts.netloc, *(unquote(word, errors="strict") for word in parts.path.split("/")[1:])]
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        raise ValueError(_unknown(uri)) from None
    if parts.scheme != SCHEME or parts.fragment:
        raise ValueError(_unknown(uri))
    match words:
        case ["jobs"] if not query:
            return Place(uri, "resource_jobs", {})
        case ["describe" | "todos" | "memories" as name] if not query:
            return Place(uri, f"resource_{name}", {})
        case ["pane", name, "screen"] if name and not query:
            return Place(uri, "resource_screen", {"pane": name}, "text/plain")
        case ["job", job_id, "log"] if job_id:
            return Place(uri, "resource_log", {"job_id": job_id, **_page(uri, query)}, "text/plain")
    raise ValueError(_unknown(uri))


def _page(uri: str, query: list[tuple[str, str]]) -> dict[str, int]:
    page: dict[str, int] = {}
    for name, value in query:
        if name not in ("offset", "limit") or name in page or not (value.isascii() and value.isdigit()):
            raise ValueError(f"{uri}: offset and limit are numbers of bytes, and there is nothing else to choose")
        page[name] = int(value)
    return page


def _unknown(uri: str) -> str:
    others = ", ".join((JOBS, DESCRIBE, TODOS, MEMORIES, LOG_TEMPLATE))
    return f"there is no resource {uri}; there are {others} and {SCREEN_TEMPLATE}"
