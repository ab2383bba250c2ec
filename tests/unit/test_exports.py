"""The public names are a promise: what each public module offers is listed, sorted and complete."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import harness
import harness.testing

PUBLIC = [
    "harness",
    "harness.backend",
    "harness.command",
    "harness.config",
    "harness.context",
    "harness.discovery",
    "harness.errors",
    "harness.login",
    "harness.mcp.client.configuration",
    "harness.mcp.client.configuration",
    "harness.mcp.server.elicitation",
    "harness.mcp.server.elicitation",
    "harness.mcp.server.protocol_types",
    "harness.mcp.server.server",
    "harness.mcp.server.main",
    "harness.mcp.server.main",
    "harness.mcp.client.sources",
    "harness.mcp.client.session",
    "harness.results",
    "harness.target",
    "harness.pane_events",
    "harness.terminal",
    "harness.testing.agents",
    "harness.testing.contract",
    "harness.testing.delay",
    "harness.testing.memory",
    "harness.testing.pytest_plugin",
    "harness.testing.ssh_server",
    "harness.live.sessions.agent_session",
    "harness.live.announcement",
    "harness.live.sessions.approvals",
    "harness.live.sessions.call_session",
    "harness.notifications.notifier",
    "harness.notifications.settings",
    "harness.notifications.settings_loader",
    "harness.toolkit.assembly",
    "harness.toolkit.catalog",
    "harness.toolkit.declared_tools",
    "harness.toolkit.declared_tools",
    "harness.toolkit.interfaces",
    "harness.toolkit.hooks.dispatch",
    "harness.toolkit.hooks.command",
    "harness.toolkit.hooks.dispatch",
    "harness.toolkit.hooks.command",
    "harness.toolkit.results",
    "harness.toolkit.middleware",
    "harness.toolkit.session.output_store",
    "harness.toolkit.session.output_store",
    "harness.toolkit.audit",
    "harness.toolkit.session.notebook",
    "harness.toolkit.session.notebook_stores",
    "harness.toolkit.permissions.questions",
    "harness.toolkit.permissions.approver",
    "harness.toolkit.permissions.shell.typed_keys",
    "harness.toolkit.permissions.policy",
    "harness.toolkit.permissions.rules.rule",
    "harness.toolkit.permissions.rules.settings",
    "harness.toolkit.permissions.shell.classification",
    "harness.toolkit.permissions.rules.store",
    "harness.toolkit.permissions.remembered_answers",
    "harness.toolkit.registry",
    "harness.toolkit.tool_profiles",
    "harness.toolkit.providers",
    "harness.toolkit.session.questions",
    "harness.toolkit.session.file_versions",
    "harness.toolkit.redaction.redactor",
    "harness.toolkit.registry",
    "harness.toolkit.result_cache",
    "harness.toolkit.results",
    "harness.toolkit.session.skills",
    "harness.toolkit.registry",
    "harness.toolkit.delegation",
    "harness.toolkit.catalog",
    "harness.toolkit.web_settings",
    "harness.transport",
]

NAMES = {
    "harness": {
        *(
            "ANY",
            "Capabilities",
            "Config",
            "ExecutionContext",
            "Fleet",
            "HostOutcome",
            "fleet",
            "Hop",
            "Target",
            "__version__",
            "connect",
            "load_config",
        ),
        *(
            "DirEntry",
            "ExecTarget",
            "FileContent",
            "FileStat",
            "Job",
            "PaneInfo",
            "SessionInfo",
            "ShellResult",
            "Status",
        ),
        *(
            "WriteResult",
            "AuthenticationError",
            "ConfigError",
            "ConnectError",
            "ConnectionLost",
            "ContextClosed",
            "FileError",
        ),
        *(
            "FileExists",
            "FileNotFound",
            "ForwardError",
            "HarnessError",
            "HostKeyError",
            "IsADirectory",
            "JobNotFound",
            "KeyInUse",
            "NoSpace",
        ),
        *(
            "NotADirectory",
            "OutputDropped",
            "PaneBusy",
            "PaneGone",
            "PermissionDenied",
            "ShellNotReady",
            "StaleFileError",
        ),
        *("TargetGone", "TargetNotFound", "TerminalError", "ToolError", "UnsupportedOperation"),
    },
    "harness.login": {
        "LoginQuestion",
        "Prompter",
        "TerminalPrompter",
        "current_prompter",
        "questions_forbidden",
        "use_prompter",
        *("SudoApprover", "WaitingSudo", "current_sudo_approver", "use_sudo_approver"),
        "on_sigcont",
    },
    "harness.testing.delay": {"DelayProxy", "delay_proxy"},
    "harness.testing.ssh_server": {"EmbeddedSshServer", "embedded_ssh_server"},
    "harness.transport": {"Process", "Transport"},
    "harness.pane_events": {
        *("PaneEvent", "Screen", "Output", "Resized", "JobStarted", "JobEnded", "Closed", "DEFAULT_WATCH_BYTES"),
        *("PaneWatch", "PaneWatches", "Typed"),
    },
    "harness.terminal": {
        *("CURRENT_TMUX", "check_own_tmux_of"),
        *("CLIENT_STATUS", "Listener", "OperatorActivity", "Operators", "ScreenMark", "Sessions", "Terminal"),
    },
}

CONTEXT = {
    *("run_shell", "read_file", "write_file", "capture_pane", "send_keys", "follow", "wait", "jobs", "job", "kill"),
    "read_job",
    "job_with_key",
    "run_helper",
    "run_beside",  # deprecated
    *("list_panes", "create_pane", "kill_pane", "list_sessions", "create_session", "kill_session", "operators"),
    *("watch_pane", "watch_panes", "has_panes", "lend_pane", "end_lend"),
    *("stat", "list_dir", "walk", "glob", "mkdir", "remove", "rename", "upload", "download"),
    *(
        "attach_command",
        "attach_command_read_only",
        "capabilities",
        "describe",
        "target",
        "has_terminal",
        "files",
        "pane",
    ),
    "identity",
    "in_pane",
    "interactive_command",
    "libtmux",
    "session_identity",
    "supervised_attach_command",
}

RESULT = {
    *("command", "status", "exit_code", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "truncated", "duration"),
    *("cwd", "job_id", "pane", "notices", "ok", "stdout_gap", "stderr_gap"),
}


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def modules_of(package: ModuleType) -> list[str]:
    """Every module of a package whose path has no private part."""
    found = [item.name for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in found if not any(part.startswith("_") for part in name.split("."))]


def test_a_public_module_has_what_it_lists() -> None:
    for name in PUBLIC:
        module = load(name)
        listed = list(module.__all__)
        assert len(set(listed)) == len(listed)
        assert [item for item in listed if not hasattr(module, item)] == []


def test_every_public_class_and_function_is_listed_and_documented() -> None:
    for name in PUBLIC:
        module = load(name)
        for attribute, value in vars(module).items():
            if attribute.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if value.__module__ == name:
                assert attribute in module.__all__, f"{name}.{attribute} is not in __all__"
                assert inspect.getdoc(value), f"{name}.{attribute} has no docstring"


@pytest.mark.parametrize("name", NAMES)
def test_the_public_names_are_these(name: str) -> None:
    assert set(load(name).__all__) == NAMES[name]


def test_the_operations_of_a_context_are_these() -> None:
    assert {name for name in dir(harness.ExecutionContext) if not name.startswith("_")} == CONTEXT


def test_every_operation_is_documented() -> None:
    for name in sorted(CONTEXT):
        assert inspect.getdoc(getattr(harness.ExecutionContext, name))


def test_the_fields_of_a_result_are_these() -> None:
    assert {name for name in dir(harness.ShellResult) if not name.startswith("_")} == RESULT


def test_every_module_of_the_testing_package_is_known_here() -> None:
    assert {name for name in modules_of(harness.testing) if name.count(".") == 2} <= set(PUBLIC)


def test_options_are_given_by_name() -> None:
    for name in ("run_shell", "read_file", "write_file", "capture_pane", "send_keys", "wait", "kill"):
        parameters = list(inspect.signature(getattr(harness.ExecutionContext, name)).parameters.values())[1:]
        positional = [item.name for item in parameters if item.kind is not inspect.Parameter.KEYWORD_ONLY]
        assert len(positional) <= (2 if name == "write_file" else 1), (name, positional)


@pytest.mark.parametrize("name", ["harness.toolkit", "harness.agent", "harness.live", "harness.testing"])
def test_what_a_program_needs_is_given_by_the_package_and_named_on_its_page(name: str) -> None:
    package = load(name)
    pages = (Path(__file__).parents[2] / "docs").glob("api*.md")
    text = "".join(page.read_text() for page in pages)
    for item in package.__all__:
        value = getattr(package, item)
        assert not inspect.isclass(value) or inspect.getdoc(value)
        assert f"`{item}`" in text, f"{item} is not on a page of the API"
        assert item in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018 # what is asked for is the error
