"""Shell scripts that find lines below a directory: with rg, else find and grep. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from harness.patterns.ignore_rules import IGNORE_LIMIT
from harness.patterns.wildcards import rough_name

from .regular_expressions import Expression, extended, rust
from .tree_scripts import (
    EXCLUDED,
    TreeQuery,
    descend,
    enter,
    find_words,
    framed_errors,
    ignore_above,
    needs,
    parallel_find,
)

__all__ = [
    "LISTED",
    "GrepQuery",
    "find_incompatible_ignores",
    "grep_script",
    "lines_limit",
]


# -- Shell text that finds ignore files which ``rg`` and git may read differently, so that ``rg`` must not be used.
#
# It lists what both read the same way: names, stars, and brackets with letters. ``rg`` expands braces, lets ``[!a]``
# match a slash, supports neither classes nor backslashes in brackets, ignores patterns that end with a dot (before
# 15), trims more than spaces at the end, and stops at bytes that are not UTF-8. It follows links and blocks on pipes
# with such names; before 14 it always obeys ``.rgignore``, and fails at directory names with a newline. Pure.


_REST = r"[\200-\277]"
_BEYOND = "|".join(
    (
        rf"\302[\241-\277]|[\303-\337]{_REST}|\340[\240-\277]{_REST}|\341[\200-\231\233-\277]{_REST}",
        rf"\342[\202-\277]{_REST}|\343[\201-\277]{_REST}|[\344-\354\356]{_REST}{_REST}|\355[\200-\237]{_REST}",
        rf"\357[\200-\272\274-\277]{_REST}|\357\273[\200-\276]|\360[\220-\277]{_REST}{_REST}",
        rf"[\361-\363]{_REST}{_REST}{_REST}|\364[\200-\217]{_REST}{_REST}",
    )
)
"""UTF-8 beyond ASCII, without white space and the byte order mark, as ``printf`` escapes."""
_WHITE = rf"\302[\200-\240]|\341\232{_REST}|\342[\200\201]{_REST}|\343\200{_REST}"
_RANGES = "a-[b-z]|[a-y]-z|A-[B-Z]|[A-Y]-Z|0-[1-9]|[0-8]-9"
_LETTER = rf"[]?\042-\051\053-\055\060-\076@A-Z^-z|~]|[[]({_RANGES}|[A-Za-z0-9._])+[]]|{_BEYOND}"
_NAME = f"([*]? *({_LETTER}|[.]))*([*]|[*]? *({_LETTER}))"
_PATH = f"/?({_NAME}|[*][*])(/({_NAME}|[*][*]))*/?"
_ALIKE = rf"^(#([\t\r -~]|{_BEYOND}|{_WHITE})*|((!|[\\][!#])?{_PATH})? *\r?)$"
"""Lines that both read the same way, in the C locale."""


def find_incompatible_ignores(query: TreeQuery) -> str:
    """Return a script that sets ``blocked`` if there is one in the current directory, above or below it."""
    if not query.excludes:
        return "blocked=\n"
    hidden = "" if query.hidden else "-type d -name '.?*' -prune -o "
    walk = parallel_find(
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
"""``rg`` that starts below the top directory obeys all ignore files above it, inside a repository or not."""


# -- Shell scripts that find lines below a directory: with ``rg``, else ``find`` and ``grep``. Pure.
#
# The first pass counts the matches in all files; the second prints lines of the first files by path. Between the two,
# files are lines: the path, ``\001``, the count, with ``\002`` for a newline in a name. Names that contain one of these
# two characters are omitted. Additional frames: ``V`` the search program, ``L`` the counts, ``A`` a directory with an
# ``.aiexclude``, ``C`` the lines.


LINE = 3_000
"""Maximum bytes of one line of output, including its path."""
LISTED = 8 << 20
"""Maximum bytes of paths and counts."""
MAX_LINE_BYTES = 8 << 20
_ODD = "*[\x01\x02]*"
_WITHOUT_ODD = f"-name '{_ODD}' -prune -o "
_TEXTS_ONLY = (
    'while IFS= read -r l; do f=${l%"$A"*}; '
    '[ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ] || printf "%s\\n" "$l"; done'
)
"""In multiline mode, ``rg`` looks for NUL only at the start of a file."""


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What to find and where; ``most``: maximum lines, or files, to show; ``lines``: whether lines are required."""

    tree: TreeQuery
    expression: Expression
    most: int
    before: int = 0
    after: int = 0
    lines: bool = True


