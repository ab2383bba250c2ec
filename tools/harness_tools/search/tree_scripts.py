"""Shell scripts that search below a directory of the target. Pure."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from harness.patterns.ignore_rules import IGNORE_LIMIT, NUL
from harness.patterns.wildcards import rough_name

__all__ = [
    "EXCLUDED",
    "MAX_DIRECTORIES",
    "MAX_EXPRESSION_BYTES",
    "MIN_DIRECTORIES",
    "NO_ENGINE",
    "TreeQuery",
    "descend",
    "enter",
    "find_expression",
    "find_words",
    "framed_errors",
    "ignore_above",
    "needs",
    "parallel_find",
]


# -- One walk of ``find`` as two parallel ones, each over every other directory. Shell text, pure.
#
# If the names are cached, a walk is limited by the target's processor, not its disk: two take half the time. The
# output of the second waits in a pipe until the first is complete, so no frames are mixed.


MIN_DIRECTORIES = 8
"""With fewer directories below the top, their subdirectories are divided, because one may contain nearly all."""
MAX_EXPRESSION_BYTES = 96 << 10
"""Maximum bytes of an expression that is divided: a variable is limited to 128 KiB. Longer ones use one ``find``."""
MAX_DIRECTORIES = 1_000
"""Maximum directories that are divided; more use one ``find``, because a shell is slow at lists."""

_SPLIT_SCRIPT = f"""\
walk() {{ eval "$walk"; }}
if [ $# -lt {MIN_DIRECTORIES} ] && [ "$below" = "$base/*" ]; then
  below="$base/*/*"; export below
  walk "$@" -maxdepth 1 -type d -path "$below" -exec sh -c 'eval "$deal"' sh {{}} + -o
  exit
fi
one= two= n=$#
if [ $n -gt {MAX_DIRECTORIES} ]; then n=0; fi
while [ $n -gt 0 ]; do
  one="$one \\"\\${{$n}}\\""; n=$((n - 1))
  if [ $n -gt 0 ]; then two="$two \\"\\${{$n}}\\""; n=$((n - 1)); fi
done
if [ -z "$two" ]; then walk "$@"; else eval "walk $two" | {{ eval "walk $one"; cat; }}; fi"""


def parallel_find(expression: str, origin: str = ".") -> str:
    """Return ``find ORIGIN EXPRESSION`` for a ``find`` that has ``-maxdepth``; its output is in another order.

    ``origin`` is a shell word without characters that ``-path`` interprets. The expression must test a start directory
    as it does below ``origin``: by its name or its path, not by its depth.
    """
    if len(expression.encode("utf-8", "surrogateescape")) > MAX_EXPRESSION_BYTES:
        return f"find {origin} {expression}"
    walk = f'find "$@" {expression}'
    return f"""\
walk={shlex.quote(walk)} deal={shlex.quote(_SPLIT_SCRIPT)} base={origin}; below="$base/*"; export walk deal below base
  set -- "$base" -maxdepth 1 -type d -path "$below" -exec sh -c 'eval "$deal"' sh {{}} + -o
  eval "$walk\""""


# -- Shell scripts that search below a directory of the target. Pure.
#
# The output consists of frames: a letter, a text, NUL. Texts contain no NUL: names cannot, and it is removed from
# contents. ``S`` is an excluded directory, ``I`` an ignore file, with a frame of its content, ``P`` the same above
# the top, ``N`` a repository below it, ``R`` the real directory, ``X`` a refusal, ``E`` the number of unreadable
# entries; a frame that starts with a dot is a path.


EXCLUDED = (".git", "node_modules", "vendor", ".venv", "__pycache__", "dist", "target")
"""Directories that searches exclude by default."""
KERNEL = ("proc", "sys")
"""Also excluded below ``/``: files of the kernel, some of which are endless."""


def _told(letter: str, name: str, file: str) -> str:
    """Return a script that prints an ignore file in two frames; nothing if it cannot be read."""
    text = f"head -c {IGNORE_LIMIT} <{file} | tr '\\000' '\\{ord(NUL):03o}'"
    return f"printf '{letter}%s\\0' {name}; {text}; printf '\\0'"


_F = '"$f"'
_EMIT = f"for f do case $f in */.git) printf 'N%s\\0' \"$f\" ;; *) {_told('I', _F, _F)} ;; esac; done"
NO_ENGINE = b"Xengine\0"
"""The output of a script that cannot search on the target."""
_KNOWN = ". -maxdepth 1 -prune -name . -path . -type d -exec true {} + -print0"
_SKIPPED = "for f do printf 'S%s\\0' \"$f\"; done"


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """What to list of a tree.

    ``rough_names``: patterns, one of which the last name must match; empty means any. ``start``: nested directory names
    that contain everything requested.
    """

    directory: str
    hidden: bool = False
    excludes: bool = True
    rough_names: tuple[str, ...] = ()
    depth: int | None = None
    start: tuple[str, ...] = ()

    def starting(self, names: Sequence[str]) -> TreeQuery:
        """Return the query limited to the directory of these names, up to the first excluded one."""
        seen = takewhile(lambda name: self.hidden or not name.startswith("."), names)
        return replace(self, start=tuple(takewhile(lambda name: not self.excludes or name not in EXCLUDED, seen)))

    @property
    def below(self) -> int | None:
        """Maximum number of names of a path below the start directory; None is any number."""
        return None if self.depth is None else self.depth - len(self.start)

    @property
    def kernel(self) -> tuple[str, ...]:
        """Directories below ``/`` that are excluded unless they are requested."""
        return KERNEL if self.excludes and not self.start and not posixpath.normpath(self.directory).strip("/") else ()

    @property
    def left_out(self) -> str:
        """The ``find`` expression for excluded directories."""
        names = [f"-name {shlex.quote(name)}" for name in EXCLUDED]
        return " -o ".join([*names, *(f"-path ./{name}" for name in self.kernel)])

    @property
    def origin(self) -> str:
        """Where ``find`` starts, as a shell word."""
        return '"$from"' if self.start else "."


def needs(*programs: str) -> str:
    """Return a script that refuses if a program is missing: ``PATH`` may differ from the one that was checked."""
    return (
        f"for n in {' '.join(programs)}; do command -v $n >/dev/null 2>&1 || {{ printf 'Xengine\\0'; exit 0; }}; done\n"
    )


def enter(query: TreeQuery) -> str:
    """Return a script that enters the directory or prints a refusal; a single file is stored in ``only``."""
    path = shlex.quote(query.directory)
    return f"""\
LC_ALL=C; export LC_ALL; unset GREP_OPTIONS GREP_COLORS GREP_COLOR RIPGREP_CONFIG_PATH POSIXLY_CORRECT CDPATH
only= nowhere= top={path}
if [ ! -e "$top" ] && [ ! -h "$top" ]; then
  parent=${{top%/*}}; if [ -x "${{parent:-/}}" ] || [ ! -d "${{parent:-/}}" ]; then printf 'Xmissing\\0'
  else printf 'Xdenied\\0'; fi; exit 0; fi
if [ ! -d "$top" ]; then
  links=0
  while [ -h "$top" ] && [ $links -lt 40 ]; do link=$(readlink "$top") || break
    case $link in /*) top=$link ;; *) top=${{top%/*}}/$link ;; esac; links=$((links + 1)); done
  only=./${{top##*/}}; top=${{top%/*}}; top=${{top:-/}}
  if [ ! -f "$top/$only" ]; then printf 'Xspecial\\0'; exit 0; fi
  if [ ! -r "$top/$only" ]; then printf 'Xdenied\\0'; exit 0; fi
fi
cd -P "$top" 2>/dev/null || {{ printf 'Xdenied\\0'; exit 0; }}
if [ ! -r . ] && [ -z "$only" ]; then printf 'Xdenied\\0'; exit 0; fi
printf 'R%s\\0' "$PWD"
"""


def ignore_above() -> str:
    """Return a script that finds the enclosing repository, as ``repo``, and prints the ignore files above."""
    return f"""\
d=$PWD repo=
while [ -n "$d" ] && [ ! -e "$d/.git" ]; do d=${{d%/*}}; done
if [ -e "$d/.git" ]; then repo=1; p=$PWD
  while [ "$p" != "$d" ] && [ -n "$p" ]; do p=${{p%/*}}; f=$p/.gitignore
    if [ -f "$f" ] && [ ! -h "$f" ]; then {_told("P", '"$p"', _F)}; fi; done
fi
"""


def descend(query: TreeQuery) -> str:
    """Return a script that finds the start directory, as ``from``, and prints the ignore files on the way.

    ``nowhere`` is set if it does not exist. An unreadable directory on the way becomes the start, which reports it.
    """
    if not query.start:
        return ""
    rules = f"""\
  if [ "$from" != . ] && [ -e "$from/.git" ]; then printf 'N%s\\0' "$from/.git"; fi
  f=$from/.gitignore; if [ -f "$f" ] && [ ! -h "$f" ]; then {_told("I", _F, _F)}; fi
"""
    return f"""\
from=. nowhere=
for n in {shlex.join(query.start)}; do if [ -n "$only" ] || [ ! -r "$from" ] || [ ! -x "$from" ]; then break; fi
{rules if query.excludes else ""}\
  if [ -h "$from/$n" ] || [ ! -d "$from/$n" ]; then nowhere=1; break; fi
  from=$from/$n
done
"""


def find_words(query: TreeQuery, actions: Sequence[tuple[str, str]], *, first: str = "", frames_to: int = 1) -> str:
    """Return a ``find`` command with its expression, as in ``find_expression``."""
    depth = "" if query.below is None else f"-maxdepth {query.below} "
    return f"find {query.origin} {depth}{find_expression(query, actions, first=first, frames_to=frames_to)}"


def find_expression(
    query: TreeQuery, actions: Sequence[tuple[str, str]], *, first: str = "", frames_to: int = 1
) -> str:
    """Return the expression of ``find``; ``actions`` are expressions of types, and the action for what they match.

    ``first`` is an expression that precedes them. No ``-exec ... +`` is in parentheses, because the ``find`` of busybox
    would ignore it.
    """
    matching = _matching(query, actions, first=first)
    words = []
    if query.excludes and "-exec" not in matching:
        words.append(f"{_ordinary(query, actions, first=first)} -o ")
    if query.excludes:
        emit, skipped = (f"-exec sh -c {shlex.quote(_redirected(text, frames_to))} sh {{}} +" for text in TOLD)
        words.append(f"-name .gitignore -type f {emit} ! -name '*' -o ")
        words.append(f"-name .git ! -path ./.git {emit} ! -name '*' -o ")
        words.append(f"-type d \\( {query.left_out} \\) ! -name . -prune {skipped} -o ")
    if not query.hidden:
        words.append("-name '.?*' -prune -o ")
    return "".join([*words, matching])


def _ordinary(query: TreeQuery, actions: Sequence[tuple[str, str]], *, first: str) -> str:
    """Decide about most names with the fewest tests: those that are neither directories nor ignore files."""
    if not query.hidden and not _named(query):
        return f"! -type d ! -path '*/.*' \\( {_matching(query, actions, first=first)} -o ! -type d \\)"
    visible = "" if query.hidden else "! -path '*/.*' "
    return f"! -type d ! -path '*.git*' \\( {_matching(query, actions, first=first, also=visible)} -o ! -type d \\)"


def _matching(query: TreeQuery, actions: Sequence[tuple[str, str]], *, first: str, also: str = "") -> str:
    return first + " -o ".join(f"{_named(query)}{also}{kinds} {action}" for kinds, action in actions)


def _named(query: TreeQuery) -> str:
    if not query.rough_names or "*" in query.rough_names:
        return ""
    names = " -o ".join(_name_test(rough_name(name)) for name in query.rough_names)
    return f"{names} " if len(query.rough_names) == 1 else f"\\( {names} \\) "


def _name_test(name: str) -> str:
    """Return ``-path`` if it is equivalent to ``-name``, which copies each name and takes a fifth more time."""
    start, star, rest = name.rpartition("*")
    return f"-name {shlex.quote(name)}" if start else f"-path {shlex.quote(f'*{rest}' if star else f'*/{rest}')}"


TOLD = (_EMIT, _SKIPPED)


def _redirected(script: str, number: int) -> str:
    return script if number == 1 else f"{{ {script}; }} >&{number}"


def framed_errors(body: str) -> str:
    """Return the body, with a count of its errors about unreadable entries.

    After errors, it tests whether ``find`` supports the expressions: it may have rejected them all.
    """
    return (
        "exec 3>&1\n"
        f"errors=$( {{ {body}\n}} 2>&1 >&3 3>&- | grep -vc -e 'No such file' -e 'rminated by signal' )\n"
        f"[ \"${{errors:-1}}\" = 0 ] || find {_KNOWN} >/dev/null 2>&1 || printf '\\0Xengine\\0'\n"
        "printf '\\0E%s\\0' \"$errors\"\n"
    )
