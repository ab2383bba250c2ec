"""The table [hooks]: what it may say, and who may say it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.toolbox import toolbox
from tests.unit.toolkit.test_hooks import WriteTool

from harness.errors import ConfigError
from harness.settings import load_tables
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.hooks.command import CommandHook, hooks_of
from harness.toolkit.hooks.dispatch import Hooks, Matcher, RegisteredHook


def loaded(tmp_path: Path, user: str = "", project: str = "") -> tuple[RegisteredHook, ...]:
    """The hooks of a user's file and of a project's."""
    home, here = tmp_path / "home", tmp_path / "project"
    (home / ".config/harness").mkdir(parents=True)
    here.mkdir()
    (home / ".config/harness/config.toml").write_text(user)
    if project:
        (here / "harness.toml").write_text(project)
    tables = load_tables("hooks", environ={"HOME": str(home), "PATH": os.environ["PATH"]}, directory=here)
    return hooks_of(tables)


ENTRY = """
[[hooks.pre_tool]]
command = ["/usr/local/bin/check", "--strict"]
tools = ["run_shell", "write_*"]
targets = ["ssh://prod*"]
paths = ["/etc/**"]
timeout = 2.5
env = { LEVEL = "1" }

[[hooks.PostToolUse]]
command = "logger -t harness"
async = true
on_invalid_output = "deny"
"""


def test_every_key_arrives(tmp_path: Path) -> None:
    assert loaded(tmp_path, ENTRY) == (
        RegisteredHook(
            "pre_tool",
            CommandHook(("/usr/local/bin/check", "--strict"), 2.5, None, {"LEVEL": "1"}),
            Matcher(("run_shell", "write_*"), ("ssh://prod*",), ("/etc/**",)),
        ),
        RegisteredHook("post_tool", CommandHook("logger -t harness", 5.0, "deny", {}), background=True),
    )


def test_without_the_table_there_are_none(tmp_path: Path) -> None:
    assert loaded(tmp_path, 'session = "x"') == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hooks = 3", "hooks is not a table"),
        ('[hooks]\npre_tool = "x"', r"hooks.pre_tool is not a list of tables \(write \[\[hooks.pre_tool\]\]\)"),
        ('[[hooks.pre_tol]]\ncommand = "x"', "hooks.pre_tol: unknown event 'pre_tol'"),
        ("[[hooks.pre_tool]]", "hooks.pre_tool.command: field required"),
        ("[[hooks.pre_tool]]\ncommand = []", "hooks.pre_tool.command"),
        ('[[hooks.pre_tool]]\ncommand = ""', "hooks.pre_tool.command"),
        ('[[hooks.pre_tool]]\ncommand = "x"\ntimeout = 0', "hooks.pre_tool.timeout: input should be greater than 0"),
        ('[[hooks.pre_tool]]\ncommand = "x"\ntool = ["a"]', "hooks.pre_tool.tool: extra inputs are not permitted"),
        ('[[hooks.pre_tool]]\ncommand = "x"\nasync = true', "a hook of pre_tool cannot run in the background"),
        (
            '[[hooks.pre_tool]]\ncommand = "x"\non_invalid_output = "allow"',
            "on_invalid_output = 'allow' is not possible for pre_tool",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        loaded(tmp_path, text)
    assert "config.toml: " in str(caught.value)


PROJECT = '[[hooks.pre_tool]]\ncommand = "true"\n'


def test_a_project_may_not_add_hooks_unless_it_is_trusted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this directory is not trusted"):
        loaded(tmp_path, project=PROJECT)


def test_a_trusted_project_adds_its_hooks_after_the_users(tmp_path: Path) -> None:
    user = f'trusted_dirs = ["{tmp_path}/project"]\n[[hooks.pre_tool]]\ncommand = "false"\n'
    assert [one.handler for one in loaded(tmp_path, user, PROJECT)] == [CommandHook("false"), CommandHook("true")]


DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.usefixtures("needs_process")
async def test_the_documented_hook_and_its_settings_do_what_the_page_says(tmp_path: Path) -> None:
    documented = re.search(r"```toml\n(.*?)```", (DOCS / "hooks.md").read_text(), re.DOTALL)
    assert documented
    before, after = loaded(tmp_path, documented[1].replace("/usr/local/lib/harness", str(DOCS / "examples")))
    assert isinstance(before.handler, CommandHook)
    assert after.background
    anywhere = replace(before, matcher=Matcher(), handler=replace(before.handler, timeout=30.0))
    box = toolbox([WriteTool()], hooks=(Hooks([anywhere]),))
    refused = await box.executor.call(ToolCall("write", {"path": "/srv/../etc/x"}))
    assert refused.result.text == "not allowed: /etc/x is not below /srv"
    assert (await box.executor.call(ToolCall("write", {"path": "/srv/x"}))).status is CallStatus.OK


@pytest.mark.usefixtures("needs_process")
async def test_hooks_of_the_settings_decide_about_calls(tmp_path: Path) -> None:
    answer = '{"decision": "deny", "reason": "not in /etc"}'
    user = f"[[hooks.pre_tool]]\ncommand = '''cat > /dev/null; echo '{answer}' '''\npaths = ['/etc/**']\n"
    box = toolbox([WriteTool()], hooks=(Hooks(loaded(tmp_path, user)),))
    refused = await box.executor.call(ToolCall("write", {"path": "/etc/x"}))
    assert (refused.status, refused.result.text) == (CallStatus.DENIED, "not allowed: not in /etc")
    assert (await box.executor.call(ToolCall("write", {"path": "/srv/x"}))).status is CallStatus.OK
