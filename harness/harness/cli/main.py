"""The ``harness`` program: its commands, and one line and an exit code for every failure."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, NoReturn

import click

from ..errors import HarnessError
from .completed_names import VARIABLE, complete_file, complete_model, complete_pattern
from .exits import HARNESS_FAILED, INTERRUPTED, SIGNALLED, failure_code
from .named_commands import advise_on_host, use_target_options
from .options import Invocation, LazyGroup, check_invocation, invocation_of
from .output import (
    UNWRITABLE,
    abandon_stdout,
    as_json,
    error_json,
    finish_stderr,
    note,
    prepare_streams,
    print_json,
    report,
)

__all__ = ["cli", "main"]


class Program(LazyGroup):
    """The top-level command group."""

    table: ClassVar = {
        "run": (".commands.run:run", "Run a command, print its output and exit with its exit code."),
        "exec": (".exec.command:exec_", "Run an agent on a prompt and print its answer."),
        "resume": (".commands.resume:resume", "Resume, list, export and import stored conversations."),
        "read": (".commands.files:read", "Print a file on the target."),
        "write": (".commands.files:write", "Write stdin to a file on the target, atomically."),
        "cp": (".commands.copying.copy:cp", "Copy files and directories between this machine and hosts."),
        "sync": (".commands.copying.sync:sync", "Make a directory equal to another one, with rsync."),
        "upload": (".commands.copying.transfers:upload", "Copy a file of this machine to the target, atomically."),
        "download": (".commands.copying.transfers:download", "Copy a file of the target to this machine."),
        "capture": (".commands.terminal:capture", "Print a pane's screen or scrollback."),
        "keys": (".commands.terminal:keys", "Type into a pane."),
        "lend": (".commands.lend:lend", "Let an agent type into panes of your own tmux, and end that."),
        "hosts": (".commands.fleet.run:hosts", "List the hosts that a pattern of --hosts means."),
        "fleet": (
            ".commands.fleet.kept_runs:fleet",
            "List, show, wait for, resume, retry and cancel runs on many hosts.",
        ),
        "top": (".top.command:top", "Show all sessions, agents, fleets and jobs live, and act on them."),
        "panes": (".commands.terminal:panes", "List, create and kill the session's panes."),
        "sessions": (".commands.terminal:sessions", "List, create and kill tmux sessions."),
        "jobs": (".commands.jobs:jobs", "List, show, follow, wait for and kill jobs on the target."),
        "forward": (".commands.forwards.command:forward", "Forward ports and sockets over the SSH connection."),
        "attach": (".commands.terminal:attach", "Attach to the tmux session, to watch or to take over."),
        "shell": (".shell.command:shell", "Open a terminal on the tmux session that reconnects by itself."),
        "permissions": (
            ".commands.permissions:permissions",
            "List, add, remove and test permission rules.",
        ),
        "disconnect": (
            ".commands.doctor:disconnect",
            "Close harness's SSH connections; sessions and jobs keep running.",
        ),
        "tools": (".commands.tools:tools", "List the tools that models are offered, print their schemas, call one."),
        "models": (
            ".commands.models:models",
            "List the configured models and check whether one responds.",
        ),
        "servers": (
            ".commands.servers:servers",
            "List the configured MCP servers, show and accept their tools.",
        ),
        "mcp": (".commands.mcp.serve:mcp", "Serve the tools to MCP clients, and add the server to a client."),
        "acp": (".commands.acp:acp", "Serve an agent to an editor by the Agent Client Protocol."),
        "web": (".commands.web:web", "Serve the dashboard to a browser, and manage its logins."),
        "memory": (".commands.memory:memory", "List, add and remove the agents' memories."),
        "audit": (".commands.audit:audit", "Show, verify and export the audit log."),
        "trace": (
            ".commands.trace:trace",
            "Summarize or replay a --trace file, or show its model requests.",
        ),
        "notify": (".commands.notify:notify", "Show and test the notifications of approvals and ends."),
        "recordings": (
            ".commands.recordings:recordings",
            "List, show, play and export recordings of panes.",
        ),
        "doctor": (".commands.doctor:doctor", "Check this installation, or a target, and suggest fixes."),
        "config": (".commands.setup:config", "Show the settings and where each is set."),
        "init": (".commands.setup:init", "Write a commented settings file."),
        "demo": (".commands.setup:demo", "Run a demo on a temporary local SSH server."),
        "completion": (".commands.setup:completion", "Print the shell completion script."),
    }

    def advise_on_unknown(self, ctx: click.Context, name: str) -> str:
        """Return how to open a terminal on a host of that name, if it is plausible, else a command's name."""
        return advise_on_host(name, invocation_of(ctx).choices) or super().advise_on_unknown(ctx, name)


EXAMPLES = (
    ("harness run -- df -h", "Run a command on this machine."),
    ("harness --ssh web1 --tmux run -- make", "Run it on a host, in a tmux pane: harness --ssh web1 attach shows it."),
    ("harness shell --ssh web1", "Open a terminal on the host that reconnects by itself."),
    ("harness run --hosts 'web[1-20]' -- uptime", "Run it on many hosts; equal outputs are printed once."),
    ("harness --ssh web1 exec 'why is the disk full?'", "Let an agent find out; it asks before it changes anything."),
    ("harness --container app", "Open the prompt, with a container as the target."),
)
"""Command lines, and what each does."""


