"""``python -m tests.bench``; see ``scripts/bench``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio

from .agent import agent_row
from .containers import container_files_row, containers_row
from .copies import copies_row
from .fleet import FLEET_PEERS, SIZES, fleet_row
from .fleet_simulated import fleet_simulated_row
from .footprint import memory_row, scale_row, scale_tmux_row, waiting_row
from .latency import local_row, ssh_plain_row, ssh_tmux_row
from .mcp import mcp_row
from .model import Row, row_json
from .peers import PEERS, Peers
from .report import machine, render
from .search import search_row
from .startup import startup_row
from .throughput import flat_row, throughput_row
from .toolkit_ledger import toolkit_ledger_row
from .toolkit_permissions import toolkit_permissions_row
from .toolkit_pipeline import toolkit_pipeline_row
from .transfer import files_row
from .ttyd import TTYD
from .view import view_row
from .world import Size, World, a_world

ROWS: dict[str, Callable[[World, Size], Awaitable[Row]]] = {
    "ssh-tmux": ssh_tmux_row,
    "ssh-plain": ssh_plain_row,
    "throughput": throughput_row,
    "files": files_row,
    "copies": copies_row,
    "flat": flat_row,
    "startup": startup_row,
    "memory": memory_row,
    "scale": scale_row,
    "scale-tmux": scale_tmux_row,
    "waiting": waiting_row,
    "containers": containers_row,
    "container-files": container_files_row,
    "search": search_row,
    "toolkit-ledger": toolkit_ledger_row,
    "toolkit-permissions": toolkit_permissions_row,
    "toolkit-pipeline": toolkit_pipeline_row,
    "mcp": mcp_row,
    "agent": agent_row,
    "fleet-simulated": fleet_simulated_row,
}
LOCAL, FLEET, VIEW = "local", "fleet", "view"
PEERS_OF = {LOCAL: PEERS, FLEET: FLEET_PEERS}
"""The other projects that a row installs."""
NAMES = (LOCAL, *ROWS, VIEW, FLEET)
ROW_LIMIT = 600
"""Seconds that one row may take; the row ``fleet`` may take as many for each of its sizes."""


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure what this project promises.")
    parser.add_argument("--quick", action="store_true", help="a few samples: shows that it works, not how fast it is")
    parser.add_argument("--rows", metavar="NAME,...", default="", help=f"only these: {', '.join(NAMES)}")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every sample to FILE as well")
    parser.add_argument(
        "--fleet-sizes",
        metavar="N,...",
        type=lambda text: [int(word) for word in text.split(",")],
        default=list(SIZES),
        help=f"hosts of the row fleet (default: {','.join(map(str, SIZES))})",
    )
    parser.add_argument("--no-peers", action="store_true", help="install and measure no other project")
    chosen = parser.parse_args(words)
    chosen.rows = [name for name in chosen.rows.split(",") if name] or list(NAMES)
    unknown = sorted(set(chosen.rows) - set(NAMES))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return chosen


async def measure(names: list[str], size: Size, peers: Peers, fleet_sizes: list[int]) -> list[Row]:
    """The rows, one after the other. One that fails is a row too, with what it said and no numbers."""
    rows = []
    async with a_world() as world:
        for name in names:
            print(f"== {name}", file=sys.stderr, flush=True)
            try:
                with anyio.fail_after(ROW_LIMIT * (len(fleet_sizes) if name == FLEET else 1)):
                    row = await _row(name, world, size, peers, fleet_sizes)
            except Exception as error:  # the other rows are still worth having
                traceback.print_exc()
                row = Row(name, name, notes=(f"**failed**: {type(error).__name__}: {error}",), is_failed=True)
            rows.append(row)
            for check in row.checks:
                verdict = "met    " if check.is_met else "NOT MET"
                print(f"   {verdict} {check.promise}: {check.value:.4g} {check.unit}", file=sys.stderr)
    return rows


async def _row(name: str, world: World, size: Size, peers: Peers, fleet_sizes: list[int]) -> Row:
    if name == LOCAL:
        return await local_row(world, size, peers)
    if name == FLEET:
        return await fleet_row(world, size, peers, fleet_sizes)
    if name == VIEW:
        return await view_row(world, size, peers.ttyd, peers.failures.get(TTYD, "not asked for"))
    return await ROWS[name](world, size)


def command(chosen: argparse.Namespace) -> str:
    """What to type to measure the same again."""
    some = chosen.rows != list(NAMES)
    rows = ["--rows", ",".join(chosen.rows)] if some else []
    sizes = ["--fleet-sizes", ",".join(map(str, chosen.fleet_sizes))] if chosen.fleet_sizes != list(SIZES) else []
    return " ".join(["scripts/bench", *(["--quick"] if chosen.quick else []), *rows, *sizes])


def peers_home() -> Path:
    """Where the environments of other projects are kept; asked before the environment becomes a private one."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness-bench"


def main(words: list[str]) -> int:
    chosen = parse(words)
    wanted = [peer for row in chosen.rows for peer in PEERS_OF.get(row, ())]
    peers = Peers() if chosen.no_peers else Peers.prepare(peers_home(), wanted)
    if VIEW in chosen.rows and not chosen.no_peers:
        peers.add_ttyd(peers_home())
    where, before = machine(), os.getloadavg()[0]
    rows = anyio.run(measure, chosen.rows, Size(chosen.quick), peers, chosen.fleet_sizes)
    where = replace(where, loads=(before, os.getloadavg()[0]))
    page = render(rows, where, command(chosen))
    if chosen.json:
        chosen.json.write_text(json.dumps({"date": where.date, "rows": [row_json(row) for row in rows]}, indent=1))
    print(page)
    return int(any(row.is_failed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
