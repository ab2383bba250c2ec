"""Keys that are typed into a pane: what they do there, and what is judged of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import anyio

from ....errors import JobNotFound
from ....results import Status
from ...session.job_watch import resolved_pane
from ...values import Subject
from ..lookalikes import hidden_character

if TYPE_CHECKING:
    from ....results import PaneInfo
    from ...contract import ToolContext

__all__ = [
    "Key",
    "KeysClassification",
    "KeysRule",
    "Typed",
    "has_empty_prompt",
    "judge_keys",
    "judge_typing",
    "only_interrupts",
    "only_pages",
    "parse_keys",
    "whole_line",
]


# -- The keys of a call, and what is known of a shell's prompt from its screen. Pure.
#
# The text of keys has named keys in angle brackets; a typed ``<`` is ``<lt>``: ``sort <lt>in<Enter>``.


_TOKEN = re.compile(r"<(?P<key>(?:[CMScms]-|\^)*(?:[^<>]{1,20}|[<>]))>|(?P<text>[^<]+)|(?P<odd><)", re.DOTALL)
_MODIFIED = re.compile(r"(?:[CMScms]-|\^)+(?=.)", re.DOTALL)
_INTERRUPT = "c-c"
_PAGING_KEYS = frozenset({"c-c", "c-l", "up", "down", "pageup", "pagedown", "npage", "ppage", "pgup", "pgdn"})
"""None that moves within a line: when the pager ends in this moment, a shell reads them."""
_PAGING_LETTERS = frozenset("qgGbfdujknN hp")
_ENTER = frozenset({"enter", "kpenter", "c-m", "c-j"})
_LINE_END = ("\r\n", "\n", "\r")
_PROMPT = re.compile(
    r"(?:\[I\] )?(?:\[harness [^\]\n]{1,40}\] ?)?(?:\([\w.-]+\) )*"
    r"(?:[\w.-]+@[\w.-]+:? ?[^\s'\"|&;<>]*|\[[\w.-]+@[\w.-]+ [^\s\]'\"]+\]|[\w.-]+|)"
    r"(?: \[[\d|]+\])?(?:[$#%]|(?<=\S)>|\u276f) *",
    re.ASCII,
)
_CONTINUES = re.compile(r"(?:[a-z]+ ?)*>", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A named key, in small letters (``c-c``, ``enter``)."""

    name: str


Typed = str | Key


def parse_keys(text: str) -> tuple[Typed, ...] | None:
    """The texts and keys, in order; None when a ``<`` is neither a key's nor written as ``<lt>``."""
    found: list[Typed] = []
    for match in _TOKEN.finditer(text):
        if match["odd"]:
            return None
        item = match["text"] if match["text"] is not None else _key(match["key"])
        if isinstance(item, str) and found and isinstance(found[-1], str):
            found[-1] += item
        else:
            found.append(item)
    return tuple(found)


def _key(name: str) -> Typed:
    """A key that only types its letter is text."""
    if name == "lt":
        return "<"
    if name.lower() == "space":
        return " "
    if len(name) == 1:
        return name
    mods = _MODIFIED.match(name)
    if mods is None:
        return Key(name.lower())
    letters = mods[0].replace("^", "C-").upper()
    return Key("".join(f"{letter.lower()}-" for letter in "CMS" if letter in letters) + name[mods.end() :].lower())


def only_interrupts(keys: tuple[Typed, ...]) -> bool:
    """Whether all of it is C-c, which does the same everywhere."""
    return all(isinstance(item, Key) and item.name == _INTERRUPT for item in keys)


def only_pages(keys: tuple[Typed, ...]) -> bool:
    """Whether the keys move about in a pager, and nothing follows the ``q`` that ends it."""
    text = "".join(item if isinstance(item, str) else "\0" for item in keys)
    named = all(item.name in _PAGING_KEYS for item in keys if isinstance(item, Key))
    return named and all(letter in _PAGING_LETTERS for letter in text.replace("\0", "")) and "q" not in text[:-1]


def whole_line(keys: tuple[Typed, ...]) -> str:
    """The one line of text that the keys are, with its Enter; empty when they are anything else."""
    match keys:
        case (str(text), Key(name)) if name in _ENTER:
            line = text
        case (str(text),) if text.endswith(_LINE_END):
            line = text.removesuffix("\n").removesuffix("\r")
        case _:
            return ""
    return line if line.strip() and not any(ord(char) < 32 or ord(char) == 127 for char in line) else ""


def has_empty_prompt(screen: str, width: int = 0) -> bool:
    """Whether the last line of a screen is a usual prompt, and nothing else.

    Some shells (zsh) break a long line themselves: behind a row that fills the ``width`` of the pane, the last one may
    be its end.
    """
    lines = [line for line in screen.split("\n") if line.strip()]
    if not lines or _CONTINUES.fullmatch(lines[-1].strip()):
        return False
    if width > 1 and len(lines) > 1 and len(lines[-2]) % width in (0, width - 1):
        return False
    return _PROMPT.fullmatch(lines[-1]) is not None


# -- What keys would make the foreground of a pane do: a command at a shell's prompt, a password, or something unknown.
#
# A shell's line editor is not modelled: what is on its line, where its cursor is and what its keys are bound to
# cannot be known from outside. So a whole line for an empty prompt is not typed: it is run as ``run_shell`` runs a
# command, which no line editor reads. All other keys for a shell ask.


