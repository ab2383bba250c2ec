"""The terminal tools: tmux sessions and panes, their screens, and typed keys."""

from __future__ import annotations

from typing import Any, Literal

import anyio
from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.errors import NotADirectory
from harness.results import Job, PaneInfo, SessionInfo, Status
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.results import note_job, shell_result
from harness.toolkit.session.file_versions import target_path
from harness.toolkit.session.job_watch import pane_of_job
from harness.toolkit.values import Advice

from .background import JobId
from .texts import Duration, Line, readable_line, readable_name, seconds_of

__all__ = [
    "CapturePane",
    "SendKeys",
    "keys_text",
    "tools",
]


# -- tmux sessions and panes on the target.


NEEDS = ("tmux",)
NEEDS_PANES = ("panes",)
"""The operator's own panes will do, in which no command runs."""
PACKS = ("panes",)
SESSION = AliasChoices("session", "name")
PANE = AliasChoices("pane", "name")
OTHER = "this works only in session {used!r}: omit session, or use that name"
_STOP = Advice("; send_keys with C-c stops what runs in it", tools=("send_keys",))


def _traits(*aliases: str, mutating: bool, requires: tuple[str, ...] = NEEDS) -> Traits:
    return Traits(
        category=Category.SHELL,
        mutating=mutating,
        parallelizable=not mutating,
        requires=requires,
        aliases=aliases,
        packs=PACKS,
    )


class _ListPanes(Arguments):
    """No arguments."""


class ListPanes(Tool[_ListPanes]):
    """``tmux_list_panes``."""

    def __init__(self) -> None:
        text = "List the panes of the current session: name, size, foreground program, and what keeps it busy."
        traits = _traits("list_panes", mutating=False, requires=NEEDS_PANES)
        super().__init__("tmux_list_panes", text, _ListPanes, traits)

    async def run(self, args: _ListPanes, ctx: ToolContext) -> ToolResult:
        panes = await ctx.execution.list_panes()
        facts: list[Json] = [_pane_facts(pane) for pane in panes]
        text = "\n".join(_pane_line(pane) for pane in panes) or "(no panes)"
        return ToolResult.of(text, data={"panes": facts}, metadata={"matches": len(panes)})


def _pane_line(pane: PaneInfo) -> str:
    mark = " (default)" if pane.default else ""
    held = f", held by {pane.busy}" if pane.busy else ""
    if pane.lent is not None:
        held += ", lent" if pane.lent else ", not lent"
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
        "lent": pane.lent,
    }


class _ListSessions(Arguments):
    """No arguments."""


class ListSessions(Tool[_ListSessions]):
    """``tmux_list_sessions``."""

    def __init__(self) -> None:
        text = "List harness's tmux sessions on the target, their panes, and the number of attached clients."
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
    session: Line | None = Field(
        None, description="the current session; panes of others cannot be changed", max_length=64
    )


class _NewPane(_Pane):
    cwd: Line | None = Field(
        None, description="where its shell starts", validation_alias=AliasChoices("cwd", "working_dir")
    )


class CreateSession(Tool[_Session]):
    """``tmux_create_session``."""

    def __init__(self) -> None:
        text = "Create a tmux session on the target, which users can attach to, within the operator's limit."
        super().__init__("tmux_create_session", text, _Session, _traits("create_session", mutating=True))

    async def run(self, args: _Session, ctx: ToolContext) -> ToolResult:
        made = await ctx.execution.create_session(args.session)
        return ToolResult.of(f"created session {made.name}", data=_session_facts(made))


class KillSession(Tool[_Session]):
    """``tmux_kill_session``."""

    def __init__(self) -> None:
        text = "End a tmux session that harness created, with everything that runs in it. The current one is protected."
        super().__init__("tmux_kill_session", text, _Session, _traits("kill_session", mutating=True))

    async def run(self, args: _Session, ctx: ToolContext) -> ToolResult:
        await ctx.execution.kill_session(args.session)
        return ToolResult.of(f"ended session {args.session}", data={"session": args.session})


