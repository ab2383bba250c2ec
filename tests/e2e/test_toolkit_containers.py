"""What was granted for a container is not granted for another one that has its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.contained import MakeWay, make_way
from tests.support.engines import container
from tests.support.permits import desk, says

from harness.toolkit.permissions.paths import hard_denials
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.rules.store import RuleFile

__all__ = ["make_way"]

COMMAND = "rm -rf /data"


@pytest.mark.parametrize("name", ["docker", "podman-program"])
async def test_an_old_grant_is_nothing_to_a_container_that_was_made_anew(
    name: str, make_way: MakeWay, tmp_path: Path
) -> None:
    way, file = make_way(name), tmp_path / "permissions.json"
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            for scope in (ApprovalScope.EXACT, ApprovalScope.SESSION, ApprovalScope.ALWAYS):
                made = desk(says(scope), file=file, execution=ctx)
                assert await made.allows("run_shell", COMMAND)
            made.policy.approver = None
            assert await made.allows("run_shell", COMMAND)  # by the file of rules, and in this session
        async with way.connect(one) as again:
            assert await desk(file=file, execution=again).allows("run_shell", COMMAND)
        kept, url = RuleFile(file).load().rules, one.target
    assert [rule.argument for rule in kept] == [COMMAND]
    with container(way.engine, name=one.name) as other:
        async with way.connect(other) as ctx:
            assert (other.target, other.id != one.id) == (url, True)
            assert not await desk(file=file, execution=ctx).allows("run_shell", COMMAND)
            made.ctx = replace(made.ctx, execution=ctx)  # a session that outlives the container
            assert not await made.allows("run_shell", COMMAND)
            by_url = Rule(Action.ALLOW, url, "run_shell", COMMAND, Match.LITERAL)  # what an operator writes for a name
            assert await desk(rules=(by_url,), execution=ctx).allows("run_shell", COMMAND)


async def test_what_is_kept_back_below_a_directory_is_found_there(
    make_way: MakeWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hard_denials, "SECONDS", 100.0)  # a machine that does much else may be slow
    way = make_way("podman")
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            made = desk(mode=Mode.AUTO, execution=ctx, aiexclude_cache_seconds=0.0)
            await ctx.mkdir("/srv/app/.deep/db", parents=True)
            await ctx.write_file("/srv/app/.deep/db/dump.sql", "x")
            assert await made.allows("run_shell", "grep -r x /srv")
            await ctx.write_file("/srv/app/.aiexclude", "/.deep/*/*.sql\n")
            for command in ("grep -r x /srv", "tar c /srv/app | gzip", "cd /srv/app/.deep && rm -rf db"):
                assert not await made.allows("run_shell", command), command
            assert await made.allows("run_shell", "grep -r x /etc")
