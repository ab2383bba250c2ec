"""Classification of keys typed into a pane, by what reads them there."""

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


# -- Parsing the keys of a call, and detecting a shell prompt on the screen. Pure.
#
# Named keys are in angle brackets; a typed ``<`` is ``<lt>``: ``sort <lt>in<Enter>``.


_TOKEN = re.compile(r"<(?P<key>(?:[CMScms]-|\^)*(?:[^<>]{1,20}|[<>]))>|(?P<text>[^<]+)|(?P<odd><)", re.DOTALL)
_MODIFIED = re.compile(r"(?:[CMScms]-|\^)+(?=.)", re.DOTALL)
_INTERRUPT = "c-c"
_PAGING_KEYS = frozenset({"c-c", "c-l", "up", "down", "pageup", "pagedown", "npage", "ppage", "pgup", "pgdn"})
"""None moves the cursor within a line: if the pager exits at this moment, a shell reads the keys."""
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
    """A named key in lower case (``c-c``, ``enter``)."""

    name: str


Typed = str | Key


def parse_keys(text: str) -> tuple[Typed, ...] | None:
    """Parse the text of keys.

    Returns:
        The texts and named keys in order; None if a ``<`` neither starts a key nor is written as ``<lt>``.
    """
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
    """Return the named key, or the text of a key that only types its character."""
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
    """Return whether all keys are C-c, which interrupts everywhere."""
    return all(isinstance(item, Key) and item.name == _INTERRUPT for item in keys)


def only_pages(keys: tuple[Typed, ...]) -> bool:
    """Return whether the keys only navigate in a pager, and no key follows the ``q`` that ends it."""
    text = "".join(item if isinstance(item, str) else "\0" for item in keys)
    named = all(item.name in _PAGING_KEYS for item in keys if isinstance(item, Key))
    return named and all(letter in _PAGING_LETTERS for letter in text.replace("\0", "")) and "q" not in text[:-1]


def whole_line(keys: tuple[Typed, ...]) -> str:
    """Return the text if the keys are one line of text and Enter; empty otherwise."""
    match keys:
        case (str(text), Key(name)) if name in _ENTER:
            line = text
        case (str(text),) if text.endswith(_LINE_END):
            line = text.removesuffix("\n").removesuffix("\r")
        case _:
            return ""
    return line if line.strip() and not any(ord(char) < 32 or ord(char) == 127 for char in line) else ""


def has_empty_prompt(screen: str, width: int = 0) -> bool:
    """Return whether the last line of a screen is a usual prompt and nothing else.

    Some shells (zsh) wrap a long line themselves: after a row that fills the ``width`` of the pane, the last row may be
    the end of that line.
    """
    lines = [line for line in screen.split("\n") if line.strip()]
    if not lines or _CONTINUES.fullmatch(lines[-1].strip()):
        return False
    if width > 1 and len(lines) > 1 and len(lines[-2]) % width in (0, width - 1):
        return False
    return _PROMPT.fullmatch(lines[-1]) is not None


# -- What keys would do in the foreground process of a pane: a command at a shell prompt, a password, or unknown input.
#
# A shell's line editor is not modeled: its line, cursor and key bindings cannot be known from outside. So a whole line
# for an empty prompt is not typed but run as ``run_shell`` runs a command, which no line editor reads. All other keys
# for a shell ask.


KeysRule = Literal["command", "password", "program", "harmless", "unknown", "denied"]

NOT_LENT = "pane {pane} of the operator's own tmux is not lent; the operator lends it"
PROMPT_TIMEOUT = 0.5
"""Seconds to wait for a shell to show its prompt, if only that is missing."""
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
"""Programs that prompt for secrets."""
_SECRET = re.compile(
    r"(?i)\b(?:pass(?:word|phrase|code|wd)?|pin|token|otp|secret|verification code|authenticator|2fa|mot de passe"
    r"|kennwort|passwort|contrase.a|senha)\b[^\n]{0,80}[:?>]\s*$"
)
_ASKS = re.compile(r"[:?]\s*$")


@dataclass(frozen=True, slots=True)
class KeysClassification:
    """The classification of keys.

    Values of ``rule``: ``command``: one line for a shell at an empty prompt; it is run in the pane as the command
    ``command`` and not typed. ``password``: input for a secret prompt; always asks. ``program``: ``program`` reads the
    keys, and their effect is unknown; asks. ``unknown``: the effect cannot be determined; asks. ``harmless``: they
    interrupt, or navigate in a pager. ``denied``: the pane is the operator's own, and not lent.

    ``reason``: shown in the approval request; empty for ``command`` and ``harmless``. ``line``: the last line on the
    screen if the keys may edit or run it. ``prompt_missing``: it would be ``command`` if the screen showed an empty
    prompt, which a shell shows shortly after the result of a command. ``lent``: the pane is the operator's
    own, so a ``command`` is typed and asks, and a ``password`` is denied.
    """

    rule: KeysRule
    command: Subject | None = None
    reason: str = ""
    program: str = ""
    line: str = ""
    prompt_missing: bool = False
    lent: bool = False


