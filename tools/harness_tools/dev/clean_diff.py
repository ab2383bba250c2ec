"""``clean_diff``: show changes in a git repository of the target, without running programs of its configuration."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.results import ShellResult, Status
from harness.toolkit import Arguments, Category, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.results import shell_result
from harness.toolkit.session.file_versions import target_path

from ..texts import REPORT, Line, clip
from .clean_diff_report import Change, Differences, changes_of, new_files, report

__all__ = [
    "CleanDiff",
    "diff_command",
    "first_blocking",
    "mistake_of",
    "new_files_command",
    "untracked_command",
]


# -- Shell text that finds files whose opening would block: pipes and devices. Pure.
#
# Opening a pipe for reading blocks until it is opened for writing. git and ripgrep open a ``.gitignore`` of any type.


_EACH = (
    'for f do if [ -p "$f" ] || { [ ! -h "$f" ] && { [ -c "$f" ] || [ -b "$f" ]; }; }; '
    'then printf "%s\\n" "$f"; fi; done'
)


def first_blocking(directory: str, pattern: str = "") -> str:
    """Return a command that prints the name of such a file, or nothing.

    Args:
        directory: Where to search, as a shell word that ends with a slash.
        pattern: A pattern of its name, which also skips ``.git`` directories; empty is any name.
    """
    named = f"-name .git -prune -o -name {shlex.quote(pattern)} " if pattern else ""
    found = f"! -type f ! -type d -exec sh -c {shlex.quote(_EACH)} sh {{}} +"
    return f"find {directory} {named}{found} 2>/dev/null | head -n 1"


# -- The commands of ``clean_diff``: git, without running programs that the repository's configuration names. Pure.
#
# What a repository could make git run during a comparison, and what prevents it:
#
# * ``diff.external``, ``diff.*.command`` and ``diff.*.textconv``: ``--no-ext-diff --no-textconv``;
# * ``filter.*.clean`` and ``filter.*.process``, which git runs on files of the work tree: each configured ``filter.*``
#   is set to nothing, and reported to the caller;
# * ``core.fsmonitor`` and hooks (``post-index-change``): set to nothing, and the index is not written;
# * pagers and editors: there is no terminal, and ``--no-pager``;
# * a promisor remote, from which missing objects would be fetched (``core.sshCommand``, ``ext::``, credential
#   helpers): no fetching, and no protocol is allowed;
# * a submodule's own configuration: its work tree is not read (``--ignore-submodules=dirty``).
#
# ``core.worktree`` runs nothing, but could show any file of the target as one of the repository's: a work tree that
# belongs to another repository is refused. git opens ``.gitignore`` and ``.gitattributes`` of any type: if one of them
# is a pipe or a device, nothing is compared. Environment variables ``GIT_*`` are removed.


NO_REPOSITORY, STRANGE_FILTER, FOREIGN_TREE, NO_TREE, NO_GIT, WAITS = 90, 91, 92, 93, 94, 95
"""Exit codes of the script that git does not use."""

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
# The names of the settings are before the first line feed of each record; an ambiguous one, or one that git still
# applies, ends the script.
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
    """Return why a text cannot be a revision or a range; empty if it can. Pure."""
    if not ref or "\0" in ref or "\n" in ref:
        return "it is empty or contains a NUL or a line break"
    if any(part.startswith("-") for part in re.split(r"\.{2,3}", ref)):
        return "a revision does not start with '-'; that would be an option"
    bare = re.sub(r"[@^]\{[^{}]*\}", "", ref)
    if bare.startswith("^") or bare.endswith(("^!", "^@")) or "^-" in bare:
        return "it names several revisions; give one, or a range such as main..feature"
    if re.search(r"[\s:?*\[\\]", bare):
        return "it is not a revision: give a branch, a tag, a commit, or a range such as main..feature"
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
    """Return the script that prints the work tree's root, the filters, and at most ``most`` bytes of the differences.

    ``ref`` must be valid (:func:`mistake_of`).
    """
    kind = [] if stat_only else ["-p", f"-U{context}"]
    against = ["--cached"] * staged + ([ref] if ref else [] if staged else ["-0"])
    options = ["--raw", "--numstat", "-z", "--no-abbrev", "-M", *kind, *_SHOWN, *against]
    run = f'hx_git "$@" diff {_words(options)} -- {_words(files)}'
    needs_tree = "" if ".." in ref else f'[ -n "$hx_top" ] || exit {NO_TREE}\n'
    return f"{_START}{needs_tree}{_FILTERS}{_HEAD}{_limited(run, most)}"


def _limited(run: str, most: int) -> str:
    """Limit the output of a command, keeping its exit code."""
    return f"""\
