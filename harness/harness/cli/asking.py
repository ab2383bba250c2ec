"""Ask the operator at the terminal: approvals of calls, and questions of tools."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator

from ..login import LoginQuestion, TerminalPrompter
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.lookalikes import is_blank
from ..toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ..toolkit.session.questions import Questioner, QuestionReply, QuestionSet, Replies, UserQuestion, check_replies
from ..toolkit.values import Json, JsonObject
from ..wording import shorten
from .output import readable

__all__ = [
    "MAX_DESCRIPTION_CHARS",
    "MIN_WIDTH",
    "PreApproved",
    "TerminalApprover",
    "TerminalQuestioner",
    "approval_text",
    "claims_of",
    "columns_of",
    "fitted",
    "parse_answer",
    "parse_reply",
    "previewed",
    "question_text",
    "quoted",
    "said",
    "wrapped",
]


# -- The layout of a question's texts: every row of a foreign text is marked, so that none passes for harness's.


FIRST, FURTHER = "  | ", "  ¦ "
"""Prefixes of a foreign line's first row and of its further rows."""
MAX_DESCRIPTION_CHARS = 300
"""Maximum number of characters of a call's description; more would push the call off the screen."""
MIN_WIDTH = 20
"""Minimum number of columns to use."""


def quoted(text: str, width: int, *, first: str = FIRST, further: str = FURTHER) -> list[str]:
    """Return a foreign text in marked rows of at most ``width`` columns; only line feeds end a line. Pure."""
    room = max(width, MIN_WIDTH) - len(first) - 1
    lines = text.removesuffix("\n").split("\n")
    return [
        (further if number else first) + row for line in lines for number, row in enumerate(_rows(_seen(line), room))
    ]


def previewed(preview: str, width: int) -> list[str]:
    """Return the rows of a preview: lines of the caller's text, which start with ``| ``, and harness's. Pure."""
    rows: list[str] = []
    for line in preview.split("\n") if preview else []:
        if line.startswith("| "):
            rows += quoted(line.removeprefix("| "), width)
        else:
            room = max(width, MIN_WIDTH) - 3
            ours = wrapped(_seen(line), room if columns_of(_seen(line)) <= room else room - 2)
            rows += [f"{'    ' if number else '  '}{row}" for number, row in enumerate(ours)]
    return rows


