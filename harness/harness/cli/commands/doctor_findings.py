"""A finding of ``harness doctor`` as printed."""

from __future__ import annotations

import click

from ...backend import Finding
from ..named_commands import complete_commands
from ..output import readable

__all__ = ["print_finding"]

COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def print_finding(finding: Finding, width: int) -> None:
    """Print a finding, and below it the fix.

    Args:
        finding: The finding.
        width: The width of the column with the checks.
    """
    level = click.style(f"{finding.level:4}", fg=COLORS[finding.level])
    click.echo(f"{level}  {finding.check:{width}}  {readable(complete_commands(finding.message))}")
    if finding.fix:
        click.echo(f"      {'':{width}}  fix: {readable(complete_commands(finding.fix))}")
