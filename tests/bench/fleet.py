"""One command on many hosts, beside the programs that people use for that."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.support.many_hosts import ManyHosts, start_many_hosts

from .model import Check, Line, Row, at_most
from .peers import DRIVERS, Peer, Peers
from .process_tree import Mark, measure
from .world import Size, World

__all__ = ["FLEET_PEERS", "SIZES", "fleet_row"]

SIZES = (50, 100)
FORKS = 64
"""Hosts at the same time, for every program that has such a limit."""
COMMANDS = {"true": "true", "uname": "uname -a", "1 MB": "seq 100001 242858"}
REPEATS = {"true": 3, "uname": 1, "1 MB": 1}
"""How often each command is measured, in turns."""
MAX_OUTPUT = 2_000_000
FLEET_PEERS = (
    Peer("fabric-group", ("fabric==3.2.3",), (3, 9), "Fabric 3.2.3, ThreadingGroup"),
    Peer("parallel-ssh", ("parallel-ssh==2.16.0.post1",), (3, 9), "parallel-ssh 2.16.0"),
    Peer("pyinfra", ("pyinfra==3.10.0",), (3, 10), "pyinfra 3.10.0, exec"),
    Peer("clush", ("ClusterShell==1.10.1",), (3, 9), "clush 1.10.1"),
    Peer("ansible", ("ansible-core==2.19.14",), (3, 11), "ansible-core 2.19.14, -m raw"),
)
XARGS = f"xargs -P {FORKS} ssh"
OPENSSH, ASYNCSSH = "harness run, openssh", "harness run, asyncssh"
HELD = {OPENSSH: "harness.fleet(), openssh", ASYNCSSH: "harness.fleet(), asyncssh"}
"""The names of the lines of live rounds of a program that holds the connections."""


@dataclass(frozen=True)
class _Side:
    """One program: its command line, its environment, and what it gets on standard input."""

    what: str
    argv: Sequence[str]
    variables: dict[str, str]
    stdin: bytes = b""
    holds: bool = False
    """Whether it is a driver, which holds its connections and reports rounds."""
    keeps: bool = False
    """Whether its connections stay open after it, so that the next call is a live round."""


async def fleet_row(world: World, size: Size, peers: Peers, sizes: Sequence[int] = SIZES) -> Row:
    """First contacts with many hosts, and rounds on connections that are open."""
    lines: list[Line] = []
    checks: list[Check] = []
    with ExitStack() as stack:
        count = 3 if size.quick else max(sizes)
        names = [f"h{number:03}" for number in range(1, count + 1)]
        directory = world.directory / "fleet"
        hosts = start_many_hosts(stack, directory, names, user=world.user)
        for number in (count,) if size.quick else sizes:
            found = _measure_size(hosts, number, size, peers)
            lines += found
            checks += _checks(found, number)
    missing = [
        Line(peer.what, (), note=peers.failures.get(peer.name, "not asked for"))
        for peer in FLEET_PEERS
        if peer.name not in peers.pythons
    ]
    return Row("fleet", "One command on many hosts", (*lines, *missing), tuple(checks), (NOTE,))


NOTE = (
    f"Each host is a port of a real sshd with a home directory of its own. {FORKS} hosts work at the same time, with "
    "Fabric all. First contact: from exec to exit of a program, without open connections. Live round: ansible and "
    "harness run again while connections of the run before are open; the others hold them in one process. Processor "
    "time and memory are those of the client and all that it starts; the servers run on the same machine."
)


def _measure_size(hosts: ManyHosts, count: int, size: Size, peers: Peers) -> list[Line]:
    found: dict[tuple[str, str, str], list[float]] = {}
    failures: dict[tuple[str, str], str] = {}
    for label, command in COMMANDS.items():
        if size.quick and label != "1 MB":
            continue
        for _ in range(size.pick(REPEATS[label], 1)):
            for make in _sides(hosts, count, command, peers):
                side, mark = make(1), Mark()
                try:
                    _measure_side(f"{count} hosts, {label}", side, make, mark, found)
                except RuntimeError as error:
                    group = f"{count} hosts, {label}"
                    reached = (f"{group}, first contact", side.what, "ms") in found
                    failures[f"{group}, {'live round' if reached else 'first contact'}", side.what] = str(error)
                finally:
                    mark.end()
    lines = [Line(what, tuple(values), unit, group) for (group, what, unit), values in found.items()]
    lines += [
        Line(what, (), group=group, note=f"failed: {why}"[:200].replace("\n", " "))
        for (group, what), why in failures.items()
    ]
    return sorted(lines, key=lambda line: line.group)  # a group's lines keep their order


def _measure_side(
    group: str,
    side: _Side,
    make: Callable[[int], _Side],
    mark: Mark,
    found: dict[tuple[str, str, str], list[float]],
) -> None:
    """Measure a first contact and a live round of a program."""

    def add(kind: str, unit: str, value: float) -> None:
        print(f"   {group}, {kind}: {side.what}: {value:.4g} {unit}", file=sys.stderr, flush=True)
        found.setdefault((f"{group}, {kind}", side.what, unit), []).append(value)

    done = measure(side.argv, side.variables, mark, side.stdin)
    add("first contact", "ms", done.wall)
    add("processor time", "s", done.cpu)
    add("peak memory", "MB", done.memory)
    for value in _live(side, make, mark):
        add("live round", "ms", value)


def _live(side: _Side, make: Callable[[int], _Side], mark: Mark) -> list[float]:
    """Milliseconds of a round on open connections; none for programs that keep none."""
    if side.keeps:
        return [measure(side.argv, side.variables, mark, side.stdin).wall]
    if not side.holds:
        return []
    rounds = make(3)
    done = measure(rounds.argv, rounds.variables, Mark(), rounds.stdin)
    values: list[float] = json.loads(done.output.splitlines()[-1])
    return [median(values[1:])]


def _checks(lines: Sequence[Line], count: int) -> list[Check]:
    checks = []
    for label in COMMANDS:
        first, live = f"{count} hosts, {label}, first contact", f"{count} hosts, {label}, live round"
        memory = f"{count} hosts, {label}, peak memory"
        own = {(line.group, line.what): line.median for line in lines if "harness" in line.what and line.values}
        others = [line for line in lines if "harness" not in line.what and line.values]
        fastest = min((line.median for line in others if line.group == first), default=0.0)
        least = min((line.median for line in others if line.group == memory), default=0.0)
        if not fastest:
            continue
        for what in (OPENSSH, ASYNCSSH):
            checks += [
                at_most(f"{first}, {what}: at most 1.2 x the fastest", own[first, what], 1.2 * fastest),
                at_most(
                    f"{live}, {HELD[what]}: at most half of the fastest first contact",
                    own[live, HELD[what]],
                    fastest / 2,
                ),
                at_most(f"{memory}, {what}: at most the least of the others", own[memory, what], least, "MB"),
            ]
    return checks


# -- the programs


def _sides(hosts: ManyHosts, count: int, command: str, peers: Peers) -> list[Callable[[int], _Side]]:
    """The programs, as functions of the number of rounds."""
    names = hosts.names[:count]
    order = {
        "names": names,
        "ports": [hosts.ports[name] for name in names],
        "user": hosts.user,
        "ssh_config": str(hosts.ssh_config),
        "identity": str(hosts.identity),
        "forks": FORKS,
        "max_output": MAX_OUTPUT,
        "command": command,
    }
    pythons = {peer.name: peers.pythons[peer.name] for peer in FLEET_PEERS if peer.name in peers.pythons}
    found = [_harness(hosts, names, command, engine) for engine in ("openssh", "asyncssh")]
    found += [
        _driver(HELD[what], Path(sys.executable), "harness_rounds", order | {"engine": engine})
        for what, engine in ((OPENSSH, "openssh"), (ASYNCSSH, "asyncssh"))
    ]
    drivers = {"fabric-group": "fabric_group", "parallel-ssh": "parallel_ssh"}
    titles = {peer.name: peer.what for peer in FLEET_PEERS}
    found += [
        _driver(titles[name], pythons[name], driver, order) for name, driver in drivers.items() if name in pythons
    ]
    programs = {"pyinfra": _pyinfra, "clush": _clush, "ansible": _ansible}
    found += [
        make(titles[name], pythons[name].parent, hosts, names, command)
        for name, make in programs.items()
        if name in pythons
    ]
    return [*found, _xargs(hosts, names, command)]


def _once(side: _Side) -> Callable[[int], _Side]:
    return lambda rounds: side


def _harness(hosts: ManyHosts, names: Sequence[str], command: str, engine: str) -> Callable[[int], _Side]:
    path = shutil.which("harness", path=os.path.dirname(sys.executable)) or "harness"
    pattern = f"h[{names[0][1:]}-{names[-1][1:]}]"
    words = ["run", "--hosts", pattern, "--forks", str(FORKS), "--max-output", str(MAX_OUTPUT), "--", command]
    variables = os.environ | {"HARNESS_SSH_ENGINE": engine}
    openssh = engine == "openssh"
    what = OPENSSH if openssh else ASYNCSSH
    return _once(_Side(what, [path, "-F", str(hosts.ssh_config), *words], variables, keeps=openssh))


def _driver(what: str, python: Path, name: str, order: dict[str, object]) -> Callable[[int], _Side]:
    argv = [str(python), str(DRIVERS / f"{name}.py")]
    return lambda rounds: _Side(
        what, argv, dict(os.environ), json.dumps(order | {"rounds": rounds}).encode(), holds=True
    )


def _pyinfra(what: str, programs: Path, hosts: ManyHosts, names: Sequence[str], command: str) -> Callable[[int], _Side]:
    inventory = hosts.directory / f"pyinfra{len(names)}.py"
    about = {"ssh_user": hosts.user, "ssh_key": str(hosts.identity), "ssh_hostname": "127.0.0.1"}
    more = {"ssh_strict_host_key_checking": "no", "ssh_known_hosts_file": str(hosts.directory / "known_hosts")}
    entries = [(name, about | more | {"ssh_port": hosts.ports[name]}) for name in names]
    inventory.write_text(f"hosts = {entries!r}\n")
    argv = [str(programs / "pyinfra"), "-y", "--parallel", str(FORKS), str(inventory), "exec", "--", command]
    return _once(_Side(what, argv, dict(os.environ)))


def _clush(what: str, programs: Path, hosts: ManyHosts, names: Sequence[str], command: str) -> Callable[[int], _Side]:
    options = ["-b", "-f", str(FORKS), "-o", f"-F {hosts.ssh_config}", "-w", ",".join(names)]
    return _once(_Side(what, [str(programs / "clush"), *options, command], dict(os.environ)))


def _ansible(what: str, programs: Path, hosts: ManyHosts, names: Sequence[str], command: str) -> Callable[[int], _Side]:
    inventory = hosts.directory / f"ansible{len(names)}.ini"
    inventory.write_text("".join(f"{name}\n" for name in names))
    variables = os.environ | {
        "ANSIBLE_SSH_ARGS": f"-F {hosts.ssh_config} -C -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_HOME": str(hosts.directory / "ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(hosts.directory / "cp"),
    }
    argv = [str(programs / "ansible"), "all", "-i", str(inventory), "-m", "raw", "-a", command, "-f", str(FORKS)]
    return _once(_Side(what, argv, variables, keeps=True))


def _xargs(hosts: ManyHosts, names: Sequence[str], command: str) -> Callable[[int], _Side]:
    file = hosts.directory / f"names{len(names)}"
    file.write_text("".join(f"{name}\n" for name in names))
    ssh = ["ssh", "-n", "-F", str(hosts.ssh_config), "{}", command]
    return _once(_Side(XARGS, ["xargs", "-a", str(file), "-P", str(FORKS), "-I{}", *ssh], dict(os.environ)))
