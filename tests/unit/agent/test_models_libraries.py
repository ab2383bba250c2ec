"""What a first request need not wait for: the libraries of its provider are there before."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEW_MODULES = """
import sys
import anyio
from harness.agent.models import EnvironmentKey, ModelProfile, open_model
from harness.agent.models.provider_clients import load_libraries

profile = ModelProfile("it", sys.argv[1], "some-model", "http://127.0.0.1:9/", EnvironmentKey("K"))

async def opened():
    async with open_model(profile, environ={"K": "x"}):
        pass

if sys.argv[2] == "before":
    load_libraries(profile)
there = len(sys.modules)
anyio.run(opened)
print(len(sys.modules) - there)
"""


def new_modules(provider: str, when: str) -> int:
    """How many modules are loaded to open a model, with its libraries loaded before or not."""
    argv = [sys.executable, "-c", NEW_MODULES, provider, when]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "google", "openai-compatible"])
def test_a_model_whose_libraries_are_loaded_opens_without_loading_more(provider: str) -> None:
    assert new_modules(provider, "before") < new_modules(provider, "never") / 2


def test_a_provider_that_nobody_knows_is_no_matter_of_its_libraries() -> None:
    from harness.agent.models import ModelProfile
    from harness.agent.models.provider_clients import load_libraries

    load_libraries(ModelProfile("it", "no-such-provider", "m"))
