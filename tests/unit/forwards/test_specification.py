"""Specifications of forwards: what OpenSSH accepts is accepted with the same meaning, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.forwards.specification import (
    Address,
    ForwardKind,
    SocketPath,
    TcpAddress,
    is_loopback,
    parse_forward,
)

GOOD: list[tuple[ForwardKind, str, Address, Address | None]] = [
    ("local", "8080:localhost:80", TcpAddress(None, 8080), TcpAddress("localhost", 80)),
    ("local", " 8080:localhost:80", TcpAddress(None, 8080), TcpAddress("localhost", 80)),
    ("local", "127.0.0.1:8080:web:80", TcpAddress("127.0.0.1", 8080), TcpAddress("web", 80)),
    ("local", "*:8080:web:80", TcpAddress("*", 8080), TcpAddress("web", 80)),
    ("local", ":8080:web:80", TcpAddress("*", 8080), TcpAddress("web", 80)),
    ("local", "[::1]:8080:[fe80::1%eth0]:80", TcpAddress("::1", 8080), TcpAddress("fe80::1%eth0", 80)),
    ("local", "[]:8080:web:80", TcpAddress("*", 8080), TcpAddress("web", 80)),
    ("local", "8080:/run/app.sock", TcpAddress(None, 8080), SocketPath("/run/app.sock")),
    ("local", "localhost:8080:/run/app.sock", TcpAddress("localhost", 8080), SocketPath("/run/app.sock")),
    ("local", "/tmp/here:web:80", SocketPath("/tmp/here"), TcpAddress("web", 80)),
    ("local", "./here:/run/app.sock", SocketPath("./here"), SocketPath("/run/app.sock")),
    ("local", r"/tmp/a\:b:web:80", SocketPath("/tmp/a:b"), TcpAddress("web", 80)),
    ("local", "[/tmp/a:b]:web:80", SocketPath("/tmp/a:b"), TcpAddress("web", 80)),
    ("remote", "0:localhost:80", TcpAddress(None, 0), TcpAddress("localhost", 80)),
    ("remote", "8080:localhost:80", TcpAddress(None, 8080), TcpAddress("localhost", 80)),
    ("remote", "/run/there:localhost:80", SocketPath("/run/there"), TcpAddress("localhost", 80)),
    ("remote", "/run/there:/run/here", SocketPath("/run/there"), SocketPath("/run/here")),
    ("remote", "1080", TcpAddress(None, 1080), None),
    ("remote", "0", TcpAddress(None, 0), None),
    ("remote", "[::]:1080", TcpAddress("::", 1080), None),
    ("dynamic", "1080", TcpAddress(None, 1080), None),
    ("dynamic", "192.0.2.1:1080", TcpAddress("192.0.2.1", 1080), None),
    ("dynamic", "[::1]:65535", TcpAddress("::1", 65535), None),
]


@pytest.mark.parametrize(("kind", "text", "listen", "connect"), GOOD)
def test_every_form_of_openssh_has_its_meaning(
    kind: ForwardKind, text: str, listen: Address, connect: Address | None
) -> None:
    spec = parse_forward(kind, text)
    assert (spec.kind, spec.listen, spec.connect) == (kind, listen, connect)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("local", "", "destination is missing"),
        ("local", "8080", "destination is missing"),
        ("local", "8080:80", "destination is missing"),
        ("local", "/tmp/here", "destination is missing"),
        ("local", "0:web:80", "only -R"),
        ("local", "8080:web:0", "'0' is not a port"),
        ("local", "8080:web:65536", "is not a port"),
        ("local", "65536:web:80", "is not a port"),
        ("local", "8080:web:99999999999999999999", "is not a port"),
        ("local", "http:web:80", "'http' is not a port"),
        ("local", "+80:web:80", "is not a port"),
        ("local", "٨٠:web:80", "is not a port"),
        ("local", "8080::80", "host is missing"),
        ("local", "8080:web:80:", "too many parts|not a port"),
        ("local", "a:b:8080:web:80", "too many parts"),
        ("local", "a:b:c:d:e:f", "too many parts"),
        ("local", "::1:8080:web:80", "too many parts"),
        ("local", "[::1:8080:web:80", "bracket"),
        ("local", "[::1]8080:web:80", "bracket"),
        ("local", "8080:web host:80", "is not a host"),
        ("local", "8080:web\n:80", "is not a host"),
        ("local", "8080:/run/app.sock:80", "takes no port"),
        ("local", "host:/tmp/here:web:80", "Unix socket is not possible|takes no port"),
        ("local", "8080:/" + "a" * 200, "at most"),
        ("local", f"8080:{'a' * 2000}:80", "too long"),
        ("remote", "/run/there", "Unix socket is not possible"),
        ("remote", "", "is not a port"),
        ("dynamic", "", "is not a port"),
        ("dynamic", "0", "only -R"),
        ("dynamic", "/tmp/here", "Unix socket is not possible"),
        ("dynamic", "1080:web:80", "too many parts"),
    ],
)
def test_everything_else_is_refused_with_the_form(kind: ForwardKind, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_forward(kind, text)
    assert caught.value.hint.startswith("write -")
    assert caught.value.message.isprintable()


@given(st.sampled_from(["local", "remote", "dynamic"]), st.text(alphabet="[]:/\\0189ab*. \n", max_size=30))
def test_any_text_is_a_specification_or_an_error(kind: ForwardKind, text: str) -> None:
    try:
        spec = parse_forward(kind, text)
    except ConfigError:
        return
    assert (spec.connect is None) or kind != "dynamic"
    if isinstance(spec.connect, TcpAddress):
        assert spec.connect.host
        assert 1 <= spec.connect.port <= 65535


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (TcpAddress(None, 1), True),
        (TcpAddress("localhost", 1), True),
        (TcpAddress("127.3.4.5", 1), True),
        (TcpAddress("::1", 1), True),
        (SocketPath("/tmp/here"), True),
        (TcpAddress("*", 1), False),
        (TcpAddress("0.0.0.0", 1), False),
        (TcpAddress("::", 1), False),
        (TcpAddress("192.0.2.1", 1), False),
        (TcpAddress("myhost", 1), False),
    ],
)
def test_only_loopback_needs_no_warning(address: Address, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_specification_reads_as_it_was_written() -> None:
    assert str(parse_forward("local", "[::1]:8080:web:80")) == "-L [::1]:8080 -> web:80"
    assert str(parse_forward("remote", "0:/run/app.sock")) == "-R localhost:0 -> /run/app.sock"
    assert str(parse_forward("dynamic", "1080")) == "-D localhost:1080 -> SOCKS"
