"""Which addresses are reached from the machine that harness runs on: those of the public internet. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from harness.toolkit.websettings import Place

__all__ = ["Address", "forbidden", "is_never", "may_connect"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORKS = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "a private network",
    "100.64.0.0/10": "a carrier's private network",
    "127.0.0.0/8": "this machine",
    "168.63.129.16/32": "a cloud's metadata service",
    "169.254.0.0/16": "link-local, where clouds keep their metadata service",
    "172.16.0.0/12": "a private network",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved for documentation",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "a relay to IPv6",
    "192.168.0.0/16": "a private network",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "reserved for measurements",
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "this host",
    "::1/128": "this machine",
    "100::/64": "reserved",
    "2001::/23": "reserved, or a tunnel",
    "2001:db8::/32": "reserved for documentation",
    "2002::/16": "a tunnel to an IPv4 address",
    "3fff::/20": "reserved for documentation",
    "5f00::/16": "reserved",
    "64:ff9b:1::/48": "a translation to a private IPv4 address",
    "fc00::/7": "a private network",
    "fe80::/10": "link-local",
    "fec0::/10": "a private network",
    "ff00::/8": "multicast",
}
_FORBIDDEN = [(ipaddress.ip_network(network), what) for network, what in _NETWORKS.items()]
_GLOBAL6 = ipaddress.IPv6Network("2000::/3")
_MAPPED = [ipaddress.IPv6Network(text) for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")]
_NEVER = [
    ipaddress.ip_network(network)
    for network in ("0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/3", "fe80::/10", "ff00::/8", "::/128")
]
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
FOUR_BYTES = 0xFFFF_FFFF


def _inner(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address is another way to write, or leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    number = int(address)
    if any(address in network for network in _MAPPED) and number > 1:  # :: and ::1 are themselves
        yield ipaddress.IPv4Address(number & FOUR_BYTES)
    if (number >> 32) & FOUR_BYTES in _ISATAP:
        yield ipaddress.IPv4Address(number & FOUR_BYTES)


def forbidden(address: Address) -> str:
    """Why an address is none of the public internet; empty when it is."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        return "an address of one link"
    for network, what in _FORBIDDEN:
        if address.version == network.version and address in network:
            return what
    inner = list(_inner(address))
    for one in inner:
        if why := forbidden(one):
            return f"{one}, {why}"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL6 and not inner:
        return "reserved"
    return "" if inner or address.is_global else "not public"


def may_connect(host: str, port: int, address: Address, allowed: Iterable[Place]) -> str:
    """Why a connection to this address, which was found for ``host``, is not made; empty when it is.

    A place that names an address allows that address. One that names a host allows whatever private address the name
    leads to, and never a link-local one: there are the keys of cloud machines.
    """
    why = forbidden(address)
    if not why or any(_covers(place, host, port, address) for place in allowed):
        return ""
    return why


def _covers(place: Place, host: str, port: int, address: Address) -> bool:
    if place.port not in (None, port):
        return False
    if place.network is not None:
        return any(one in place.network for one in (address, *_inner(address)) if one.version == place.network.version)
    return place.name == host and not is_never(address)


def is_never(address: Address) -> bool:
    """Whether no name may lead there: the keys of cloud machines are there, or nothing that can be fetched."""
    ways = (address, *_inner(address))
    return any(one in network for one in ways for network in _NEVER if network.version == one.version)
