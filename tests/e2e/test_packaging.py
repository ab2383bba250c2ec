"""The distribution as a user gets it: sdist, then wheel, in a clean environment, outside the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"harness": "harness", "backends": "harness_backends", "tools": "harness_tools"}
PACKAGES = set(SOURCES.values())
OUTSIDE = re.compile(r"\.(dist-info|data)/")


@dataclass(frozen=True)
class Installed:
    """A clean environment that has the wheel and what it requires, and nothing else."""

    home: Path
    sdist: Path
    wheel: Path

    def python(self, *arguments: str) -> str:
        return self._run("python", *arguments)

    def harness(self, *arguments: str) -> str:
        return self._run("harness", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self.home / "bin" / program), *arguments]
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, timeout=60, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout


def requirements(name: str, seen: set[str]) -> Iterator[Distribution]:
    """What a distribution requires without extras, and what that requires, as installed where the tests run."""
    for line in distribution(name).requires or []:
        required = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        if "extra ==" in line or required in seen:
            continue
        seen.add(required)
        try:
            found = distribution(required)
        except ModuleNotFoundError:
            continue  # for another platform or Python; `pip check` has the last word
        yield found
        yield from requirements(required, seen)


def copy(source: Distribution, site: Path) -> None:
    """Install a copy of a distribution, so that the test needs no package index."""
    for file in source.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            destination = site / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.write_bytes(Path(str(file.locate())).read_bytes())


@pytest.fixture(scope="module")
def installed(needs_process: None, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("packaging")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=60)
    sdist, wheel = next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))
    home = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True, timeout=60)
    (site,) = home.glob("lib/python*/site-packages")
    for required in requirements("harness-ops", set()):
        copy(required, site)
    pip = [str(home / "bin" / "python"), "-m", "pip"]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=60)
    return Installed(home, sdist, wheel)


@pytest.mark.usefixtures("needs_process")
def test_the_declared_requirements_are_enough(installed: Installed) -> None:
    assert "No broken requirements" in installed.python("-m", "pip", "check")


def test_the_wheel_installs_three_packages_and_nothing_else(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    top = {name.split("/")[0] for name in names if not OUTSIDE.search(name)}
    assert top == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_file_of_the_packages(installed: Installed) -> None:
    roots = [(ROOT / top, ROOT / top / package) for top, package in SOURCES.items()]
    sources = {
        str(path.relative_to(top))
        for top, package in roots
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert sources == {name for name in wheel.namelist() if not OUTSIDE.search(name)}


def test_the_sdist_has_what_a_packager_needs(installed: Installed) -> None:
    with tarfile.open(installed.sdist) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "scripts/test"} <= names
    assert not {name for name in names if name.startswith((".venv", "site/", "dist/"))}


def test_the_wheel_installs_the_manual_pages(installed: Installed) -> None:
    made = {path.name: path.read_bytes() for path in (ROOT / "docs/man").iterdir()}
    pages = {path.name: path.read_bytes() for path in (installed.home / "share/man/man1").iterdir()}
    assert pages == made
    assert "harness.1" in pages


@pytest.mark.usefixtures("needs_process")
def test_the_packages_import_from_outside_the_checkout(installed: Installed) -> None:
    program = "import harness, harness_backends, harness_tools; print(harness.__file__, harness.__version__)"
    place, version = installed.python("-c", program).split()
    assert Path(place).is_relative_to(installed.home)
    assert f"-{version}-" in installed.wheel.name


@pytest.mark.usefixtures("needs_process")
def test_every_entry_point_names_something_that_exists(installed: Installed) -> None:
    program = """
from importlib.metadata import distribution
from importlib.util import find_spec
for point in distribution("harness-ops").entry_points:
    needs_extra = point.group in ("inspect_ai", "pytest11")  # a module, which another project imports
    print(point.group, point.name, bool(find_spec(point.module)) if needs_extra else callable(point.load()))
"""
    lines = installed.python("-c", program).splitlines()
    assert "console_scripts harness True" in lines
    assert {"harness.backends local True", "harness.backends ssh True"} <= set(lines)
    assert all(line.endswith(" True") for line in lines)


@pytest.mark.usefixtures("needs_process")
def test_the_program_starts_without_any_extra(installed: Installed) -> None:
    assert "Usage: harness" in installed.harness("--help")
    assert installed.harness("run", "--", "echo it works").strip() == "it works"
