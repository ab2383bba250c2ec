"""Shell text that searches below a directory of the target. Pure."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from .ignoring import IGNORE_LIMIT, NUL
from .patterns import rough_name

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


# -- One walk of ``find`` as two that run at the same time, each over every other directory. Shell text, pure.
#
# A walk costs the target's processor, not its disk, when the names are in memory: two take half the time. The
# second half waits in a pipe until the first has been passed on, so no frame is cut by another.


MIN_DIRECTORIES = 8
"""With fewer directories below the top, it is those below them that are dealt out: one may hold nearly all."""
MAX_EXPRESSION_BYTES = 96 << 10
"""Bytes of an expression that is passed on: a variable may not have 128 KiB. One ``find`` takes longer ones."""
MAX_DIRECTORIES = 1_000
"""Directories that are dealt out. Of more, one ``find`` takes them all: a shell is slow at lists."""

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
    """``find ORIGIN EXPRESSION`` for a ``find`` that has ``-maxdepth``: what it prints comes in another order.

    ``origin`` is a word of the shell, without a letter that is more than itself to ``-path``. The expression must hold
    for a directory where the search begins as it does below ``origin``: by its name or its path, not by its depth.
    """
    if len(expression.encode("utf-8", "surrogateescape")) > MAX_EXPRESSION_BYTES:
        return f"find {origin} {expression}"
    walk = f'find "$@" {expression}'
    return f"""\
walk={shlex.quote(walk)} deal={shlex.quote(_SPLIT_SCRIPT)} base={origin}; below="$base/*"; export walk deal below base
  set -- "$base" -maxdepth 1 -type d -path "$below" -exec sh -c 'eval "$deal"' sh {{}} + -o
  eval "$walk\""""


# -- Shell text that searches below a directory of the target. Pure.
#
# Everything that it says comes as frames: a letter, a text, NUL. Texts hold no NUL: names cannot, and it is taken
# out of contents. ``S`` a directory that was left out, ``I`` an ignore file and a frame with its content, ``P`` the
# same above the top, ``N`` a repository below it, ``R`` the real directory, ``X`` a refusal, ``E`` how many places
# could not be looked into; a frame that begins with a dot is a path.


EXCLUDED = (".git", "node_modules", "vendor", ".venv", "__pycache__", "dist", "target")
"""Directories that nobody means to search."""
KERNEL = ("proc", "sys")
"""The same of ``/``: files of the kernel, of which some never end."""


def _told(letter: str, name: str, file: str) -> str:
    """Tell what an ignore file holds, in two frames; nothing when it cannot be read."""
    text = f"head -c {IGNORE_LIMIT} <{file} | tr '\\000' '\\{ord(NUL):03o}'"
    return f"printf '{letter}%s\\0' {name}; {text}; printf '\\0'"


_F = '"$f"'
_EMIT = f"for f do case $f in */.git) printf 'N%s\\0' \"$f\" ;; *) {_told('I', _F, _F)} ;; esac; done"
NO_ENGINE = b"Xengine\0"
"""What a script says that cannot search there."""
_KNOWN = ". -maxdepth 1 -prune -name . -path . -type d -exec true {} + -print0"
_SKIPPED = "for f do printf 'S%s\\0' \"$f\"; done"


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """What of a tree is looked at.

    ``rough_names``: patterns, one of which the last name matches; none means any. ``start``: names of directories, one
    in the other, outside of which nothing is wanted.
    """

    directory: str
    hidden: bool = False
    excludes: bool = True
    rough_names: tuple[str, ...] = ()
    depth: int | None = None
    start: tuple[str, ...] = ()

    def starting(self, names: Sequence[str]) -> TreeQuery:
        """The same for what is below the directory of these names alone, as far as they lead to what is looked at."""
        seen = takewhile(lambda name: self.hidden or not name.startswith("."), names)
        return replace(self, start=tuple(takewhile(lambda name: not self.excludes or name not in EXCLUDED, seen)))

    @property
    def below(self) -> int | None:
        """How many names a path has at most below where the search begins; None is any number."""
        return None if self.depth is None else self.depth - len(self.start)

    @property
    def kernel(self) -> tuple[str, ...]:
        """Directories of the top that are left out for what the top is, unless they are asked for."""
        return KERNEL if self.excludes and not self.start and not posixpath.normpath(self.directory).strip("/") else ()

    @property
    def left_out(self) -> str:
        """Words of ``find`` for what is left out."""
        names = [f"-name {shlex.quote(name)}" for name in EXCLUDED]
        return " -o ".join([*names, *(f"-path ./{name}" for name in self.kernel)])

    @property
    def origin(self) -> str:
        """Where ``find`` begins, as a word of the shell."""
        return '"$from"' if self.start else "."


