"""The published list of attacks on shell policies, against the whole policy."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.support.permits import Desk, desk, says

from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode

LIST: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parents[2] / "data/shell_attacks.toml").read_text(encoding="utf-8")
)
ATTACKS = [str(entry["command"]) for entry in LIST["attack"]]
TOUCHING = [str(entry["command"]) for entry in LIST["attack"] if entry.get("finds") == "touch"]


def rule(action: Action, *patterns: str) -> tuple[Rule, ...]:
    return tuple(Rule(action, tool="run_shell", argument=pattern, match=Match.GLOB) for pattern in patterns)


async def allowed(made: Desk, commands: list[str]) -> list[str]:
    return [command for command in commands if await made.allows("run_shell", command)]


async def test_no_attack_runs_without_being_asked_about() -> None:
    assert len(ATTACKS) >= 150
    assert await allowed(desk(), ATTACKS) == []


async def test_no_attack_runs_by_patterns_for_harmless_programs() -> None:
    harmless = rule(Action.ALLOW, "ls", "ls *", "echo", "echo *", "git status*", "date", "pwd", "id", "true")
    assert await allowed(desk(rules=harmless), ATTACKS) == []


async def test_a_rule_that_denies_is_evaded_by_none_where_everything_else_is_allowed() -> None:
    assert len(TOUCHING) >= 50
    made = desk(mode=Mode.AUTO, rules=(*rule(Action.DENY, "touch", "touch *"), *rule(Action.ALLOW, "*")))
    assert await allowed(made, TOUCHING) == []


async def test_an_attack_is_not_settled_by_what_was_granted_for_something_else() -> None:
    approver = says(ApprovalScope.EXACT)
    made = desk(approver)
    for command in ("make other", "touch other", "ls > other"):
        assert await made.allows("run_shell", command)
    made.policy.approver = None
    assert await allowed(made, ATTACKS) == []


async def test_ordinary_commands_that_only_read_run_unless_they_name_a_secret() -> None:
    reading = [
        str(entry["command"]) for entry in LIST["benign"] if entry["read_only"] and ".pem" not in entry["command"]
    ]
    assert len(reading) >= 40
    made = desk()
    assert [command for command in reading if not await made.allows("run_shell", command)] == []


async def test_more_new_names_than_are_judged_ask() -> None:
    links = "; ".join(f"ln -s /srv/a{number} b{number}" for number in range(100))
    made = desk(mode=Mode.AUTO)
    assert not await made.allows("run_shell", f"{links}; ln -s /etc r; cat r/shadow")
