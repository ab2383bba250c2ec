"""The release: equal bytes whatever the directory, the time and the umask; installed by uv and pipx; its materials."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT_TIME = "1700000000"


def build(source: Path, out: Path, **environ: str) -> dict[str, str]:
    """Build an sdist, and a wheel from it; the hash of each."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120, env={**os.environ, **environ})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


@dataclass(frozen=True)
class Built:
    folder: Path
    hashes: dict[str, str]

    @property
    def wheel(self) -> Path:
        return next(self.folder.glob("*.whl"))

    @property
    def sdist(self) -> Path:
        return next(self.folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(needs_process: None, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    return Built(folder, build(ROOT, folder, SOURCE_DATE_EPOCH=COMMIT_TIME))


@pytest.mark.usefixtures("needs_process")
def test_two_builds_are_equal_byte_by_byte(built: Built, tmp_path: Path) -> None:
    deep = tmp_path / "another place/with a deep path"
    deep.mkdir(parents=True)
    with tarfile.open(built.sdist) as archive:
        archive.extractall(deep, filter="data")
    (source,) = deep.iterdir()
    for path in source.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    before = os.umask(0o077)
    try:
        again = build(source, tmp_path / "out", SOURCE_DATE_EPOCH=COMMIT_TIME, TZ="Asia/Tokyo", LC_ALL="C")
    finally:
        os.umask(before)
    assert again == built.hashes
    assert len(again) == 2
    other = build(source, tmp_path / "later", SOURCE_DATE_EPOCH="1700000002")
    assert other.keys() == again.keys()
    assert set(other.values()).isdisjoint(again.values()), "the time of the commit must be in both archives"


@pytest.mark.usefixtures("needs_release")
def test_uv_build_makes_the_same_files(built: Built, needs_release: Path, tmp_path: Path) -> None:
    tools = {"PATH": f"{needs_release}:{os.environ['PATH']}", "SOURCE_DATE_EPOCH": COMMIT_TIME}
    command = ["uv", "build", "--no-build-isolation", "--offline", "--python", sys.executable, "-o", str(tmp_path)]
    done = subprocess.run(
        [*command, str(ROOT)], capture_output=True, text=True, timeout=120, env={**os.environ, **tools}
    )
    assert done.returncode == 0, done.stderr
    made = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("harness*")}
    assert made == built.hashes


@pytest.fixture(scope="module")
def wheels(needs_release: Path, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel requires, and pip itself for pipx, from the package index that pip uses here."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), f"{built.wheel}[rich]", "pip"]
    subprocess.run(pip, check=True, capture_output=True, timeout=300)
    return folder


def check_installed(program: Path, home: Path) -> str:
    """Check that the installed program runs; the command by which it gets the extra ``rich``."""

    def harness(*words: str) -> str:
        environ = {"HOME": str(home), "PATH": f"{program.parent}:/usr/bin:/bin"}
        done = subprocess.run([program, *words], cwd=home, env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert harness("run", "--", "echo it works") == "it works\n"
    about = json.loads(harness("--version", "--json"))
    assert not any(about["extras"].values())
    assert Path(about["executable"]).is_relative_to(home)
    findings = json.loads(harness("--json", "doctor"))["installation"]
    levels = {finding["check"]: finding for finding in findings}
    assert levels["manual"]["message"].startswith("man "), levels["manual"]
    assert levels["harness"]["level"] == "ok", levels["harness"]
    (fix,) = [finding["fix"] for finding in findings if "not installed: rich" in finding["message"]]
    return str(fix)


def has_rich(program: Path, home: Path) -> bool:
    done = subprocess.run([program, "--version", "--json"], env={"HOME": str(home)}, capture_output=True, timeout=60)
    return bool(json.loads(done.stdout)["extras"]["rich"])


def test_uv_installs_it_as_a_tool(built: Built, wheels: Path, needs_release: Path, tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{needs_release}:/usr/bin:/bin",
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }
    find = ["--offline", "--no-index", "--find-links", str(wheels), "--python", sys.executable]
    command = ["uv", "tool", "install", *find, str(built.wheel)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    fix = check_installed(tmp_path / "bin/harness", tmp_path)
    offline = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    subprocess.run(["sh", "-c", fix], env=environ | offline, check=True, capture_output=True, timeout=120)
    assert has_rich(tmp_path / "bin/harness", tmp_path)


def test_pipx_installs_it_with_its_manual(built: Built, wheels: Path, needs_release: Path, tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{needs_release}:/usr/bin:/bin",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
    }
    command = ["pipx", "install", "--backend", "pip", "--python", sys.executable, str(built.wheel)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    fix = check_installed(tmp_path / "bin/harness", tmp_path)
    assert (tmp_path / "man/man1/harness.1").exists()
    subprocess.run(["sh", "-c", fix], env=environ, check=True, capture_output=True, timeout=120)
    assert has_rich(tmp_path / "bin/harness", tmp_path)


def test_the_bill_of_materials_lists_what_is_installed(
    built: Built, wheels: Path, needs_release: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, timeout=60)
    python = tmp_path / "env/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheels, built.wheel]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    texts = []
    for name in ("one.json", "two.json"):
        command = [needs_release / "cyclonedx-py", "environment", "--output-reproducible", "--pyproject"]
        command += [ROOT / "pyproject.toml", "--output-file", tmp_path / name, python]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "harness-ops"
    names = {component["name"]: component for component in document["components"]}
    assert {"anyio", "click", "pexpect", "pydantic"} <= set(names)
    assert names["click"]["licenses"]
