"""``harness doctor`` and ``harness disconnect``: check the target and the settings, close connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import click

from ...backend import Finding, fail
from ...config import Config
from ...errors import HarnessError, UnsupportedOperation
from ...settings import CommandLineChoices
from ...target import mask_password
from ..exits import FAILED
from ..options import command, invocation_of
from ..output import print_json, warn
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async
from .doctor_findings import print_finding
from .fleet.options import FleetOptions, fleet_options

__all__ = [
    "disconnect",
    "doctor",
]


# -- ``harness disconnect``.


@command("disconnect")
@click.option("--all", "every", is_flag=True, help="Close the connections of all targets.")
@click.pass_context
def disconnect(ctx: click.Context, every: bool) -> int:
    """Close the SSH connection that harness keeps to the target; sessions and jobs on it keep running.

    Forwards over it are ended first, as they would reconnect.
    """
    session = session_of(ctx)
    target = session.settings.target
    if not every and not any(hop.scheme == "ssh" for hop in target.hops):
        raise UnsupportedOperation(
            "harness keeps no connection to this target", target=target, hint="give --ssh HOST, or --all"
        )

    async def main(interruption: Interruption) -> int:
        from ...live.forwards import stop_forwards
        from ...operate.doctor import keeper

        urls = {mask_password(str(hop)) for hop in target.hops}
        stopped, failed = await stop_forwards(lambda forward: every or forward.target in urls)
        for forward, error in failed:
            warn(f"the forward {forward.name} is not ended, and reconnects: {error}", as_json_document=session.json)
        ended = await keeper().disconnect(session.settings.config, None if every else target)
        if session.json:
            names = [{"name": master.name, "pid": master.pid} for master in ended]
            print_json({"disconnected": names, "forwards": [forward.name for forward in stopped]})
        else:
            for forward in stopped:
                click.echo(f"forward {forward.name}")
            for name, number in Counter(master.name for master in ended).items():
                click.echo(name if number == 1 else f"{name} ({number} connections)")
        return 0

    return run_async(main)


# -- ``harness doctor``.


@command("doctor", many_hosts=True)
@click.option(
    "--clean",
    is_flag=True,
    help="Remove finished jobs beyond the limits, and leftovers of closed panes and connections.",
)
@fleet_options()
@click.pass_context
def doctor(ctx: click.Context, clean: bool, fleet: FleetOptions) -> int:
    """Check this installation, or a target, and suggest fixes.

    Without a target option, check the installation on this machine (Python, extras, ssh, tmux, directories, completion,
    manual pages, keyring, container engines, clock, free space), then the target of the settings: this machine, if they
    name none. With a target option, such as --ssh web1 or --target local:, check only that target.

    The exit code is 1 if a check fails. It runs 'sudo -n true' on the target, which the target may log.

    With --hosts, --inventory or several --ssh, equal findings of hosts are one line, and failures come first.

    Examples: harness doctor; harness --ssh web1 doctor; harness doctor --hosts @web
    """
    invocation = invocation_of(ctx)
    if fleet.used_by(invocation):
        from .fleet.views import examine_fleet

        return examine_fleet(session_of(ctx), fleet, clean=clean)
    if _names_target(invocation.choices):
        return run_async(partial(_examine, session_of(ctx), (), clean))
    try:
        session = session_of(ctx)
    except HarnessError as error:  # also then it is worth knowing what else is wrong
        return run_async(partial(_examine_without_settings, error, invocation.json))
    return run_async(partial(_examine_all, session, clean))


def _names_target(choices: CommandLineChoices) -> bool:
    return any(value is not None for value in (choices.ssh, choices.container, choices.target, choices.image))


async def _examine_all(session: CliSession, clean: bool, interruption: Interruption) -> int:
    from ...operate.installation import check_installation

    installation = await check_installation(session.settings.config)
    return await _examine(session, installation, clean, interruption)


async def _examine_without_settings(error: HarnessError, as_json_document: bool, interruption: Interruption) -> int:
    from ...operate.installation import check_installation

    findings = [fail("settings", error.message, error.hint or "correct the file"), *await check_installation(Config())]
    if as_json_document:
        print_json({"target": None, "ok": False, "installation": findings, "findings": []})
    else:
        _print(findings)
    return FAILED


async def _examine(
    session: CliSession, installation: Sequence[Finding], clean: bool, interruption: Interruption
) -> int:
    from ...operate.doctor import examine

    if installation and not session.json:
        click.echo("Installation")
        _print(installation)
        click.echo(f"\nTarget {session.settings.target}")
    with session.questions():
        findings = await examine(session.settings, clean=clean)
    sound = all(finding.level != "fail" for finding in (*installation, *findings))
    if session.json:
        shown = {"installation": installation} if installation else {}
        print_json({"target": str(session.settings.target), "ok": sound, **shown, "findings": findings})
    else:
        _print(findings)
    return 0 if sound else FAILED


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print_finding(finding, width)