def lines_limit(query: GrepQuery) -> int:
    """Return the maximum bytes of the lines."""
    return min((query.most + 1) * (1 + query.before + query.after) * LINE, MAX_LINE_BYTES)


def grep_script(query: GrepQuery, *, named: bool = False) -> str:
    """Return the script; ``named``: print lines of the files in standard input, which has the format of the counts."""
    above = ignore_above() if query.tree.excludes else "repo=\n"
    listing = "list=$(cat)" if named else f"list=$( {_counting(query)} | sort | head -c {LISTED} )"
    told = "" if named else _telling()
    shown = _showing(query) if query.lines else ""
    body = f"{{ {listing}\n{told}{shown}\n}} 4>&1"
    used = needs("cut", "head", "sed", "sort", "tr", "wc")
    return used + enter(query.tree) + above + descend(query.tree) + _engine(query) + framed_errors(body)


def _engine(query: GrepQuery) -> str:
    """Return a script that chooses a program that supports the expression and the options."""
    folds = " -i" if query.expression.folds else ""
    edges = "printf 'a bc\\n' | grep -E '\\bbc' >/dev/null 2>&1 && " if query.expression.has_edges else ""
    words = f"{_rg_options(query)} {_rg_walk(query)}"
    rg = (
        f'if [ -z "$only$nowhere" ] && command -v rg >/dev/null 2>&1; then\n{find_incompatible_ignores(query.tree)}'
        f'  if [ -z "$blocked" ]; then rg {words} -c -e "$rgp" -- /dev/null >/dev/null 2>&1\n'
        "    [ $? -eq 1 ] && engine=rg; fi; fi\n"
    )
    grep = (
        "if [ -z \"$engine\" ]; then printf 'x\\351\\n' |\n"
        f"  grep -E{folds} -e \"$P\" -e '^x.$' >/dev/null 2>&1 && {edges}command -v find >/dev/null 2>&1 &&\n"
        "  printf 'x\\0' | xargs -0 true >/dev/null 2>&1 && engine=grep\n"
        "  grep -c --null -I -e x -- /dev/null >/dev/null 2>&1; [ $? -eq 1 ] && null=1; fi\n"
    )
    return (
        f"rgp={shlex.quote(rust(query.expression))} P={shlex.quote(_extended(query))}; export P\n"
        "engine= null= A=$(printf '\\001') B=$(printf '\\002')\n"
        f"{rg}{'' if query.expression.multiline else grep}"
        "[ -n \"$engine\" ] || { printf 'Xengine\\0'; exit 0; }\n"
        "printf 'V%s\\0' \"$engine\"\n"
        "[ -z \"$nowhere\" ] || { printf 'L\\0\\0E0\\0'; exit 0; }\n"
        "if [ -n \"$only\" ]; then printf 'O\\0'\n"
        "  [ \"$(tr -dc '\\000' <\"$only\" | head -c 1 | wc -c)\" -eq 0 ] || printf 'B\\0'; fi\n"
    )


def _extended(query: GrepQuery) -> str:
    return "" if query.expression.multiline else extended(query.expression)


def _rg_options(query: GrepQuery) -> str:
    words = ["--no-config", "--color=never", "--no-heading", "--no-mmap", "-E", "none", "-H", "-0", "-n"]
    if query.expression.multiline:
        words.append("-U")
    return shlex.join(words)


def _rg_walk(query: GrepQuery) -> str:
    words = ["--hidden", "-g", f"!{_ODD}"]
    if query.tree.excludes:
        words += ["--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", "--no-require-git"]
        words.append("--no-ignore-messages")
        words += [word for name in EXCLUDED for word in ("-g", f"!{name}/")]
        words += [word for name in query.tree.kernel for word in ("-g", f"!/{name}/")]
    else:
        words.append("--no-ignore")
    if not query.tree.hidden:
        words += ["-g", "!.*"]
    if query.tree.below is not None:
        words += ["--max-depth", str(query.tree.below)]
    for name in query.tree.rough_names:
        words += ["--type-add", f"hx:{rough_name(name)}"]
    if query.tree.rough_names:
        words += ["-t", "hx"]
    return shlex.join(words)


