"""The slash commands of the prompt: which there are, how a line is read, and what completes it.

::

    if is_command(line):
        parsed = parse(line)                     # Parsed, or Mistake with a sentence for the operator
        await run_command(parsed, context)       # prints through context.output; mistakes too
    completions("/mod", context)                 # what could stand there: Completion(text, start, about)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....errors import HarnessError
from .base import BadArguments, Choice, SlashCommand, no_arguments, one_of
from .session import Compact, Model, SessionCommand, Theme
from .state import Approve, Context, Memory, Pause, Permissions, Resume, Status, Todos, Tools
from .work import Attach, Jobs, Kill, Ps, Timeout

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

BEGINS_A_PROMPT = "to begin a prompt with a slash, put a space before it"


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that could stand in the line from its character ``start`` to the end of the line."""

    text: str
    start: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A line that is no command: a sentence that says why, and what to write."""

    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command, and what stands after its name."""

    command: SlashCommand
    args: str

    @property
    def may_wait(self) -> bool:
        """Whether other commands may run while it does."""
        return self.command.may_wait(self.args)


# -- the last two


class Help(SlashCommand):
    """``/help``."""

    name, aliases, usage = "help", ("?",), "[COMMAND]"
    about = "List the commands, or say what one does."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print it."""
        if args:
            command = NAMES[one_of(args.removeprefix("/"), NAMES, "command")]
            others = f"  (also /{', /'.join(command.aliases)})" if command.aliases else ""
            context.output.say(f"{command.synopsis}{others}", f"  {command.about}", *command.details)
            return
        context.output.table(("COMMAND", "WHAT IT DOES"), [(one.synopsis, one.about) for one in COMMANDS])
        context.output.say("!COMMAND runs on the target, as you. Everything else goes to the model.")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """The commands."""
        return () if words else [Choice(one.name, one.about) for one in COMMANDS]


class Quit(SlashCommand):
    """``/quit``."""

    name, aliases = "quit", ("exit", "q")
    about = "Leave. Sessions and jobs on the target live on."

    async def run(self, context: PromptContext, args: str) -> None:
        """Leave."""
        no_arguments(args)
        context.front.leave()


COMMANDS: tuple[SlashCommand, ...] = (
    *(Status(), Context(), Ps(), Kill(), Timeout(), Approve(), Permissions(), SessionCommand(), Compact(), Model()),
    *(Theme(), Tools(), Jobs(), Attach(), Pause(), Resume(), Todos(), Memory(), Help(), Quit()),
)
"""In the order of the help."""
NAMES: Mapping[str, SlashCommand] = {name: one for one in COMMANDS for name in (one.name, *one.aliases)}


# -- reading


def is_command(line: str) -> bool:
    """Whether a line is a command, and not a prompt that begins with a path. Pure."""
    return line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]


def changes_conversation(line: str) -> bool:
    """Whether a command leaves the conversation: what is entered before and after it is for different ones. Pure."""
    parsed = parse(line)
    return isinstance(parsed, Parsed) and parsed.command.refused_in_turn(parsed.args)


def parse(line: str) -> Parsed | InvalidCommand:
    """Read a line that begins with a slash. Pure."""
    word, _, args = line[1:].strip().replace("\t", " ").partition(" ")
    if not word:
        return InvalidCommand(f"/help lists the commands; {BEGINS_A_PROMPT}")
    command = NAMES.get(word.lower())
    if command is None:
        from difflib import get_close_matches  # for mistakes only

        close = get_close_matches(word.lower(), NAMES, n=1)
        advice = f"did you mean /{close[0]}?" if close else "/help lists them"
        return InvalidCommand(f"there is no command /{word}; {advice} ({BEGINS_A_PROMPT})")
    return Parsed(command, args.strip())


async def run_command(parsed: Parsed | InvalidCommand, context: PromptContext, *, in_turn: bool = False) -> bool:
    """Run a command, or say why not; whether it did what it should.

    Args:
        in_turn: a turn is running, or waits for an answer.
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
    except Exception as error:  # a prompt is worth more than one of its commands
        log.debug("/%s failed", command.name, exc_info=True)
        context.output.warn(f"/{command.name}: internal error: {type(error).__name__}: {error}; please report it")
    else:
        return True
    return False


def _reason_to_stay(context: PromptContext, *, in_turn: bool) -> str:
    """Why the conversation cannot be left now; empty when it can."""
    agent = context.agent
    if in_turn:
        return "a turn runs: C-c or /kill turn ends it"
    if agent is not None and agent.is_compacting:
        return "/compact works: C-c cancels it"
    if agent is not None and agent.state.queue:
        return f"prompts wait: /kill #{agent.state.queue[0].place} takes the first one back"
    return ""


# -- completing


def completions(line: str, context: PromptContext) -> list[Completion]:
    """What could stand at the end of a line that begins with a slash. Never waits."""
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
