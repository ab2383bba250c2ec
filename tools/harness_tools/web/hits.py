"""What searches find: links without detours, of the wanted domains, as text. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from harness.toolkit import Json

from .untrusted import cleaned
from .urls import host_name, parse_url

__all__ = ["Chosen", "Hit", "chosen", "domain_of", "facts_of", "in_domain", "rendered", "unwrapped"]

TITLE = 300
SNIPPET = 600
DETOURS = 3


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that a search found."""

    title: str
    url: str
    snippet: str = ""


def _query(name: str) -> Callable[[str], str]:
    return lambda url: parse_qs(urlsplit(url).query, max_num_fields=100).get(name, [""])[0]


def _bing(url: str) -> str:
    packed = _query("u")(url)
    if not packed.startswith("a1"):
        return ""
    try:
        return base64.urlsafe_b64decode(packed[2:] + "=" * (-len(packed[2:]) % 4)).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


def _yahoo(url: str) -> str:
    part = next((part for part in urlsplit(url).path.split("/") if part.startswith("RU=")), "")
    return unquote(part[3:])


_DETOURS: Mapping[tuple[str, str], Callable[[str], str]] = {
    ("duckduckgo.com", "/l/"): _query("uddg"),
    ("google.com", "/url"): lambda url: _query("q")(url) or _query("url")(url),
    ("bing.com", "/ck/a"): _bing,
    ("search.yahoo.com", "/"): _yahoo,
}
_ADVERTS = (("duckduckgo.com", "/y.js"), ("bing.com", "/aclick"), ("googleadservices.com", "/"))


def unwrapped(url: str) -> str:
    """Where a link of a search engine leads in the end, in its one spelling; empty when it is none, or an advert."""
    for _ in range(DETOURS):
        try:
            known = parse_url(f"https:{url}" if url.startswith("//") else url)
            inner = _inner(known.host, known.path, str(known))
        except ValueError:
            return ""
        if inner is None:
            return str(known)
        url = inner
    return ""


def _inner(host: str, path: str, url: str) -> str | None:
    """The URL in a detour, empty when it is an advert; None when this is no detour."""
    if any(in_domain(host, domain) and path.startswith(start) for domain, start in _ADVERTS):
        return ""
    for (domain, start), inner in _DETOURS.items():
        if in_domain(host, domain) and path.startswith(start):
            return inner(url) or None
    return None


def domain_of(text: str) -> str:
    """A domain as a filter has it: ``example.com`` of ``*.example.com``, ``https://example.com/x`` and the like.

    Raises:
        ValueError: it is none.
    """
    bare = text.strip().removeprefix("*.").removeprefix(".")
    return parse_url(bare).host if "://" in bare else host_name(bare.partition("/")[0])


def in_domain(host: str, domain: str) -> bool:
    """Whether a host is the domain, or in it: ``docs.example.com`` is in ``example.com``, ``badexample.com`` is not."""
    return host == domain or host.endswith(f".{domain}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The hits that are shown, and how many of other domains were left out."""

    hits: tuple[Hit, ...]
    left_out: int = 0


def chosen(hits: Iterable[Hit], limit: int, allowed: Sequence[str] = (), blocked: Sequence[str] = ()) -> Chosen:
    """The first hits of the wanted domains, each URL once. What is blocked is out, also when it is allowed."""
    kept: dict[str, Hit] = {}
    seen: set[str] = set()
    left_out = 0
    for hit in hits:
        url = unwrapped(hit.url)
        if not url or url in seen:
            continue
        seen.add(url)
        host = parse_url(url).host
        wanted = not allowed or any(in_domain(host, domain) for domain in allowed)
        if not wanted or any(in_domain(host, domain) for domain in blocked):
            left_out += 1
        elif len(kept) < limit:
            kept[url] = Hit(_line(hit.title, TITLE), url, _line(hit.snippet, SNIPPET))
    return Chosen(tuple(kept.values()), left_out)


def _line(text: str, limit: int) -> str:
    """The text on one line."""
    line = " ".join(cleaned(text[: 20 * limit]).split())
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def rendered(hits: Sequence[Hit]) -> str:
    """A numbered list."""
    return "\n\n".join(
        "\n   ".join(part for part in (f"{number}. {hit.title or hit.url}", hit.url, hit.snippet) if part)
        for number, hit in enumerate(hits, 1)
    )


def facts_of(found: Chosen, query: str, provider: str) -> Json:
    """The same as a JSON value."""
    results: list[Json] = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet} for hit in found.hits]
    return {
        "query": query,
        "provider": provider,
        "count": len(found.hits),
        "left_out": found.left_out,
        "results": results,
    }
