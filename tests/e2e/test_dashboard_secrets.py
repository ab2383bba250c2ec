"""Dashboards of commands show no secret of the settings, of ``--env`` or of ``redact_patterns``."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from tests.support.dashboards import dashboard
from tests.support.program import Program, program

from harness.errors import HarnessError
from harness.live.client import open_stream

__all__ = ["program"]

SETTINGS = """
env = { DB_PASSWORD = "opensesame-of-settings" }
[tools]
redact_patterns = ["emp-[0-9]+"]
[targets.one]
url = "local:"
[targets.two]
url = "local:"
"""
COMMAND = 'echo "begun $DB_PASSWORD emp-$((4711 + 1)) $API_TOKEN over"; sleep 600'
WORDS = ("--env", "API_TOKEN=opensesame-of-option", "--", COMMAND)
REDACTED = "begun [redacted] [redacted] [redacted] over\n"


def write_settings(program: Program, text: str = SETTINGS) -> None:
    path = program.home / "config/harness/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


async def tail_of(path: Path, session: str, arguments: dict[str, str]) -> str:
    """The output up to its end; the command has no job at first."""
    text = ""
    with anyio.fail_after(30):
        while "over" not in text:
            try:
                async for item in open_stream(path, session, "tail", arguments):
                    text += item["text"]
                    if "over" in text:
                        break
            except HarnessError as error:
                if "yet" not in str(error):
                    raise
                await anyio.sleep(0.05)
    return text


@pytest.mark.parametrize(
    ("options", "arguments"),
    [((), {}), (("--hosts", "one,two"), {"host": "two"}), (("--hosts", "one"), {"host": "one"})],
)
async def test_the_tail_of_a_command_shows_no_secret_of_settings_and_options(
    program: Program, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], arguments: dict[str, str]
) -> None:
    write_settings(program)
    async with dashboard(program.environ, monkeypatch) as seen:
        with program.start("run", *options, *WORDS) as process:
            try:
                found, session = await seen.until(lambda one: one.doing == "running")
                assert await tail_of(found.path, session.session, arguments) == REDACTED
            finally:
                process.kill()


async def test_nothing_is_shown_while_the_settings_of_the_redaction_are_wrong(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(program, '[tools]\nredact_patterns = ["("]\n')
    async with dashboard(program.environ, monkeypatch) as seen:
        with program.start("run", "--", "echo unseen; sleep 600") as process:
            try:
                found, session = await seen.until(lambda one: bool(one.note))
                assert (session.title, session.note) == ("", "internal error: ConfigError")
                with pytest.raises(HarnessError, match="not a regular expression"):
                    await tail_of(found.path, session.session, {})
            finally:
                process.kill()


async def test_a_secret_that_is_cut_where_an_output_is_shortened_is_not_shown(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(program)
    command = f"cd {program.home}; mkdir turn || sleep 600; yes $DB_PASSWORD | head -n 1000; echo over; exit 3"
    async with dashboard(program.environ, monkeypatch) as seen:
        with program.start(
            "run", "--hosts", "one,two", "--forks", "1", "--max-output", "2000", "--", command
        ) as process:
            try:
                found, session = await seen.until(lambda one: one.hosts is not None and one.hosts.failed == 1)
                text = await tail_of(found.path, session.session, {"host": "one"})
                assert "bytes are not shown" in text
                assert re.search("opens|same|sett|ings", text) is None, text
            finally:
                process.kill()
