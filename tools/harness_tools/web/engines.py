"""Search engines: each asks in its own protocol and gives hits."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from html import unescape
from re import sub
from typing import Any
from urllib.parse import urlencode

import anyio
from anyio import to_thread

from harness.toolkit.websettings import SearchSettings, WebSettings

from .fetch import missing_extra
from .getter import Getter
from .headers import Sent
from .hits import Hit
from .pages import Answer, WebFailure
from .urls import WebUrl, parse_url

__all__ = ["BraveEngine", "DdgsEngine", "SearchEngine", "SearxngEngine", "engine_for"]

MOST_BYTES = 4 << 20
MOST_HITS = 200
BRAVE = "https://api.search.brave.com"
BRAVE_COUNT = 20
"""Hits that Brave gives at once."""


class SearchEngine(ABC):
    """Where ``web_search`` searches."""

    name: str
    doubt = ""
    """What a list without results may mean beside that there are none."""

    @abstractmethod
    async def search(self, query: str, count: int, timeout: float) -> list[Hit]:
        """About ``count`` hits, or more, the best first; ``timeout`` is in seconds.

        Raises:
            WebFailure: it gave no answer that can be used.
            ToolError: its library is not installed.
        """


class _HttpEngine(SearchEngine):
    """An engine that is asked with one GET and answers with JSON. The operator has named it, so it may be anywhere."""

    def __init__(self, settings: SearchSettings, getter: Getter) -> None:
        self._settings = settings
        self._getter = getter

    async def search(self, query: str, count: int, timeout: float) -> list[Hit]:
        try:
            url = parse_url(f"{self._base()}?{urlencode(self._parameters(query, count))}")
        except ValueError as error:
            raise WebFailure("search_failed", f"the URL of {self.name} in the settings: {error}") from None
        sent = Sent({"accept": "application/json", "user-agent": "harness", **self._headers()}, url.origin)
        answer = await self._getter.get(url, sent, MOST_BYTES, timeout)
        return [hit for hit in self._hits(_json(answer, url, self.name)) if hit.url][:MOST_HITS]

    def _headers(self) -> Mapping[str, str]:
        return {}

    def _base(self) -> str:
        raise NotImplementedError

    def _parameters(self, query: str, count: int) -> Mapping[str, str]:
        raise NotImplementedError

    def _hits(self, found: Any) -> list[Hit]:
        raise NotImplementedError


class SearxngEngine(_HttpEngine):
    """A SearXNG server, which has to offer ``json`` among its formats."""

    name = "searxng"

    def _base(self) -> str:
        return f"{self._settings.url.removesuffix('/search')}/search"

    def _parameters(self, query: str, count: int) -> Mapping[str, str]:
        return {"q": query, "format": "json"}

    def _headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._settings.key}"} if self._settings.key else {}

    def _hits(self, found: Any) -> list[Hit]:
        return [_hit(item, "content") for item in _list(found, "results")]


class BraveEngine(_HttpEngine):
    """The search API of Brave, with the operator's key."""

    name = "brave"

    def _base(self) -> str:
        return f"{self._settings.url or BRAVE}/res/v1/web/search"

    def _parameters(self, query: str, count: int) -> Mapping[str, str]:
        return {"q": query, "count": str(min(count, BRAVE_COUNT)), "text_decorations": "false"}

    def _headers(self) -> Mapping[str, str]:
        return {"x-subscription-token": self._settings.key}

    def _hits(self, found: Any) -> list[Hit]:
        web = found.get("web") if isinstance(found, dict) else None
        return [_hit(item, "description") for item in _list(web or {}, "results")]


class DdgsEngine(SearchEngine):
    """Public engines, by the library ``ddgs``: DuckDuckGo unless the settings name others."""

    name = "ddgs"
    doubt = " (a public engine that refuses a search answers so, too)"

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings

    async def search(self, query: str, count: int, timeout: float) -> list[Hit]:
        try:
            found = await _bounded(lambda: self._ask(query, count, timeout), timeout)
        except ImportError as error:
            raise missing_extra(error) from error
        return [_hit(item, "body", "href") for item in found if isinstance(item, dict)][:MOST_HITS]

    def _ask(self, query: str, count: int, timeout: float) -> list[Any]:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

        engines = ",".join(self._settings.search.engines)
        try:
            with DDGS(proxy=self._settings.proxy or None, timeout=max(1, int(timeout))) as client:
                return list(client.text(query, max_results=count, backend=engines))
        except RatelimitException as error:
            raise WebFailure("rate_limited", f"{engines} wants fewer searches; try again later") from error
        except TimeoutException as error:
            raise WebFailure("timeout", f"{engines} did not answer within {timeout:.0f} s") from error
        except DDGSException as error:
            if "No results" in str(error):
                return []
            raise WebFailure("search_failed", f"{engines} could not be asked: {error}"[:500]) from error


async def _bounded(ask: Callable[[], list[Any]], timeout: float) -> list[Any]:
    """Work in a thread, which is left to itself when it takes longer than its own limits should let it."""
    with anyio.move_on_after(timeout + 5):
        return await to_thread.run_sync(ask, abandon_on_cancel=True)
    raise WebFailure("timeout", f"no answer within {timeout:.0f} s")


def engine_for(settings: WebSettings) -> SearchEngine:
    """The engine that the operator has chosen.

    Raises:
        ToolError: its library is not installed.
    """
    if settings.search.provider == "ddgs":
        return DdgsEngine(settings)
    try:
        from .httpget import PlainGetter
    except ImportError as error:
        raise missing_extra(error) from error
    kind = BraveEngine if settings.search.provider == "brave" else SearxngEngine
    return kind(settings.search, PlainGetter())


def _json(answer: Answer, url: WebUrl, name: str) -> Any:
    """The answer's object. What an engine says of an error may repeat the request, so it is not shown."""
    if answer.status == 429:
        raise WebFailure("rate_limited", f"{name} wants fewer searches; try again later")
    if answer.status != 200:
        raise WebFailure(
            "search_failed", f"{name} at {url.authority} answered with the status {answer.status}{_advice(answer)}"
        )
    try:
        if not answer.truncated:
            return json.loads(answer.body)
    except (ValueError, RecursionError):
        pass
    raise WebFailure("search_failed", f"{name} at {url.authority} answered with what is no JSON, or too much of it")


def _advice(answer: Answer) -> str:
    if answer.status in (401, 403):
        return ": the operator should look at the key and, of SearXNG, at its formats (json)"
    return ""


def _list(found: Any, key: str) -> list[Any]:
    items = found.get(key) if isinstance(found, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _hit(item: Mapping[str, Any], snippet: str, url: str = "url") -> Hit:
    return Hit(_text(item.get("title")), _raw(item.get(url)), _text(item.get(snippet)))


def _text(value: object) -> str:
    """A text without the marks of HTML that engines put into it."""
    return unescape(sub(r"</?[a-zA-Z][^<>]{0,100}>", "", _raw(value)))


def _raw(value: object) -> str:
    return value[:10_000] if isinstance(value, str) else ""