def _counting(query: GrepQuery) -> str:
    folds = " -i" if query.expression.folds else ""
    files = find_words(query.tree, [("-type f", "-print0")], first=_WITHOUT_ODD, frames_to=4)
    grep = f'xargs -0 grep --null -I -E{folds} -e "$P"'
    join = 'sed -e :a -e "/$A/!{" -e N -e "s/\\n/$B/" -e ba -e \'}\''
    kept = f" | {_TEXTS_ONLY}" if query.expression.multiline else ""
    return f"""
case $engine$null$only in
  (rg*) {_rg_counting(query)} | tr '\\000' '\\001' | {join}{_below(query.tree)}{kept} ;;
  (grep1*) if [ -n "$only" ]; then printf '%s\\0' "$only"; else {files}; fi |
    {grep} -l -- /dev/null | {grep} -c -H -- /dev/null | tr '\\000' '\\001' | {join} | grep -v "${{A}}0\\$" ;;
  (*) {_plainly(query, folds)} ;;
esac"""


def _rg_counting(query: GrepQuery) -> str:
    """Run ``rg`` in the start directory: given a path, it would apply the ignore rules above it wrongly."""
    words = f"{_rg_options(query)} {_rg_walk(query)}"
    if query.tree.start:
        return f'( cd "$from" && rg {words} -c -e "$rgp" -- . )'
    return f'rg {words} $( [ -n "$repo" ] || printf %s --no-ignore-parent ) -c -e "$rgp" -- .'


def _below(tree: TreeQuery) -> str:
    """Return a filter that makes names relative to the start directory relative to the top."""
    if not tree.start:
        return ""
    path = re.sub("([&/])", r"\\\1", "/".join([".", *tree.start]))
    return " | sed " + shlex.quote(rf"s/^\./{path}/")


def _plainly(query: GrepQuery, folds: str) -> str:
    """Count with a ``grep`` that cannot end names with NUL: names with a newline one by one."""
    count = (
        'for f do [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -eq 0 ] || continue; '
        f'n=$(grep -c -E{folds} -e "$P" -- "$f"); '
        '[ "${n:-0}" -gt 0 ] && printf "%s\\001%s\\n" "$(printf %s "$f" | tr "\\n" "\\002")" "$n"; done'
    )
    lines, line = "-type f ! -path '*\n*'", "-type f -path '*\n*'"
    plain = find_words(query.tree, [(lines, "-print")], first=_WITHOUT_ODD, frames_to=4)
    broken = find_words(
        query.tree, [(line, f"-exec sh -c {shlex.quote(count)} sh {{}} +")], first=_WITHOUT_ODD, frames_to=4
    )
    return f"""if [ -n "$only" ]; then sh -c {shlex.quote(count)} sh "$only"; else
    {plain} | tr '\\n' '\\000' | xargs -0 grep -l -E{folds} -e "$P" -- /dev/null | tr '\\n' '\\000' |
      xargs -0 sh -c {shlex.quote(count)} sh
    {broken} 4>/dev/null; fi"""


def _telling() -> str:
    return """\
printf 'L'; printf '%s\\n' "$list"; printf '\\0'
printf '%s\\n' "$list" | sed -e "s/$A[0-9]*\\$//" -e 's|/[^/]*$||' | sort -u | while IFS= read -r d; do
  while [ -n "$d" ]; do
    if [ -e "$d/.aiexclude" ] || [ -h "$d/.aiexclude" ]; then printf 'A%s\\0' "$d"; fi
    case $d in */*) d=${d%/*} ;; *) break ;; esac
  done; done
"""


def _showing(query: GrepQuery) -> str:
    folds = " -i" if query.expression.folds else ""
    context = f"-B {query.before} -A {query.after}" if query.before or query.after else ""
    most = "" if query.expression.multiline else f"-m {query.most + 1}"
    one = (
        'for f do printf "\\001%s\\n" "$(printf %s "$f" | tr "\\n" "\\002")"; '
        f'grep -n -E{folds} {most} {context} -e "$P" -- "$f"; done'
    )
    return f"""
if [ -n "$list" ]; then printf 'C'
printf '%s\\n' "$list" | head -n {query.most} | sed "s/$A[0-9]*\\$//" | tr '\\n\\002' '\\000\\n' |
case $engine$null in
  (rg*) xargs -0 rg {_rg_options(query)} -j1 {most} {context} -e "$rgp" -- ;;
  (grep1) xargs -0 grep --null -I -n -H -E{folds} {most} {context} -e "$P" -- /dev/null ;;
  (*) xargs -0 sh -c {shlex.quote(one)} sh ;;
esac 2>/dev/null | tr '\\000' '\\001' | cut -b 1-{LINE} | head -c {lines_limit(query)}
printf '\\0'; fi"""
