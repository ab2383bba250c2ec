"""Temporary containers: their settings, their owner, and detection of orphans. Pure.

Every one has a label that identifies the process that created it. ``harness doctor --clean`` removes those whose
process has exited. By default they have no privileges, no directory of the host, and cannot gain privileges.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.config import Config
from harness.errors import ConfigError

__all__ = [
    "LABEL",
    "Mount",
    "OwnerProcess",
    "TemporaryContainer",
    "api_body",
    "orphaned",
    "parse_maker",
    "parse_mount",
    "program_words",
    "temporary_container_from_config",
]

LABEL = "org.harness.scratch"
"""The label of a temporary container; its value identifies its owner."""

MountType = Literal["bind", "volume", "tmpfs"]
_TYPES: Mapping[str, MountType] = {"bind": "bind", "volume": "volume", "tmpfs": "tmpfs"}
_KEYS = {"src": "source", "source": "source", "dst": "target", "destination": "target", "target": "target"}


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """The identity of a process: boot and start time distinguish it from later ones with the same id."""

    machine: str
    boot: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.machine} {self.boot} {self.pid} {self.since}"


def parse_maker(label: str) -> OwnerProcess | None:
    """Parse a label; return None if harness did not create it."""
    words = label.split()
    if len(words) != 5 or not words[2].isdecimal():
        return None
    return OwnerProcess(words[0], words[1], int(words[2]), words[3])


def orphaned(maker: OwnerProcess, machine: str, boot: str, alive: Mapping[int, str]) -> bool:
    """Return True if the owner has certainly exited: it ran on this machine, and is not among ``alive``.

    ``alive`` maps process ids of this machine to their start times.
    """
    if maker.machine != machine:
        return False
    return maker.boot != boot or alive.get(maker.pid) != maker.since


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of the host's or the engine's data at ``target`` in the container."""

    type: MountType
    source: str
    target: str
    read_only: bool = False


def parse_mount(text: str) -> Mount:
    """Parse ``SRC:DST[:ro]``, or ``type=bind,src=SRC,dst=DST[,ro]`` as for the engines' programs.

    Raises:
        ConfigError: the text has neither form, or a path is not absolute.
    """
    mount = _long_mount(text) if "=" in text.partition(",")[0] else _short_mount(text)
    if mount is None or not mount.target.startswith("/") or (mount.type == "bind" and not mount.source.startswith("/")):
        raise ConfigError(
            f"{text!r} is not a valid mount", hint="use /host/dir:/dir, /host/dir:/dir:ro or type=tmpfs,dst=/dir"
        )
    return mount


def _short_mount(text: str) -> Mount | None:
    words = text.split(":")
    if len(words) not in (2, 3) or words[2:] not in ([], ["ro"], ["rw"]):
        return None
    return Mount("bind", words[0], words[1], words[2:] == ["ro"])


def _long_mount(text: str) -> Mount | None:
    found = {"type": "volume", "source": "", "target": "", "read_only": ""}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if key in ("ro", "readonly"):
            found["read_only"] = "" if value == "false" else "yes"
        elif equals and (key == "type" or key in _KEYS):
            found[_KEYS.get(key, key)] = value
        else:
            return None
    kind = _TYPES.get(found["type"])
    return Mount(kind, found["source"], found["target"], bool(found["read_only"])) if kind else None


@dataclass(frozen=True, slots=True)
class TemporaryContainer:
    """A temporary container to create; ``memory`` is in bytes; 0 and empty mean the engine's defaults."""

    image: str
    name: str
    maker: OwnerProcess
    token: str
    memory: int = 0
    cpus: float = 0.0
    network: str = ""
    mounts: tuple[Mount, ...] = field(default=())

    @property
    def label(self) -> str:
        """The label with the owner and a unique token."""
        return f"{self.maker} {self.token}"


def temporary_container_from_config(config: Config, name: str, maker: OwnerProcess) -> TemporaryContainer:
    """Return the container that the settings describe.

    Raises:
        ConfigError: a mount or a number is invalid.
    """
    try:
        memory, cpus = _bytes(config.image_memory), float(config.image_cpus or 0)
    except ValueError as error:
        raise ConfigError(f"image_memory or image_cpus: {error}", hint="use values like 512m and 1.5") from None
    return TemporaryContainer(
        image=config.image,
        name=name,
        maker=maker,
        token=secrets.token_hex(4),
        memory=memory,
        cpus=cpus,
        network=config.image_network,
        mounts=tuple(map(parse_mount, config.image_mounts)),
    )


def _bytes(text: str) -> int:
    number = text.lower().removesuffix("b")
    shift = {"k": 10, "m": 20, "g": 30}.get(number[-1:], 0)
    return int(number[:-1] if shift else number or 0) << shift


def api_body(scratch: TemporaryContainer) -> dict[str, object]:
    """Return the API request that creates it; a shell with endless input keeps any image running."""
    host: dict[str, object] = {
        "Memory": scratch.memory,
        "NanoCpus": round(scratch.cpus * 1e9),
        "SecurityOpt": ["no-new-privileges"],
        "Mounts": [
            {"Type": mount.type, "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
            for mount in scratch.mounts
        ],
    }
    if scratch.network:
        host["NetworkMode"] = scratch.network
    return {
        "Image": scratch.image,
        "Entrypoint": ["sh"],
        "Cmd": [],
        "OpenStdin": True,
        "Labels": {LABEL: scratch.label},
        "HostConfig": host,
    }


def program_words(scratch: TemporaryContainer) -> list[str]:
    """Return the arguments of ``docker`` or ``podman`` that create and start it."""
    words = ["run", "-d", "-i", "--name", scratch.name, "--label", f"{LABEL}={scratch.label}"]
    words += ["--entrypoint", "sh", "--security-opt", "no-new-privileges"]
    words += ["--memory", str(scratch.memory)] if scratch.memory else []
    words += ["--cpus", f"{scratch.cpus:g}"] if scratch.cpus else []
    words += ["--network", scratch.network] if scratch.network else []
    for mount in scratch.mounts:
        parts = [f"type={mount.type}", f"dst={mount.target}"]
        parts += [f"src={mount.source}"] if mount.source else []
        parts += ["ro=true"] if mount.read_only else []
        words += ["--mount", ",".join(parts)]
    return [*words, "--", scratch.image]
