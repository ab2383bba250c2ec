"""``harness disconnect``."""

from __future__ import annotations

from collections import Counter

import click

from ..errors import UnsupportedOperation
from .commands import command
from .output import print_json
from .runtime import session_of
from .streams import Interruption, run_async

__all__ = ["disconnect"]


@command("disconnect")
@click.option("--all", "every", is_flag=True, help="End all of them, not only the target's.")
@click.pass_context
def disconnect(ctx: click.Context, every: bool) -> int:
    """End the SSH connection that harness keeps to the target. Sessions and jobs on it live on."""
    session = session_of(ctx)
    target = session.settings.target
    if not every and not any(hop.scheme == "ssh" for hop in target.hops):
        raise UnsupportedOperation("no connection is kept to it", target=target, hint="give --ssh HOST, or --all")

    async def main(interruption: Interruption) -> int:
        from ..operate.connections import keeper

        ended = await keeper().disconnect(session.settings.config, None if every else target)
        if session.json:
            print_json({"disconnected": [{"name": master.name, "pid": master.pid} for master in ended]})
        else:
            for name, number in Counter(master.name for master in ended).items():
                click.echo(name if number == 1 else f"{name} ({number} connections)")
        return 0

    return run_async(main)
