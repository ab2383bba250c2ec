"""``harness completion``: the code that a shell's start-up file evaluates."""

from __future__ import annotations

import click

from .commands import command
from .options import invocation_of
from .output import print_json

__all__ = ["completion"]

VARIABLE = "_HARNESS_COMPLETE"


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the code for completion in SHELL.

    bash: eval "$(harness completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc; fish: harness completion fish |
    source in config.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    code = kind(ctx.find_root().command, {}, "harness", VARIABLE).source()
    print_json({"shell": shell, "code": code}) if invocation_of(ctx).json else click.echo(code)