async def judge_keys(subject: Subject, ctx: ToolContext) -> KeysClassification:
    """Classify keys for a pane, by what reads them there.

    The screen content only selects between asking and running the line as a command.

    Raises:
        HarnessError: the connection was lost.
    """
    if not ctx.execution.has_panes:
        return KeysClassification(
            "unknown", reason="the target is used without a terminal, so it has no pane to type into"
        )
    subject = replace(subject, pane=await resolved_pane(subject.pane, ctx.execution))
    wanted = subject.pane or ctx.execution.pane
    panes = await ctx.execution.list_panes()
    pane = _pane_of(panes, wanted)
    if pane is None and wanted is None and (lent := [pane.lent for pane in panes if pane.lent is not None]):
        return KeysClassification(
            "denied", reason=f"name a pane: {sum(lent)} panes of the operator's own tmux are lent, not one"
        )
    if pane is None:
        return KeysClassification("unknown", reason=f"pane not found: {wanted or 'the default pane'}")
    if pane.lent is False:
        return KeysClassification("denied", reason=f"{NOT_LENT.format(pane=pane.pane_id)}: harness lend {pane.pane_id}")
    pane = await _settled(pane, ctx)
    classification = judge_typing(subject, pane, await ctx.execution.capture_pane(pane=subject.pane))
    with anyio.move_on_after(PROMPT_TIMEOUT):
        while classification.prompt_missing:
            await anyio.sleep(PROMPT_INTERVAL)
            classification = judge_typing(subject, pane, await ctx.execution.capture_pane(pane=subject.pane))
    return classification


async def _settled(pane: PaneInfo, ctx: ToolContext) -> PaneInfo:
    """Return the pane without the busy mark of a finished job, which is cleared shortly after the result."""
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
    """Classify keys from the state of the pane and its screen. Pure."""
    found = _judge_typing(subject, pane, screen)
    if pane.lent is None:
        return found
    if found.rule == "password":
        found = replace(found, reason=f"{found.reason}, and only the operator answers it in their own pane")
    if found.rule == "command":
        found = replace(found, reason=f"it is typed into the operator's own {pane.foreground.lstrip('-')}")
    if found.reason:  # a call may leave the pane out, if only one is lent
        found = replace(found, reason=f"{found.reason}; pane {pane.pane_id}")
    return replace(found, lent=True)


def _judge_typing(subject: Subject, pane: PaneInfo, screen: str) -> KeysClassification:
    hidden = hidden_character(subject.text.replace("\r", "\n"))
    if hidden:
        return KeysClassification("unknown", reason=f"the keys contain a hidden or misleading character: {hidden}")
    keys = parse_keys(subject.text)
    if keys is None:
        return KeysClassification("unknown", reason="the keys cannot be parsed: write a typed < as <lt>")
    if only_interrupts(keys):
        return KeysClassification("harmless")
    program = pane.foreground.lstrip("-")
    if program in SHELLS and not pane.busy:
        return _into_shell(subject, keys, pane, screen)
    if _wants_secret(program, screen):
        return KeysClassification("password", reason=f"{program or 'a program'} prompts for a secret", program=program)
    return _into_program(keys, pane, program)


def _into_shell(subject: Subject, keys: tuple[Typed, ...], pane: PaneInfo, screen: str) -> KeysClassification:
    """Classify keys for a shell in which no job of harness runs."""
    program, command = pane.foreground.lstrip("-"), whole_line(keys)
    if not has_empty_prompt(screen, pane.width):
        if _wants_secret(program, screen):
            return KeysClassification("password", reason=f"{program} prompts for a secret", program=program)
        reason = f"{program} reads the keys and may not be at an empty prompt"
        return KeysClassification("unknown", reason=reason, line=_last_line(screen), prompt_missing=bool(command))
    if command:
        return KeysClassification("command", replace(subject, kind="command", text=command, pane=pane.pane_id))
    reason = f"the keys edit or run the input line of {program}; only one whole line with Enter runs as a command"
    return KeysClassification("unknown", reason=reason, line=_last_line(screen))


def _last_line(screen: str) -> str:
    return next((line for line in reversed(screen.split("\n")) if line.strip()), "")


def _wants_secret(program: str, screen: str) -> bool:
    last = _last_line(screen)
    return _SECRET.search(last) is not None or (program in ASKERS and _ASKS.search(last) is not None)


def _into_program(keys: tuple[Typed, ...], pane: PaneInfo, program: str) -> KeysClassification:
    """Classify keys for a program that is not a shell at its prompt."""
    name = program or "an unknown program"
    if program in SHELLS:
        reason = f"{pane.busy} runs in {program} and may read the keys"
        return KeysClassification("program", reason=reason, program=program)
    text = "".join(item for item in keys if isinstance(item, str))
    if program in ESCAPES and "!" in text:
        return KeysClassification("program", reason=f"! runs a command in {name}", program=program)
    if program in PAGERS and only_pages(keys):
        return KeysClassification("harmless", program=program)
    return KeysClassification("program", reason=f"{name} reads the keys, and their effect is unknown", program=program)
