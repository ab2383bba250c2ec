"""Documented names of the previous release give the same objects as before, with a warning."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

from harness.deprecated_names import MOVED, renamed_arguments, renamed_method

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "harness.mcp.server": ("server", "open_session"),
    "harness.toolkit.hooks": ("dispatch", "Hook"),
    "harness.toolkit.permissions.rules": ("rule", "Rule"),
    "harness.toolkit.redaction": ("redactor", "PatternRedactor"),
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_gives_what_the_new_one_has(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        module = import_module(old)
    monkeypatch.delitem(sys.modules, old)
    new = import_module(MOVED[old])
    assert new.__all__
    assert all(getattr(module, name) is getattr(new, name) for name in new.__all__)


def test_harness_does_not_use_an_old_path() -> None:
    """Also where a module is named by a string, to be imported in advance."""
    files = [path for root in ("harness", "backends", "tools") for path in (ROOT / root).rglob("*.py")]
    used = {
        (path.name, node.value)
        for path in files
        if path.name != "deprecated_names.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in MOVED
    }
    assert len(files) > 300
    assert used == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_gives_the_names_of_the_module_that_it_was(package: str) -> None:
    module, name = PACKAGES[package]
    with pytest.warns(DeprecationWarning, match=f"{package}.{name} has moved"):
        found = getattr(import_module(package), name)
    assert found is getattr(import_module(f"{package}.{module}"), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018 # what is asked for is the error


RENAMED = {
    "harness.agent.opening": {
        "People": "HumanHandlers",
        "Taken": "ResumedConversation",
        "for_agents": "with_agent_pack",
        "rehearse": "preload",
    },
    "harness.agent.storage": {
        "SessionDamaged": "ConversationCorrupt",
        "SessionInUse": "ConversationInUse",
        "SessionNotFound": "ConversationNotFound",
    },
    "harness.backend": {"Any_": "AnyVersion"},
    "harness.login": {"when_continued": "on_sigcont"},
    "harness.results": {"asked_for": "without_helpers"},
    "harness.settings": {"Choices": "CommandLineChoices"},
    "harness.testing.memory": {"Reply": "ScriptedReply"},
    "harness.toolkit.audit": {
        "Head": "ChainHead",
        "Life": "ProcessState",
        "NoRoomLedger": "DiskFullAuditLog",
        "NullLedger": "NullAuditLog",
        "Orphan": "UnresolvedCall",
        "Place": "AuditPaths",
        "Reconciled": "ReconcileResult",
        "SqliteLedger": "SqliteAuditLog",
        "Unsettled": "UnresolvedRow",
        "has_no_room": "is_disk_full",
        "open_ledger": "open_audit_log",
        "verify": "verify_audit",
    },
    "harness.toolkit.hooks.dispatch": {
        "Answer": "HookResult",
        "Occasion": "HookInvocation",
        "Registered": "RegisteredHook",
    },
    "harness.toolkit.interfaces": {"Ledger": "AuditLog"},
    "harness.toolkit.middleware": {"NoMarks": "RejectRedactedText", "StuckLoop": "LoopDetector"},
    "harness.toolkit.permissions.policy": {"found_among": "filter_unreadable", "locked_among": "filter_unwritable"},
    "harness.toolkit.permissions.questions": {
        "Answer": "ApprovalDecision",
        "Claim": "AccessRequest",
        "Piece": "AccessItem",
        "Question": "ApprovalRequest",
        "Scope": "ApprovalScope",
    },
    "harness.toolkit.permissions.shell.classification": {
        "CommandJudgement": "CommandClassification",
        "judge_command": "classify_command",
    },
    "harness.toolkit.profiles": {"Face": "ToolAdapter"},  # a path that has moved, too
    "harness.toolkit.session.file_versions": {"Written": "WriteOutcome"},
    "harness.toolkit.session.notebook": {"Place": "MemoryLocation"},
    "harness.toolkit.tool_profiles": {
        "Face": "ToolAdapter",
        "FacedCall": "AdaptedCall",
        "FacedTool": "AdaptedTool",
        "Names": "NameMap",
        "Profile": "ToolProfile",
        "Shown": "RenderedResult",
    },
}


@pytest.mark.parametrize("module", RENAMED)
@pytest.mark.filterwarnings("ignore:.* has moved to:DeprecationWarning")
def test_an_old_name_gives_what_has_the_new_one(module: str) -> None:
    for old, new in RENAMED[module].items():
        with pytest.warns(DeprecationWarning, match=f"{old} is deprecated, use {new}"):
            found = getattr(import_module(module), old)
        assert found is getattr(import_module(module), new)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(module).nothing  # noqa: B018 # what is asked for is the error


def test_an_old_method_calls_the_one_with_the_new_name() -> None:
    class Example:
        def new(self, value: int, *, more: int = 0) -> int:
            return value + more

        old = renamed_method("old", "new")

    with pytest.warns(DeprecationWarning, match="Example.old is deprecated, use new"):
        assert Example().old(1, more=2) == 3


def test_an_old_argument_is_passed_by_its_new_name() -> None:
    @renamed_arguments(people="handlers")
    def example(*, handlers: str = "none") -> str:
        return handlers

    with pytest.warns(DeprecationWarning, match=r"example\(people=...\) is deprecated, use handlers"):
        assert example(people="some") == "some"  # type: ignore[call-arg] # the old name
    assert example(handlers="others") == "others"
