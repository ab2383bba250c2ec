"""How an extra is installed, by the record that pip leaves of where harness came from."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from harness.extras import command_for, install_command, install_extra

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({}, "pip install '.[web]' in a checkout of harness"),
        ({"url": "file:///src/harness", "dir_info": {}}, "pip install '/src/harness[web]'"),
        ({"url": "file:///src/my%20code", "dir_info": {"editable": True}}, "pip install -e '/src/my code[web]'"),
        (
            {"url": "https://git.example/h.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip install 'harness-ops[web] @ git+https://git.example/h.git@c0ffee'",
        ),
        (
            {
                "url": "ssh://git@git.example/h.git",
                "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "c0ffee"},
            },
            "pip install 'harness-ops[web] @ git+ssh://git@git.example/h.git@v1'",
        ),
        (
            {"url": "file:///tmp/harness_ops-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'harness-ops[web] @ file:///tmp/harness_ops-0.1.0-py3-none-any.whl'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_harness_was_installed(source: dict[str, Any], command: str) -> None:
    assert command_for("harness-ops[web]", source) == command


def test_the_record_of_this_installation_is_used() -> None:
    source = json.loads(distribution("harness-ops").read_text("direct_url.json") or "{}")
    assert install_extra("web") == command_for("harness-ops[web]", source)


def test_other_projects_are_installed_by_their_names() -> None:
    assert install_command("weather[radar]>=2") == "pip install 'weather[radar]>=2'"


def test_the_extra_all_names_every_extra_that_a_user_can_need() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("harness-ops[").removesuffix("]").split(",")
    assert sorted(named) == sorted(
        set(extras) - {"all", "check", "docs", "frameworks", "mutate", "peers", "release", "test"}
    )


@pytest.mark.parametrize(
    ("receipt", "start"),
    [
        ("pipx_metadata.json", "pipx runpip harness-ops install "),
        ("uv-receipt.toml", "uv pip install --python "),
        ("pyvenv.cfg", "pip install "),
    ],
)
def test_the_command_is_that_of_the_program_that_made_the_environment(
    receipt: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / receipt).touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert install_extra("web").startswith(start)
