"""The types of sub-agents: the usual ones, what each is for and the tools that it has, and those beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from harness.toolkit.agent_files import type_key
from harness.toolkit.plugins import TOOLS, find, load_tools
from harness.toolkit.profiles import face_names
from harness.toolkit.registry import is_builtin
from harness.toolkit.spawning import AgentType

__all__ = ["GENERAL", "TYPES", "USUAL", "describe_types", "known_types", "type_named", "with_own_names"]

READ = ("read_file", "ls", "glob", "grep", "checkfor", "stump", "sig", "imports", "conflicts", "tabcount", "clean_diff")
LOOK = ("run_shell", "bash_output", "list_shells", "capture_pane")
ALONE = ("errs", "time", "tool_search", "read_output")
WEB = ("fetch_url", "web_search")
USUAL = frozenset((*READ, *LOOK, *ALONE, *WEB))
"""Names that may stand in a list without being offered: a pack was not chosen, or the target lacks a program."""

NOT_YOURS = "You work for another agent: nobody reads what you write but your last message, so say all of it there."
GENERAL = "general"
TYPES = (
    AgentType(
        GENERAL,
        "has every tool; for work of many steps",
        system=f"{NOT_YOURS} Do what you are asked, check it, and report what you changed.",
    ),
    AgentType(
        "explore",
        "looks around and changes nothing; for finding out where things are and how they work",
        (*READ, *LOOK, *ALONE, *WEB),
        f"{NOT_YOURS} Find out what you are asked, and change nothing: run only commands that look. "
        "Report paths, names and facts.",
        USUAL,
    ),
    AgentType(
        "plan",
        "reads, and writes a plan of steps; for deciding before doing",
        (*READ, *ALONE, *WEB),
        f"{NOT_YOURS} Change nothing. Report a plan: the steps in order, what each touches, and how it is checked.",
        USUAL,
    ),
    AgentType(
        "reviewer",
        "reads what was done, and reports faults",
        (*READ, *ALONE),
        f"{NOT_YOURS} Change nothing. Report faults alone, the worst first, each with its place and its harm.",
        USUAL,
    ),
)


OTHER_NAMES = {"generalpurpose": "general", "codereviewer": "reviewer", "explorer": "explore", "planner": "plan"}
MAX_SHOWN = 30
"""Types that a description names."""
MAX_ABOUT_CHARS = 160


def known_types(*further: Iterable[AgentType]) -> tuple[AgentType, ...]:
    """The usual types and further ones; of several with one name the last one counts. Pure."""
    found = {_key(kind.name): kind for kinds in (TYPES, *further) for kind in kinds}
    return tuple(found.values())


def type_named(name: str, types: Sequence[AgentType] = TYPES) -> AgentType | None:
    """The type of that name, or None. Hyphens and case do not matter. Pure."""
    return next((kind for kind in types if _key(kind.name) == _key(name)), None)


def describe_types(types: Sequence[AgentType], names: Mapping[str, str] | None = None) -> str:
    """One line for each type: its name and what it is for. Pure.

    Args:
        names: what some of them are called instead.
    """
    lines = [f"- {(names or {}).get(kind.name, kind.name)}: {_short(kind.about)}" for kind in types[:MAX_SHOWN]]
    more = [f"- and {len(types) - MAX_SHOWN} more."] if len(types) > MAX_SHOWN else []
    return "\n".join([*lines, *more])


def with_own_names(kind: AgentType) -> AgentType:
    """A type from a file, with our names for the tools that profiles show under others.

    A tool of ours that is not offered is left out: the settings took it away, or the target lacks a program. Any other
    name that means nothing is a mistake, and stays.
    """
    if not kind.declared_at:
        return kind
    system = "\n\n".join(part for part in (NOT_YOURS, kind.system) if part)
    if kind.tools is None:
        return replace(kind, system=system)
    own = _builtin_names()
    tools = tuple(name if name in own else face_names().get(name, name) for name in kind.tools)
    return replace(kind, system=system, tools=tools, usual=own.intersection(tools))


@lru_cache(maxsize=1)
def _builtin_names() -> frozenset[str]:
    """The names and aliases of our tools, whatever the settings leave of them."""
    loaded = load_tools(plugin for plugin in find(TOOLS) if is_builtin(plugin.source))
    return frozenset(name for _, tools in loaded.found for tool in tools for name in (tool.name, *tool.traits.aliases))


def _key(name: str) -> str:
    plain = type_key(name)
    return OTHER_NAMES.get(plain, plain)


def _short(text: str) -> str:
    shown = text if len(text) <= MAX_ABOUT_CHARS else f"{text[: MAX_ABOUT_CHARS - 3]}..."
    return shown if shown.endswith((".", "!", "?")) else f"{shown}."
