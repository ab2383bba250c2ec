"""A dashboard of a test: ``harness web`` as a program, and pages of a real browser in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["WEB_ASSETS", "Visit", "WebProgram", "axe_source", "browser", "visit", "web_program"]

WEB_ASSETS = Path(os.environ.get("HARNESS_VENVS", Path(__file__).parents[2] / ".venv")) / "web-assets"
"""What scripts/web-assets has taken from npm."""
PATIENCE = 30_000
"""Milliseconds that a page may take."""


@dataclass
class WebProgram:
    """``harness web``, which runs. ``url`` logs in once, as an operator.

    With ``stderr=subprocess.PIPE``, ``errors`` is what it wrote there, once it has ended.
    """

    program: str
    environment: Mapping[str, str]
    words: tuple[str, ...] = ()
    url: str = ""
    process: subprocess.Popen[str] | None = None
    stderr: int | None = None
    errors: str = ""

    @property
    def base(self) -> str:
        """The URL without the token."""
        return self.url.partition("#")[0]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def origin(self) -> str:
        """The origin of its pages."""
        return self.base.rstrip("/")

    def start(self, port: int = 0) -> None:
        """Start it, and read its URL."""
        argv = [self.program, "web", "--json", "--port", str(port), *self.words]  # the last --port counts
        self.process = subprocess.Popen(
            argv, env=dict(self.environment), stdout=subprocess.PIPE, stderr=self.stderr, text=True
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def end(self, *, kill: bool = False) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill() if kill else self.process.terminate()
            self.errors = self.process.communicate(timeout=30)[1] or ""
            self.process = None

    def invite(self, name: str, role: str) -> str:
        """Return the URL that logs somebody in."""
        argv = [self.program, "web", "invite", name, "--role", role]
        done = subprocess.run(argv, env=dict(self.environment), capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()


@asynccontextmanager
async def web_program(program: str, environment: Mapping[str, str], *words: str) -> AsyncIterator[WebProgram]:
    """``harness web`` of the user whose environment that is."""
    found = WebProgram(program, environment, words)
    try:
        found.start()
        yield found
    finally:
        with suppress(subprocess.TimeoutExpired):
            found.end()


@dataclass
class Visit:
    """A page that is open, with what went wrong in it."""

    page: Page
    origin: str
    violations: list[str] = field(default_factory=list)
    """Messages of the console: errors, and violations of the content policy."""
    foreign: list[str] = field(default_factory=list)
    """Requests to another origin."""

    async def sees(self, text: str, selector: str = "body") -> None:
        """Wait until a part of the page contains a text."""
        wait = """([selector, text]) => [...document.querySelectorAll(selector)]
            .some((one) => one.innerText.includes(text))"""
        try:
            await self.page.wait_for_function(wait, arg=[selector, text], timeout=PATIENCE)
        except Exception as error:
            raise AssertionError(f"never seen: {text!r} in\n{await self.page.inner_text('body')}") from error

    async def screen(self) -> str:
        """Return what the first pane shows."""
        rows = await self.page.locator(".xterm-rows > div").all_inner_texts()
        return "\n".join(row.replace("\xa0", " ").rstrip() for row in rows)

    async def sees_in_pane(self, text: str) -> None:
        """Wait until the first pane shows a text."""
        wait = """text => [...document.querySelectorAll('.xterm-rows > div')]
            .map((row) => row.textContent.replaceAll('\\u00a0', ' ').trimEnd()).join('\\n').includes(text)"""
        try:
            await self.page.wait_for_function(wait, arg=text, timeout=PATIENCE)
        except Exception as error:
            body = await self.page.inner_text("body")
            raise AssertionError(
                f"never seen: {text!r} in\n{await self.screen()}\n{body}\n{self.violations}"
            ) from error


@asynccontextmanager
async def browser(*arguments: str) -> AsyncIterator[Browser]:
    """Debian's Chromium."""
    from playwright.async_api import async_playwright  # only where a browser is there

    path = shutil.which("chromium")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=path, args=[*arguments, *["--no-sandbox"] * (os.geteuid() == 0)]
        )
        try:
            yield running
        finally:
            await running.close()


@asynccontextmanager
async def visit(running: Browser, url: str, **options: Any) -> AsyncIterator[Visit]:
    """A new visitor, who opens a URL."""
    context = await running.new_context(**options)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    parts = urlsplit(url)
    found = Visit(page, f"{parts.scheme}://{parts.netloc}")

    def noted(request: Any) -> None:
        if not request.url.startswith((found.origin, found.origin.replace("http", "ws"), "data:")):
            found.foreign.append(request.url)

    page.on("console", lambda message: message.type == "error" and found.violations.append(message.text))
    page.on("pageerror", lambda error: found.violations.append(str(error)))
    page.on("request", noted)
    try:
        await page.goto(url)
        yield found
    finally:
        await context.close()


def axe_source() -> str:
    """Return the source of axe-core, which looks for what people with disabilities cannot use."""
    path = WEB_ASSETS / "node_modules/axe-core/axe.min.js"
    if not path.exists():
        pytest.skip("needs browser: scripts/web-assets has not installed axe-core")
    return path.read_text()
