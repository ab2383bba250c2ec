"""``harness forward``: forward ports and sockets over the SSH connection, list and end running forwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from ....errors import ConfigError, HarnessError
from ...completed_names import complete_forward
from ...exits import HARNESS_FAILED, INTERRUPTED, SIGNALLED
from ...options import command, group
from ...output import print_json, table, warn
from ...runtime import CliSession, announced, session_of
from ...streams import Interruption, run_async

if TYPE_CHECKING:
    from ....forwards.specification import ForwardKind, ForwardSpec
    from ....live.forwards import RunningForward
    from .display import Display

__all__ = ["forward"]


# -- ``harness forward``


@command("start")
@click.option(
    *("-L", "local"),
    multiple=True,
    metavar="[BIND:]PORT:HOST:HOSTPORT",
    help="Listen here, and connect from the target; repeatable.",
)
@click.option(
    *("-R", "remote"),
    multiple=True,
    metavar="[BIND:]PORT[:HOST:HOSTPORT]",
    help="Listen on the target, and connect from here; repeatable.",
)
@click.option(
    *("-D", "dynamic"),
    multiple=True,
    metavar="[BIND:]PORT",
    help="Listen here as a SOCKS proxy that connects from the target; repeatable.",
)
@click.option("--name", metavar="NAME", help="Name the forwards; the default is the host with the first port.")
@click.option("--background", is_flag=True, help="Return when all forwards work, and keep them running.")
@click.pass_context
def start(
    ctx: click.Context,
    local: tuple[str, ...],
    remote: tuple[str, ...],
    dynamic: tuple[str, ...],
    name: str | None,
    background: bool,
) -> int:
    """Forward ports and Unix sockets until Ctrl-C; a lost connection is restored.

    The forms are those of ssh: a path in place of PORT or HOST:HOSTPORT is a Unix socket, IPv6 addresses are in
    brackets, and -R with port 0 takes any free port and prints it. Without BIND only programs of the listening machine
    can connect. If an address is in use, nothing is forwarded.

    \b
    harness --ssh web1 forward -L 8080:localhost:80
    harness --ssh web1 forward -R 0:localhost:3000 -D 1080 --background --name dev
    harness forward stop dev
    """
    specs = _parse({"local": local, "remote": remote, "dynamic": dynamic})
    session = session_of(ctx)
    _check(session, specs, name, background=background)
    from .display import Display

    run = partial(_forward, session, specs, name)
    if background:
        from .background import run_in_background

        return run_in_background(session, run)
    display = Display(session.json)
    code = run_async(partial(run, display))
    ended_by_operator = display.has_started and code in (INTERRUPTED, SIGNALLED + 15)
    return 0 if ended_by_operator else code


def _parse(given: dict[ForwardKind, Sequence[str]]) -> list[ForwardSpec]:
    from ....forwards.specification import parse_forward

    specs = [parse_forward(kind, text) for kind, texts in given.items() for text in texts]
    if not specs:
        raise click.UsageError("nothing to forward: give -L, -R or -D")
    return specs


def _check(session: CliSession, specs: Sequence[ForwardSpec], name: str | None, *, background: bool) -> None:
    """Refuse what cannot work, and warn of what others can reach."""
    from ....forwards.specification import is_loopback
    from ....live.forwards import check_name

    if name is not None:
        check_name(name)
    if background and not session.settings.config.announce:
        raise ConfigError(
            "with announce = false a forward in the background could be neither listed nor stopped",
            hint="run it without --background, or set announce = true",
        )
    for spec in specs:
        if not is_loopback(spec.listen):
            where = "of the target, if its sshd permits it," if spec.kind == "remote" else "of this machine"
            text = f"{spec.listen} is not loopback: everyone who can reach this address {where} can use {spec}"
            warn(text, as_json_document=session.json)


async def _forward(
    session: CliSession, specs: Sequence[ForwardSpec], name: str | None, display: Display, interruption: Interruption
) -> int:
    from ....forwards.forwarder import open_forwards
    from ....live.forwards import default_name, hold_name
    from ....live.sessions.forward_session import ForwardSession

    target, config = session.settings.target, session.settings.config
    with ExitStack() as stack:
        held = stack.enter_context(hold_name(name or default_name(target, specs), is_given=name is not None))
        stack.callback(display.end)
        async with announced(session, "forward") as announcement:
            stopped = anyio.Event()

            def changed() -> None:
                announcement.changed()
                display.update()

            with session.questions(), display.questions():
                async with open_forwards(target, config, specs, changed) as forwards:
                    status = lambda: forwards.status  # noqa: E731  # read each time
                    shown = ForwardSession(held, target, status, stopped.set)
                    with announcement.session(shown):
                        display.start(held, target, status)
                        await stopped.wait()
    return 0


# -- ``harness forward list`` and ``harness forward stop``


@command("list")
@click.pass_context
def list_running(ctx: click.Context) -> int:
    """List the running forwards of this user on this machine."""
    session = session_of(ctx)

    async def main(interruption: Interruption) -> int:
        from ....live.forwards import list_forwards

        found, silent = await list_forwards()
        for pid in silent:
            warn(f"process {pid} does not answer: its forwards are not listed", as_json_document=session.json)
        if session.json:
            print_json([asdict(one) for one in found])
        else:
            table(("NAME", "TARGET", "STATE", "OPEN", "PROCESS", "FORWARDS", "NOTE"), [_row(one) for one in found])
        return 0

    return run_async(main)


def _row(one: RunningForward) -> tuple[str, ...]:
    state = one.state
    if state != "connected":
        state += time.strftime(" since %H:%M:%S", time.localtime(one.since))
    texts = [f"{letter_of(spec['kind'])} {spec['listen']} -> {spec['connect']}" for spec in one.forwards]
    return one.name, one.target, state, str(one.connections), str(one.pid), ", ".join(texts), one.note


def letter_of(kind: str) -> str:
    """Return the option of a kind of forward."""
    return {"local": "-L", "remote": "-R", "dynamic": "-D"}.get(kind, kind)


@command("stop")
@click.option("--all", "every", is_flag=True, help="End all forwards of this user on this machine.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_forward)
@click.pass_context
def stop(ctx: click.Context, every: bool, names: tuple[str, ...]) -> int:
    """End running forwards, and wait until nothing listens any more; open connections are cut."""
    if every == bool(names):
        raise click.UsageError("give the names of forwards, or --all")
    session = session_of(ctx)

    async def main(interruption: Interruption) -> int:
        from ....live.forwards import stop_forwards

        ended, failed = await stop_forwards(lambda one: every or one.name in names)
        missing = set(names) - {one.name for one in [*ended, *(one for one, _ in failed)]}
        if session.json:
            print_json({"stopped": [one.name for one in ended]})
        for one, error in failed:
            warn(f"the forward {one.name} is not ended: {error}", as_json_document=session.json)
        if missing:
            raise HarnessError(
                f"no forward is named {', '.join(sorted(missing))}", hint="'harness forward list' lists them"
            )
        return HARNESS_FAILED if failed else 0

    return run_async(main)


forward = group(
    "forward",
    "start",
    (start, list_running, stop),
    """Forward ports and sockets over the SSH connection, as ssh -L, -R and -D do.

    \b
    harness --ssh web1 forward -L 8080:localhost:80
    harness --ssh web1 forward -D 1080 --background --name proxy
    harness forward stop proxy

    Without the name of a command, start forwards; 'harness forward start --help' shows its options.
    """,
)
