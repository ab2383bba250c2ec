"""The commands of ``clean_diff``: git, kept from running anything that a repository's configuration names. Pure.

What a repository could make git run while it compares, and what keeps it from that:

* ``diff.external``, ``diff.*.command`` and ``diff.*.textconv``: ``--no-ext-diff --no-textconv``;
* ``filter.*.clean`` and ``filter.*.process``, which git runs on files of the work tree: each ``filter.*`` that is
  configured is set to nothing, and the caller is told their names;
* ``core.fsmonitor`` and hooks (``post-index-change``): set to nothing, and the index is not written;
* pagers and editors: there is no terminal, and ``--no-pager``;
* a promisor remote, from which missing objects would be fetched (``core.sshCommand``, ``ext::``, credential helpers):
  no fetching, and no protocol is allowed;
* a submodule's own configuration: its work tree is not looked at (``--ignore-submodules=dirty``).

``core.worktree`` runs nothing, but could show any file of the target as one of the repository's: a work tree that does
not have the repository as its own is refused. git opens its own files, ``.gitignore`` and ``.gitattributes`` whatever
they are: where one of them is a pipe or a device, nothing is compared. Variables ``GIT_*`` of the environment are
removed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from ..blocking import first_blocking

__all__ = [
    "FOREIGN_TREE",
    "NO_GIT",
    "NO_REPOSITORY",
    "NO_TREE",
    "STRANGE_FILTER",
    "WAITS",
    "diff_command",
    "mistake_of",
    "new_files_command",
    "untracked_command",
]

NO_REPOSITORY, STRANGE_FILTER, FOREIGN_TREE, NO_TREE, NO_GIT, WAITS = 90, 91, 92, 93, 94, 95
"""Exit codes of the script, which git has no use for."""

ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "true",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "SSH_ASKPASS": "true",
}
_SETTINGS = (
    *("core.fsmonitor=", "core.hooksPath=/dev/null", "core.pager=cat", "core.quotePath=true"),
    *("core.virtualFilesystem=", "core.bigFileThreshold=16m", "core.sshCommand=false", "core.askPass=true"),
    *("credential.helper=", "diff.autoRefreshIndex=false", "diff.external=", "diff.relative=false"),
    *("diff.suppressBlankEmpty=false", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never"),
)
_SHOWN = (
    *("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--submodule=short"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--inter-hunk-context=0", "-O/dev/null"),
)
_START = f"""\
hx_names=$(env | sed -n 's/^\\(GIT_[A-Za-z0-9_]*\\)=.*/\\1/p')
for hx_name in $hx_names; do unset "$hx_name"; done
{"".join(f"export {name}={shlex.quote(value)}{chr(10)}" for name, value in ENVIRONMENT.items())}\
command -v git >/dev/null || exit {NO_GIT}
hx_git() {{ command git --no-pager {" ".join(f"-c {shlex.quote(one)}" for one in _SETTINGS)} "$@"; }}
hx_wait() {{ [ -z "$1" ] || {{ printf '%s\\n' "$1" >&2; exit {WAITS}; }}; }}
hx_up=$PWD
until [ -z "$hx_up" ] || [ -e "$hx_up/.git" ]; do hx_up=${{hx_up%/*}}; done
if [ -d "$hx_up/.git" ]; then hx_wait "$({first_blocking('"$hx_up/.git/"')})"; fi
hx_dir() {{ hx_found=$(hx_git rev-parse --git-dir) && (CDPATH= cd -- "$hx_found" && pwd -P); }}
hx_own=$(hx_dir) || exit {NO_REPOSITORY}
hx_top=$(hx_git rev-parse --show-toplevel 2>/dev/null)
if [ -n "$hx_top" ]; then
  hx_its=$(CDPATH= cd -- "$hx_top" && hx_dir) 2>/dev/null
  [ "$hx_its" = "$hx_own" ] || {{ printf '%s\\n' "$hx_top" >&2; exit {FOREIGN_TREE}; }}
  hx_wait "$({first_blocking('"$hx_top/"', ".git[ia]*")})"
fi
"""
# The names of the settings are before the first line feed of each record; one that cannot be told apart, or that git
# keeps in spite of what it is told, ends the script.
_FILTERS = f"""\
hx_one=$(printf '\\001')
hx_set() {{ hx_git config -z --get-regexp '^filter\\.'; }}
hx_strange() {{ printf '%s\\n' "$1" >&2; exit {STRANGE_FILTER}; }}
[ -z "$(hx_set | tr -cd '\\001')" ] || hx_strange 'a filter with a control character in its name'
hx_filters=$(hx_set | tr '\\n\\000' '\\001\\n' | sed "s/$hx_one.*//" | sort -u)
set --
while IFS= read -r hx_name; do
  case $hx_name in
    '') ;;
    *=*) hx_strange "$hx_name" ;;
    *) set -- "$@" -c "$hx_name=" ;;
  esac
