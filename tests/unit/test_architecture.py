"""The layers of the design, as rules about imports: no arrow points up, and nothing heavy is loaded unasked."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "harness": ROOT / "harness/harness",
    "harness_backends": ROOT / "backends/harness_backends",
    "harness_tools": ROOT / "tools/harness_tools",
}
MAY_IMPORT = {"harness": {"harness"}, "harness_backends": {"harness"}, "harness_tools": {"harness"}}

# Who may import a heavy library at the top of a module; such modules are themselves imported where they are used.
OWNERS = {
    "asyncssh": ("backends/harness_backends/ssh/asyncssh_", "harness/harness/testing/_sshd.py"),
    "pexpect": ("backends/harness_backends/ssh/login.py",),
    "docker": ("backends/harness_backends/container/docker_",),
    "distributed": ("harness/harness/fleets/dask_",),
    "libtmux": ("backends/harness_backends/tmux/",),
    "click": ("harness/harness/cli/",),
    "rich": ("harness/harness/cli/",),
    "textual": ("harness/harness/cli/top/",),
    "prompt_toolkit": ("harness/harness/cli/prompt/",),
    "pydantic_ai": (
        "harness/harness/agent/messages/",
        "harness/harness/agent/models/provider_clients.py",
        "harness/harness/agent/models/request.py",
        "harness/harness/agent/models/scripted.py",
        "harness/harness/agent/pydantic_ai_toolset.py",
        "harness/harness/agent/sub_agents.py",
        "harness/harness/agent/turn.py",
        "harness/harness/agent/trace/models.py",
    ),
    "pydantic": (
        "harness/harness/settings",
        "harness/harness/toolkit/",
        "tools/harness_tools/",
        "harness/harness/mcp/",
        "harness/harness/acp/",
        "harness/harness/agent/",
        "harness/harness/notifications/settings_table.py",
        "harness/harness/inspect_sandbox/",
    ),
    "inspect_ai": ("harness/harness/inspect_sandbox/",),
    "opentelemetry": ("harness/harness/agent/trace/open_telemetry.py",),
    "acp": ("harness/harness/acp/",),
    "mcp": ("harness/harness/mcp/",),
    "mcp_types": ("harness/harness/mcp/",),
    "starlette": ("harness/harness/web/",),
    "uvicorn": ("harness/harness/system/http_server.py",),
}
HEAVY = (
    *("pydantic", "asyncssh", "pexpect", "click", "rich", "prompt_toolkit", "pydantic_ai"),
    *("harness_backends", "harness_tools", "mcp", "acp", "opentelemetry", "inspect_ai"),
)

# The core's layers, lowest first; a module may import from its own layer and from those below.
LAYERS = (
    (
        *("errors", "results", "command", "config", "target", "login", "withheld_environment", "pane_events"),
        *("wording", "extras", "deprecated_names", "lazy_names", "system", "patterns"),
    ),
    ("transport", "terminal", "settings_schema", "settings"),
    ("backend",),
    ("discovery", "keyed_commands"),
    ("context", "forwards"),
    ("fleets", "copying"),
    ("toolkit",),
    ("recordings",),
    ("operate", "mcp", "agent", "testing", "inspect_sandbox", "live", "notifications"),
    ("web", "acp"),
    ("cli",),
)


@dataclass(frozen=True)
class Import:
    """One import statement: the file, the module it names, how many dots, and whether it runs at import time."""

    path: str
    module: str
    level: int
    top: bool

    @property
    def root(self) -> str:
        return self.module.partition(".")[0]


@cache
def imports_of(package: str) -> tuple[Import, ...]:
    return tuple(_imports(package))


def _imports(package: str) -> Iterator[Import]:
    for path in sorted(PACKAGES[package].rglob("*.py")):
        tree = ast.parse(path.read_text())
        top = set(map(id, _executed(tree)))
        for node in ast.walk(tree):
            relative = str(path.relative_to(ROOT))
            if isinstance(node, ast.Import):
                yield from (Import(relative, alias.name, 0, id(node) in top) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is None:
                yield from (Import(relative, alias.name, node.level, id(node) in top) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield Import(relative, node.module or "", node.level, id(node) in top)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when the module is imported, without those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _executed(node)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_is_below_them(package: str) -> None:
    others = set(PACKAGES) - MAY_IMPORT[package] - {package}
    assert [item for item in imports_of(package) if item.level == 0 and item.root in others] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_inside_a_package_are_relative(package: str) -> None:
    assert [item for item in imports_of(package) if item.level == 0 and item.root == package] == []


@pytest.mark.parametrize("library", OWNERS)
def test_heavy_libraries_are_imported_at_the_top_by_their_owners_only(library: str) -> None:
    found = [item for package in PACKAGES for item in imports_of(package) if item.level == 0 and item.root == library]
    assert [item for item in found if item.top and not item.path.startswith(OWNERS[library])] == []


ASYNCIO = (
    "backends/harness_backends/ssh/asyncssh_",  # asyncssh is made for asyncio
    "harness/harness/inspect_sandbox/connections.py",  # a task outside every task group: see there
)


def test_raw_asyncio_is_used_where_nothing_else_will_do() -> None:
    found = [item for package in PACKAGES for item in imports_of(package) if item.root == "asyncio" and item.level == 0]
    assert [item for item in found if not item.path.startswith(ASYNCIO)] == []


def test_no_arrow_points_up_inside_the_core() -> None:
    rank = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = []
    for item in imports_of("harness"):
        place = Path(item.path).relative_to("harness/harness").with_suffix("").parts
        if item.level != len(place) or place == ("__init__",):
            continue  # an import inside one folder, or of the package itself
        if rank[item.root] > rank[place[0]]:
            wrong.append(item)
    assert wrong == []


def _imported(path: Path, name: str, known: dict[str, Path]) -> set[str]:
    """Return the modules of this project that a module imports: on loading, in functions, for types, or by name."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{stem}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in {
            getattr(part, "id", "") for part in [node.func, *node.args]
        }:
            texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            names = [f"{package}{text}" if text.startswith(".") else text for text in texts]
        else:
            continue
        found |= {module for module in (_module_of(item, known) for item in names) if module is not None}
    return found - {name}


