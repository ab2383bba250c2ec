r"""Shell text that looks for ignore files which ``rg`` and git read differently: ``rg`` must not search there. Pure.

``rg`` takes braces for choices, forgets patterns that end with a dot (before 15), ends a file at bytes that are not
UTF-8, and its first line at a byte order mark. It follows links and waits for pipes under such names, and before 14
it obeys ``.rgignore`` whatever it is told.
"""

from __future__ import annotations

import shlex

from .halves import in_halves
from .treescripts import EXCLUDED, TreeQuery

__all__ = ["find_unalike"]

_LINES = (
    "^([^#].*)?[{]",
    r"^([^#].*)?[.][[:blank:]]*\r?$",
    r"^\357\273\277",
    r"(^|[ -~])[\200-\277]",
    r"[\300-\377]([ -~]|$)",
)
"""Lines of such files, as ``printf`` writes the expressions: bytes of the C locale."""


def find_unalike(query: TreeQuery) -> str:
    """Set ``blocked`` when there is one in the current directory, above it or below."""
    if not query.excludes:
        return "blocked=\n"
    hidden = "" if query.hidden else "-type d -name '.?*' -prune -o "
    names = " -o ".join(f"-name {shlex.quote(name)}" for name in EXCLUDED)
    walk = in_halves(f"""\
! -type d ! -path '*ignore' -o {hidden}-type d \\( {names} \\) ! -name . -prune \\
  -o -name .rgignore -print -o -name .gitignore ! -type f -print -o \\
  -name .gitignore -exec grep -l -E -e "$u" -- /dev/null {{}} +""")
    return f"""\
blocked= p=$PWD u=$(printf '{"|".join(_LINES)}'); export u
while for n in .gitignore .rgignore; do if [ -e "$p/$n" ] && {{ [ $n = .rgignore ] || [ ! -f "$p/$n" ] ||
  grep -q -E -e "$u" -- "$p/$n"; }}; then blocked=1; fi; done; [ -n "$p" ]
do p=${{p%/*}}; done
[ -n "$blocked" ] || blocked=$( {{ {walk}
  }} 2>/dev/null | head -c 1)
"""
