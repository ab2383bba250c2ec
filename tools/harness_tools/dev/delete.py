"""``delete``: a file or a directory goes to the trash of the target."""

from __future__ import annotations

import secrets

from pydantic import AliasChoices, Field

from harness.errors import FileError
from harness.results import FileStat, ShellResult, Status
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import target_path

from ..texts import Line
from .staying import kept_in
from .trash import Place, Places, facts_script, move_script, parse_facts, protection, restore

__all__ = ["Delete"]

LIMIT = 60.0
"""Seconds for one of the scripts; nothing is copied."""
NO_PLACE = frozenset({72, 73})
"""How the script ends when this trash cannot be used, and another one may."""
REASONS = {
    70: ("file_not_found", "there is no such file any more"),
    71: ("permission_denied", "its directory may not be written to by the target's user"),
}


class _Arguments(MutatingArguments):
    path: Line = Field(
        description="the file or directory; a link goes itself, never what it leads to",
        validation_alias=AliasChoices("path", "file", "file_path"),
    )


class Delete(Tool[_Arguments]):
    """``delete``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Move a file or a directory to the trash of the target, from which the answer says how to bring it back. "
            "Directories of the system and the home directory are refused."
        )
        super().__init__("delete", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        stat = await ctx.execution.stat(target_path(ctx, args.path), follow=False)
        places = await _places(ctx, stat.path)
        if isinstance(places, ToolResult):
            return places
        reason = protection(stat.path, places) or await _in_use(ctx, stat)
        if reason:
            text = f"{stat.path} does not go to the trash: {reason}. Use a command if you mean it"
            return ToolResult.failure("protected", text)
        if stat.type == "dir" and (kept := await kept_in(ctx, stat.path, places.trashes)):
            return kept
        for place in places.trashes:
            done = await _script(ctx, move_script(stat.path, place, secrets.token_hex(8)))
            if done.exit_code not in NO_PLACE:
                return _result(ctx, stat, place, done)
        why = f" ({last})" if (last := done.stderr.strip().rpartition("\n")[2][:200]) else ""
        text = f"no trash directory can be used on the file system of {stat.path}{why}. Nothing was moved"
        return ToolResult.failure("no_trash", text)


async def _in_use(ctx: ToolContext, stat: FileStat) -> str:
    """That the session works there, where no call would find its files any more; empty when it does not."""
    if stat.type != "dir" or ctx.cwd is None:
        return ""
    try:
        here = (await ctx.execution.stat(ctx.cwd)).path
    except FileError:
        return ""
    return "this session works in it" if f"{here}/".startswith(f"{stat.path.rstrip('/')}/") else ""


async def _script(ctx: ToolContext, script: str) -> ShellResult:
    return await ctx.execution.run_beside(script, cwd="/", timeout=LIMIT)


async def _places(ctx: ToolContext, path: str) -> Places | ToolResult:
    done = await _script(ctx, facts_script(path, ctx.execution.capabilities.state_dir))
    places = parse_facts(done.stdout_bytes) if done.ok else None
    why = done.stderr.strip()[:200] or done.status
    text = f"where the trash of the target is could not be found out ({why}). Nothing was moved"
    return places or ToolResult.failure("no_trash", text)


def _result(ctx: ToolContext, stat: FileStat, place: Place, done: ShellResult) -> ToolResult:
    if done.status is not Status.COMPLETED:
        text = f"whether {stat.path} was moved to {place.directory} is unknown: look before you repeat it"
        return ToolResult.failure("unknown", text)
    if not done.ok:
        code, reason = REASONS.get(done.exit_code or 0, ("not_moved", done.stderr.strip()[:200] or "mv failed"))
        return ToolResult.failure(code, f"{stat.path} was not moved: {reason}")
    ctx.reads.forget(stat.path)
    name = done.stdout.removesuffix("\0")
    back = restore(stat.path, place, name)
    facts: Json = {
        "path": stat.path,
        "type": stat.type,
        "trash_path": f"{place.directory}/files/{name}",
        "info": f"{place.directory}/info/{name}.trashinfo",
        "restore": back,
    }
    text = f"Moved {stat.path} to {place.directory}/files/{name}\nTo bring it back: {back}"
    return ToolResult.of(text, data=facts)