def said(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Return a foreign text in one line of at most ``limit`` characters, with the number of omitted ones. Pure."""
    joined = " ".join(_seen(" ".join(text.split())).split())
    return shorten(joined, limit)


def fitted(text: str, width: int) -> str:
    """Shorten a foreign text to one row of ``width`` columns, at a space if there is one. Pure.

    Returns:
        The whole text if it fits, else its start and the number of omitted characters.
    """
    joined = " ".join(_seen(" ".join(text.split())).split())
    if columns_of(joined) <= width:
        return joined
    room = max(width - len(f" … {len(joined)} more"), 1)
    row = next(_rows(joined, room))
    cut = row if joined[len(row) : len(row) + 1] == " " else row.rpartition(" ")[0] or row
    return f"{cut.rstrip()} … {len(joined) - len(cut)} more"


def wrapped(text: str, width: int) -> list[str]:
    """Break a text of harness at spaces; words wider than ``width`` columns are broken inside. Pure."""
    rows: list[str] = []
    for word in text.split(" "):
        if rows and columns_of(rows[-1]) + 1 + columns_of(word) <= max(width, 1):
            rows[-1] += f" {word}"
        else:
            rows += _rows(word, max(width, 1))
    return rows


def columns_of(text: str) -> int:
    """Count the columns that a printable text takes on a terminal. Pure."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def _seen(line: str) -> str:
    """Return the line with invisible characters escaped and tabs expanded."""
    if line.isascii() and line.isprintable():
        return line
    safe = "".join(char if char == "\t" else _named(char) for char in line)
    return safe.encode("utf-8", "backslashreplace").decode().expandtabs(4)


def _named(char: str) -> str:
    if not char.isprintable():
        return repr(char)[1:-1]
    return char.encode("ascii", "backslashreplace").decode() if is_blank(char) else char


def _rows(line: str, room: int) -> Iterator[str]:
    if line.isascii():
        yield from (line[start : start + room] for start in range(0, len(line) or 1, room))
        return
    row, used = "", 0
    for char in line:
        columns = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used + columns > room:
            yield row
            row, used = "", 0
        row, used = row + char, used + columns
    yield row


# -- The model's own description of a call that needs approval.


CLAIM_WORDS = {
    ("mutation", True): "changes something",
    ("mutation", False): "changes nothing",
    ("privesc", True): "with the rights of another user",
    ("privesc", False): "",
}
"""Texts for boolean values; empty omits the value."""


def claims_of(details: JsonObject) -> tuple[str, ...]:
    """Return the claims of a call, such as ``risk: low``, except the reason, which may be long. Pure."""
    return tuple(claim for name, value in details.items() if name != "why" and (claim := _claim(name, value)))


def _claim(name: str, value: Json) -> str:
    if isinstance(value, bool):
        return CLAIM_WORDS.get((name, value), f"{name}: {'yes' if value else 'no'}")
    return f"{name}: {value}"


# -- Approval requests at the terminal.


LETTERS = {
    "y": ApprovalScope.ONCE,
    "e": ApprovalScope.EXACT,
    "d": ApprovalScope.DIRECTORY,
    "t": ApprovalScope.TOOL,
    "s": ApprovalScope.SESSION,
    "a": ApprovalScope.ALWAYS,
    "n": ApprovalScope.DENY_ONCE,
    "x": ApprovalScope.DENY_SESSION,
}
WORDS = {"yes": ApprovalScope.ONCE, "no": ApprovalScope.DENY_ONCE, "": ApprovalScope.DENY_ONCE}
MEANINGS = {
    ApprovalScope.ONCE: "yes",
    ApprovalScope.ALWAYS: "always exactly this",
    ApprovalScope.DENY_ONCE: "no",
}
"""The offered answers; session scopes are useless for a single call from the command line."""
TRIES = 3


def parse_answer(text: str, question: ApprovalRequest) -> ApprovalScope | None:
    """Return the decision of an operator's line; None if it is invalid. An empty line denies. Pure."""
    word = text.strip().lower()
    scope = LETTERS.get(word) or WORDS.get(word) or next((one for one in ApprovalScope if one == word), None)
    return scope if scope is None or not scope.allows or scope in question.scopes else None


def approval_text(question: ApprovalRequest, width: int = 80) -> str:
    """Return the approval request as the terminal shows it, with control characters escaped. Pure."""
    offered = [scope for scope in MEANINGS if scope in question.scopes]
    letters = {scope: letter for letter, scope in LETTERS.items()}
    choices = ", ".join(f"{letters[scope]} = {MEANINGS[scope]}" for scope in offered)
    why = question.details.get("why")
    claims = [*([f"why: {why}"] if why else []), *claims_of(question.details)]
    lines = [
        f"harness: may {readable(question.call.name)} run on {readable(question.target)}?",
        *quoted(question.what, width),
        *previewed(question.preview, width),
        *([f"  requested by agent {readable(question.call.agent_id)}"] if question.call.agent_id else []),
        *(f"  {said(claim)}" for claim in claims),
        *quoted(f"({readable(question.reason)})", width, first="  ", further="  "),
    ]
    return "\n".join(lines) + f"\n{choices}: "


class TerminalApprover(Approver):
    """Approver that asks the operator at the controlling terminal; standard input is free for the call."""

    def __init__(self, prompter: TerminalPrompter | None = None) -> None:
        self._prompter = prompter or TerminalPrompter()

    def usable(self) -> bool:
        """Return whether there is a terminal, and this program is in its foreground."""
        return self._prompter.usable()

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Show the request and read a line; typeahead is ignored."""
        text = approval_text(question, shutil.get_terminal_size().columns)
        for _ in range(TRIES):
            line = await self._prompter.answer(LoginQuestion("other", text, False, question.target))
            scope = ApprovalScope.DENY_ONCE if line is None else parse_answer(line, question)
            if scope is not None:
                return ApprovalDecision(scope)
            text = "harness: answer with one of the letters: "
        return ApprovalDecision(ApprovalScope.DENY_ONCE, reason="no valid answer")


class PreApproved(Approver):
    """Approver that approves every request, as the operator did in advance (``--yes``)."""

    @property
    def by_sight(self) -> bool:
        """Return False: the operator approved in advance."""
        return False

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Approve the call once."""
        return ApprovalDecision(ApprovalScope.ONCE, "operator (--yes)")


# -- Questions of tools at the terminal.


OWN = "="
"""Prefix of a free text that would otherwise be read as option numbers."""


def question_text(question: UserQuestion, number: int, count: int) -> str:
    """Return the question as the terminal shows it, with control characters escaped. Pure."""
    header = f" ({readable(question.header)})" if question.header else ""
    counted = f" {number} of {count}" if count > 1 else ""
    lines = [
        f"harness: the agent asks{counted}{header}:",
        *(f"  | {readable(line)}" for line in question.question.splitlines()),
        *(
            f"  {place}. {readable(option.label)}"
            + (f": {readable(option.description)}" if option.description.strip() else "")
            for place, option in enumerate(question.options, 1)
        ),
    ]
    return "\n".join(lines) + f"\n{_prompt(question)}"


def _prompt(question: UserQuestion) -> str:
    last = len(question.options)
    numbers = f"numbers from 1 to {last}, with commas" if question.multi_select else f"a number from 1 to {last}"
    return f"{numbers}, or your own words (Ctrl-C to cancel): "


def parse_reply(line: str, question: UserQuestion) -> QuestionReply | str:
    """Return the reply of an operator's line, or the reason why it is invalid. Pure."""
    text = line.strip()
    if text.startswith(OWN):
        return _fitting(QuestionReply(other=text[len(OWN) :].strip()), question)
    words = text.replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        return _fitting(QuestionReply(other=text), question)
    return _fitting(QuestionReply(tuple(dict.fromkeys(int(word) - 1 for word in words))), question)


def _fitting(reply: QuestionReply, question: UserQuestion) -> QuestionReply | str:
    try:
        check_replies([question], [reply])
    except ValueError as error:
        problem = str(error).partition(": ")[2]
        return f"{problem}; write {OWN} before a text that looks like numbers" if reply.chosen else problem
    return reply


class TerminalQuestioner(Questioner):
    """Questioner that asks the operator at the controlling terminal; standard input is free for the call."""

    def __init__(self, prompter: TerminalPrompter | None = None) -> None:
        self._prompter = prompter or TerminalPrompter()

    def present(self) -> bool:
        """Return whether there is a terminal, and this program is in its foreground."""
        return self._prompter.usable()

    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Show each question and read a line for it; end of file declines all of them."""
        replies = []
        for number, question in enumerate(asked.questions, 1):
            reply = await self._reply(question_text(question, number, len(asked.questions)), question, asked.target)
            if reply is None:
                return None
            replies.append(reply)
        return tuple(replies)

    async def _reply(self, text: str, question: UserQuestion, target: str) -> QuestionReply | None:
        for _ in range(TRIES):
            line = await self._prompter.answer(LoginQuestion("other", text, False, target))
            if line is None:
                return None
            reply = parse_reply(_decoded(line), question)
            if isinstance(reply, QuestionReply):
                return reply
            text = f"harness: {reply}\n{_prompt(question)}"
        return None


def _decoded(line: str) -> str:
    """Return the typed line with U+FFFD for each byte that is not UTF-8."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
