"""inspect_ai's own checks of a sandbox, which come with it, on every kind of target."""

from __future__ import annotations

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403  # the checks are tests
from tests.peers.sandboxes import SANDBOXES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sandbox_env" in metafunc.fixturenames:
        metafunc.parametrize("sandbox_env", SANDBOXES, indirect=True)