class CreatePane(Tool[_NewPane]):
    """``tmux_create_pane``."""

    def __init__(self) -> None:
        text = (
            "Create a pane with a fresh shell in the current session, within the operator's limit. run_shell, "
            "capture_pane and send_keys take its name as pane."
        )
        super().__init__("tmux_create_pane", text, _NewPane, _traits("create_pane", mutating=True))

    async def run(self, args: _NewPane, ctx: ToolContext) -> ToolResult:
        refusal = await _elsewhere(args.session, ctx)
        if refusal is not None:
            return refusal
        made = await ctx.execution.create_pane(args.pane, cwd=await _directory(args.cwd, ctx) if args.cwd else ctx.cwd)
        return ToolResult.of(f"created pane {made.name} ({made.pane_id})", data=_pane_facts(made))


async def _directory(cwd: str, ctx: ToolContext) -> str:
    """Return the directory, which must exist: a shell that cannot enter it would silently start elsewhere.

    Raises:
        FileError: The directory does not exist.
    """
    found = await ctx.execution.stat(target_path(ctx, cwd))
    if found.type != "dir":
        raise NotADirectory(f"{cwd} is not a directory, so no pane was created", target=ctx.execution.target)
    return found.path


class KillPane(Tool[_Pane]):
    """``tmux_kill_pane``."""

    def __init__(self) -> None:
        text = "End a pane that harness created, with what runs in it. The default one is protected."
        super().__init__("tmux_kill_pane", text, _Pane, _traits("kill_pane", mutating=True))

    async def run(self, args: _Pane, ctx: ToolContext) -> ToolResult:
        refusal = await _elsewhere(args.session, ctx)
        if refusal is not None:
            return refusal
        named = [pane for pane in await ctx.execution.list_panes() if args.pane in (pane.name, pane.pane_id)]
        if ctx.execution.pane in {args.pane, *(name for pane in named for name in (pane.name, pane.pane_id))}:
            return _protected("pane_in_use", f"pane {args.pane} is in use and protected")
        if any(pane.default for pane in named):
            return _protected("terminal_error", "the default pane is protected")
        await ctx.execution.kill_pane(args.pane)
        return ToolResult.of(f"ended pane {args.pane}", data={"pane": args.pane})


def _protected(code: str, text: str) -> ToolResult:
    return ToolResult.failure(code, f"{text}{_STOP.text}", advice=(_STOP,))


async def _elsewhere(session: str | None, ctx: ToolContext) -> ToolResult | None:
    """Return the refusal of a pane in another session."""
    if session is None:
        return None
    used = {pane.session for pane in await ctx.execution.list_panes()}
    if not used or session in used:
        return None
    return ToolResult.failure("other_session", OTHER.format(used=min(used)))


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [CreatePane(), CreateSession(), KillPane(), KillSession(), ListPanes(), ListSessions()]


# -- ``capture_pane`` and ``send_keys``.


SCREEN = OutputLimit(8_000, 8_000)
"""The end of a screen shows the current state."""
MAX_DELAY = 600.0
"""Maximum seconds that a call waits before it captures or types."""
TARGET = AliasChoices("pane", "target")
JOB = AliasChoices("bash_id", "shell_id", "job_id")
NO_ALTERNATE = "[notice: there is no alternate screen; this is the main screen]"
LINE_TIMEOUT = 1.0
"""Seconds in which a line that runs as a command may end before the call returns."""
_LOOK = Advice("; capture_pane shows the result", tools=("capture_pane",))


LONGEST_MS = 1 << 30
"""Larger values are equally invalid, and may be too large to be divided."""


def _pause(delay: float | str | None, delay_ms: int | None) -> float:
    if delay is not None:
        return seconds_of(delay)
    return min(delay_ms or 0, LONGEST_MS) / 1000