exec 3>&1
hx_code=$({{ {{ {run} 4>&- 3>&-; echo $? >&4; }} | head -c {most} >&3; }} 4>&1)
exit "$hx_code"
"""


def untracked_command(files: Sequence[str]) -> str:
    """Return the script that prints the names of untracked files that are not ignored, each ended by a NUL."""
    return f'{_START}{_FILTERS}hx_git "$@" ls-files -z --others --exclude-standard --full-name -- {_words(files)}\n'


def new_files_command(files: Sequence[str], most: int) -> str:
    """Return the script that prints each of these files, named from the work tree's root, as a difference to nothing.

    A NUL on a line of its own ends each, because no line of a difference starts with one. Nothing is printed for an
    unreadable file. git would read ``-`` as its input, and follow a link to a directory.
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


# -- The tool.


OUTPUT = 8 << 20
"""Maximum bytes of git's output that are read."""
TIMEOUT = 60.0
"""Timeout of git in seconds."""
NEW_FILES = 100
"""Maximum untracked files that are shown."""
NAMES = 64 << 10
"""Maximum bytes of their names in one command."""

DESCRIPTION = """\
Show the changes in a git repository: only the changed lines by default, grouped by file, with renames, modes, \
binary files and submodules. Without ref: unstaged changes. It only reads: no program of the repository's \
configuration is run (filters, drivers, hooks), and nothing is fetched."""


class _Arguments(Arguments):
    path: Line = Field(
        ".",
        description="the repository, or a directory in it; ~ is the user's home",
        validation_alias=AliasChoices("path", "dir", "cwd", "repo"),
    )
    ref: Line | None = Field(
        None, max_length=1_000, description="compare with this revision, or a range: HEAD~1, main..feature"
    )
    staged: bool = Field(
        False,
        description="staged changes, compared with ref or HEAD",
        validation_alias=AliasChoices("staged", "cached"),
    )
    stat_only: bool = Field(False, description="only files and line counts")
    context_lines: int = Field(0, ge=0, le=1_000, description="unchanged lines to show around each change")
    file_filter: tuple[Line, ...] = Field(
        (),
        max_length=500,
        description="only these files or directories, relative to path",
        validation_alias=AliasChoices("file_filter", "files"),
    )
    include_untracked: bool = Field(False, description="include untracked files that are not ignored")

    @field_validator("ref")
    @classmethod
    def _revision(cls, ref: str | None) -> str | None:
        if ref and (mistake := mistake_of(ref)):
            raise ValueError(mistake)
        return ref


