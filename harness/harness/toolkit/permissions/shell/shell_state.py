"""Commands that change or show the state of the shell: its home, options and variables. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from itertools import pairwise

from .words import SimpleCommand

__all__ = [
    "keeps_lines",
    "shell_state_reason",
    "shows_values",
]


# -- Commands that show values of variables with their names, by which secrets are redacted. Pure.
#
# Their output may only be passed on in whole lines: a secret without its name is not recognized.


_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_PASSING = frozenset({"xargs", "timeout", "nice", "true"})
"""Programs whose inner commands are checked separately."""
_FILTERS = frozenset({"grep", "egrep", "fgrep", "sort", "uniq", "head", "tail", "less", "more", "cat", "wc"})
_CUTS = re.compile(r"-[A-Za-z]*[oczb][A-Za-z0-9]*|--(?:only-matching|colou?r|bytes|null|zero).*")
"""Options with which a filter prints parts of lines or changes them."""
_PATH_OF_JSON = re.compile(r"[.\w\[\]]+")


def shows_values(argv: Sequence[str]) -> bool:
    """Return whether a simple command prints all variables of its environment or of a container."""
    name = posixpath.basename(argv[0]) if argv else ""
    if name in _ENGINES:
        formats = any(word.startswith(("-f", "--format")) for word in argv)
        return "inspect" in argv[1:3] and not formats
    return name in ("env", "printenv") and all(word.startswith("-") or "=" in word for word in argv[1:])


def keeps_lines(argv: Sequence[str]) -> bool:
    """Return whether a simple command passes on whole lines only."""
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


# -- Commands that change what later words mean in the same shell: its home, or the names that a pattern matches.
#
# A pane keeps its shell. Words of later commands are resolved with the home of the account, and patterns as in
# ``sh``: after ``HOME=/etc``, ``cat ~/shadow`` would read another file than the one that was checked.


_NAMES = "HOME|CDPATH|OLDPWD|GLOBIGNORE"
_SETS = re.compile(rf"(?:{_NAMES})(?:\+?=|\[|$)")
"""A word that sets one of them, or names it for a builtin that does."""
_EXPANDS = re.compile(rf"\$\{{(?:{_NAMES}):?=")
_LOOP = re.compile(rf"(?:for|select)\s+(?:{_NAMES})\b")
_ANY = re.compile(rf"(?<![A-Za-z0-9_])(?:{_NAMES})\+?=")
_LATER = "which the check of file names does not follow"
_PREFIX = re.compile(rf"(?:[A-Za-z_]\w*\+?=\S*\s+)*(?:{_NAMES})\+?=")
_SETTERS = frozenset(
    [
        *("export", "declare", "typeset", "readonly", "local", "unset", "read", "printf", "mapfile", "readarray"),
        *("getopts", "wait", "set", "vared", "time"),
    ]
)
_WRAPPERS = frozenset({"env", "sudo", "doas", "nice", "nohup", "timeout"})
_GLOBS = re.compile(r"(?i)(?:no_?)?(?:\w*glob\w*|case_?match|(?:ksh|sh|bare)_?\w*)")
"""Options of bash, zsh and ksh that affect patterns."""
_SHELLS = frozenset({"bash", "zsh", "ksh", "mksh"})
_ZSH_LETTERS = re.compile(r"[-+]\w*4\w*")
"""``set -4`` is ``setopt globdots``."""


def shell_state_reason(commands: Sequence[SimpleCommand], environment: str = "") -> str:
    """Return why words may resolve to other files than were checked; empty if they do not. Pure.

    Args:
        commands: the simple commands of the text.
        environment: variables set for this command only, as a text.
    """
    uses = any("~" in command.text or (command.argv and command.argv[0] in ("cd", "pushd")) for command in commands)
    if any(map(_sets_variable, commands)) or (uses and any(map(_sets_for_one, commands))):
        return f"it changes where ~ or cd leads or what patterns match, {_LATER}"
    if any(command.argv and _sets_option(command.argv) for command in commands):
        return f"it changes what patterns match, {_LATER}"
    return f"its variables change where ~ or cd leads, {_LATER}" if uses and _ANY.search(environment) else ""


def _sets_variable(command: SimpleCommand) -> bool:
    """Return whether it sets a variable for the shell, and so for later commands."""
    text = command.text.lstrip()
    if _EXPANDS.search(text) or _LOOP.match(text):
        return True
    if not command.argv:
        return bool(_PREFIX.match(text))
    name = command.argv[0].rpartition("/")[2]
    return name in _SETTERS and any(map(_SETS.match, command.argv[1:]))


def _sets_for_one(command: SimpleCommand) -> bool:
    """Return whether it sets a variable for one program or ``cd``."""
    if _PREFIX.match(command.text.lstrip()):
        return True
    wrapped = bool(command.argv) and command.argv[0] in _WRAPPERS
    return wrapped and any(map(_ANY.match, command.argv))


def _sets_option(argv: Sequence[str]) -> bool:
    name, words = argv[0], argv[1:]
    if name == "shopt":
        changes = any(re.fullmatch(r"-[a-z]*[su][a-z]*", word) for word in words)
        return changes and any(map(_GLOBS.fullmatch, words))
    if name in ("setopt", "unsetopt", "emulate"):
        return any(_GLOBS.fullmatch(word) or _ZSH_LETTERS.fullmatch(word) for word in words)
    if name == "set" and any(map(_ZSH_LETTERS.fullmatch, words)):
        return True
    option = name == "set" or name.rpartition("/")[2] in _SHELLS
    pairs = pairwise(words)
    return option and any(re.fullmatch(r"[-+]\w*[oO]", first) and _GLOBS.fullmatch(word) for first, word in pairs)
