"""What a caller is told of a command, and what is left of it on the target: ``tests/data/outcomes.tsv`` says it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.outcomes import ENDINGS, Trial, row
from tests.faults.rig import Place
from tests.support.berths import entered
from tests.support.disks import small_disk
from tests.support.engines import Engines, container

from harness.config import Config

TABLE = Path(__file__).parents[1] / "data/outcomes.tsv"
CARRIERS = ("plain", "pane", "pane without control mode")
LINK = ("link lost", "reply lost")


def cases(where: str) -> list[tuple[str, str]]:
    """The carriers and endings; without a link none can be lost, and a container is what can be stopped."""
    if where == "container":
        return [("engine", name) for name in ENDINGS if not name.startswith((*LINK, "disk"))]
    not_here = ("target", *(LINK if where == "local" else ()))
    return [(carrier, name) for carrier in CARRIERS for name in ENDINGS if not name.startswith(not_here)]


def expected() -> dict[tuple[str, str, str], str]:
    """The table, by carrier, place and ending."""
    rows = TABLE.read_text().splitlines()[1:] if TABLE.exists() else []
    return {tuple(line.split("\t", 3)[:3]): line for line in rows}  # type: ignore[misc]  # three of them


async def outcome_of(place: Place, carrier: str, where: str, ending: str, stop: Callable[[], None] = print) -> str:
    """Do it, and tell what came of it."""
    trial = Trial(place, carrier, stop)
    with ExitStack() as stack:
        if ending.startswith("disk full"):
            stack.enter_context(small_disk(place.state, size="4m"))
        with anyio.fail_after(110):
            with trial.outlived():
                async with trial.connect() as ctx:
                    for _ in range(3):
                        await trial.run(ctx, "true")
                    await ENDINGS[ending](trial, ctx)
            if where != "container":
                await trial.look_later()
                place.end()
            trial.count_runs()
    return row(carrier, where, ending, trial.outcome)


def check(found: str) -> None:
    """Compare with the table, or, with ``HARNESS_WRITE_OUTCOMES=FILE``, write a new one."""
    if path := os.environ.get("HARNESS_WRITE_OUTCOMES"):
        with Path(path).open("a") as table:
            table.write(f"{found}\n")
        return
    carrier, where, ending, *_ = found.split("\t")
    line = expected()[carrier, where, ending]
    names = TABLE.read_text().splitlines()[0].split("\t")
    was, now = (dict(zip(names, text.split("\t"), strict=True)) for text in (line, found))
    for name in names[3:]:
        assert agrees(json.loads(was[name]), json.loads(now[name])), (name, was[name], now)


def agrees(said: Any, found: Any) -> bool:
    """A cell may say ``{"either": [...]}`` of what differs from time to time; ``{"maybe": ...}`` is not always told."""
    if isinstance(said, dict) and "either" in said:
        return found in said["either"]
    if not isinstance(said, list):
        return bool(said == found)
    always = [item for item in said if isinstance(item, str)]
    sometimes = [item["maybe"] for item in said if isinstance(item, dict)]
    return [item for item in found if item in always or item not in sometimes] == always


@pytest.mark.usefixtures("needs_root", "needs_tmux")
@pytest.mark.parametrize(("carrier", "ending"), cases("local"))
async def test_here(here: Place, carrier: str, ending: str) -> None:
    check(await outcome_of(here, carrier, "local", ending))


@pytest.mark.usefixtures("needs_root", "needs_tmux")
@pytest.mark.parametrize("engine", ["openssh"], indirect=True)
@pytest.mark.parametrize(("carrier", "ending"), cases("ssh"))
async def test_behind_ssh(far: Place, carrier: str, ending: str) -> None:
    check(await outcome_of(far, carrier, "ssh", ending))


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("engine_kind", ["docker"])
@pytest.mark.parametrize(("carrier", "ending"), cases("container"))
async def test_in_a_container(home: Path, engines: Engines, engine_kind: str, carrier: str, ending: str) -> None:
    """The commands of another user, which the engine runs; this process alone keeps what is known of them."""
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    options = ("--volume", f"{shared}:{shared}")
    with container(engines.get(engine_kind), "non-root", options=options) as one, entered(one):
        place = Place(shared, f"hx-{secrets.token_hex(4)}", one.target, Config(connect_timeout=10))
        check(await outcome_of(place, carrier, "container", ending, lambda: one.do("kill")))
        one.engine.cli("start", one.name, check=False)
        assert "nobody" not in one.engine.cli("exec", one.name, "sh", "-c", "ls -l /home/app/.local/state/harness/jobs")


def test_the_table_has_a_row_for_each_case_and_no_other() -> None:
    wanted = {(carrier, where, ending) for where in ("local", "ssh", "container") for carrier, ending in cases(where)}
    assert set(expected()) == wanted
