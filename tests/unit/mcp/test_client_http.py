"""Connections to MCP servers at URLs: what is refused is named without secrets."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError
from harness.mcp.client.configuration import HttpEndpoint, ServerConfig, Template
from harness.mcp.client.http import open_http


async def refusal(url: str, **headers: str) -> str:
    endpoint = HttpEndpoint(Template(url), tuple((name, Template(value)) for name, value in headers.items()))
    with pytest.raises(ConfigError) as caught:
        async with open_http(ServerConfig("one", endpoint), endpoint, {"TOKEN": "s3cr3t "}):
            pass
    return str(caught.value)


@pytest.mark.parametrize("value", ["Bearer s3cr3t ", " s3cr3t", "Bearer ${TOKEN}"])
async def test_a_header_with_a_blank_at_an_end_is_refused_and_not_shown(value: str) -> None:
    found = await refusal("http://127.0.0.1:9/mcp", Authorization=value)
    assert "headers.Authorization starts or ends with a blank" in found
    assert "s3cr3t" not in found


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("proxy", ["socks4://u:s3cr3t@h:1", "u:s3cr3t@h:port"])
async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    proxied: pytest.MonkeyPatch, proxy: str
) -> None:
    proxied.setenv("https_proxy", proxy)
    found = await refusal("https://mcp.invalid/mcp")
    assert "the proxy of the environment is not the URL of an HTTP proxy" in found
    assert "s3cr3t" not in found


async def test_a_proxy_needs_no_scheme(proxied: pytest.MonkeyPatch) -> None:
    endpoint = HttpEndpoint(Template("https://mcp.invalid/mcp"))
    proxied.setenv("https_proxy", "127.0.0.1:9")
    async with open_http(ServerConfig("one", endpoint), endpoint, {}) as connection:
        assert connection is not None
