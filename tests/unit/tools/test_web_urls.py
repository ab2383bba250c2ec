"""URLs, addresses and headers of the tools for the web: what is judged is what is fetched, and nothing private is."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.toolkit.web_settings import place_of
from harness_tools.web.getter import check_headers, headers_for
from harness_tools.web.http_client import forbidden, is_never, may_connect
from harness_tools.web.urls import parse_url


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("http://Example.COM", "http://example.com/"),
        ("HTTPS://example.com:443/a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("http://example.com./x", "http://example.com/x"),
        ("http://example.com:/x", "http://example.com/x"),
        ("http://bücher.example/ä?ö", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://\uff11\uff12\uff17.0.0.1/", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]:80/x", "http://[::ffff:7f00:1]/x"),
        ("http://h/a/../b/./c", "http://h/b/c"),
        ("http://h/a/%2e%2E/b", "http://h/b"),
        ("http://h/a/..", "http://h/"),
        ("http://h/../../x", "http://h/x"),
        ("http://h/100%/x%zz", "http://h/100%25/x%25zz"),
        ("http://h/a'b;c", "http://h/a'b;c"),
    ],
)
def test_a_url_has_one_spelling(text: str, one: str) -> None:
    assert str(parse_url(text)) == one


WHAT_HIDES_WHERE_IT = [
    *("", "example.com", "//example.com/x", "http:example.com", "http:///x", "http://"),
    *("ftp://h/", "file:///etc/passwd", "gopher://h:70/x", "javascript://h/%0aalert(1)", "data://text"),
    *("http://user@h/", "http://user:pw@h/", "http://h@evil/", "http://good.example\\@evil/", "http://h\\x"),
    *("http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://0x7f.1/"),
    *("http://127.0.0.01/", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://a.0x10/", "http://h.1/"),
    *("http://h:0/", "http://h:65536/", "http://h:x/", "http://h:8\u00b2/", "http://h:-1/"),
    *("http://h..x/", "http://.h/", "http://-h/", "http://h h/", "http://h\t/", "http://h\r\nX: y/", "http://h/\0"),
    *(
        "http://h%2eexample/",
        "http://h%00/",
        "http://[::1",
        "http://::1/",
        "http://[fe80::1%25eth0]/",
        "http://[x]/",
    ),
    *("http://" + "a" * 64 + ".example/", "http://" + "a." * 127 + "example/", "http://h/" + "x" * 9_000),
    *("http://h\u200b/", "http://h/\u202e", "http://h/\ud800", "http://\u2488example/", "http://*.example/"),
]


def test_what_hides_where_it_leads_is_no_url() -> None:
    for text in WHAT_HIDES_WHERE_IT:
        with pytest.raises(ValueError, match=r".+"):
            parse_url(text)


HOSTS = st.one_of(
    st.from_regex(r"\A[a-z0-9_.\-\[\]:%@]{1,20}\Z"),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda one: f"[{one}]"),
    st.text(min_size=1, max_size=12),
)
TAILS = st.text(alphabet="/.%2eE?#ab\\&=:@ ;'\"\u00e4", max_size=20)


@given(st.sampled_from(["http", "https", "HTTP"]), HOSTS, TAILS)
@example("http", "\u00c0", "")
@example("http", "[::1]", "")
@example("http", "a.example", "/%2e%2e/%2E./x?..")
def test_the_library_reads_a_url_as_we_do(scheme: str, host: str, tail: str) -> None:
    try:
        url = parse_url(f"{scheme}://{host}{tail}")
    except ValueError:
        return
    assert parse_url(str(url)) == url
    theirs = httpx.URL(str(url))
    assert (theirs.scheme, theirs.raw_host.decode(), theirs.port or url.port) == url.origin
    assert theirs.raw_path.decode() == url.path
    assert theirs.userinfo == b""


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_mistake(text: str) -> None:
    for candidate in (text, f"http://{text}", f"http://h/{text}"):
        with suppress(ValueError):
            assert parse_url(str(parse_url(candidate)))


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("/x", "https://a.example:8443/x"),
        ("x?y", "https://a.example:8443/b/x?y"),
        ("?y", "https://a.example:8443/b/c?y"),
        ("//other.example/z", "https://other.example/z"),
        ("../../..", "https://a.example:8443/"),
        ("http://[::1]/", "http://[::1]/"),
    ],
)
def test_a_redirect_leads_from_where_it_stands(location: str, found: str) -> None:
    assert str(parse_url("https://a.example:8443/b/c?q").join(location)) == found


# -- addresses


WHAT_IS_NOT_PUBLIC = [
    *(
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
    ),
    *("169.254.169.254", "100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16", "192.0.0.192"),
    *(
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.9",
        "192.0.2.1",
        "192.88.99.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
    ),
    *("255.255.255.255", "::1", "::", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::1", "2001::1"),
    *(
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "100::1",
        "3fff::1",
    ),
    *("2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1", "4000::1", "5f00::1", "::1:2:3"),
]


def test_what_is_not_public_is_not_reached() -> None:
    for address in WHAT_IS_NOT_PUBLIC:
        assert forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1"),
        *("169.253.1.1", "192.167.1.1", "223.255.255.254", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"),
        "64:ff9b::808:808",
    ],
)
def test_what_is_public_is_reached(address: str) -> None:
    assert forbidden(ipaddress.ip_address(address)) == ""


@given(st.ip_addresses(v=4))
def test_no_way_to_write_an_ipv4_address_in_ipv6_opens_it(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for wide in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, number):
        assert bool(forbidden(ipaddress.IPv6Address(wide))) >= bool(forbidden(address))
    assert forbidden(ipaddress.IPv6Address(0x2002 << 112 | number << 80))


@pytest.mark.parametrize(
    ("entry", "host", "address", "port", "is_open"),
    [
        ("10.0.0.5:9200", "10.0.0.5", "10.0.0.5", 9200, True),
        ("10.0.0.5:9200", "10.0.0.5", "10.0.0.5", 9201, False),
        ("10.0.0.5:9200", "evil.example", "10.0.0.6", 9200, False),
        ("10.0.0.5", "wiki.example", "::ffff:10.0.0.5", 80, True),
        ("10.0.0.0/24", "10.0.0.77", "10.0.0.77", 1, True),
        ("[fd00::1]:80", "fd00::1", "fd00::1", 80, True),
        ("fd00::/64", "fd00::9", "fd00::9", 80, True),
        ("wiki.lan", "wiki.lan", "192.168.1.5", 80, True),
        ("wiki.lan", "evil.wiki.lan", "192.168.1.5", 80, False),
        ("wiki.lan:80", "wiki.lan", "192.168.1.5", 81, False),
        ("wiki.lan", "wiki.lan", "169.254.169.254", 80, False),
        ("wiki.lan", "wiki.lan", "64:ff9b::a9fe:a9fe", 80, False),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254", 80, True),
        ("localhost:8080", "localhost", "::1", 8080, True),
        ("localhost:8080", "localhost", "127.0.0.1", 8080, True),
        ("localhost", "localhost", "::", 80, False),
    ],
)
def test_the_operator_opens_places_and_no_more(entry: str, host: str, address: str, port: int, is_open: bool) -> None:
    why = may_connect(host, port, ipaddress.ip_address(address), [place_of(entry)])
    assert (why == "") is is_open


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1"])
def test_no_way_round_is_shown_to_the_keys_of_a_cloud_however_their_address_is_written(address: str) -> None:
    assert is_never(ipaddress.ip_address(address))


# -- headers


@pytest.mark.parametrize(
    "headers",
    [
        {"a b": "x"}, {"": "x"}, {"@/etc/passwd": ""}, {"x:y": "z"}, {"x": "a\r\nb: c"}, {"x": "a\0"}, {"x": "\u2028"},
        {"X": "1", "x": "2"}, {"x": "y" * 5_000}, {f"x{number}": "" for number in range(40)},
    ],
)  # fmt: skip
def test_what_is_no_header_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        check_headers(headers)


def test_credentials_go_to_places_that_the_operator_named_and_not_beyond() -> None:
    given_headers: Any = check_headers({"Authorization": "Bearer x", "Cookie": "a=b", "X-Page": "1", "Host": "evil"})
    url = parse_url("http://api.lan:81/")
    sent = headers_for(url, given_headers, ())
    assert sent.kept_back == ("authorization", "cookie", "host")
    assert {"authorization", "cookie", "host"}.isdisjoint(sent.headers)
    trusted = headers_for(url, given_headers, [place_of("api.lan:81")])
    assert trusted.headers["authorization"] == "Bearer x"
    assert trusted.kept_back == ("host",)
    for elsewhere in ("http://api.lan:82/", "https://api.lan:81/", "http://other.lan:81/"):
        assert set(trusted.toward(parse_url(elsewhere)).headers) == {"accept", "user-agent"}
    assert trusted.toward(parse_url("http://api.lan:81/other")) == trusted
