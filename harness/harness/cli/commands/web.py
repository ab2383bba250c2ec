"""``harness web``: the dashboard in a browser."""

from __future__ import annotations

import importlib.util
import json
import os
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from ...errors import ConfigError, HarnessError
from ...extras import install_extra
from ...system.account import account_name
from ...system.private_files import write_new_file
from ..exits import INTERRUPTED, SIGNALLED
from ..options import command, group, invocation_of
from ..output import note, print_json, table
from ..redaction import session_redactor
from ..runtime import session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from ...web.guard import Site
    from ...web.logins import LoginStore

__all__ = ["web"]

DEFAULT_PORT = 8642
ROLES = ("viewer", "operator")
MODULES = ("starlette", "uvicorn", "websockets")


def _check_extra() -> None:
    if any(importlib.util.find_spec(name) is None for name in MODULES):
        raise ConfigError("the dashboard needs the extra view", hint=install_extra("view"))


def _store() -> LoginStore:
    from ...web.logins import LoginStore, login_directory

    return LoginStore(login_directory())


# -- serving


@command("serve")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Listen on PORT.")
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Serve over TLS with this certificate."
)
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Use this private key for TLS.")
@click.option("--behind-proxy", "proxy", metavar="URL", default="", help="Be reached only as URL, of a TLS proxy.")
@click.option("--allow-host", "names", metavar="NAME", multiple=True, help="Accept this host name, too; repeatable.")
@click.option("--name", metavar="NAME", help="Be named NAME in the audit log; your account by default.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.pass_context
def serve(
    ctx: click.Context,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    proxy: str,
    names: tuple[str, ...],
    name: str | None,
    no_open: bool,
) -> int:
    """Serve the dashboard until Ctrl-C, and print the URL that logs you in, once, as an operator.

    Sessions keep running without it. Logins survive a restart; 'harness web invite' lets others in.
    """
    _check_extra()
    from ...live.peers import own_refusal
    from ...system.http_server import Address
    from ...web.logins import Role, check_name
    from ...web.server import ServerOptions, check_options, serve_dashboard

    options = ServerOptions(Address(host, port), tls_cert, tls_key, proxy, names)
    check_options(options)
    who = check_name(name or account_name())
    session = session_of(ctx)
    redact = session_redactor(session.settings, session.invocation.choices).text
    logins = _store()
    opener = _Opener(opens=not no_open and not invocation_of(ctx).json)
    refusal = own_refusal()
    if refusal:
        note(f"the link only lets you watch: {refusal}")
    role = Role.VIEWER if refusal else Role.OPERATOR

    def started(site: Site) -> None:
        url = _login_url(site.url, logins.invite(who, role))
        if invocation_of(ctx).json:
            print_json({"url": url})
        else:
            click.echo(f"open this link within 15 minutes; it works once:\n{url}")
        opener.open(url)

    async def work(interruption: Interruption) -> int:
        await serve_dashboard(options, logins, redact, who, started)
        return 0

    try:
        code = run_async(work)
    finally:
        opener.close()
    return 0 if code in (INTERRUPTED, SIGNALLED + 15) else code


def _login_url(base: str, token: str) -> str:
    """Return the URL that logs in: the fragment is sent to no server, and not to a proxy."""
    return f"{base}#token={token}"


class _Opener:
    """Opens a URL in the user's browser by way of a private file: arguments of programs are not secret."""

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
        self._file: Path | None = None

    def open(self, url: str) -> None:
        """Open the URL if there is a browser."""
        if not self._opens:
            return
        from ...web.logins import login_directory

        directory = login_directory()
        _remove_expired(directory)
        self._file = directory / f"open-{os.getpid()}.html"
        page = f"<!doctype html><title>harness</title><script>location.replace({json.dumps(url)})</script>"
        with suppress(OSError):
            self.close()
            write_new_file(self._file, page.encode())
            # some browsers return only when they are closed
            Thread(target=_open_browser, args=(self._file.as_uri(),), daemon=True).start()

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _open_browser(uri: str) -> None:
    with suppress(OSError, webbrowser.Error):
        webbrowser.open(uri)


def _remove_expired(directory: Path) -> None:
    """Remove the files of servers that were killed, whose links have expired."""
    from ...web.logins import INVITATION_LIFETIME

    for path in directory.glob("open-*.html"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > INVITATION_LIFETIME:
                path.unlink()


# -- logins


@command("invite")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="Allow to see, or to act.")
@click.pass_context
def invite(ctx: click.Context, name: str, role: str) -> int:
    """Print a URL that logs NAME in, once, within 15 minutes; what they do is audited under that name."""
    from ...live.peers import own_refusal
    from ...web.logins import Role

    if role == "operator" and (refusal := own_refusal()):
        raise HarnessError(f"cannot invite an operator here: {refusal}", hint="use a shell of your own")
    logins = _store()
    if not logins.url:
        raise HarnessError("the dashboard was never started", hint="run 'harness web' first")
    if not logins.running_url:
        note(f"the dashboard at {logins.url} does not run: the link works when 'harness web' serves it again")
    url = _login_url(logins.url, logins.invite(name, Role(role)))
    print_json({"url": url}) if invocation_of(ctx).json else click.echo(url)
    return 0


@command("logins")
@click.pass_context
def logins(ctx: click.Context) -> int:
    """List the logins."""
    found = _store().logins()
    if invocation_of(ctx).json:
        print_json([{"name": one.name, "role": one.role.value, "expires": one.expires} for one in found])
    else:
        rows = [(one.name, one.role.value, time.strftime("%F %H:%M", time.localtime(one.expires))) for one in found]
        table(("NAME", "ROLE", "UNTIL"), rows)
    return 0


@command("logout")
@click.argument("name")
@click.pass_context
def logout(ctx: click.Context, name: str) -> int:
    """End the logins and invitations of NAME; open pages are disconnected within seconds."""
    count = _store().end(name=name)
    if invocation_of(ctx).json:
        print_json({"ended": count})
    elif not count:
        note(f"{name} has no login")
    return 0


TEXT = "Serve the dashboard to a browser, and manage its logins.\n\n'harness web' is 'harness web serve'."

web = group("web", "serve", (serve, invite, logins, logout), TEXT)
