"""Access to the host that a command gives a container: mounts, copies, devices and capabilities. Pure.

A container engine runs with more rights than the account that uses it, and host files have other names in the
container. So the names in the command do not show which host files it can access.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .container_commands import COMPOSERS, ENGINES, ContainerCommand, container_command
from .words import Word, grammar, loose_values, parse_options
from .wrappers import WRAPPERS

__all__ = ["ContainerReach", "Mount", "container_directories", "container_reach", "reaches_by_socket"]

_ANY = "may access any file on the host"
_WHERE = re.compile(r"""["']?(?:\$\(pwd(?: -[PL])?\)|`pwd`|\$PWD\b|\$\{PWD\})["']?""")
_PIECE = re.compile(r"((?:\$\{[^}]*\}|\$\([^)]*\)|[^:])*)(?::|$)")
_VOLUME = re.compile(r"[A-Za-z0-9][\w.-]*")
"""The name of a volume, which is not a host path."""
_UNKNOWN = re.compile(r"[$`]")
_SOURCES = frozenset({"src", "source", "device", "volume-opt=device", "volume-opt=src"})
_TARGETS = frozenset({"dst", "dest", "destination", "target"})
_CAPABILITIES = re.compile(
    r"(?i)(?:cap_)?(?:all|sys_(?:admin|module|rawio|ptrace|boot)|dac_read_search|bpf|perfmon|mac_admin|mac_override)"
)
"""Capabilities with which a program may escape its container or open files by handle."""
_HARMLESS_SPACE = re.compile(r"(?:private|none|shareable|container:.*|service:.*|pod|)")
_UNMASKS = re.compile(r"(?i)(?:systempaths=unconfined|unmask=.*|proc-opts=.*)")
_SOCKET = re.compile(r"(?:docker|podman|containerd|crio|buildkitd|(?:lxd|incus)/unix)\.sock(?:et)?(?![\w.])")
_KUBERNETES_VALUES = frozenset(
    [
        *("-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "--token", "-s", "--server", "--as"),
        *("--as-group", "--request-timeout", "-v", "-c", "--container", "--retries"),
    ]
)
_ENTERING = frozenset({"-a", "--all", "-m", "--mount", "-r", "--root", "-w", "--wd"})
_PROGRAMS_OF_THE_HOST = "--hooks-dir --conmon --runtime --module --cdi-spec-dir --network-cmd-path"


@dataclass(frozen=True, slots=True)
class Mount:
    """A host file or directory, as written, that a container gets under the name ``target``.

    ``only_directory``: the word is a mount only if it is a directory. ``by_name``: the command only changes path names
    (``chroot``) and runs with the rights of the account.
    """

    source: str
    target: str = ""
    reads: bool = True
    writes: bool = True
    only_directory: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class ContainerReach:
    """The host access that a command gives a container.

    ``reason``: why it may access any host file; empty if only the ``mounts``. ``elsewhere``: the engine may be on
    another machine, so the mounts are unknown.
    """

    mounts: tuple[Mount, ...] = ()
    reason: str = ""
    elsewhere: bool = False


def reaches_by_socket(argv: Sequence[str]) -> bool:
    """Return whether a program other than an engine uses the socket of one, with which it can do all of this."""
    name = posixpath.basename(argv[0]) if argv else ""
    return name not in ENGINES | COMPOSERS and any(map(_SOCKET.search, argv[1:]))


def container_reach(argv: Sequence[str]) -> ContainerReach:
    """Return the host access that a simple command gives a container.

    Args:
        argv: the words of the command.
    """
    name = posixpath.basename(argv[0]) if argv else ""
    if name in ENGINES | COMPOSERS:
        found = container_command([Word.of(word) for word in argv])
        return _of_engine(found) if found is not None else ContainerReach()
    read = _OTHERS.get(name)
    return read(tuple(argv[1:])) if read is not None else ContainerReach()


def container_directories(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the directories in a container in which an engine command starts the inner command."""
    name = posixpath.basename(argv[0]) if argv else ""
    found = container_command([Word.of(word) for word in argv]) if name in ENGINES | COMPOSERS else None
    return tuple(loose_values(_texts(found.options), "-w --workdir")) if found is not None and found.runs else ()


# -- docker, podman, nerdctl


def _of_engine(command: ContainerCommand) -> ContainerReach:
    leading, words = _texts(command.leading), _texts(command.options)
    runs_host = loose_values(leading, _PROGRAMS_OF_THE_HOST)
    reason = f"{runs_host[0]} is a program or setting on the host" if runs_host else _rights(command, words)
    elsewhere = bool(loose_values(leading, "-H --host --context -c --url --connection --remote -r"))
    return ContainerReach(tuple(_mounts(command, words)), reason, elsewhere)


def _rights(command: ContainerCommand, words: Sequence[str]) -> str:
    """Return why the container may access any host file; empty if it may not."""
    name = " ".join(filter(None, (command.engine, command.group, command.verb)))
    if (command.group, command.verb) in (("plugin", "install"), ("plugin", "enable"), ("container", "runlabel")):
        return f"{name} {_ANY}"
    return _open_rights(name, words)


def _open_rights(name: str, words: Sequence[str]) -> str:
    flags = [word for word in words if re.fullmatch(r"--(?:privileged|rootfs|use-api-socket)(?:=(?!false).*)?", word)]
    given = loose_values(words, "--device --device-cgroup-rule --volumes-from")
    spaces = [value for value in loose_values(words, "--pid --ipc") if not _HARMLESS_SPACE.fullmatch(value)]
    added = [
        *(value for value in _split(loose_values(words, "--cap-add")) if _CAPABILITIES.fullmatch(value)),
        *(value for value in _split(loose_values(words, "--security-opt")) if _UNMASKS.fullmatch(value)),
        *(value for value in _split(loose_values(words, "--allow")) if value.startswith("security.")),
    ]
    first = next(iter((*flags, *given, *spaces, *added)), "")
    return f"{name} with {first} {_ANY}" if first else ""


def _mounts(command: ContainerCommand, words: Sequence[str]) -> Iterable[Mount]:
    if command.verb == "cp":
        yield from _copied(words)
        return
    if command.verb in ("build", "bake"):
        yield from _built(words)
    volumes = loose_values(words, "-v --volume --bind")
    yield from (mount for value in volumes if (mount := _volume(value)) is not None)
    yield from (mount for value in loose_values(words, "--mount --mount-add") for mount in _mounted(value))
    for value in loose_values(words, "-o --opt --driver-opts") if command.group == "volume" else ():
        if value.startswith("device="):
            yield Mount(_here(value.partition("=")[2]))


def _volume(value: str) -> Mount | None:
    """Parse ``SOURCE:TARGET:OPTIONS``; without a colon it is an anonymous volume."""
    source, target, options = _pieces(value)
    if _VOLUME.fullmatch(source) or (not target and not _UNKNOWN.search(value)):
        return None
    return Mount(_here(source), target, writes="ro" not in options.split(","))


def _pieces(value: str) -> tuple[str, str, str]:
    source, target, options, *_ = (*_PIECE.findall(value), "", "", "")
    return source, target, options


def _mounted(value: str) -> Iterable[Mount]:
    """Parse ``type=bind,src=SOURCE,dst=TARGET``, a line of CSV."""
    fields = next(csv.reader([value]), [])
    given = [(name.lower(), text) for name, _, text in (_field(field) for field in fields)]
    target = next((text for name, text in given if name in _TARGETS), "")
    is_path = any(name == "type" and text in ("bind", "glob") for name, text in given)
    is_read_only = any(name in ("ro", "readonly") and text in ("", "true", "1") for name, text in given)
    for name, text in given:
        if name in _SOURCES and text and (is_path or not _VOLUME.fullmatch(text)):
            yield Mount(_here(text), target, writes=not is_read_only)


def _field(text: str) -> tuple[str, str, str]:
    if text.lower().startswith("volume-opt="):  # volume-opt=device=/srv
        name, equals, value = text[len("volume-opt=") :].partition("=")
        return f"volume-opt={name}", equals, value
    return text.partition("=")


def _copied(words: Sequence[str]) -> Iterable[Mount]:
    """Yield the host files of ``cp FILE CONTAINER:FILE`` and ``cp CONTAINER:FILE FILE``."""
    operands = [word for word in words if not word.startswith("-")]
    for word, is_last in zip(operands, (*([False] * (len(operands) - 1)), True), strict=False):
        if word and (":" not in word or word.startswith(("/", ".", "~", "$PWD", "${PWD}", "$(pwd)"))):
            yield Mount(_here(word), reads=not is_last, writes=is_last)


def _built(words: Sequence[str]) -> Iterable[Mount]:
    """Yield the build directory of an image, and other inputs and outputs of the build."""
    for word in words:
        if not word.startswith("-"):
            yield Mount(_here(word), writes=False, only_directory=True)
    for value in loose_values(words, "--build-context --secret --ssh"):
        for piece in value.split(","):
            yield Mount(_here(piece.partition("=")[2]), writes=False, only_directory=True)
    for value in loose_values(words, "-o --output --cache-to"):
        places = [piece.partition("=")[2] for piece in value.split(",") if piece.startswith(("dest=", "out="))]
        yield from (Mount(_here(place), reads=False) for place in places or ([] if "=" in value else [value]) if place)


# -- other programs that create containers or enter namespaces


def _kubernetes(words: Sequence[str]) -> ContainerReach:
    own = words[: words.index("--") if "--" in words else len(words)]
    values = {after for word, after in pairwise(own) if word in _KUBERNETES_VALUES}
    operands = [word for word in own if not word.startswith("-") and word not in values]
    verb = operands[0] if operands else ""
    if verb == "debug":
        return ContainerReach(reason=f"a container for debugging {_ANY}")
    risky = [word for word in own if re.match(r"--(?:overrides|privileged)(?:=(?!false)|$)", word)]
    if verb == "run" and risky:
        return ContainerReach(reason=f"a container with {risky[0].partition('=')[0]} {_ANY}")
    return ContainerReach(tuple(_copied(operands[1:])) if verb in ("cp", "rsync") else ())


def _entered(words: Sequence[str]) -> ContainerReach:
    """Check ``nsenter`` with the mounts, root or working directory of another process."""
    given = parse_options([Word.of(word) for word in words], grammar(WRAPPERS["nsenter"].options), permute=False)
    way = next((name for name, _ in given.given if name in _ENTERING), "")
    return ContainerReach(reason=f"nsenter with {way} {_ANY}" if way else "")


def _rooted(names: str) -> Callable[[Sequence[str]], ContainerReach]:
    """Return a reader for a program whose operand or option is the root directory of its command."""

    def read(words: Sequence[str]) -> ContainerReach:
        given = loose_values(words, names) if names else [word for word in words if not word.startswith("-")][:1]
        return ContainerReach(tuple(Mount(_here(place), "/", by_name=True) for place in given if place))

    return read


def _bubblewrap(words: Sequence[str]) -> ContainerReach:
    """Read the mounts of ``bwrap --bind SOURCE TARGET``."""
    found = [
        Mount(_here(source), target, writes="ro-" not in option, by_name=True)
        for option, source, target in zip(words, words[1:], words[2:], strict=False)
        if re.fullmatch(r"--(?:ro-|dev-)?bind(?:-try)?", option)
    ]
    return ContainerReach(tuple(found))


def _nspawn(words: Sequence[str]) -> ContainerReach:
    values = [(value, True) for value in loose_values(words, "--bind --overlay --bind-user")]
    values += [(value, False) for value in loose_values(words, "--bind-ro --overlay-ro --load-credential")]
    roots = loose_values(words, "-D --directory --template -i --image")
    mounts = [Mount(_here(_pieces(value)[0]), _pieces(value)[1] or value, writes=writes) for value, writes in values]
    reason = f"systemd-nspawn {_ANY}" if "--private-users-ownership" in words or "--capability=all" in words else ""
    return ContainerReach((*mounts, *(Mount(_here(root), "/") for root in roots)), reason)


def _systemd_run(words: Sequence[str]) -> ContainerReach:
    found: list[Mount] = []
    for value in loose_values(words, "-p --property"):
        name, _, places = value.partition("=")
        if name in ("RootDirectory", "RootImage"):
            found.append(Mount(_here(places), "/"))
        if name in ("BindPaths", "BindReadOnlyPaths", "MountImages", "LoadCredential", "ExtensionDirectories"):
            pieces = (_pieces(place.removeprefix("-")) for place in places.split())
            found += [Mount(_here(source), target or source) for source, target, _ in pieces]
    return ContainerReach(tuple(found))


def _bound(words: Sequence[str]) -> ContainerReach:
    """Read the mounts of ``apptainer exec -B SOURCE:TARGET IMAGE``, ``buildah run -v SOURCE:TARGET``."""
    values = _split(loose_values(words, "-B --bind -v --volume"))
    found = [mount for value in values if (mount := _volume(value if ":" in value else f"{value}:{value}"))]
    more = [mount for value in loose_values(words, "--mount") for mount in _mounted(value)]
    return ContainerReach((*found, *more), _open_rights("it", words))


def _containerd(words: Sequence[str]) -> ContainerReach:
    mounts = [mount for value in loose_values(words, "--mount") for mount in _mounted(value)]
    return ContainerReach(tuple(mounts), _open_rights("ctr", words) or _hosted(words))


def _hosted(words: Sequence[str]) -> str:
    spaces = loose_values(words, "--with-ns")
    return f"ctr with {spaces[0]} {_ANY}" if spaces else ""


def _lxd(words: Sequence[str]) -> ContainerReach:
    """Check ``lxc config device add C NAME disk source=/srv path=/x``, ``lxc launch -c security.privileged=true``."""
    settings = [word for word in words if re.match(r"(?:security\.(?:privileged|nesting)|raw\.\w+)(?:=|$)", word)]
    reason = f"a container with {settings[0]} {_ANY}" if settings else ""
    sources = [word.partition("=")[2] for word in words if word.startswith("source=")]
    mounts = [Mount(_here(source)) for source in sources if not _VOLUME.fullmatch(source)]
    if tuple(words[:2]) in (("file", "push"), ("file", "pull")):
        operands = [word for word in words[2:] if not word.startswith("-")]
        local = operands[:-1] if words[1] == "push" else operands[-1:]
        mounts += [Mount(_here(word), reads=words[1] == "push", writes=words[1] == "pull") for word in local]
    return ContainerReach(tuple(mounts), reason)


def _machines(words: Sequence[str]) -> ContainerReach:
    """Read the host files of ``machinectl bind MACHINE SOURCE TARGET``, ``copy-to`` and ``copy-from``."""
    operands = [word for word in words if not word.startswith("-")]
    verb = operands[0] if operands else ""
    if verb in ("bind", "copy-to"):
        target = "".join(operands[3:4])
        return ContainerReach(tuple(Mount(_here(word), target, writes=verb == "bind") for word in operands[2:3]))
    if verb == "copy-from":
        return ContainerReach(tuple(Mount(_here(word), reads=False) for word in operands[3:4] or operands[2:3]))
    return ContainerReach()


def _here(word: str) -> str:
    """Return a source as a relative path: ``$(pwd)/x`` is ``./x``."""
    match = _WHERE.match(word)
    return f".{word[match.end() :]}" if match is not None else word


def _split(values: Iterable[str]) -> list[str]:
    return [piece for value in values for piece in value.split(",")]


def _texts(words: Iterable[Word]) -> list[str]:
    return [word.text for word in words]


_OTHERS: Mapping[str, Callable[[Sequence[str]], ContainerReach]] = {
    **dict.fromkeys(("kubectl", "oc"), _kubernetes),
    **dict.fromkeys(("lxc", "incus"), _lxd),
    **dict.fromkeys(("apptainer", "singularity", "buildah"), _bound),
    "nsenter": _entered,
    "chroot": _rooted(""),
    "unshare": _rooted("-R --root"),
    "bwrap": _bubblewrap,
    "systemd-nspawn": _nspawn,
    "systemd-run": _systemd_run,
    "machinectl": _machines,
    "ctr": _containerd,
}
