"""Variables that hold keys of models, which no command on this machine inherits."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from harness import connect, withheld_environment
from harness.agent.provider_keys import key_names
from harness.settings import SettingsTable


def test_usual_variables_and_those_of_trusted_profiles_hold_keys() -> None:
    profiles = {"a": {"key": {"env": "WORK_KEY"}}, "b": {"key": {"file": "k"}}, "c": 1, "d": {"key": ["x"]}}
    names = key_names([SettingsTable("mine", profiles, trusted=True)])
    assert {"WORK_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} <= names
    theirs = SettingsTable("theirs", {"a": {"key": {"env": "PATH"}}}, trusted=False)
    assert "PATH" not in key_names([theirs])


@pytest.mark.usefixtures("needs_process")
async def test_no_command_on_this_machine_inherits_what_is_withheld(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("SOME_MODEL_KEY", "a-key-0123456789")
    monkeypatch.setenv("NO_MODEL_WORD", "a-word")
    monkeypatch.setattr(withheld_environment, "_names", frozenset())
    withheld_environment.exclude_from_child_env(["SOME_MODEL_KEY", "NOT_SET"])
    with anyio.fail_after(60):
        async with connect("local:") as execution:
            found = await execution.run_shell('echo "${SOME_MODEL_KEY-none}" "$NO_MODEL_WORD"')
    assert found.stdout.strip() == "none a-word"
