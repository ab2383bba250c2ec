"""Specifications of forwards, as the options ``-L``, ``-R`` and ``-D`` of OpenSSH take them. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal

from ..errors import ConfigError

__all__ = [
    "FORMS",
    "Address",
    "ForwardKind",
    "ForwardSpec",
    "SocketPath",
    "TcpAddress",
    "is_loopback",
    "parse_forward",
]

ForwardKind = Literal["local", "remote", "dynamic"]
"""Where it listens: here, on the target, or here as a SOCKS proxy."""

MAX_PORT = 65535
MAX_HOST_BYTES = 1024
"""As NI_MAXHOST, OpenSSH's limit."""
MAX_PATH_BYTES = 103
"""The longest path of a Unix socket that all systems allow, without its final NUL."""
MAX_FIELDS = 4

FORMS: Final = {
    "local": "[BIND:]PORT:HOST:HOSTPORT, with a path of a Unix socket in place of [BIND:]PORT or HOST:HOSTPORT",
    "remote": "[BIND:]PORT:HOST:HOSTPORT or [BIND:]PORT, with a path of a Unix socket in place of either side",
    "dynamic": "[BIND:]PORT",
}
"""The forms of a specification, by kind."""
_OPTIONS: Final = {"local": "-L", "remote": "-R", "dynamic": "-D"}


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port. To listen, no host is loopback, ``*`` is all addresses, and port 0 is any free one."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = "localhost" if self.host is None else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SocketPath:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return self.path


Address = TcpAddress | SocketPath


@dataclass(frozen=True, slots=True)
class ForwardSpec:
    """One forward; without ``connect`` it is a SOCKS proxy."""

    kind: ForwardKind
    listen: Address
    connect: Address | None

    def __str__(self) -> str:
        return f"{_OPTIONS[self.kind]} {self.listen} -> {'SOCKS' if self.connect is None else self.connect}"


def is_loopback(address: Address) -> bool:
    """Return whether only programs of the listening machine can connect to an address."""
    if isinstance(address, SocketPath) or address.host in (None, "localhost"):
        return True
    try:
        return ipaddress.ip_address(address.host or "").is_loopback
    except ValueError:  # a name, whose addresses are not known here
        return False


@dataclass(frozen=True, slots=True)
class _Field:
    """One part between colons; ``is_path`` is the path of a Unix socket."""

    text: str
    is_path: bool


def parse_forward(kind: ForwardKind, text: str) -> ForwardSpec:
    """Read a specification as OpenSSH does.

    Raises:
        ConfigError: It does not have one of the :data:`FORMS`.
    """
    try:
        fields = _split(text.lstrip())
        if kind == "dynamic":
            spec = ForwardSpec(kind, _listen_address(fields, may_be_path=False), None)
        else:
            spec = _with_destination(kind, fields)
        _check(spec)
    except ValueError as error:
        shown = text if text.isprintable() else ascii(text)
        raise ConfigError(f"{_OPTIONS[kind]} {shown}: {error}", hint=f"write {_OPTIONS[kind]} {FORMS[kind]}") from None
    return spec


def _with_destination(kind: ForwardKind, fields: list[_Field]) -> ForwardSpec:
    if fields[-1].is_path and len(fields) > 1:
        return ForwardSpec(kind, _listen_address(fields[:-1]), SocketPath(fields[-1].text))
    if kind == "remote" and (len(fields) == 1 or (len(fields) == 2 and not fields[0].is_path)):
        return ForwardSpec(kind, _listen_address(fields, may_be_path=False), None)
    if len(fields) < 3:
        raise ValueError("the destination is missing")
    host, port = fields[-2:]
    if host.is_path:
        raise ValueError("the path of a Unix socket takes no port")
    if not host.text:
        raise ValueError("the destination's host is missing")
    return ForwardSpec(kind, _listen_address(fields[:-2]), TcpAddress(host.text, _port(port.text, least=1)))


def _listen_address(fields: list[_Field], *, may_be_path: bool = True) -> Address:
    *bind, port = fields
    if port.is_path and may_be_path and not bind:
        return SocketPath(port.text)
    if len(bind) > 1 or any(one.is_path for one in fields):
        raise ValueError("there are too many parts" if len(bind) > 1 else "a Unix socket is not possible here")
    host = bind[0].text if bind else None
    return TcpAddress("*" if host == "" else host, _port(port.text, least=0))


def _port(text: str, *, least: int) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text[:6]) <= MAX_PORT and len(text) <= 5):
        raise ValueError(f"{text!r} is not a port from {least} to {MAX_PORT}")
    return int(text)


def _check(spec: ForwardSpec) -> None:
    if isinstance(spec.listen, TcpAddress) and spec.listen.port == 0 and spec.kind != "remote":
        raise ValueError("only -R can listen on port 0, for any free port")
    for address in (spec.listen, spec.connect):
        if isinstance(address, SocketPath) and len(address.path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
            raise ValueError(f"the path of a Unix socket has at most {MAX_PATH_BYTES} bytes")
        if isinstance(address, TcpAddress) and address.host is not None:
            _check_host(address.host)


def _check_host(host: str) -> None:
    if len(host.encode("utf-8", "surrogateescape")) >= MAX_HOST_BYTES:
        raise ValueError("the host is too long")
    if not host.isprintable() or any(char.isspace() for char in host):
        raise ValueError(f"{host!r} is not a host")


def _split(text: str) -> list[_Field]:
    """Split a specification at its colons, except in brackets; a backslash takes the next character literally."""
    fields = []
    while True:
        field, rest = _bracketed(text) if text.startswith("[") else _plain(text)
        fields.append(field)
        if len(fields) > MAX_FIELDS:
            raise ValueError("there are too many parts")
        if rest is None:
            return fields
        text = rest


def _bracketed(text: str) -> tuple[_Field, str | None]:
    inside, bracket, rest = text[1:].partition("]")
    if not bracket or (rest and not rest.startswith(":")):
        raise ValueError("a bracket is not closed before ':' or the end")
    return _Field(inside, "/" in inside), rest[1:] if rest else None


def _plain(text: str) -> tuple[_Field, str | None]:
    letters, position = [], 0
    while position < len(text) and text[position] != ":":
        position += text[position] == "\\"
        letters.append(text[position : position + 1])
        position += 1
    word = "".join(letters)
    return _Field(word, "/" in word), text[position + 1 :] if position < len(text) else None
