"""``clean_diff``: what has changed in a git repository of the target; nothing that the repository names is run."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.results import ShellResult, Status
from harness.toolkit import Arguments, Category, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import target_path
from harness.toolkit.shellresults import shell_result

from ..texts import Line
from .cleandiff_command import (
    FOREIGN_TREE,
    NO_GIT,
    NO_REPOSITORY,
    NO_TREE,
    STRANGE_FILTER,
    WAITS,
    diff_command,
    mistake_of,
    new_files_command,
    untracked_command,
)
from .cleandiff_parse import Change, changes_of, new_files
from .cleandiff_report import Differences, report
from .fitted import REPORT, clip

__all__ = ["CleanDiff"]

OUTPUT = 8 << 20
"""Bytes of git's output that are read."""
TIMEOUT = 60.0
"""Seconds that git may take."""
NEW_FILES = 100
"""Files that git does not track and that are shown."""
NAMES = 64 << 10
"""Bytes of their names in one command."""

DESCRIPTION = """\
Show what has changed in a git repository: only the changed lines by default, grouped by file, with renames, modes, \
binary files and submodules named as such. Without ref: what is not staged. It only reads: no program that the \
repository's configuration names is run (filters, drivers, hooks), and nothing is fetched."""


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
        description="what is staged, compared with ref or HEAD",
        validation_alias=AliasChoices("staged", "cached"),
    )
    stat_only: bool = Field(False, description="only the files and how many lines, not the lines")
    context_lines: int = Field(0, ge=0, le=1_000, description="unchanged lines to show around each change")
    file_filter: tuple[Line, ...] = Field(
        (),
        max_length=500,
        description="only these files or directories, as they are named from path",
        validation_alias=AliasChoices("file_filter", "files"),
    )
    include_untracked: bool = Field(False, description="also new files that git does not track and does not ignore")

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
            return ToolResult.failure("not_a_directory", f"{args.path} is no directory: use file_filter for files")
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
    """Without the lines of files that the policy keeps back: nobody was asked about each file."""
    top = found.root or directory
    names = {name: posixpath.join(top, name) for one in found.changes for name in (one.path, one.old_path)}
    withheld = await ctx.withheld(frozenset(names.values()), top=top)
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
    return await ctx.execution.run_beside(command, timeout=TIMEOUT, cwd=directory, max_output=2 * OUTPUT)


_CUT_OFF = 141
"""git was ended by SIGPIPE: it had more to print than is read."""


def _differences(done: ShellResult) -> Differences:
    top, _, rest = done.stdout.partition("\0")
    filters, _, output = rest.partition("\0")
    names = sorted({name.removeprefix("filter.").rpartition(".")[0] for name in filters.split("\n") if name})
    complete = done.exit_code == 0
    return Differences(top, changes_of(output, complete=complete), tuple(names), complete=complete)


def _failure(args: _Arguments, done: ShellResult) -> ToolResult | None:
    """What to tell when there are no differences to show."""
    if done.status is not Status.COMPLETED:
        return shell_result(done)
    code, said = done.exit_code, clip(done.stderr.strip(), 2_000)
    if code in (0, _CUT_OFF):
        return None
    name, text = _FAILURES.get(code or 0, ("git_failed", "git ended with exit code {code}: {said}"))
    return ToolResult.failure(name, text.format(path=args.path, code=code, said=said or "it said nothing"))


_FAILURES = {
    STRANGE_FILTER: ("unsafe_filter", "not compared: {said} is configured, and git cannot be kept from running it"),
    FOREIGN_TREE: ("foreign_work_tree", "not compared: its work tree is {said}, which is not the repository's own"),
    WAITS: ("not_a_file", "not compared: {said} is a pipe or a device, and git would wait for it"),
    NO_TREE: ("no_work_tree", "{path} has no work tree: give a range of two revisions as ref"),
    NO_GIT: ("no_git", "there is no git on the target"),
    NO_REPOSITORY: ("no_repository", "{path} is in no git repository that can be used: {said}"),
}


# -- new files


@dataclass(frozen=True, slots=True)
class _New:
    """``shown`` are files, ``directories`` repositories inside this one, which git does not look into."""

    shown: list[str]
    directories: list[str]
    dropped: int


def _chosen(listed: str) -> _New:
    names = [name for name in listed.split("\0") if name]
    chosen: list[str] = []
    room = NAMES
    for name in names[:NEW_FILES]:
        room -= len(name.encode("utf-8", "surrogateescape"))
        if room < 0:
            break
        chosen.append(name)
    files = [name for name in chosen if not name.endswith("/")]
    return _New(files, [name for name in chosen if name.endswith("/")], len(names) - len(chosen))


async def _untracked(
    args: _Arguments, ctx: ToolContext, directory: str, root: str
) -> tuple[list[Change], int] | ToolResult:
    """Each new file as a change, and how many were left out."""
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
