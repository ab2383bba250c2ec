"""Tools work on the target: none looks at this machine's files or starts a process here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools/harness_tools"
MODULES = sorted(path.relative_to(TOOLS).as_posix() for path in TOOLS.rglob("*.py"))
LOCAL_MODULES = {
    "asyncio", "ctypes", "fcntl", "fileinput", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "pexpect",
    "pty", "shutil", "socket", "socketserver", "stat", "subprocess", "tempfile",
}  # fmt: skip
PURE = {("pathlib", "PurePosixPath"), ("io", "StringIO"), ("io", "BytesIO")}
"""What those modules have that touches nothing."""
LOCAL_NAMES = {"open", "exec", "eval", "__import__", "breakpoint"}
LOCAL_ATTRIBUTES = {
    "anyio.Path", "anyio.open_file", "anyio.open_process", "anyio.run_process", "anyio.connect_tcp",
    "anyio.connect_unix", "anyio.getaddrinfo",
}  # fmt: skip
HARNESS_PLANE: dict[str, tuple[str, str]] = {
    "dev/languages/parsing.py": ("anyio.run_process", "parses what was fetched, where a hostile source can be ended"),
    "web/pages.py": ("anyio.run_process", "converts what was fetched, where a hostile page can be ended"),
    "web/http_client.py": ("anyio.getaddrinfo", "fetches from this machine, and judges every address"),
}
"""Modules that work on this machine by their nature: what they may use, and why."""


def uses(path: Path) -> Iterator[str]:
    """What a module has from this machine."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in LOCAL_MODULES)
        elif (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").partition(".")[0] in LOCAL_MODULES
        ):
            yield from (f"{node.module}.{alias.name}" for alias in node.names if (node.module, alias.name) not in PURE)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOCAL_NAMES:
            yield node.func.id
        elif isinstance(node, ast.ImportFrom) and node.module == "anyio":
            yield from (name for alias in node.names if (name := f"anyio.{alias.name}") in LOCAL_ATTRIBUTES)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in LOCAL_ATTRIBUTES:
            yield ast.unparse(node)


def test_a_tool_reaches_the_target_only_through_the_context() -> None:
    for module in MODULES:
        allowed, _ = HARNESS_PLANE.get(module, ("", ""))
        assert [use for use in uses(TOOLS / module) if use not in allowed.split()] == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from pathlib import Path",
        "open('x')",
        "import subprocess as s",
        "import anyio\nanyio.run_process(['x'])",
        "from anyio import open_file",
    ],
)
def test_the_rule_finds_what_it_looks_for(text: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(text)
    assert list(uses(module))


def test_exceptions_are_of_modules_that_are_there_and_need_them() -> None:
    for module, (allowed, reason) in HARNESS_PLANE.items():
        assert reason
        assert set(allowed.split()) == set(uses(TOOLS / module))
