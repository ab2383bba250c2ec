"""Parsed commands of container engines: the sub-command, its options, and the inner command. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .words import Word, grammar, parse_options

__all__ = ["COMPOSERS", "ENGINES", "ContainerCommand", "container_command"]

ENGINES = frozenset({"docker", "podman", "nerdctl"})
COMPOSERS = frozenset({"docker-compose", "podman-compose"})
_GROUPS = frozenset({"container", "image", "builder", "buildx", "volume", "service", "plugin", "pod", "machine"})
"""Sub-commands with sub-commands of their own."""
_RUNS = frozenset({"exec", "run", "create"})
_ENGINE = (
    "-Hclan= -Dvr --host= --context= --config= --log-level= --debug --tls --tlscacert= --tlscert= --tlskey= "
    "--tlsverify --remote --url= --connection= --identity= --cgroup-manager= --conmon= --events-backend= "
    "--hooks-dir= --module= --network-config-dir= --root= --runroot= --runtime= --runtime-flag= --storage-driver= "
    "--storage-opt= --syslog --tmpdir= --volumepath= --version --address= --namespace= --snapshotter= --data-root= "
    "--hosts-dir= --insecure-registry --experimental --debug-full --cni-path= --cni-netconfpath= --help"
)
_COMPOSE = (
    "-fp= -Dv --file= --project-name= --profile= --env-file= --project-directory= --ansi= --progress= --parallel= "
    "--compatibility --dry-run --all-resources --verbose --no-ansi --version --host= -H="
)
_SHARED = (
    "-ditq -euw= --detach? --interactive? --tty? --privileged? --quiet? --env= --user= --workdir= --env-file= "
    "--detach-keys="
)
_EXEC: Mapping[str, str] = {
    "docker": _SHARED,
    "nerdctl": _SHARED,
    "podman": f"{_SHARED} -l --latest --preserve-fds=",
    "compose": f"{_SHARED} -T --index= --no-TTY --no-tty",
}
_RUN = (
    f"{_SHARED} -P -pvhlmac= --rm? --init? --read-only? --name= --network= --net= --network-alias= --volume= "
    "--volumes-from= --mount= --tmpfs= --publish= --publish-all? --expose= --entrypoint= --pull= --cpus= --memory= "
    "--cap-add= --cap-drop= --security-opt= --label= --platform= --restart= --hostname= --add-host= --dns= --pid= "
    "--ipc= --uts= --userns= --cgroupns= --device= --gpus= --log-driver= --attach= --cpu-shares= --cpuset-cpus= "
    "--memory-swap= --pids-limit= --shm-size= --ulimit= --sysctl= --stop-signal= --stop-timeout= --group-add= --ip= "
    "--link= --no-healthcheck --sig-proxy? --replace --pod= --tz= --arch= --os="
)
_COMPOSE_RUN = (
    f"{_SHARED} -TP -vpl= --rm? --volume= --publish= --service-ports --use-aliases --entrypoint= --name= --label= "
    "--no-deps --no-TTY --no-tty --build --cap-add= --cap-drop= --pull= --quiet-pull --remove-orphans"
)


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """A command of a container engine.

    ``leading``: the words before the sub-command. ``verb``: the sub-command, without a group such as ``container``.
    ``options``: the words after it that are not part of the inner command. ``inner``: the command in the container.
    ``reason``: why it cannot be parsed.
    """

    engine: str
    leading: tuple[Word, ...]
    group: str
    verb: str
    options: tuple[Word, ...]
    inner: tuple[Word, ...] = ()
    reason: str = ""

    @property
    def runs(self) -> bool:
        """Whether it runs a command in a container, or the default command of the image."""
        return self.group in ("", "compose") and self.verb in _RUNS | {"unshare"}


def container_command(words: Sequence[Word]) -> ContainerCommand | None:
    """Parse an engine command; None for other programs and without a sub-command."""
    engine = posixpath.basename(words[0].text) if words else ""
    if engine in COMPOSERS:
        return _composed(engine, (), words[1:])
    return _of_engine(engine, words) if engine in ENGINES else None


def _of_engine(engine: str, words: Sequence[Word]) -> ContainerCommand | None:
    outer = parse_options(words[1:], grammar(_ENGINE), permute=False)
    if outer.reason:
        return ContainerCommand(engine, (), "", "", tuple(words[1:]), reason=outer.reason)
    rest = outer.operands
    leading = tuple(words[1 : len(words) - len(rest)])
    if rest and rest[0].text == "compose":
        return _composed(engine, leading, rest[1:])
    group = rest[0].text if len(rest) > 1 and rest[0].text in _GROUPS else ""
    rest = rest[1:] if group else rest
    return _verb(engine, leading, group, rest[0].text, tuple(rest[1:])) if rest else None


def _verb(engine: str, leading: tuple[Word, ...], group: str, verb: str, after: tuple[Word, ...]) -> ContainerCommand:
    if verb == "unshare" and engine == "podman":
        return _split(engine, leading, "", verb, after, "--rootless-netns")
    if verb not in _RUNS or group not in ("", "container"):
        return ContainerCommand(engine, leading, group, verb, after)
    return _split(engine, leading, "", verb, after, _EXEC[engine] if verb == "exec" else _RUN)


def _composed(engine: str, leading: tuple[Word, ...], rest: Sequence[Word]) -> ContainerCommand | None:
    outer = parse_options(rest, grammar(_COMPOSE), permute=False)
    if outer.reason:
        return ContainerCommand(engine, leading, "compose", "", tuple(rest), reason=outer.reason)
    if not outer.operands:
        return None
    verb, after = outer.operands[0].text, tuple(outer.operands[1:])
    if verb in ("exec", "run"):
        return _split(engine, leading, "compose", verb, after, _EXEC["compose"] if verb == "exec" else _COMPOSE_RUN)
    return ContainerCommand(engine, leading, "compose", verb, after)


def _split(
    engine: str, leading: tuple[Word, ...], group: str, verb: str, after: tuple[Word, ...], options: str
) -> ContainerCommand:
    """Separate the options of a sub-command from its inner command; the first operand is the container or image."""
    parsed = parse_options(after, grammar(options), permute=False)
    count = len(after) - len(parsed.operands)
    entry = parsed.value("--entrypoint")
    is_alone = verb == "unshare" or (verb == "exec" and parsed.has("-l", "--latest"))
    command = parsed.operands if is_alone else parsed.operands[1:]
    inner = (*((entry,) if entry is not None else ()), *command)
    return ContainerCommand(engine, leading, group, verb, after[:count], inner, parsed.reason)
