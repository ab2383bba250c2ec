"""One POST request: what fails is reported without the values of headers, and without passwords of proxies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.web_servers import Reply, web_server

from harness.notifications.channel import NotificationError
from harness.notifications.http_post import post, ssl_context


async def send(url: str, headers: Mapping[str, str] | None = None, *, is_local: bool = False) -> int:
    return (await post(url, b"{}", headers or {}, ssl_context(), is_local=is_local)).status


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("value", ["Bearer s3cr3t ", " s3cr3t", "s3\x00cr3t", "s3cr3t\r\nX-A: b"])
async def test_a_header_that_is_refused_is_not_shown(value: str) -> None:
    with web_server({"/": Reply()}) as server, pytest.raises(NotificationError) as caught:
        await send(server.url(), {"authorization": value}, is_local=True)
    assert "a header contains a character that HTTP does not allow" in str(caught.value)
    assert "cr3t" not in str(caught.value)


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "no-such-host.invalid"])
async def test_a_host_name_that_cannot_be_looked_up_is_reported(proxied: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(NotificationError, match=f"^{host}: unknown host: "):
        await send(f"http://{host}/x")


def test_certificates_that_cannot_be_read_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("missing.pem", "empty.pem"):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
        with pytest.raises(NotificationError, match="cannot read the certificates") as caught:
            ssl_context()
        assert "check SSL_CERT_FILE" in str(caught.value)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "http://127.0.0.1:{}", "user:s3cr3t@127.0.0.1:{}"])
async def test_a_proxy_needs_no_scheme(proxied: pytest.MonkeyPatch, form: str) -> None:
    with web_server({"/x": Reply()}) as proxy:
        proxied.setenv("http_proxy", form.format(proxy.port))
        assert await send("http://hooks.invalid/x") == 200
        assert proxy.paths == ["http://hooks.invalid/x"]
        assert ("proxy-authorization" in proxy.asked[0].headers) == ("@" in form)


@pytest.mark.parametrize("proxy", ["socks4://u:s3cr3t@h:1", "socks5://u:s3cr3t@h:1", "u:s3cr3t@h:port", "http://"])
async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    proxied: pytest.MonkeyPatch, proxy: str
) -> None:
    proxied.setenv("http_proxy", proxy)
    with pytest.raises(
        NotificationError, match="the proxy of the environment is not the URL of an HTTP proxy"
    ) as caught:
        await send("http://hooks.invalid/x")
    assert "s3cr3t" not in str(caught.value)
