"""The table of slash commands, and parsing, running and completing them.

::

    if is_command(line):
        parsed = parse(line)                     # Parsed, or InvalidCommand with a message for the operator
        await run_command(parsed, context)       # prints to context.output, including errors
    completions("/mod", context)                 # possible texts: Completion(text, start, about)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....errors import HarnessError
from .base import BadArguments, Choice, SlashCommand, no_arguments, one_of
from .jobs_and_limits import Attach, Jobs, Kill, Ps, Timeout
from .session import Compact, Model, SessionCommand, Theme
from .state import Approve, Context, Memory, Pause, Permissions, Resume, Status, Todos, Tools

if TYPE_CHECKING:
    from .base import PromptContext

__all__ = [
    "COMMANDS",
    "Completion",
    "InvalidCommand",
    "Parsed",
    "SlashCommand",
    "changes_conversation",
    "completions",
    "is_command",
    "parse",
    "run_command",
]

log = logging.getLogger(__name__)

BEGINS_A_PROMPT = "to start a prompt with a slash, put a space before it"


@dataclass(frozen=True, slots=True)
class Completion:
    """A possible text for the line from its character ``start`` to its end."""

    text: str
    start: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A line that is not a command, with a message that explains why."""

    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command and the text after its name."""

    command: SlashCommand
    args: str

    @property
    def may_wait(self) -> bool:
        """Whether other commands may run at the same time."""
        return self.command.may_wait(self.args)


# -- help and quit


class Help(SlashCommand):
    """``/help``."""

    name, aliases, usage = "help", ("?",), "[COMMAND]"
    about = "List the commands, or describe one."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the help."""
        if args:
            command = NAMES[one_of(args.removeprefix("/"), NAMES, "command")]
            others = f"  (also /{', /'.join(command.aliases)})" if command.aliases else ""
            context.output.say(f"{command.synopsis}{others}", f"  {command.about}", *command.details)
            return
        context.output.table(("COMMAND", "WHAT IT DOES"), [(one.synopsis, one.about) for one in COMMANDS])
        context.output.say("!COMMAND runs COMMAND on the target. Any other input goes to the model.")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the commands."""
        return () if words else [Choice(one.name, one.about) for one in COMMANDS]


class Quit(SlashCommand):
    """``/quit``."""

    name, aliases = "quit", ("exit", "q")
    about = "Leave the prompt. Sessions and jobs on the target keep running."

    async def run(self, context: PromptContext, args: str) -> None:
        """Leave."""
        no_arguments(args)
        context.front.leave()


COMMANDS: tuple[SlashCommand, ...] = (
    *(Status(), Context(), Ps(), Kill(), Timeout(), Approve(), Permissions(), SessionCommand(), Compact(), Model()),
    *(Theme(), Tools(), Jobs(), Attach(), Pause(), Resume(), Todos(), Memory(), Help(), Quit()),
)
"""All commands, in the order of the help."""
NAMES: Mapping[str, SlashCommand] = {name: one for one in COMMANDS for name in (one.name, *one.aliases)}


# -- reading


def is_command(line: str) -> bool:
    """Return whether a line is a command, and not a prompt that starts with a path. Pure."""
    return line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]


def changes_conversation(line: str) -> bool:
    """Return whether a command changes the conversation, so that it must run in input order. Pure."""
    parsed = parse(line)
    return isinstance(parsed, Parsed) and parsed.command.refused_in_turn(parsed.args)


def parse(line: str) -> Parsed | InvalidCommand:
    """Parse a line that starts with a slash. Pure."""
    word, _, args = line[1:].strip().replace("\t", " ").partition(" ")
    if not word:
        return InvalidCommand(f"/help lists the commands; {BEGINS_A_PROMPT}")
    command = NAMES.get(word.lower())
    if command is None:
        from difflib import get_close_matches  # slow to import, needed for errors only

        close = get_close_matches(word.lower(), NAMES, n=1)
        advice = f"did you mean /{close[0]}?" if close else "/help lists them"
        return InvalidCommand(f"unknown command /{word}; {advice} ({BEGINS_A_PROMPT})")
    return Parsed(command, args.strip())


async def run_command(parsed: Parsed | InvalidCommand, context: PromptContext, *, in_turn: bool = False) -> bool:
    """Run a command and print its errors; return whether it succeeded.

    Args:
        parsed: The parsed line.
        context: The state of the prompt.
        in_turn: Whether a turn is running or waiting for an answer.
    """
    if isinstance(parsed, InvalidCommand):
        context.output.warn(parsed.message)
        return False
    command = parsed.command
    if command.refused_in_turn(parsed.args) and (reason := _reason_to_stay(context, in_turn=in_turn)):
        context.output.warn(f"/{command.name}: not while {reason}")
        return False
    try:
        await command.run(context, parsed.args)
    except BadArguments as error:
        context.output.warn(f"/{command.name}: {error.message} (usage: {command.synopsis})")
    except HarnessError as error:
        context.output.warn(f"/{command.name}: {error}")
    except Exception as error:  # a failed command must not end the prompt
        log.debug("/%s failed", command.name, exc_info=True)
        context.output.warn(f"/{command.name}: internal error: {type(error).__name__}: {error}; please report it")
    else:
        return True
    return False


def _reason_to_stay(context: PromptContext, *, in_turn: bool) -> str:
    """Return the reason why the conversation cannot be changed now; empty if it can."""
    agent = context.agent
    if in_turn:
        return "a turn is running; C-c or /kill turn cancels it"
    if agent is not None and agent.is_compacting:
        return "/compact is running; C-c cancels it"
    if agent is not None and agent.state.queue:
        return f"prompts are queued; /kill #{agent.state.queue[0].place} removes the first one"
    return ""


# -- completing


def completions(line: str, context: PromptContext) -> list[Completion]:
    """Return completions for the end of a line that starts with a slash, without waiting."""
    if not line.startswith("/"):
        return []
    word, space, rest = line[1:].partition(" ")
    if not space:
        found = [one for one in COMMANDS if one.name.startswith(word.lower())]
        aliased = [one for one in COMMANDS if one not in found and word and word.lower() in one.aliases]
        return [Completion(f"/{one.name}", 0, one.about) for one in (*found, *aliased)]
    command = NAMES.get(word.lower())
    if command is None:
        return []
    *before, current = rest.split(" ")
    words = [one for one in before if one]
    start = len(line) - len(current)
    choices = command.choices(context, words)
    return [Completion(one.text, start, one.about) for one in choices if one.text.startswith(current)]
