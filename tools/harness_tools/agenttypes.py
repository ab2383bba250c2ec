"""The usual types of sub-agents: what each is for, and the tools that it has. Pure."""

from __future__ import annotations

from harness.toolkit.spawning import AgentType

__all__ = ["GENERAL", "TYPES", "USUAL", "type_named"]

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


def type_named(name: str, further: tuple[AgentType, ...] = ()) -> AgentType | None:
    """The type of that name; a program's own ones come first. Hyphens and case do not matter."""
    plain = _plain(name)
    names = {_plain(kind.name): kind for kind in (*TYPES, *further)}
    return names.get(OTHER_NAMES.get(plain, plain)) if plain not in names else names[plain]


OTHER_NAMES = {"generalpurpose": "general", "codereviewer": "reviewer", "explorer": "explore", "planner": "plan"}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
