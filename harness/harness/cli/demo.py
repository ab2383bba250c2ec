"""``harness demo``."""

from __future__ import annotations

import click

from .commands import command
from .options import invocation_of
from .prompt.printable import printable
from .streams import Interruption, run_async

__all__ = ["demo"]


@command("demo")
@click.option("--keep", is_flag=True, help="Leave the session running, to attach to.")
@click.option("--agent", is_flag=True, help="With an agent, whose model plays a script; no model is needed.")
@click.pass_context
def demo(ctx: click.Context, keep: bool, agent: bool) -> int:
    """See it work: a throw-away SSH server on this machine, a tmux session, a small task."""
    if invocation_of(ctx).json:
        raise click.UsageError("what demo prints is for people, so it takes no --json")

    async def main(interruption: Interruption) -> int:
        if agent:
            from ..operate.demo_agent import run_agent_demo

            await run_agent_demo(keep=keep, say=lambda line: click.echo(printable(line)))
        else:
            from ..operate.demo import run_demo

            await run_demo(keep=keep, say=click.echo)
        return 0

    return run_async(main)
