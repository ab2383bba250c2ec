"""Commands that show the values of variables beside their names, by which secrets among them are hidden. Pure.

What they print may only be passed on in whole lines: a value without its name is not recognized.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

__all__ = ["keeps_lines", "shows_values"]

_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_PASSING = frozenset({"xargs", "timeout", "nice", "true"})
"""What they run is looked at beside them."""
_FILTERS = frozenset({"grep", "egrep", "fgrep", "sort", "uniq", "head", "tail", "less", "more", "cat", "wc"})
_CUTS = re.compile(r"-[A-Za-z]*[oczb][A-Za-z0-9]*|--(?:only-matching|colou?r|bytes|null|zero).*")
"""Options with which a filter prints less than a line, or something within one."""
_PATH_OF_JSON = re.compile(r"[.\w\[\]]+")


def shows_values(argv: Sequence[str]) -> bool:
    """Whether a simple command prints all variables: of its environment, or of a container."""
    name = posixpath.basename(argv[0]) if argv else ""
    if name in _ENGINES:
        formats = any(word.startswith(("-f", "--format")) for word in argv)
        return "inspect" in argv[1:3] and not formats
    return name in ("env", "printenv") and all(word.startswith("-") or "=" in word for word in argv[1:])


def keeps_lines(argv: Sequence[str]) -> bool:
    """Whether what a simple command passes on are whole lines."""
    if not argv or shows_values(argv):
        return True
    name = posixpath.basename(argv[0])
    if name == "jq":
        return len(argv) == 2 and _PATH_OF_JSON.fullmatch(argv[1]) is not None
    if name == "echo":
        return not any(re.search(r"[$`]", word) for word in argv)
    if name in _PASSING or (name in _ENGINES and "ps" in argv[1:2]):
        return True
    counts = name in ("grep", "egrep", "fgrep", "uniq", "wc")
    cuts = [word for word in argv[1:] if _CUTS.fullmatch(word) and not (counts and word in ("-c", "-ic", "-ci"))]
    return name in _FILTERS and not cuts
