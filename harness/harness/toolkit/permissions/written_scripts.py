"""Scripts that a command writes, as far as its text holds them: ``cat > x.sh <<EOF``, ``echo "..." | tee x.py``. Pure.

What is in them is looked at as what is in a program for an interpreter: it may run later, when nobody sees it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .shelltypes import Input, Word

__all__ = ["WRITERS", "written_script"]

WRITERS = frozenset({"cat", "tee", "echo", "printf"})
"""What writes the text that it is given, or reads."""
_SCRIPT = re.compile(
    r"(?:.*/)?(?:[^/]*\.(?:sh|bash|zsh|ksh|fish|py|pl|rb|php|lua|js|mjs|cjs|ts|ps1|mk|awk|tcl|service|timer|cron)"
    r"|(?:GNU)?[Mm]akefile|[Jj]ustfile|package\.json|Dockerfile|crontab|\.?[a-z]*(?:rc|profile|aliases)|envrc|\.envrc"
    r"|(?:.*/)?hooks/[a-z-]+|(?:\.git/|\.)?(?:git)?config)"
)
"""Names of files that run, or that name what runs."""


def written_script(name: str, words: Sequence[Word], given: Input, targets: Sequence[str]) -> str:
    """The text that a command writes into a file that may run; empty when it writes none, or another text.

    Args:
        name: the program, without its directory.
        words: its words; the first is its name.
        given: what it reads.
        targets: the files that its redirections write.
    """
    if name not in WRITERS:
        return ""
    operands = [word.text for word in words[1:] if not word.text.startswith("-")]
    files = [*targets, *(operands if name == "tee" else ())]
    source = words if name in ("echo", "printf") else given.source
    text = given.text or (" ".join(word.text for word in source[1:]) if files else "")
    runs = any(_SCRIPT.fullmatch(file) for file in files) or text.lstrip().startswith("#!")
    return text if files and runs else ""
