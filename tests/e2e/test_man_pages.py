"""The manual pages are those of the commands of today, and both readers of such pages take them; so is the help."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness.cli.main import EXAMPLES, cli
from harness.cli.options import Invocation

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/man_pages.py"
PAGES = sorted((ROOT / "docs/man").glob("*.1"))
ALLOWED = re.compile(r'missing date, using ""')
"""A date would be that of a build, and no two builds would be equal."""


@pytest.mark.usefixtures("needs_process")
def test_the_pages_fit_the_commands() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("needs_mandoc")
def test_mandoc_and_groff_find_no_fault_in_the_pages() -> None:
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *PAGES], capture_output=True, text=True, timeout=60)
    assert [line for line in lint.stdout.splitlines() if not ALLOWED.search(line)] == []
    for page in PAGES:
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, timeout=60
        )
        assert done.stderr == "", page


@pytest.mark.usefixtures("needs_mandoc")
def test_a_page_shows_what_can_be_typed() -> None:
    page = ROOT / "docs/man/harness.1"
    shown = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=120", page], capture_output=True, timeout=60).stdout
    text = re.sub(r".\x08", "", shown.decode())
    assert [line for line, _ in EXAMPLES if line not in text] == []
    assert "--ssh-config" in text


def commands(command: click.Command, ctx: click.Context) -> list[tuple[click.Command, click.Context]]:
    found = [(command, ctx)]
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else []:
        below = command.get_command(ctx, name)
        assert below is not None
        found += commands(below, click.Context(below, info_name=name, parent=ctx, terminal_width=80))
    return found


def test_help_cuts_no_summary_off_and_fits_into_80_columns() -> None:
    root = click.Context(cli, info_name="harness", obj=Invocation(), terminal_width=80)
    for command, ctx in commands(cli, root):
        text = command.get_help(ctx)
        assert "..." not in text.replace("]...", "").replace("...]", "").partition("Commands:")[2], ctx.command_path
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert wide == [], ctx.command_path
    assert 3 <= len(EXAMPLES) <= 8
    assert all(line in cli.get_help(root) for line, _ in EXAMPLES)


def test_every_page_is_about_a_command() -> None:
    names = {f"harness-{name}.1" for name in cli.table} | {"harness.1"}
    assert {page.name for page in PAGES} == names