def keys_text(literal: str, keys: tuple[str, ...], *, enter: bool) -> str:
    """Return the keys as the policy reads them: named keys in angle brackets, ``<lt>`` for a typed one. Pure."""
    names = (*keys, *(("Enter",) if enter else ()))
    return literal.replace("<", "<lt>") + "".join(f"<{name}>" for name in names)


class _Delayed(Arguments):
    pane: Line | None = Field(
        None, description="a pane's name or tmux's id, instead of the default one", validation_alias=TARGET
    )
    bash_id: JobId | None = Field(None, description="use the pane of this job", validation_alias=JOB)
    delay: Duration | None = Field(None, description="wait first: seconds, or a text such as 2s; at most 10m")
    delay_ms: int | None = Field(None, ge=0, description="the same in milliseconds")

    @model_validator(mode="after")
    def _one_delay(self) -> _Delayed:
        if self.delay is not None and self.delay_ms is not None:
            raise ValueError("delay and delay_ms contradict each other")
        if self.pause > MAX_DELAY:
            raise ValueError("the maximum is 10m: call it again for more")
        if self.bash_id is not None and self.pane is not None:
            raise ValueError("pane and bash_id contradict each other")
        return self

    @property
    def pause(self) -> float:
        """Seconds to wait first."""
        return _pause(self.delay, self.delay_ms)


class _Capture(_Delayed):
    start: int | Literal["-"] | None = Field(
        None, description="first line: 0 is the top of the screen, -5 is five lines above it, - is the oldest"
    )
    end: int | Literal["-"] | None = Field(None, description="last line; - is the bottom of the screen")
    join_wrapped_lines: bool = Field(True, description="join lines that the screen wrapped")
    preserve_trailing_spaces: bool = False
    include_escape_sequences: bool = Field(False, description="keep colors")
    escape_non_printable: bool = Field(False, description=r"show non-printable characters as \ooo")
    include_alternate_screen: bool = Field(False, description="capture the alternate screen")

    @field_validator("start", "end", mode="before")
    @classmethod
    def _number(cls, line: object) -> object:
        is_number = isinstance(line, str) and line.strip().removeprefix("-").isdecimal()
        return int(str(line)) if is_number else line


class CapturePane(Tool[_Capture]):
    """``capture_pane``."""

    def __init__(self) -> None:
        text = "Show the screen of a tmux pane, now or after a delay: for programs that are still running."
        traits = Traits(
            category=Category.SHELL,
            parallelizable=True,
            requires=NEEDS_PANES,
            aliases=("capture-pane", "tmux_capture_pane"),
            packs=("core", "panes"),
            limit=SCREEN,
        )
        super().__init__("capture_pane", text, _Capture, traits)

    def subjects(self, args: _Capture) -> tuple[Subject, ...]:
        return (Subject("screen", self.name, pane=args.pane),) if args.bash_id is None else ()

    async def run(self, args: _Capture, ctx: ToolContext) -> ToolResult:
        pane = args.pane
        if args.bash_id is not None:
            job = await ctx.execution.job(args.bash_id)
            if job.status is not Status.RUNNING:  # its pane may show something else now
                return _screen(await ctx.execution.capture_pane(job_id=job.job_id, delay=args.pause))
            pane = job.pane
            if pane is None:
                return no_pane(job)
        return await self._captured(args, pane, ctx)

    async def _captured(self, args: _Capture, pane: str | None, ctx: ToolContext) -> ToolResult:
        if args.include_alternate_screen:
            text = await _capture(replace_end(args), pane, ctx, alternate=True, delay=args.pause)
            if text:
                return _screen(text if args.end is not None else text.rstrip("\n") + "\n")
            return _screen(await _capture(args, pane, ctx), NO_ALTERNATE)
        return _screen(await _capture(args, pane, ctx, delay=args.pause))


def replace_end(args: _Capture) -> _Capture:
    """Return the arguments with the bottom of the screen as end: then an empty result means no alternate screen."""
    return args if args.end is not None else args.model_copy(update={"end": "-"})


