"""The README says what the generated media say, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]


def test_the_transcript_is_the_one_that_was_recorded() -> None:
    block = re.search(r"<!-- transcript: .*?-->\n```console\n(.*?)```\n<!-- end", README, re.DOTALL)
    assert block is not None
    assert block[1] == (ROOT / "docs" / "media" / "transcript.txt").read_text()


def test_links_to_files_lead_to_files() -> None:
    broken = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if not link.startswith("https://") and not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_library_takes_ten_lines() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    compile(program, "README.md", "exec")
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
