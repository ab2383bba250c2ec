"""Which commands nothing lets through, and which run others past the policy: the words of one simple command."""

from __future__ import annotations

import shlex

import pytest

from harness.toolkit.permissions.rules.rule import (
    BLOCKED,
    blocked,
    command_forms,
    is_harness,
    may_block,
    removes_recursively,
    runs_past_the_policy,
)


@pytest.mark.parametrize(
    ("command", "recursive"),
    [
        ("rm -r x", True),
        ("rm -R x", True),
        ("rm -fr x", True),
        ("/bin/rm x -r", True),
        ("rm --recursive x", True),
        ("rm --r x", True),
        ("rm -- x -r", False),
        ("rm --force x", False),
        ("rm -f r", False),
        ("rm -", False),
        ("rm", False),
        ("ls -r x", False),
        ("chmod -R x", False),
        ("", False),
    ],
)
def test_what_removes_recursively_is_known_by_its_options(command: str, recursive: bool) -> None:
    assert removes_recursively(shlex.split(command)) is recursive


@pytest.mark.parametrize(
    ("command", "removes"),
    [
        ("rm -rf /", True),
        ("rm -r -- /", True),
        ("rm -r -- -x /", True),
        ("rm -rf x //", True),
        ("rm -rf /./", True),
        ("rm -rf /*", True),
        ("rm -rf '/.*'", True),
        ("rm -rf /../*", True),
        ("rm -rf /x", False),
        ("rm -rf x", False),
        ("rm -rf /x/*", False),
        ("rm -f /", False),
        ("rm -rf -- -/", False),
        ("find / -delete", True),
        ("find -L / -delete", True),
        ("find x / -delete", True),
        ("find / x -delete", True),
        ("find / ( -delete )", True),
        ("find / ! -delete", True),
        ("find / -exec unlink {} ;", True),
        ("find / -exec /bin/rm {} ;", True),
        ("find / -exec ls {} ;", False),
        ("find / -name x -delete", False),
        ("find / -name '*' -delete", True),
        ("find / -name '*/*' -delete", True),
        ("find / -delete -name x", True),
        ("find / -print", False),
        ("find x -delete", False),
        ("find -delete", False),
        ("find", False),
        ("ls -r /", False),
        ("", False),
    ],
)
def test_what_removes_everything_is_blocked(command: str, removes: bool) -> None:
    assert (blocked(shlex.split(command), BLOCKED) == "it removes the whole file system") is removes


def test_where_the_words_lead_counts_as_an_operand() -> None:
    assert blocked(["rm", "-rf", "."], (), ["/"])
    assert not blocked(["rm", "-rf", "."], (), ["/srv"])
    assert not blocked(["rm", "."], (), ["/"])


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("harness permissions add --allow x", "permissions add"),
        ("/opt/bin/harness --json permissions --scope x remove 3", "permissions remove"),
        ("harness tools call x --yes", "tools call --yes"),
        ("harness exec --approve=x y", "exec --approve"),
        ("python3 -m harness servers accept x", "servers accept"),
        ("python3 -um harness audit resolve 3", "audit resolve"),
        ("python3 -umharness audit resolve 3", "audit resolve"),
        ("harness run 'harness permissions add'", ""),
        ("sh /opt/bin/harness permissions add", "permissions add"),
        (". /opt/bin/harness permissions add", "permissions add"),
        ("uvx harness permissions add", "permissions add"),
        ("harness add permissions", ""),
        ("harness permissions list", ""),
        ("echo harness permissions add", ""),
        ("python3 -m other permissions add", ""),
        ("", ""),
    ],
)
def test_what_only_a_person_decides_is_blocked(command: str, decision: str) -> None:
    expected = f"'harness {decision}' is blocked: only the operator may run it" if decision else ""
    assert blocked(shlex.split(command), BLOCKED) == expected


def test_a_pattern_blocks_the_program_by_its_name_and_by_its_path() -> None:
    assert blocked(["/usr/bin/secret-tool", "lookup", "x"], BLOCKED) == "'secret-tool lookup*' is blocked"
    assert blocked(["secret-tool", "store", "x"], BLOCKED) == ""
    assert blocked(["secret-tool", "lookup", "x"], ()) == ""
    assert may_block(["/usr/bin/secret-tool"], BLOCKED)
    assert may_block(["secret-tool", "anything"], BLOCKED)
    assert not may_block(["secret"], BLOCKED)
    assert not may_block([], BLOCKED)
    assert command_forms([]) == ()
    assert command_forms(["/bin/a", "b"]) == ("/bin/a b", "a b")
    assert command_forms(["a", "b"]) == ("a b",)


@pytest.mark.parametrize(
    ("command", "past"),
    [
        ("harness", True),
        ("harness exec x", True),
        ("harness resume", True),
        ("harness keys x", True),
        ("harness mcp", True),
        ("harness acp", True),
        ("harness tools call x", True),
        ("harness demo", True),
        ("harness nonsense", True),
        ("harness run x", False),
        ("python3 -m harness run x", True),
        ("harness jobs", False),
        ("harness --version", False),
        ("python3 -m harness jobs", False),
        ("python3 -m harness", True),
        ("ls", False),
        ("", False),
    ],
)
def test_a_harness_that_runs_commands_runs_them_past_the_policy(command: str, past: bool) -> None:
    assert bool(runs_past_the_policy(shlex.split(command))) is past


def test_harness_is_known_by_its_name_or_behind_what_runs_it() -> None:
    ours = (
        "harness",
        "/x/harness",
        "python3 -m harness",
        "bash /x/harness",
        "pipx harness",
        "python x/harness/cli/start.py",
    )
    assert all(is_harness(command.split()) for command in ours)
    assert not any(
        is_harness(command.split()) for command in ("", "ls harness", "python3 x.py", "harnesses", "cat /x/harness")
    )
