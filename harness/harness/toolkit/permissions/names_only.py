"""Programs that show names, sizes, dates and rights of files, or certificates, and nothing else of their content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .shelltypes import Word

__all__ = ["shows_names_only", "takes_rights_away"]

_FEWER_RIGHTS = re.compile(r"0{0,2}[0-7]00|[go]{1,2}(?:-[rwxst]+|=)(?:,[go]{1,2}(?:-[rwxst]+|=))*")
"""Modes that let nobody but the owner in."""
_NAMES_ONLY = frozenset(
    [
        *("ls", "dir", "stat", "du", "df", "tree", "readlink", "realpath", "lsattr", "getfacl", "namei", "cd", "find"),
        *("basename", "dirname"),
    ]
)
_LOOKS = frozenset({"ls", "stat", "echo", "printf", "test", "[", "basename", "dirname", "readlink", "realpath", "du"})
_CERTIFICATES = frozenset({"x509", "crl", "verify", "req"})


def takes_rights_away(name: str, words: Sequence[Word]) -> bool:
    """Whether a command makes files more private, and does nothing else: ``chmod 600 KEY``. Pure."""
    operands = [word.text for word in words if not word.text.startswith("-") or not word.known]
    options = [word.text for word in words if word.known and word.text.startswith("-")]
    return (
        name == "chmod"
        and set(options) <= {"-v", "-c", "-f"}
        and bool(_FEWER_RIGHTS.fullmatch(operands[0] if operands else ""))
    )


def shows_names_only(name: str, words: Sequence[Word]) -> bool:
    """Whether a program that only reads shows nothing of what is in the files that it names. Pure."""
    texts = [word.text for word in words]
    if name == "openssl":  # of a file that holds no certificate it says that it cannot be read
        return bool(texts) and texts[0] in _CERTIFICATES
    runs = {program for option, program in pairwise(texts) if option in ("-exec", "-execdir", "-ok", "-okdir")}
    return name in _NAMES_ONLY and (name != "find" or runs <= _LOOKS)
