"""Agents of other projects' frameworks work with the tools of harness, as docs/frameworks.md shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.model_server import Answer, call, model_server, say

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
COMMAND = "echo to''gether"


def test_the_page_installs_what_the_tests_use() -> None:
    page = (EXAMPLES.parent / "frameworks.md").read_text()
    documented = {
        word for line in re.findall(r"^\$ pip install (.*)$", page, re.MULTILINE) for word in shlex.split(line)
    }
    extras = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert documented == {requirement.partition(">")[0] for requirement in extras["frameworks"]}


@pytest.mark.parametrize(
    ("name", "model", "answer"),
    [
        ("langgraph_agent.py", "openai:own", say("It is not full.")),
        ("openai_agents_agent.py", "own", say("It is not full.")),
        ("smolagents_agent.py", "own", call("final_answer", {"answer": "It is not full."})),
    ],
)
def test_an_agent_runs_a_command(needs_frameworks: Path, tmp_path: Path, name: str, model: str, answer: Answer) -> None:
    with model_server([call("run_shell", {"command": COMMAND}), answer]) as server:
        environment = {
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # where harness is
            "OPENAI_API_KEY": "any",
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANG": "C.UTF-8",
        }
        words = [str(needs_frameworks), str(EXAMPLES / name), model]
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "It is not full."
        assert server.refused == []
        assert "together" in str(server.asked[1].body)
