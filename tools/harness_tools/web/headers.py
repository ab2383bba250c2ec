"""Headers that a model gives: which of them are sent, and where to. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.toolkit.websettings import Place

from .urls import WebUrl

__all__ = ["Sent", "check_headers", "headers_for"]

MOST = 32
LONGEST = 4_096
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
CREDENTIALS = frozenset({"authorization", "cookie"})
OURS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "keep-alive"),
        *("expect", "accept-encoding", "range", "proxy-authorization", "proxy-connection", "x-harness-token"),
    }
)
"""What a request needs to be one, and what is for nobody."""
ANYWHERE = frozenset({"accept", "accept-language", "user-agent"})
"""What another server may see, too, when one redirects to it."""
DEFAULTS = {"accept": "text/html,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5", "user-agent": "harness"}


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with their names in lower case.

    Raises:
        ValueError: one cannot be a header, or there are too many.
    """
    found = {name.lower(): value.strip(" \t") for name, value in headers.items()}
    if len(headers) > MOST or len(found) < len(headers):
        raise ValueError(f"{MOST} headers at most, each once")
    for name, value in found.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:64]!r} is no name of a header")
        if len(value) > LONGEST or not _VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} is too long, or holds what no header can")
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """The headers of one request, and the names of those that are kept back."""

    headers: Mapping[str, str]
    origin: tuple[str, str, int]
    kept_back: tuple[str, ...] = ()

    def toward(self, url: WebUrl) -> Sent:
        """Those for the next request: another server gets what says nothing of the user."""
        if url.origin == self.origin:
            return self
        kept = {name: value for name, value in self.headers.items() if name in ANYWHERE}
        return replace(self, headers=kept)


def headers_for(url: WebUrl, given: Mapping[str, str], trusted: Iterable[Place]) -> Sent:
    """What is sent to the first server. Credentials go to the places only that the operator has named."""
    unwanted = OURS if any(_names(place, url) for place in trusted) else OURS | CREDENTIALS
    sent = {name: value for name, value in given.items() if name not in unwanted}
    return Sent(DEFAULTS | sent, url.origin, tuple(sorted(set(given) & unwanted)))


def _names(place: Place, url: WebUrl) -> bool:
    if place.port not in (None, url.port):
        return False
    if place.network is None:
        return place.name == url.host
    try:
        address = ipaddress.ip_address(url.host)
    except ValueError:
        return False
    return address.version == place.network.version and address in place.network