class CleanDiff(Tool[_Arguments]):
    """``clean_diff``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            requires=("git",),
            aliases=("cleanDiff",),
            packs=("dev",),
            limit=REPORT,
        )
        super().__init__("clean_diff", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        files = (Subject("read", posixpath.join(args.path, file)) for file in args.file_filter)
        return (Subject("read", args.path), *files)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        found = await ctx.execution.stat(target_path(ctx, args.path))
        if found.type != "dir":
            return ToolResult.failure("not_a_directory", f"{args.path} is not a directory: use file_filter for files")
        return await _compared(args, ctx, found.path)


async def _compared(args: _Arguments, ctx: ToolContext, directory: str) -> ToolResult:
    done = await _run(ctx, directory, _command(args))
    if (failure := _failure(args, done)) is not None:
        return failure
    found = await to_thread.run_sync(_differences, done)
    if args.include_untracked and found.root:
        more = await _untracked(args, ctx, directory, found.root)
        if isinstance(more, ToolResult):
            return more
        found = found.with_new(*more)
    shown = await _permitted(ctx, found, directory)
    return await to_thread.run_sync(partial(report, shown, stat_only=args.stat_only))


async def _permitted(ctx: ToolContext, found: Differences, directory: str) -> Differences:
    """Remove the lines of files that the policy denies, because the call was not checked for each file."""
    top = found.root or directory
    names = {name: posixpath.join(top, name) for one in found.changes for name in (one.path, one.old_path)}
    withheld = await ctx.unreadable_paths(frozenset(names.values()), top=top)
    return found.without({name for name, path in names.items() if path in withheld}) if withheld else found


def _command(args: _Arguments) -> str:
    return diff_command(
        ref=args.ref or "",
        staged=args.staged,
        stat_only=args.stat_only,
        context=args.context_lines,
        files=args.file_filter,
        most=OUTPUT,
    )


async def _run(ctx: ToolContext, directory: str, command: str) -> ShellResult:
    return await ctx.execution.run_helper(command, timeout=TIMEOUT, cwd=directory, max_output=2 * OUTPUT)


_CUT_OFF = 141
"""git was ended by SIGPIPE: it had more output than is read."""


def _differences(done: ShellResult) -> Differences:
    top, _, rest = done.stdout.partition("\0")
    filters, _, output = rest.partition("\0")
    names = sorted({name.removeprefix("filter.").rpartition(".")[0] for name in filters.split("\n") if name})
    complete = done.exit_code == 0
    return Differences(top, changes_of(output, complete=complete), tuple(names), complete=complete)


def _failure(args: _Arguments, done: ShellResult) -> ToolResult | None:
    """Return the failure if there are no differences to show."""
    if done.status is not Status.COMPLETED:
        return shell_result(done)
    code, said = done.exit_code, clip(done.stderr.strip(), 2_000)
    if code in (0, _CUT_OFF):
        return None
    name, text = _FAILURES.get(code or 0, ("git_failed", "git ended with exit code {code}: {said}"))
    return ToolResult.failure(name, text.format(path=args.path, code=code, said=said or "no error message"))


_FAILURES = {
    STRANGE_FILTER: (
        "unsafe_filter",
        "not compared: {said} is configured, and git cannot be prevented from running it",
    ),
    FOREIGN_TREE: ("foreign_work_tree", "not compared: its work tree is {said}, which is not the repository's own"),
    WAITS: ("not_a_file", "not compared: {said} is a pipe or a device, and git would wait for it"),
    NO_TREE: ("no_work_tree", "{path} has no work tree: give a range of two revisions as ref"),
    NO_GIT: ("no_git", "git is not installed on the target"),
    NO_REPOSITORY: ("no_repository", "{path} is not in a usable git repository: {said}"),
}


# -- new files


@dataclass(frozen=True, slots=True)
class _UntrackedFiles:
    """Untracked files: ``shown`` are files, ``directories`` nested repositories, which git does not read."""

    shown: list[str]
    directories: list[str]
    dropped: int


def _chosen(listed: str) -> _UntrackedFiles:
    names = [name for name in listed.split("\0") if name]
    chosen: list[str] = []
    room = NAMES
    for name in names[:NEW_FILES]:
        room -= len(name.encode("utf-8", "surrogateescape"))
        if room < 0:
            break
        chosen.append(name)
    files = [name for name in chosen if not name.endswith("/")]
    return _UntrackedFiles(files, [name for name in chosen if name.endswith("/")], len(names) - len(chosen))


async def _untracked(
    args: _Arguments, ctx: ToolContext, directory: str, root: str
) -> tuple[list[Change], int] | ToolResult:
    """Return each untracked file as a change, and the number of omitted ones."""
    listed = await _run(ctx, directory, untracked_command(args.file_filter))
    if not listed.ok:
        return _failure(args, listed) or shell_result(listed, ctx=ctx)
    if listed.truncated:
        return ToolResult.failure("too_large", "the list of untracked files is too long: give file_filter")
    chosen = _chosen(listed.stdout)
    changes = [Change(name, name, "untracked", "000000", "040000", 0, 0) for name in chosen.directories]
    if chosen.shown:
        done = await _run(ctx, root, new_files_command(chosen.shown, OUTPUT))
        if done.status is not Status.COMPLETED:
            return shell_result(done, ctx=ctx)
        changes += new_files(chosen.shown, done.stdout)
    return changes, chosen.dropped
