"""Make ``docs/man/*.1``, the manual pages, from the commands and their help; the wheel installs them.

click-man was tried: it escapes neither backslashes nor lines that start with a dot, and it puts the date of the build
into each page.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from harness.cli.main import EXAMPLES, cli
from harness.cli.options import EPILOG, Invocation

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/man"

EXITS = {
    "0": "Success; for run and jobs wait: the exit code of the command.",
    "1": "A negative result, such as a missing file, or a fault that doctor found.",
    "124": "A timeout.",
    "125": "harness failed: wrong usage or settings, no connection, an unknown job or outcome.",
    "126": "Denied by policy.",
    "130": "Interrupted by Ctrl-C.",
    "141": "The reader of standard output closed it.",
}
FILES = {
    "~/.config/harness/config.toml": "Your settings; harness init writes them, with an explanation of each.",
    "./harness.toml": "The settings of a directory; it may only be stricter, unless the directory is trusted.",
    "~/.local/state/harness/": "Jobs on this machine, conversations, recordings, the audit log.",
}
ENVIRONMENT = {
    "HARNESS_NAME": "The setting NAME, such as HARNESS_SESSION or HARNESS_TIMEOUT; harness config show lists all.",
    "HARNESS_CONFIG": "A further settings file, as --config names one.",
    "NO_COLOR": "Disables colors.",
}


# -- roff


def escape(text: str) -> str:
    """Return text as roff shows it: no character is a request, a font change or a hyphen that cannot be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    text = "".join(one if one < "\x7f" else f"\\[u{ord(one):04X}]" for one in text)
    return re.sub(r"^(?=[.\s])", r"\\&", text, flags=re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; those that click is told not to wrap keep their lines."""
    for number, block in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if block.startswith("\b\n"):
            yield f".nf\n{escape(block.removeprefix(chr(8) + chr(10)))}\n.fi"
        else:
            yield escape(" ".join(block.split()))


def items(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of names with texts."""
    for name, text in pairs:
        yield f".TP\n{name}\n{escape(text)}"


def bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


# -- the parts of a page


def option_name(option: click.Option, ctx: click.Context) -> str:
    """An option as its help has it: ``-i, --identity FILE``."""
    names = ", ".join(bold(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.count:
        return names
    return f"{names} \\fI{escape(option.make_metavar(ctx))}\\fR"


def options(command: click.Command, ctx: click.Context) -> list[tuple[str, str]]:
    shown = [one for one in command.get_params(ctx) if isinstance(one, click.Option) and not one.hidden]
    return [(option_name(one, ctx), one.help or "") for one in shown if command is cli or "--help" not in one.opts]


def usage(command: click.Command, ctx: click.Context) -> str:
    return f"{bold(ctx.command_path)} {escape(' '.join(command.collect_usage_pieces(ctx)))}"


def help_text(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\f")[0]


def body(command: click.Command, ctx: click.Context, *, heading: str = ".SH") -> Iterator[str]:
    """The usage, the description and the options of a command."""
    yield f"{heading} SYNOPSIS" if heading == ".SH" else f"{heading} {bold(ctx.command_path)}"
    yield usage(command, ctx)
    yield ".SH DESCRIPTION" if heading == ".SH" else ".PP"
    yield from paragraphs(help_text(command))
    found = options(command, ctx)
    if found and heading == ".SH":
        yield ".SH OPTIONS"
    yield from items(found)


def subcommands(command: click.Command, ctx: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            if found is not None and not found.hidden:
                yield found, click.Context(found, info_name=name, parent=ctx)


def title(name: str, summary: str, version: str) -> Iterator[str]:
    yield '.\\" made by scripts/man-pages'
    yield f'.TH {escape(name.upper())} 1 "" "harness {escape(version)}" "harness manual"'
    yield f".SH NAME\n{escape(name)} \\- {escape(summary.rstrip('.'))}"


def see_also(names: Iterable[str]) -> str:
    return ".SH SEE ALSO\n" + ",\n".join(f".BR {escape(name)} (1)" for name in names)


# -- pages


def main_page(ctx: click.Context, version: str) -> str:
    """The page of the program."""
    names = [f"harness-{name}" for name in cli.list_commands(ctx)]
    lines = [
        *title("harness", "run commands for people and LLM agents on real machines, in tmux", version),
        *body(cli, ctx),
        ".SH COMMANDS",
        *items((f"\\fBharness\\-{escape(name)}\\fR(1)", text) for name, (_, text) in cli.table.items()),
        ".SH EXAMPLES",
        *items((bold(line), text) for line, text in EXAMPLES),
        ".SH EXIT STATUS",
        *items((bold(code), text) for code, text in EXITS.items()),
        ".SH ENVIRONMENT",
        *items((bold(name), text) for name, text in ENVIRONMENT.items()),
        ".SH FILES",
        *items((f"\\fI{escape(name)}\\fR", text) for name, text in FILES.items()),
        see_also([*names, "ssh", "tmux"]),
    ]
    return "\n".join(lines) + "\n"


def command_page(name: str, parent: click.Context, version: str) -> str:
    """The page of one command, with its subcommands."""
    command = cli.get_command(parent, name)
    if command is None:
        raise SystemExit(f"unknown command {name}")
    ctx = click.Context(command, info_name=name, parent=parent)
    lines = [*title(f"harness-{name}", cli.table[name][1], version), *body(command, ctx)]
    below = list(subcommands(command, ctx))
    if below:
        lines.append(".SH COMMANDS")
    for found, inner in below:
        lines += body(found, inner, heading=".SS")
    lines += [f".SH SHARED OPTIONS\n{escape(EPILOG)}", see_also(["harness"])]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every page by its path."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ctx = click.Context(cli, info_name="harness", obj=Invocation())
    made = {PAGES / "harness.1": main_page(ctx, version)}
    return made | {PAGES / f"harness-{name}.1": command_page(name, ctx, version) for name in cli.list_commands(ctx)}


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description="Make docs/man from the commands.")
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    extra = sorted(set(PAGES.glob("*")) - set(made))
    if check:
        for path in [*stale, *extra]:
            print(f"{path.relative_to(ROOT)} does not fit the commands: scripts/man-pages", file=sys.stderr)
        return 1 if stale or extra else 0
    PAGES.mkdir(exist_ok=True)
    for path in extra:
        path.unlink()
    for path in stale:
        path.write_text(made[path])
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
