r"""Shell text that looks for ignore files which ``rg`` and git may read differently: ``rg`` must not search there.

What they read alike is described, not what they do not: names, stars, and brackets with letters. ``rg`` takes braces
for choices, lets ``[!a]`` be a slash, knows neither classes nor backslashes in brackets, forgets patterns that end with
a dot (before 15), cuts more than spaces at the end, and stops at bytes that are not UTF-8. It follows links and waits
for pipes under such names, and before 14 it obeys ``.rgignore`` whatever it is told, and loses its way at names of
directories with a newline. Pure.
"""

from __future__ import annotations

from .halves import in_halves
from .ignoring import IGNORE_LIMIT
from .treescripts import TreeQuery

__all__ = ["find_unalike"]

_REST = r"[\200-\277]"
_BEYOND = "|".join(
    (
        rf"\302[\241-\277]|[\303-\337]{_REST}|\340[\240-\277]{_REST}|\341[\200-\231\233-\277]{_REST}",
        rf"\342[\202-\277]{_REST}|\343[\201-\277]{_REST}|[\344-\354\356]{_REST}{_REST}|\355[\200-\237]{_REST}",
        rf"\357[\200-\272\274-\277]{_REST}|\357\273[\200-\276]|\360[\220-\277]{_REST}{_REST}",
        rf"[\361-\363]{_REST}{_REST}{_REST}|\364[\200-\217]{_REST}{_REST}",
    )
)
"""UTF-8 beyond ASCII, without white space and the byte order mark. Expressions are as ``printf`` writes them."""
_WHITE = rf"\302[\200-\240]|\341\232{_REST}|\342[\200\201]{_REST}|\343\200{_REST}"
_RANGES = "a-[b-z]|[a-y]-z|A-[B-Z]|[A-Y]-Z|0-[1-9]|[0-8]-9"
_LETTER = rf"[]?\042-\051\053-\055\060-\076@A-Z^-z|~]|[[]({_RANGES}|[A-Za-z0-9._])+[]]|{_BEYOND}"
_NAME = f"([*]? *({_LETTER}|[.]))*([*]|[*]? *({_LETTER}))"
_PATH = f"/?({_NAME}|[*][*])(/({_NAME}|[*][*]))*/?"
_ALIKE = rf"^(#([\t\r -~]|{_BEYOND}|{_WHITE})*|((!|[\\][!#])?{_PATH})? *\r?)$"
"""Lines that both read alike, in the C locale."""


def find_unalike(query: TreeQuery) -> str:
    """Set ``blocked`` when there is one in the current directory, above it or below."""
    if not query.excludes:
        return "blocked=\n"
    hidden = "" if query.hidden else "-type d -name '.?*' -prune -o "
    walk = in_halves(
        f"""\
! -type d ! -path '*ignore' -o {hidden}-type d \\( {query.left_out} \\) ! -name . -prune \\
  -o -name .rgignore -print -o -type d -name '*\n*' -print \\
  -o -name .gitignore \\( ! -type f -o -size +{IGNORE_LIMIT >> 9} \\) -print \\
  -o -name .gitignore -exec grep -l -v -a -E -e "$u" -- /dev/null {{}} +""",
        query.origin,
    )
    return f"""\
blocked=; command -v find >/dev/null 2>&1 || blocked=1
p=$PWD u=$(printf '{_ALIKE}'); export u
{_ABOVE if query.start else ""}\
while for n in .gitignore .rgignore; do if [ -e "$p/$n" ] && {{ [ $n = .rgignore ] || [ ! -f "$p/$n" ] ||
  [ -h "$p/$n" ] || [ "$(wc -c <"$p/$n")" -gt {IGNORE_LIMIT} ] || grep -q -v -a -E -e "$u" -- "$p/$n"; }}
  then blocked=1; fi; done; [ -n "$p" ]
do p=${{p%/*}}; done
[ -n "$blocked" ] || blocked=$( {{ {walk}
  }} 2>/dev/null | head -c 1)
"""


_ABOVE = """\
if [ -z "$repo" ]; then while [ -n "$p" ]; do p=${p%/*}; if [ -e "$p/.gitignore" ]; then blocked=1; fi; done; fi
p=$PWD${from#.}
"""
"""``rg`` that begins below the top obeys all above it, in a repository or not."""
