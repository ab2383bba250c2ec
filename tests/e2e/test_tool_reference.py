"""The pages about tools show what the tools answer today."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.toolkit.catalog import load_catalogue

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/tool_reference.py"
EXAMPLES = sorted((ROOT / "docs/examples/tools").glob("*.toml"))


@pytest.mark.usefixtures("needs_process")
@pytest.mark.timeout(300)
def test_the_examples_of_the_reference_do_what_it_shows() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


def test_every_tool_has_an_example() -> None:
    shown = {example["tool"] for path in EXAMPLES for example in tomllib.loads(path.read_text())["example"]}
    assert {tool.name for tool in load_catalogue().known.list()} - shown == set()


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert [path.stem for path in EXAMPLES if f"tools/{path.stem}.md" not in contents] == []
