"""``harness doctor`` and ``harness disconnect``: check the target and the settings, close connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from ...backend import Finding
from ...errors import UnsupportedOperation
from ...target import mask_password
from ..exits import FAILED
from ..options import command
from ..output import print_json, warn
from ..runtime import session_of
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

        url = mask_password(str(target))
        stopped, failed = await stop_forwards(lambda forward: every or forward.target == url)
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
    """Check the target and the settings, and suggest fixes.

    The exit code is 1 if a check fails. It runs 'sudo -n true' on the target, which the target may log.

    With --hosts, --inventory or several --ssh, equal findings of hosts are one line, and failures come first.
    """
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from .fleet.views import examine_fleet

        return examine_fleet(session, fleet, clean=clean)

    async def main(interruption: Interruption) -> int:
        from ...operate.doctor import examine

        with session.questions():
            findings = await examine(session.settings, clean=clean)
        sound = all(finding.level != "fail" for finding in findings)
        if session.json:
            print_json({"target": str(session.settings.target), "ok": sound, "findings": findings})
        else:
            _print(findings)
        return 0 if sound else FAILED

    return run_async(main)


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print_finding(finding, width)
