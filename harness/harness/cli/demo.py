"""``harness demo``."""

from __future__ import annotations

import click

from .commands import command
from .streams import Interruption, run_async

__all__ = ["demo"]


@command("demo")
@click.option("--keep", is_flag=True, help="Leave the session running, to attach to.")
def demo(keep: bool) -> int:
    """See it work: a throw-away SSH server on this machine, a tmux session, a small task."""

    async def main(interruption: Interruption) -> int:
        from ..operate.demo import run_demo

        await run_demo(keep=keep, say=click.echo)
        return 0

    return run_async(main)