def _module_of(name: str, known: dict[str, Path]) -> str | None:
    """Return the module that an imported name is, or that defines it."""
    stem = name.rpartition(".")[0]
    return name if name in known else stem if stem in known else None


@cache
def _graph() -> dict[str, set[str]]:
    known = {
        ".".join([package, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__"): path
        for package, root in PACKAGES.items()
        for path in root.rglob("*.py")
    }
    return {name: _imported(path, name, known) for name, path in known.items()}


def test_no_import_closes_a_circle_not_even_inside_functions_or_for_types() -> None:
    """Each module can be read, moved and loaded with only those below it; a circle hides who builds what."""
    assert sum(map(len, _graph().values())) > 1_000
    try:
        TopologicalSorter(_graph()).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' imports '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize(("package", "below"), [("posix", set()), ("tmux", {"posix"})])
def test_a_part_of_a_backend_is_given_what_is_not_below_it(package: str, below: set[str]) -> None:
    """Which components a target is built from, only ``composition`` knows."""
    start = f"harness_backends.{package}"
    used = {item for name, found in _graph().items() if name.startswith(start) for item in found}
    parts = {item.split(".")[1] for item in used if item.startswith("harness_backends.")}
    assert parts - {package} == below


PANE_STATE = {
    *("phase", "running", "last_ended", "shells", "jobs", "gone", "in_doubt", "paused", "missed"),
    *("log_number", "log_offset", "prompt_time", "operator_command_count"),
}
LIST_CHANGES = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"}


def _changed_from_outside(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that change an attribute of a pane's state, unless it is one of ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LIST_CHANGES:
            changed: list[ast.AST] = [node.func.value]  # type: ignore[attr-defined]  # a call of a method
        else:
            targets = [part for part in ast.walk(node) if isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)]
            changed = targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) else []
        for part in changed:
            place = part.value if isinstance(part, ast.Subscript) else part
            if isinstance(place, ast.Attribute) and place.attr in PANE_STATE and ast.unparse(place.value) != "self":
                yield place.lineno, ast.unparse(place)


def test_the_state_of_a_pane_is_changed_by_its_own_class_only() -> None:
    """What was learned of a pane is reported to it; what that means for its shells and jobs is decided in one place."""
    folder = PACKAGES["harness_backends"] / "tmux"
    found = {path.name: list(_changed_from_outside(ast.parse(path.read_text()))) for path in folder.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}
    written = "pane.phase, x = 1, 2\npane.jobs.remove(job)\ndel pane.shells[1:]\npane.in_doubt |= y\nself.jobs = []"
    assert sorted(line for line, _ in _changed_from_outside(ast.parse(written))) == [1, 2, 3, 4]


def test_every_module_of_the_core_has_a_layer() -> None:
    known = {name for names in LAYERS for name in names} | {"__init__", "__main__", "py"}
    assert {path.stem for path in PACKAGES["harness"].iterdir() if path.suffix == ".py"} <= known
    assert {path.name for path in PACKAGES["harness"].iterdir() if path.is_dir() and path.name[0] != "_"} <= known


@pytest.mark.usefixtures("needs_process")
def test_importing_harness_loads_nothing_heavy() -> None:
    script = "import sys, harness; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} & set(HEAVY) == set()


SLOW_AND_SELDOM_USED = {
    *HEAVY[:3], "pydantic_core", "rich", "importlib.metadata", "email",
    "json", "difflib", "secrets", "random", "tempfile",
    "harness_backends.tmux", "harness_backends.container",
    "harness_backends.posix.files.files", "harness_backends.ssh.login",
}  # fmt: skip


@pytest.mark.usefixtures("needs_process")
def test_running_a_command_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    script = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
import harness_backends.ssh.control_master, harness_backends.ssh.openssh, harness.cli.main
harness.cli.main.main(["run", "--", "true"])
"""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    environment |= {"HARNESS_SESSION": "work", "HARNESS_TIMEOUT": "5m"}  # settings are checked
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "harness_backends.posix.jobs.shell_jobs" in loaded
    assert loaded & SLOW_AND_SELDOM_USED == set()


@pytest.mark.usefixtures("needs_process")
def test_importing_the_testing_package_and_fleets_loads_no_extras() -> None:
    script = (
        "import sys, harness.testing.contract, harness.testing.ssh_server, harness.testing.memory, harness.fleets; "
    )
    done = subprocess.run(
        [sys.executable, "-c", script + "print(' '.join(sys.modules))"], capture_output=True, text=True, check=True
    )
    assert "harness.fleets.dask_executor" not in done.stdout.split()
    assert {name.partition(".")[0] for name in done.stdout.split()} & {
        "asyncssh",
        "pytest",
        "harness_backends",
    } == set()


def test_every_module_of_the_architecture_page_is_there() -> None:
    files = [str(path.relative_to(ROOT)) for root in PACKAGES.values() for path in root.rglob("*.*")]
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/*]+\.py)`", page) + re.findall(r"`([\w/]+/)`", page)
    assert len(named) > 80
    missing = [name for name in named if not any(_is_at(path, name) for path in files)]
    assert missing == ["tests/unit/test_architecture.py"]


def _is_at(path: str, name: str) -> bool:
    return f"/{name}" in f"/{path}" if name.endswith("/") else fnmatchcase(f"/{path}", f"*/{name}")