async def _capture(
    args: _Capture, pane: str | None, ctx: ToolContext, *, alternate: bool = False, delay: float = 0.0
) -> str:
    return await ctx.execution.capture_pane(
        pane=pane,
        start=args.start,
        end=args.end,
        join_wrapped_lines=args.join_wrapped_lines,
        preserve_trailing_spaces=args.preserve_trailing_spaces,
        include_escape_sequences=args.include_escape_sequences,
        escape_non_printable=args.escape_non_printable,
        include_alternate_screen=alternate,
        delay=delay,
    )


def _screen(text: str, notice: str = "") -> ToolResult:
    shown = text if text.strip() else "(the screen is empty)"
    data: Json = {"screen": text, "notice": notice}
    return ToolResult.of(f"{shown.rstrip()}\n{notice}" if notice else shown, data=data)


def no_pane(job: Job) -> ToolResult:
    """Return the failure for a job that has no pane, or has ended."""
    ended = job.status is not Status.RUNNING
    why = "has ended" if ended else "runs in no pane"
    way = Advice("; bash_output has its output", tools=("bash_output",))
    return ToolResult.failure("no_pane", f"job {job.job_id} {why}{way.text}", advice=(way,))


class _Send(_Delayed, MutatingArguments):
    literal_text: Line | None = Field(None, description="typed first, literally")
    keys: tuple[Line, ...] = Field((), description="then these, by tmux's names: C-c, Up, F1, Escape")
    enter: bool = Field(False, description="then Enter")

    @model_validator(mode="after")
    def _something(self) -> _Send:
        if not (self.literal_text or self.keys or self.enter):
            raise ValueError("nothing to type: give literal_text, keys or enter")
        return self


class SendKeys(Tool[_Send]):
    """``send_keys``."""

    def __init__(self) -> None:
        text = (
            "Type into a tmux pane, to answer a prompt or to interrupt a program. To run a command use run_shell, "
            "which returns its output and exit code."
        )
        traits = Traits(
            category=Category.SHELL,
            mutating=True,
            requires=NEEDS_PANES,
            aliases=("send-keys", "tmux_send_keys"),
            packs=("core", "panes"),
        )
        super().__init__("send_keys", text, _Send, traits)

    def subjects(self, args: _Send) -> tuple[Subject, ...]:
        pane = args.pane if args.bash_id is None else pane_of_job(args.bash_id)
        return (Subject("keys", keys_text(args.literal_text or "", args.keys, enter=args.enter), pane=pane),)

    async def run(self, args: _Send, ctx: ToolContext) -> ToolResult:
        if args.pause:
            await anyio.sleep(args.pause)
            verdict = await ctx.permitted(self.subjects(args))  # another program may read the keys now
            if not verdict.allowed:
                return ToolResult.failure("denied", f"not typed after the delay: {verdict.reason}")
        pane = args.pane
        if args.bash_id is not None:
            job = await ctx.execution.job(args.bash_id)
            if job.status is not Status.RUNNING or job.pane is None:  # a shell would run them as a command
                return no_pane(job)
            pane = job.pane
        if ctx.notes.keys_command is not None:
            return await _run_line(ctx.notes.keys_command, ctx)
        await ctx.execution.send_keys(args.keys, literal_text=args.literal_text, enter=args.enter, pane=pane)
        return ToolResult.of(f"typed{_LOOK.text}", advice=(_LOOK,))


async def _run_line(command: Subject, ctx: ToolContext) -> ToolResult:
    """Run the line that was checked as a command; if it were typed, a line editor could change it."""
    done = await ctx.execution.run_shell(command.text, pane=command.pane, wait=LINE_TIMEOUT, on_timeout="keep")
    note_job(done, ctx)
    if done.status is Status.UNKNOWN:
        return shell_result(done, ctx=ctx)
    outcome = "runs" if done.exit_code is None else f"ended with exit code {done.exit_code}"
    return ToolResult.of(f"typed: it {outcome} as job {done.job_id}{_LOOK.text}", advice=(_LOOK,))
