"""Runbooks: which files they are, what is wrong with others, and what a client gets as prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import MCPError
from tests.support.mcp_session import connected
from tests.support.toolbox import toolbox

from harness.errors import HarnessError
from harness.mcp.server.runbooks import MAX_FILE_BYTES, Runbook, RunbookError, find_runbooks, parse_runbook
from harness.mcp.server.server import REFUSED

RESTART = """---
description: Restart a service safely
arguments:
  service: the systemd unit
  reason: why, for the log
---
Check `systemctl status {{service}}`, then restart {{ service }}.

Say that the reason is: {{reason}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of runbooks; the current directory is an empty one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    made = tmp_path / "config/harness/runbooks"
    made.mkdir(parents=True)
    return made


def write(folder: Path, name: str, text: str = RESTART, mode: int = 0o600) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(mode)


def test_arguments_replace_their_placeholders_once() -> None:
    runbook = parse_runbook("restart", RESTART.encode())
    assert runbook.description == "Restart a service safely"
    assert dict(runbook.arguments) == {"service": "the systemd unit", "reason": "why, for the log"}
    filled = runbook.filled({"service": "nginx", "reason": "{{service}} hangs"})
    assert filled == "Check `systemctl status nginx`, then restart nginx.\n\nSay that the reason is: {{service}} hangs"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"service": "nginx"}, "needs reason"),
        ({"service": "nginx", "reason": ""}, "needs reason"),
        ({"service": "a", "reason": "b", "more": "c"}, "has no argument more"),
        ({"service": "a", "reason": "b" * 5_000}, "reason is longer than 4000 characters"),
    ],
)
def test_wrong_arguments_are_refused(values: dict[str, str], reason: str) -> None:
    with pytest.raises(RunbookError, match=reason):
        parse_runbook("restart", RESTART.encode()).filled(values)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no front matter", "does not start with a front matter"),
        ("---\ntitle: x\n---\n", "requires description"),
        ("---\ndescription: x\narguments: [a]\n---\n", "must be a mapping"),
        ("---\ndescription: x\narguments: {A b: text}\n---\n", "must be a mapping"),
        ("---\ndescription: x\n---\n{{unit}}", "is not among its arguments"),
    ],
)
def test_a_wrong_file_is_refused(text: str, reason: str) -> None:
    with pytest.raises(HarnessError, match=reason):
        parse_runbook("wrong", text.encode())


def test_a_file_that_cannot_be_used_is_named_and_hides_no_other(folder: Path) -> None:
    write(folder, "good.md", "---\ndescription: Look\n---\nLook.")
    write(folder, "open.md", mode=0o666)
    write(folder, "large.md", "x" * (MAX_FILE_BYTES + 1))
    write(folder, "Not a name.md")
    write(folder, "README.md")
    (folder / "link.md").symlink_to("/etc/passwd")
    found, problems = find_runbooks()
    assert found == {"good": Runbook("good", "Look", "Look.")}
    reasons = [problem.partition(" is left out: ")[2] for problem in problems]
    assert [reason.partition(" ")[0] for reason in reasons] == ["its", "large.md", "link.md", "open.md"]


def test_a_project_that_is_not_trusted_has_no_runbooks(folder: Path) -> None:
    project = Path(".harness/runbooks")
    project.mkdir(parents=True)
    write(project, "restart.md")
    assert find_runbooks() == ({}, [])


async def test_a_client_gets_them_as_prompts(folder: Path) -> None:
    write(folder, "restart.md")
    box = toolbox([])
    async with connected(lambda approver: box.executor) as client:
        (prompt,) = (await client.list_prompts()).prompts
        given = await client.get_prompt("restart", {"service": "nginx", "reason": "it hangs"})
        for name, values in (("restart", {}), ("nothing", {})):
            with pytest.raises(MCPError, match=r"needs service, reason|there is no runbook nothing"):
                await client.get_prompt(name, values)
    assert (prompt.name, prompt.description) == ("restart", "Restart a service safely")
    assert [(one.name, one.required) for one in prompt.arguments or []] == [("service", True), ("reason", True)]
    (message,) = given.messages
    assert message.role == "user"
    assert "restart nginx." in message.content.text  # type: ignore[union-attr]  # it is a text


async def test_settings_that_cannot_be_read_are_an_error_of_the_request(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path(".harness/runbooks").mkdir(parents=True)
    (folder.parent / "config.toml").write_text("broken [")
    box = toolbox([])
    async with connected(lambda approver: box.executor) as client:
        for request in (client.list_prompts(), client.get_prompt("restart")):
            with pytest.raises(MCPError, match="invalid TOML") as caught:
                await request
            assert caught.value.code == REFUSED
    assert "Traceback" not in caplog.text
