"""Which requests the dashboard serves, where it may listen, and what its pages may do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.system.http_server import Address
from harness.web.guard import CONTENT_POLICY, MAX_BODY_BYTES, TokenBucket, request_refusal, site_of
from harness.web.server import ServerOptions, check_options

SITE = site_of(Address("127.0.0.1", 8642), tls=False)
OWN = "http://127.0.0.1:8642"


def status(method: str = "GET", path: str = "/api/audit", kind: str = "http", **headers: str | None) -> int:
    given: dict[str, str | None] = {"host": "127.0.0.1:8642", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value is not None]
    scope: dict[str, Any] = {"type": kind, "method": method, "path": path, "headers": raw}
    refusal = request_refusal(scope, SITE)
    return 200 if refusal is None else refusal[0]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:1", None])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_no_other_name_is_served_so_that_dns_rebinding_finds_nothing(host: str | None, kind: str) -> None:
    assert status(kind=kind, host=host, origin=f"http://{host}") == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8642", "http://[::1]:9", None])
def test_pages_of_other_origins_open_no_websocket_and_change_nothing(origin: str | None) -> None:
    assert status(kind="websocket", path="/api/live", origin=origin) == 403
    assert status("POST", "/api/login", origin=origin, content_length="2", content_type="application/json") == 403


def test_the_servers_own_pages_are_served() -> None:
    assert status() == 200
    assert status(kind="websocket", path="/api/live", origin=OWN, sec_fetch_site="same-origin") == 200
    assert status("POST", "/api/login", origin=OWN, content_length="2", content_type="application/json") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_browser_that_says_another_site_asks_gets_no_data(site: str) -> None:
    """Another port of this machine is the same site."""
    assert status(sec_fetch_site=site) == 403
    assert status(path="/", sec_fetch_site=site) == 200  # the pages alone contain nothing


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content_length": str(MAX_BODY_BYTES + 1)}, 413),
        ({"content_length": "9" * 30}, 413),
        ({"content_length": None}, 411),
        ({"content_length": "-1"}, 411),
        ({"transfer_encoding": "chunked"}, 411),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": None}, 415),
    ],
)
def test_bodies_are_small_and_of_a_kind_that_forms_cannot_send(headers: dict[str, str | None], expected: int) -> None:
    given: dict[str, str | None] = {"content_length": "2", "content_type": "application/json", **headers}
    assert status("POST", "/api/login", origin=OWN, **given) == expected


def test_behind_a_proxy_only_its_name_is_served() -> None:
    site = site_of(Address("127.0.0.1", 8642), tls=False, proxy="https://Ops.example/harness")
    assert (site.url, site.names) == ("https://Ops.example/harness/", {"ops.example"})
    for url in ("http://ops.example", "https://", "https://u@ops.example", "https://ops.example/?x", "ops.example"):
        with pytest.raises(ConfigError, match="invalid URL of a proxy"):
            site_of(Address("127.0.0.1", 8642), tls=False, proxy=url)


def test_further_names_are_served_and_the_first_is_in_the_url() -> None:
    site = site_of(Address("0.0.0.0", 8642), tls=True, names=["ops.example", "192.0.2.7"])
    assert site.url == "https://ops.example:8642/"
    assert {"ops.example:8642", "192.0.2.7:8642"} <= site.names
    with pytest.raises(ConfigError, match="is not a host name"):
        site_of(Address("0.0.0.0", 8642), tls=True, names=["https://ops.example"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "ops.example"])
def test_other_machines_reach_it_only_encrypted(host: str) -> None:
    with pytest.raises(ConfigError, match="nothing is encrypted"):
        check_options(ServerOptions(Address(host, 1)))
    check_options(ServerOptions(Address(host, 1), proxy="https://ops.example/"))
    check_options(ServerOptions(Address("127.0.0.1", 1)))


def test_a_certificate_is_checked_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        check_options(ServerOptions(Address("127.0.0.1", 1), certificate=tmp_path / "c"))
    (tmp_path / "c").write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot use"):
        check_options(ServerOptions(Address("0.0.0.0", 1), certificate=tmp_path / "c", key=tmp_path / "c"))


def test_the_content_policy_allows_nothing_inline_and_nothing_foreign() -> None:
    assert "unsafe" not in CONTENT_POLICY
    assert "default-src 'none'" in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY


def test_a_bucket_lets_a_burst_pass_and_then_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("harness.web.guard.time", SimpleNamespace(monotonic=lambda: now))
    bucket = TokenBucket(100.0, 3)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now += 0.009
    assert not bucket.take()
    now += 0.002
    assert [bucket.take() for _ in range(2)] == [True, False]
