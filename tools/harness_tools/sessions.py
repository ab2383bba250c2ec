"""The sessions and panes of the target's terminal."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from harness.errors import NotADirectory
from harness.results import PaneInfo, SessionInfo
from harness.toolkit import Arguments, Category, Json, MutatingArguments, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import target_path

from .texts import Line, readable_line, readable_name

__all__ = ["CreatePane", "CreateSession", "KillPane", "KillSession", "ListPanes", "ListSessions", "tools"]

NEEDS = ("tmux",)
PACKS = ("panes",)
SESSION = AliasChoices("session", "name")
PANE = AliasChoices("pane", "name")
OTHER = "this works in session {used!r} only: leave session out, or give that name"


def _traits(*aliases: str, mutating: bool) -> Traits:
    return Traits(
        category=Category.SHELL,
        mutating=mutating,
        parallelizable=not mutating,
        requires=NEEDS,
        aliases=aliases,
        packs=PACKS,
    )


class _ListPanes(Arguments):
    """No arguments."""


class ListPanes(Tool[_ListPanes]):
    """``tmux_list_panes``."""

    def __init__(self) -> None:
        text = "List the panes of the session in use: name, size, what runs in each, and what holds it."
        super().__init__("tmux_list_panes", text, _ListPanes, _traits("list_panes", mutating=False))

    async def run(self, args: _ListPanes, ctx: ToolContext) -> ToolResult:
        panes = await ctx.execution.list_panes()
        facts: list[Json] = [_pane_facts(pane) for pane in panes]
        text = "\n".join(_pane_line(pane) for pane in panes) or "(no panes)"
        return ToolResult.of(text, data={"panes": facts}, metadata={"matches": len(panes)})


def _pane_line(pane: PaneInfo) -> str:
    mark = " (default)" if pane.default else ""
    held = f", held by {pane.busy}" if pane.busy else ""
    place = f" in {readable_name(pane.cwd)}" if pane.cwd else ""
    runs = readable_line(pane.foreground)
    return f"{readable_line(pane.name)}{mark}  {pane.pane_id}  {pane.width}x{pane.height}  {runs}{place}{held}"


def _pane_facts(pane: PaneInfo) -> Json:
    return {
        "pane": pane.name,
        "pane_id": pane.pane_id,
        "session": pane.session,
        "default": pane.default,
        "width": pane.width,
        "height": pane.height,
        "foreground": pane.foreground,
        "cwd": pane.cwd,
        "busy": pane.busy,
    }


class _ListSessions(Arguments):
    """No arguments."""


class ListSessions(Tool[_ListSessions]):
    """``tmux_list_sessions``."""

    def __init__(self) -> None:
        text = "List the tmux sessions that harness keeps on the target, their panes, and how many people are attached."
        super().__init__("tmux_list_sessions", text, _ListSessions, _traits("list_sessions", mutating=False))

    async def run(self, args: _ListSessions, ctx: ToolContext) -> ToolResult:
        sessions = await ctx.execution.list_sessions()
        facts: list[Json] = [_session_facts(session) for session in sessions]
        text = "\n".join(_session_line(session) for session in sessions) or "(no sessions)"
        return ToolResult.of(text, data={"sessions": facts}, metadata={"matches": len(sessions)})


def _session_line(session: SessionInfo) -> str:
    panes = ", ".join(readable_line(pane.name) for pane in session.panes)
    return f"{readable_line(session.name)}  {session.attached} attached" + (f"  panes: {panes}" if panes else "")


def _session_facts(session: SessionInfo) -> Json:
    panes: list[Json] = [pane.name for pane in session.panes]
    return {"session": session.name, "attached": session.attached, "default": session.default, "panes": panes}


class _Session(MutatingArguments):
    session: Line = Field(description="its name", validation_alias=SESSION, max_length=64)


class _Pane(MutatingArguments):
    pane: Line = Field(description="its name", validation_alias=PANE, max_length=64)
    session: Line | None = Field(None, description="the session in use; panes of others are not touched", max_length=64)


class _NewPane(_Pane):
    cwd: Line | None = Field(
        None, description="where its shell starts", validation_alias=AliasChoices("cwd", "working_dir")
    )


class CreateSession(Tool[_Session]):
    """``tmux_create_session``."""

    def __init__(self) -> None:
        text = "Make a tmux session on the target, which people can attach to, within the operator's limit."
        super().__init__("tmux_create_session", text, _Session, _traits("create_session", mutating=True))

    async def run(self, args: _Session, ctx: ToolContext) -> ToolResult:
        made = await ctx.execution.create_session(args.session)
        return ToolResult.of(f"made session {made.name}", data=_session_facts(made))


class KillSession(Tool[_Session]):
    """``tmux_kill_session``."""

    def __init__(self) -> None:
        text = "End a tmux session that harness made, with everything that runs in it. The one in use is protected."
        super().__init__("tmux_kill_session", text, _Session, _traits("kill_session", mutating=True))

    async def run(self, args: _Session, ctx: ToolContext) -> ToolResult:
        await ctx.execution.kill_session(args.session)
        return ToolResult.of(f"ended session {args.session}", data={"session": args.session})


class CreatePane(Tool[_NewPane]):
    """``tmux_create_pane``."""

    def __init__(self) -> None:
        text = (
            "Make a pane with a fresh shell in the session in use, within the operator's limit. run_shell, "
            "capture_pane and send_keys take its name as pane."
        )
        super().__init__("tmux_create_pane", text, _NewPane, _traits("create_pane", mutating=True))

    async def run(self, args: _NewPane, ctx: ToolContext) -> ToolResult:
        refusal = await _elsewhere(args.session, ctx)
        if refusal is not None:
            return refusal
        made = await ctx.execution.create_pane(args.pane, cwd=await _directory(args.cwd, ctx) if args.cwd else ctx.cwd)
        return ToolResult.of(f"made pane {made.name} ({made.pane_id})", data=_pane_facts(made))


async def _directory(cwd: str, ctx: ToolContext) -> str:
    """The directory that is meant, which has to be there: a shell that cannot enter one starts elsewhere, and no word.

    Raises:
        FileError: there is none.
    """
    found = await ctx.execution.stat(target_path(ctx, cwd))
    if found.type != "dir":
        raise NotADirectory(f"{cwd} is no directory, so no pane was made", target=ctx.execution.target)
    return found.path


class KillPane(Tool[_Pane]):
    """``tmux_kill_pane``."""

    def __init__(self) -> None:
        text = "End a pane that harness made, with what runs in it. The default one is protected."
        super().__init__("tmux_kill_pane", text, _Pane, _traits("kill_pane", mutating=True))

    async def run(self, args: _Pane, ctx: ToolContext) -> ToolResult:
        refusal = await _elsewhere(args.session, ctx)
        if refusal is not None:
            return refusal
        if ctx.execution.pane is not None and await _is_in_use(args.pane, ctx):
            return ToolResult.failure("pane_in_use", f"pane {args.pane} is the one in use, and is protected")
        await ctx.execution.kill_pane(args.pane)
        return ToolResult.of(f"ended pane {args.pane}", data={"pane": args.pane})


async def _is_in_use(name: str, ctx: ToolContext) -> bool:
    """Whether a name or tmux's id is that of the pane in which this session's commands run."""
    names = {name}
    for pane in await ctx.execution.list_panes():
        if name in (pane.name, pane.pane_id):
            names |= {pane.name, pane.pane_id}
    return ctx.execution.pane in names


async def _elsewhere(session: str | None, ctx: ToolContext) -> ToolResult | None:
    """The refusal of a pane in another session."""
    if session is None:
        return None
    used = {pane.session for pane in await ctx.execution.list_panes()}
    if not used or session in used:
        return None
    return ToolResult.failure("other_session", OTHER.format(used=min(used)))


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [CreatePane(), CreateSession(), KillPane(), KillSession(), ListPanes(), ListSessions()]
