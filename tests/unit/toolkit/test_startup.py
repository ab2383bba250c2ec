"""What a start pays for: models are built, and patterns compiled, when something first needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SPY = """
import json, sys
from pydantic._internal import _model_construction as construction
original, built = construction.complete_model_class, []

def complete(cls, *args, **more):
    done = original(cls, *args, **more)
    built.append(f"{cls.__module__}.{cls.__qualname__}")
    return done

construction.complete_model_class = complete
"""


def reported(script: str, home: Path) -> dict[str, list[str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    argv = [sys.executable, "-c", SPY + script]
    done = subprocess.run(argv, env=environment, cwd=home, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("needs_process")
def test_importing_the_toolkit_and_all_tools_builds_no_model(tmp_path: Path) -> None:
    found = reported(
        """
from harness.toolkit import *
first = sorted({"difflib", "importlib.metadata", "pydantic.plugin._loader"} & set(sys.modules))
from harness.toolkit.assembly import load_toolkit_settings
from harness.toolkit.catalog import load_catalogue
catalogue = load_catalogue(load_toolkit_settings().tools)
early = list(built)
catalogue.registry.lookup("read_file").schema
print(json.dumps({"first": first, "early": early, "late": built, "problems": list(catalogue.problems)}))
""",
        tmp_path,
    )
    assert found["first"] == []
    assert found["early"] == []
    assert found["late"] == ["harness_tools.files._Read"]
    assert found["problems"] == []


@pytest.mark.usefixtures("needs_process")
def test_the_ledger_and_the_values_are_loaded_without_models_of_tools(tmp_path: Path) -> None:
    found = reported(
        """
del sys.modules["pydantic"]
import harness.toolkit.audit
from harness.toolkit import CallStatus, ToolCall
print(json.dumps({"loaded": sorted({"pydantic", "harness.toolkit.contract"} & set(sys.modules))}))
""",
        tmp_path,
    )
    assert found["loaded"] == []


def test_the_toolkit_has_the_names_that_it_lists_and_no_others() -> None:
    import harness.toolkit

    for name in harness.toolkit.__all__:
        assert getattr(harness.toolkit, name) is not None
    assert not hasattr(harness.toolkit, "nothing")
    assert {"Executor", "tool"} <= set(dir(harness.toolkit))
