"""What keys would make the foreground of a pane do: a command at a shell's prompt, a password, or something unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ...errors import JobNotFound
from ...results import Status
from ..jobpanes import resolved_pane
from ..values import Subject
from .shellchars import hidden_character
from .shellkeys import HARMLESS_KEYS, Key, Typed, at_prompt, parse_keys, typed_line, without_names

if TYPE_CHECKING:
    from ...results import PaneInfo
    from ..context import ToolContext

__all__ = ["KeysJudgement", "KeysRule", "judge_keys", "judge_typing"]

KeysRule = Literal["command", "password", "program", "harmless", "unknown"]

SHELLS = frozenset({"bash", "zsh", "sh", "dash", "ash", "fish", "ksh", "mksh", "busybox"})
PAGERS = frozenset({"less", "more", "most", "man", "pager", "journalctl", "systemctl"})
ESCAPES = frozenset({*PAGERS, "vi", "vim", "nvim", "view", "ex", "ed", "ftp", "sftp", "gdb", "psql", "mutt", "mail"})
"""Programs in which ``!`` runs a command."""
ASKERS = frozenset(
    [
        *("su", "sudo", "doas", "passwd", "login", "ssh", "scp", "sftp", "ssh-add", "ssh-keygen", "cryptsetup", "chsh"),
        *("chfn", "runuser", "pkexec", "gpg", "pinentry", "pinentry-curses", "pinentry-tty", "kinit"),
    ]
)
"""Programs that ask for secrets."""
_PAGING = frozenset("qgGbfdujknN hp")
_SECRET = re.compile(
    r"(?i)\b(?:pass(?:word|phrase|code|wd)?|pin|token|otp|secret|verification code|authenticator|2fa|mot de passe"
    r"|kennwort|passwort|contrase.a|senha)\b[^\n]{0,80}[:?>]\s*$"
)
_ASKS = re.compile(r"[:?]\s*$")


@dataclass(frozen=True, slots=True)
class KeysJudgement:
    """What decides about the keys.

    ``command``: at a shell's prompt; the ``subjects`` are the commands that they start or begin, to be judged as such.
    ``password``: they go into a question for a secret, which asks always. ``program``: ``program`` reads them, and it
    is not known what it does with them, which asks. ``unknown``: it cannot be told what they do, which asks.
    ``harmless``: they interrupt or move about. ``reason`` is for the person who is asked; empty for the others.
    """

    rule: KeysRule
    subjects: tuple[Subject, ...] = ()
    reason: str = ""
    program: str = ""


async def judge_keys(subject: Subject, ctx: ToolContext) -> KeysJudgement:
    """Judge what is typed into a pane, by what reads it there.

    What the screen shows can only make the judgement stricter, but for one thing: the line at a shell's prompt is
    taken for what is typed there.

    Raises:
        HarnessError: the link was lost.
    """
    if not ctx.execution.has_terminal:
        return KeysJudgement(
            "unknown", reason="this target is used without a terminal, so there is no pane to type into"
        )
    subject = replace(subject, pane=await resolved_pane(subject.pane, ctx.execution))
    wanted = subject.pane or ctx.execution.pane
    pane = _pane_of(await ctx.execution.list_panes(), wanted)
    if pane is None:
        return KeysJudgement("unknown", reason=f"there is no pane {wanted or 'of the session'}")
    pane = await _settled(pane, ctx)
    screen = await ctx.execution.capture_pane(pane=subject.pane)
    return judge_typing(subject, pane, screen)


async def _settled(pane: PaneInfo, ctx: ToolContext) -> PaneInfo:
    """The pane without the mark of a job that has ended: the mark goes a moment after the result came."""
    number = pane.busy.removeprefix("job ")
    if not pane.busy or not number.isdecimal():
        return pane
    try:
        job = await ctx.execution.job(number)
    except JobNotFound:
        return pane
    return replace(pane, busy="") if job.status in (Status.COMPLETED, Status.INTERRUPTED, Status.TIMED_OUT) else pane


def _pane_of(panes: list[PaneInfo], wanted: str | None) -> PaneInfo | None:
    return next(
        (pane for pane in panes if (pane.default if wanted is None else wanted in (pane.name, pane.pane_id))), None
    )


def judge_typing(subject: Subject, pane: PaneInfo, screen: str) -> KeysJudgement:
    """The judgement, from what is known of the pane. Pure."""
    hidden = hidden_character(subject.text.replace("\r", "\n"))
    if hidden:
        return KeysJudgement("unknown", reason=f"the keys contain a character that is not seen as what it is: {hidden}")
    keys = parse_keys(subject.text)
    if keys is None:
        return KeysJudgement("unknown", reason="the keys cannot be read: a typed < is written <lt>")
    return KeysJudgement("harmless") if without_names(keys) else _typed(subject, keys, pane, screen)


def _typed(subject: Subject, keys: tuple[Typed, ...], pane: PaneInfo, screen: str) -> KeysJudgement:
    program = pane.foreground.lstrip("-")
    prompt = program in SHELLS and not pane.busy
    line = typed_line(screen, pane.width) if prompt else None
    if line is not None:
        return _at_prompt(subject, keys, line)
    if _wants_secret(program, screen):
        return KeysJudgement("password", reason=f"{program or 'a program'} asks for a secret", program=program)
    if prompt:
        return KeysJudgement("unknown", reason=f"the prompt of {program} is not known, nor what is typed there")
    return _into_program(keys, pane, program)


def _at_prompt(subject: Subject, keys: tuple[Typed, ...], line: str) -> KeysJudgement:
    """Screens do not show blanks at the end of a line, so what is typed there may end with one: both are judged."""
    found: dict[str, None] = {}
    for typed in dict.fromkeys((line, f"{line} ") if line else ("",)):
        commands = at_prompt(keys, typed)
        if isinstance(commands, str):
            return KeysJudgement("unknown", reason=commands)
        found.update(dict.fromkeys(commands))
    if not found:
        return KeysJudgement("harmless")
    return KeysJudgement("command", tuple(replace(subject, kind="command", text=text) for text in found))


def _wants_secret(program: str, screen: str) -> bool:
    last = next((line for line in reversed(screen.split("\n")) if line.strip()), "")
    return _SECRET.search(last) is not None or (program in ASKERS and _ASKS.search(last) is not None)


def _into_program(keys: tuple[Typed, ...], pane: PaneInfo, program: str) -> KeysJudgement:
    """Keys for something that is not a shell at its prompt."""
    name = program or "an unknown program"
    if program in SHELLS:
        reason = f"{pane.busy} runs in {program} and may read the keys"
        return KeysJudgement("program", reason=reason, program=program)
    text = "".join(item for item in keys if isinstance(item, str))
    if program in ESCAPES and "!" in text:
        return KeysJudgement("program", reason=f"! runs a command in {name}", program=program)
    if program in PAGERS and _only_pages(keys):
        return KeysJudgement("harmless", program=program)
    return KeysJudgement(
        "program", reason=f"{name} reads the keys, and what it does with them is not known", program=program
    )


def _only_pages(keys: tuple[Typed, ...]) -> bool:
    """Letters that move about in a pager; behind the ``q`` that ends it there is nothing."""
    text = "".join(item if isinstance(item, str) else "\0" for item in keys)
    fine = all(item.name in HARMLESS_KEYS for item in keys if isinstance(item, Key))
    letters = text.replace("\0", "")
    return fine and all(letter in _PAGING for letter in letters) and "q" not in text[:-1]