def needs(*programs: str) -> str:
    """Say that it cannot be searched there when one of these is missing: ``PATH`` may be another than was seen."""
    return (
        f"for n in {' '.join(programs)}; do command -v $n >/dev/null 2>&1 || {{ printf 'Xengine\\0'; exit 0; }}; done\n"
    )


def enter(query: TreeQuery) -> str:
    """Go there, or say why not; a file is a top of its own, in ``only``."""
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
    """Find the repository that the directory is in, as ``repo``, and say what its directories above leave out."""
    return f"""\
d=$PWD repo=
while [ -n "$d" ] && [ ! -e "$d/.git" ]; do d=${{d%/*}}; done
if [ -e "$d/.git" ]; then repo=1; p=$PWD
  while [ "$p" != "$d" ] && [ -n "$p" ]; do p=${{p%/*}}; f=$p/.gitignore
    if [ -f "$f" ] && [ ! -h "$f" ]; then {_told("P", '"$p"', _F)}; fi; done
fi
"""


def descend(query: TreeQuery) -> str:
    """Find where to begin, as ``from``, and say what the directories before leave out.

    ``nowhere`` is set when it is not there. Where the way cannot be read, the search begins, to say so.
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
    """``find`` with its expression, as in ``find_expression``."""
    depth = "" if query.below is None else f"-maxdepth {query.below} "
    return f"find {query.origin} {depth}{find_expression(query, actions, first=first, frames_to=frames_to)}"


def find_expression(
    query: TreeQuery, actions: Sequence[tuple[str, str]], *, first: str = "", frames_to: int = 1
) -> str:
    """What ``find`` is to look for: ``actions`` are expressions of types, and what is done with what they match.

    ``first`` is an expression that goes before them. No ``-exec ... +`` is in parentheses: the ``find`` of busybox
    would forget it.
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
    """What decides about most names with the fewest tests: about what is no directory, and surely no ignore file."""
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
    """``-path`` where it says the same as ``-name``: that one copies each name, and a fifth of the time goes there."""
    start, star, rest = name.rpartition("*")
    return f"-name {shlex.quote(name)}" if start else f"-path {shlex.quote(f'*{rest}' if star else f'*/{rest}')}"


TOLD = (_EMIT, _SKIPPED)


def _redirected(script: str, number: int) -> str:
    return script if number == 1 else f"{{ {script}; }} >&{number}"


def framed_errors(body: str) -> str:
    """The body, and how many complaints there were about what could not be looked into.

    Where there are any, it is asked whether ``find`` knows the words that are used: it may have refused them all.
    """
    return (
        "exec 3>&1\n"
        f"errors=$( {{ {body}\n}} 2>&1 >&3 3>&- | grep -vc -e 'No such file' -e 'rminated by signal' )\n"
        f"[ \"${{errors:-1}}\" = 0 ] || find {_KNOWN} >/dev/null 2>&1 || printf '\\0Xengine\\0'\n"
        "printf '\\0E%s\\0' \"$errors\"\n"
    )