KeysRule = Literal["command", "password", "program", "harmless", "unknown"]

PROMPT_TIMEOUT = 0.5
"""Seconds that a shell gets to show its prompt, where only that is missing."""
PROMPT_INTERVAL = 0.05
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
_SECRET = re.compile(
    r"(?i)\b(?:pass(?:word|phrase|code|wd)?|pin|token|otp|secret|verification code|authenticator|2fa|mot de passe"
    r"|kennwort|passwort|contrase.a|senha)\b[^\n]{0,80}[:?>]\s*$"
)
_ASKS = re.compile(r"[:?]\s*$")


@dataclass(frozen=True, slots=True)
class KeysClassification:
    """What decides about the keys.

    ``command``: one line for a shell at its empty prompt, which is run as the command ``command``, in its pane, and not
    typed. ``password``: they go into a question for a secret, which asks always. ``program``: ``program`` reads them,
    and it is not known what it does with them, which asks. ``unknown``: it cannot be told what they do, which asks.
    ``harmless``: they interrupt, or move about in a pager. ``reason`` is for the person who is asked; empty for the
    others. ``line`` is the last line on the screen, where that is what the keys may edit or run. ``prompt_missing``: it
    would be a command if the screen showed an empty prompt, which comes a moment after the result of a command.
    """

    rule: KeysRule
    command: Subject | None = None
    reason: str = ""
    program: str = ""
    line: str = ""
    prompt_missing: bool = False


async def judge_keys(subject: Subject, ctx: ToolContext) -> KeysClassification:
    """Judge what is typed into a pane, by what reads it there.

    What the screen shows only chooses between asking and running the line as a command.

    Raises:
        HarnessError: the link was lost.
    """
    if not ctx.execution.has_terminal:
        return KeysClassification(
            "unknown", reason="this target is used without a terminal, so there is no pane to type into"
        )
    subject = replace(subject, pane=await resolved_pane(subject.pane, ctx.execution))
    wanted = subject.pane or ctx.execution.pane
    pane = _pane_of(await ctx.execution.list_panes(), wanted)
    if pane is None:
        return KeysClassification("unknown", reason=f"there is no pane {wanted or 'of the session'}")
    pane = await _settled(pane, ctx)
    judged = judge_typing(subject, pane, await ctx.execution.capture_pane(pane=subject.pane))
    with anyio.move_on_after(PROMPT_TIMEOUT):
        while judged.prompt_missing:
            await anyio.sleep(PROMPT_INTERVAL)
            judged = judge_typing(subject, pane, await ctx.execution.capture_pane(pane=subject.pane))
    return judged


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


def judge_typing(subject: Subject, pane: PaneInfo, screen: str) -> KeysClassification:
    """The judgement, from what is known of the pane. Pure."""
    hidden = hidden_character(subject.text.replace("\r", "\n"))
    if hidden:
        return KeysClassification(
            "unknown", reason=f"the keys contain a character that is not seen as what it is: {hidden}"
        )
    keys = parse_keys(subject.text)
    if keys is None:
        return KeysClassification("unknown", reason="the keys cannot be read: a typed < is written <lt>")
    if only_interrupts(keys):
        return KeysClassification("harmless")
    program = pane.foreground.lstrip("-")
    if program in SHELLS and not pane.busy:
        return _into_shell(subject, keys, pane, screen)
    if _wants_secret(program, screen):
        return KeysClassification("password", reason=f"{program or 'a program'} asks for a secret", program=program)
    return _into_program(keys, pane, program)


def _into_shell(subject: Subject, keys: tuple[Typed, ...], pane: PaneInfo, screen: str) -> KeysClassification:
    """Keys for a shell in which no job of harness's runs."""
    program, command = pane.foreground.lstrip("-"), whole_line(keys)
    if not has_empty_prompt(screen, pane.width):
        if _wants_secret(program, screen):
            return KeysClassification("password", reason=f"{program} asks for a secret", program=program)
        reason = f"{program} reads the keys, and it is not known whether it is at an empty prompt"
        return KeysClassification("unknown", reason=reason, line=_last_line(screen), prompt_missing=bool(command))
    if command:
        return KeysClassification("command", replace(subject, kind="command", text=command, pane=pane.pane_id))
    reason = f"the keys edit or run the line of {program}, and only one whole line with Enter is judged as a command"
    return KeysClassification("unknown", reason=reason, line=_last_line(screen))


def _last_line(screen: str) -> str:
    return next((line for line in reversed(screen.split("\n")) if line.strip()), "")


def _wants_secret(program: str, screen: str) -> bool:
    last = _last_line(screen)
    return _SECRET.search(last) is not None or (program in ASKERS and _ASKS.search(last) is not None)


def _into_program(keys: tuple[Typed, ...], pane: PaneInfo, program: str) -> KeysClassification:
    """Keys for something that is not a shell at its prompt."""
    name = program or "an unknown program"
    if program in SHELLS:
        reason = f"{pane.busy} runs in {program} and may read the keys"
        return KeysClassification("program", reason=reason, program=program)
    text = "".join(item for item in keys if isinstance(item, str))
    if program in ESCAPES and "!" in text:
        return KeysClassification("program", reason=f"! runs a command in {name}", program=program)
    if program in PAGERS and only_pages(keys):
        return KeysClassification("harmless", program=program)
    return KeysClassification(
        "program", reason=f"{name} reads the keys, and what it does with them is not known", program=program
    )
