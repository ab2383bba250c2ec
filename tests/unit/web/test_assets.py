"""The files of pages: those of xterm.js and asciinema are npm's, unchanged, and nothing is fetched from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.web_dashboard import WEB_ASSETS

from harness.recordings.export import PLAYER

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "harness/harness/web/static"
OF_OTHERS = {STATIC / "vendor": "Permission is hereby granted", PLAYER: "Apache License"}
"""The folders with files of npm packages, and words of their licenses."""


@pytest.mark.parametrize("folder", OF_OTHERS, ids=lambda folder: folder.name)
def test_the_files_of_others_are_those_that_the_script_built(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path for path in folder.iterdir() if path.name != "SHA256SUMS"}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == sums
    assert OF_OTHERS[folder] in files["LICENSE"].read_text()


def test_every_package_from_npm_is_pinned_with_its_hash() -> None:
    wanted = json.loads((ROOT / "scripts/web/package.json").read_text())
    locked = json.loads((ROOT / "scripts/web/package-lock.json").read_text())["packages"]
    names = {**wanted["dependencies"], **wanted["devDependencies"]}
    found = {name.removeprefix("node_modules/"): one for name, one in locked.items() if name}
    assert {name: found[name]["version"] for name in names} == names
    assert all(one["integrity"].startswith("sha512-") for one in found.values())


def test_the_pages_name_no_other_site_and_have_nothing_inline() -> None:
    own = [path for path in STATIC.iterdir() if path.suffix in (".html", ".js", ".css")]
    assert len(own) > 10
    for path in own:
        text = path.read_text()
        assert not re.search(r"https?://", text), path
        assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", page)


def test_every_file_that_a_page_imports_is_there() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (STATIC / name).exists(), (path.name, name)
    for name in re.findall(r'(?:src|href)="([^"#]+)"', (STATIC / "index.html").read_text()):
        assert (STATIC / name).exists(), name


@pytest.mark.usefixtures("needs_node")
def test_the_script_builds_the_same_files_again() -> None:
    if not WEB_ASSETS.exists():
        pytest.skip("needs node: scripts/web-assets has installed nothing")
    done = subprocess.run([ROOT / "scripts/web-assets", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
