"""Who is logged in, as pages ask when the WebSocket was refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from harness.web.application import COOKIE, KEY_HEADER, build_application
from harness.web.logins import LoginStore, Role


async def test_a_page_is_told_whether_it_is_logged_in(tmp_path: Path) -> None:
    logins = LoginStore(tmp_path / "web")
    application = build_application(cast(Any, SimpleNamespace(logins=logins)), "/", is_encrypted=False)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/api/login")).status_code == 401
        found = logins.exchange(logins.invite("anna", Role.VIEWER))
        assert found is not None
        headers = {"cookie": f"{COOKIE}={found.cookie}", KEY_HEADER: found.key}
        answer = await client.get("/api/login", headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"name": "anna", "role": "viewer"})
        assert (await client.post("/api/login", json={"token": "wrong"})).status_code == 401