done <<HX_END
$hx_filters
HX_END
while IFS= read -r hx_name; do
  [ -z "$hx_name" ] || [ -z "$(hx_git "$@" config --get "$hx_name")" ] || hx_strange "$hx_name"
done <<HX_END
$hx_filters
HX_END
"""
_HEAD = """\
printf '%s\\000%s\\000' "$hx_top" "$hx_filters"
"""


def mistake_of(ref: str) -> str:
    """Why a text cannot be a revision or a range of two; empty when it can. Pure."""
    if not ref or "\0" in ref or "\n" in ref:
        return "it is empty or holds a NUL or a line break"
    if any(part.startswith("-") for part in re.split(r"\.{2,3}", ref)):
        return "a revision does not start with '-'; that would be an option"
    bare = re.sub(r"[@^]\{[^{}]*\}", "", ref)
    if bare.startswith("^") or bare.endswith(("^!", "^@")) or "^-" in bare:
        return "it names several revisions; give one, or a range such as main..feature"
    if re.search(r"[\s:?*\[\\]", bare):
        return "it is no revision: give a branch, a tag, a commit, or a range such as main..feature"
    return ""


def diff_command(
    *,
    ref: str = "",
    staged: bool = False,
    stat_only: bool = False,
    context: int = 0,
    files: Sequence[str] = (),
    most: int,
) -> str:
    """The script that prints the work tree's root, the filters, and the differences; at most ``most`` bytes of these.

    ``ref`` has no mistake (:func:`mistake_of`).
    """
    kind = [] if stat_only else ["-p", f"-U{context}"]
    against = ["--cached"] * staged + ([ref] if ref else [] if staged else ["-0"])
    options = ["--raw", "--numstat", "-z", "--no-abbrev", "-M", *kind, *_SHOWN, *against]
    run = f'hx_git "$@" diff {_words(options)} -- {_words(files)}'
    needs_tree = "" if ".." in ref else f'[ -n "$hx_top" ] || exit {NO_TREE}\n'
    return f"{_START}{needs_tree}{_FILTERS}{_HEAD}{_limited(run, most)}"


def _limited(run: str, most: int) -> str:
    """The beginning of what a command prints, with the command's own exit code."""
    return f"""\
exec 3>&1
hx_code=$({{ {{ {run} 4>&- 3>&-; echo $? >&4; }} | head -c {most} >&3; }} 4>&1)
exit "$hx_code"
"""


def untracked_command(files: Sequence[str]) -> str:
    """The script that prints the names of files that git does not track and does not ignore, each ended by a NUL."""
    return f'{_START}{_FILTERS}hx_git "$@" ls-files -z --others --exclude-standard --full-name -- {_words(files)}\n'


def new_files_command(files: Sequence[str], most: int) -> str:
    """The script that prints each of these files, named from the work tree's root, as a difference to nothing.

    A NUL on a line of its own ends each: no line of a difference begins with one. Of what cannot be read nothing is
    printed. git takes ``-`` for its input, and looks behind a link to a directory.
    """
    options = _words(["--no-index", "-p", *_SHOWN])
    loop = f"""\
for hx_file in {_words("./-" if name == "-" else name for name in files)}; do
  if [ -h "./$hx_file" ] && [ -d "./$hx_file" ]; then
    printf 'new file mode 120000\\n@@ -0,0 +1 @@\\n'
    readlink "./$hx_file" | sed 's/^/+/'
    printf '%s\\n' '\\ No newline at end of file'
  else
    hx_git "$@" diff {options} -- /dev/null "$hx_file"
  fi
  printf '\\000\\n'
done"""
    enter = 'CDPATH= cd -- "$hx_top" || exit 1\n'
    return f"{_START}{_FILTERS}{enter}{{\n{loop}\n}} | head -c {most}\n"


def _words(words: Iterable[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