@click.command(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n" + "\n".join(f"  {line}\n      {text}" for line, text in EXAMPLES),
)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.option(
    "--model",
    metavar="NAME",
    default="",
    shell_complete=complete_model,
    help="At the prompt: start with this model.",
)
@click.option("--plain", is_flag=True, help="At the prompt: use line mode, for slow connections and screen readers.")
@click.option(
    "--hosts",
    metavar="PATTERN",
    multiple=True,
    shell_complete=complete_pattern,
    help="At the prompt: work on these hosts; repeatable.",
)
@click.option(
    "--inventory",
    metavar="FILE",
    shell_complete=complete_file,
    help="At the prompt: take hosts and groups from FILE.",
)
@click.pass_context
def cli(
    ctx: click.Context, version: bool, model: str, plain: bool, hosts: tuple[str, ...], inventory: str | None
) -> int:
    """Run commands on real machines, in a tmux session that operators can watch and take over.

    Without a command, open the prompt: an agent works on the target, and !COMMAND runs there.
    """
    if version:
        _print_version(as_json_document=invocation_of(ctx).json)
        ctx.exit()
    if ctx.invoked_subcommand is None:
        check_invocation(invocation_of(ctx), many_hosts=True)
        return _prompt(ctx, model, hosts, inventory, plain=plain)
    given = {"--model": model, "--plain": plain, "--hosts": hosts, "--inventory": inventory}
    if misplaced := [name for name, value in given.items() if value]:  # they would be ignored before a command
        ctx.fail(f"{misplaced[0]} must come after {ctx.invoked_subcommand}")
    return 0


def _prompt(ctx: click.Context, model: str, hosts: tuple[str, ...], inventory: str | None, *, plain: bool) -> int:
    if invocation_of(ctx).json:
        ctx.fail("--json needs a command")
    from .commands.fleet.options import FleetOptions
    from .commands.fleet.session import target_of
    from .prompt.app import PromptOptions, run_prompt
    from .runtime import session_of

    session = session_of(ctx)
    return run_prompt(session, PromptOptions(model, plain=plain), target_of(session, FleetOptions(hosts, inventory)))


def _print_version(*, as_json_document: bool) -> None:
    if as_json_document:
        from ..operate.installation import about

        print_json(about())
        return
    from importlib.metadata import version  # slow to import, and seldom needed

    click.echo(f"harness {version('harness-ops')}")


def main(args: Sequence[str] | None = None, *, interruptible: AbstractContextManager[None] | None = None) -> NoReturn:
    """Run the ``harness`` program and exit.

    Args:
        args: The command line without the program's name; None takes it from ``sys.argv``.
        interruptible: Makes C-c raise ``KeyboardInterrupt`` while the command runs, if the program starts otherwise.

    Raises:
        SystemExit: Always, with the program's exit code.
    """
    words = list(sys.argv[1:] if args is None else args)
    invocation = Invocation()
    atexit.register(gc.freeze)  # skips the last garbage collection, a tenth of a short run
    prepare_streams()
    use_target_options("")
    try:
        code = _run(words, invocation, interruptible or nullcontext())
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        code = SIGNALLED + 13
    except OSError as error:
        abandon_stdout()
        report(_harness_error(error), as_json_document=invocation.json)
        code = HARNESS_FAILED
    finish_stderr()
    sys.exit(code)


def _invoke(words: list[str], invocation: Invocation) -> int:
    if instruction := os.environ.get(VARIABLE):
        from .completion import complete

        return complete(cli, instruction)
    color = None if "NO_COLOR" not in os.environ else False
    with cli.make_context("harness", words, obj=invocation, color=color) as ctx:  # main() would hide broken pipes
        result = cli.invoke(ctx)
    return result if isinstance(result, int) else 0


def _run(words: list[str], invocation: Invocation, interruptible: AbstractContextManager[None]) -> int:
    try:
        with interruptible:
            return _invoke(words, invocation)
    except BrokenPipeError:
        raise
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _usage(error, as_json_document=_wants_json(words, invocation))
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # no failure of harness may look like the command's own exit code
        if invocation.verbose >= 3:
            traceback.print_exc()
        known = _harness_error(error)
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            abandon_stdout()
        report(known, as_json_document=invocation.json)
        return failure_code(known, passes_codes=invocation.passes_codes)


def _harness_error(error: Exception) -> HarnessError:
    from ..system.background_tasks import single_error  # loads anyio

    error = single_error(error)
    if isinstance(error, HarnessError):
        return error
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        return HarnessError(f"cannot write the output: {(error.strerror or 'error').lower()}")
    if isinstance(error, ValueError):
        return HarnessError(str(error))
    return HarnessError(
        f"internal error: {type(error).__name__}: {error}", hint="-vvv shows the traceback; please report it"
    )


def _usage(error: click.ClickException, *, as_json_document: bool) -> int:
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "harness"
    message = error.format_message()
    if as_json_document:
        click.echo(as_json(error_json("UsageError", message, hint=f"{where} --help")), err=True)
    else:
        note(f"{message} ({where} --help)")
    return HARNESS_FAILED


def _wants_json(words: list[str], invocation: Invocation) -> bool:
    ours = words[: words.index("--")] if "--" in words else words
    return invocation.json or "--json" in ours  # an invalid option ends the parsing before --json is seen
