"""``harness doctor``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..operate.findings import Finding
from .commands import command
from .exits import FAILED
from .output import print_json, readable
from .runtime import session_of
from .streams import Interruption, run_async

__all__ = ["doctor"]

COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@command("doctor")
@click.option(
    "--clean",
    is_flag=True,
    help="Remove ended jobs beyond the limits, and what panes and connections that are gone have left.",
)
@click.pass_context
def doctor(ctx: click.Context, clean: bool) -> int:
    """Check the target and the settings; each finding comes with its fix.

    The exit code is 1 when a check fails. It runs 'sudo -n true' on the target, which the target may log.
    """
    session = session_of(ctx)

    async def main(interruption: Interruption) -> int:
        from ..operate.doctor import examine

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
        level = click.style(f"{finding.level:4}", fg=COLORS[finding.level])
        click.echo(f"{level}  {finding.check:{width}}  {readable(finding.message)}")
        if finding.fix:
            click.echo(f"      {'':{width}}  fix: {readable(finding.fix)}")
