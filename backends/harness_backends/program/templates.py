"""The programs that give a target, and the words that start a command with each. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from harness.config import Config
from harness.errors import TargetNotFound
from harness.target import ARGV, COMMAND, EXEC_SCHEME, ExecTarget, Hop, Target

__all__ = ["TEMPLATES", "Template", "find_template"]


@dataclass(frozen=True, slots=True)
class Template:
    """The words of a program that starts commands on a target.

    Args:
        words: The words for a command without a terminal.
        terminal_words: Those for an operator's terminal.
        hint: What to check when it starts no shell.
        shares_sockets: See :attr:`harness.transport.Transport.shares_sockets`.
        expands_variables: Whether it replaces ``$NAME`` in its arguments, and ``$$`` by ``$``.
        namespaces: The kinds of namespaces that are the same at each start; in others, it is another target.
    """

    words: tuple[str, ...]
    terminal_words: tuple[str, ...] = ()
    hint: str = ""
    shares_sockets: bool = True
    expands_variables: bool = False
    namespaces: tuple[str, ...] = ("pid",)

    @property
    def program(self) -> str:
        """The name of the program."""
        return self.words[0]

    def fill(self, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Return the words that start ``argv``.

        Raises:
            UnsupportedOperation: the command is too long for one text.
        """
        filled: list[str] = []
        for word in self.terminal_words if terminal and self.terminal_words else self.words:
            if word == ARGV:
                filled += [item.replace("$", "$$") for item in argv] if self.expands_variables else argv
            elif COMMAND in word:
                from ..ssh.remote_command import interactive_command  # loads slowly

                filled.append(word.replace(COMMAND, interactive_command(argv)))
            else:
                filled.append(word)
        return filled


def find_template(target: Target, config: Config) -> Template:
    """Return the template of a target's program.

    Raises:
        TargetNotFound: the settings have none of that name, or the URL does not fit its program.
    """
    hop = target.last
    if hop.scheme == EXEC_SCHEME:
        return _of_settings(dict(config.exec_targets).get(hop.host), hop)
    make = TEMPLATES.get(hop.scheme)
    if make is None:
        raise TargetNotFound(f"no program for {hop.scheme!r} targets", hint=f"known: {', '.join(sorted(TEMPLATES))}")
    if hop.user is not None and hop.scheme not in _WITH_USER:
        raise TargetNotFound(f"{hop}: takes no user", hint="name a user for each command instead, with --user")
    if hop.port is not None and hop.scheme not in _WITH_PORT:
        raise TargetNotFound(f"{hop}: takes no port")
    return make(hop)


def _of_settings(found: ExecTarget | None, hop: Hop) -> Template:
    if found is None:
        hint = f'write [targets.{hop.host}] with exec = ["PROGRAM", ..., "{ARGV}"] in the settings'
        raise TargetNotFound(f"{hop}: no target with 'exec' has this name", hint=hint)
    if hop.user is not None or hop.port is not None:
        raise TargetNotFound(f"{hop}: takes no user and no port", hint="write them into the words of 'exec'")
    hint = f"run its words with 'echo ok' in place of {ARGV if ARGV in found.argv else COMMAND} in a terminal"
    return Template(found.argv, found.terminal_argv, hint)


# -- The shipped templates.


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_WITH_USER = frozenset({"nspawn", "wsl"})
_WITH_PORT = frozenset({"adb"})
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
"""All that ``nsenter --all`` enters: a later process with the same id may share some of them."""


def _parts(hop: Hop, form: str, least: int, most: int) -> list[str]:
    """Return the parts of a URL between slashes, decoded.

    Raises:
        TargetNotFound: they are too few or too many.
    """
    parts = [_decoded(part, hop) for part in hop.host.split("/")]
    if not least <= len(parts) <= most or not all(parts[:-1]) or not (parts[-1] or len(parts) == most > least):
        raise TargetNotFound(f"{hop} is not {form}", hint=f"write {form}, and %2F for a '/' in a part")
    return parts


def _decoded(part: str, hop: Hop) -> str:
    """Decode a part of a URL.

    Raises:
        TargetNotFound: it is not a text, has control characters, or one of the marks of a template.
    """
    try:
        text = unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise TargetNotFound(f"{hop}: {part!r} is not text in UTF-8") from None
    if not text.isprintable() or ARGV in text or COMMAND in text:
        raise TargetNotFound(f"{hop}: {part!r} has characters that no name has")
    return text


def _name(text: str, what: str, hop: Hop) -> str:
    """Check a name that is a word of its own, which must not be an option.

    Raises:
        TargetNotFound: it is not a name.
    """
    if not _NAME.fullmatch(text):
        raise TargetNotFound(f"{hop}: {text!r} is not the name of a {what}")
    return text


def _kubernetes(hop: Hop) -> Template:
    """Build ``kubectl exec``; three parts are a namespace, a pod and a container, so a context needs four."""
    parts = _parts(hop, "k8s://[context/]namespace/pod[/container]", 2, 4)
    context = [f"--context={parts.pop(0)}"] if len(parts) == 4 else []
    namespace, pod, container = (*parts, "")[:3]
    chosen = [f"--container={_name(container, 'container', hop)}"] if container else []
    where = [f"--namespace={_name(namespace, 'namespace', hop)}", _name(pod, "pod", hop), *chosen, "--", ARGV]
    hint = f"kubectl {' '.join([*context, where[0]])} get pod {pod} shows its state"
    if len(parts) == 3 and not context:
        hint += f"; with a context, write k8s://{namespace}/{pod}/{container}/"
    start = ["kubectl", *context, "exec"]
    return Template((*start, "-i", *where), (*start, "-i", "-t", *where), hint)


def _lxd(hop: Hop) -> Template:
    program = "lxc" if hop.scheme == "lxc" else "incus"
    name = _name(_decoded(hop.host, hop), "container", hop)
    start, rest = (program, "exec", name), ("--", ARGV)
    hint = f"{program} list {name} shows its state"
    return Template((*start, "--mode=non-interactive", *rest), (*start, "--mode=interactive", *rest), hint)


def _nspawn(hop: Hop) -> Template:
    """Build ``systemd-run``: ``machinectl shell`` has a terminal between, which changes bytes and loses exit codes."""
    name = _name(hop.host, "machine", hop)
    start = (
        "systemd-run",
        f"--machine={name}",
        f"--uid={_name(hop.user or 'root', 'user', hop)}",
        "--quiet",
        "--collect",
        "--wait",
    )
    hint = f"machinectl status {name} shows its state; systemd must run in it"
    return Template((*start, "--pipe", "--", ARGV), (*start, "--pty", "--", ARGV), hint, expands_variables=True)


def _nsenter(hop: Hop) -> Template:
    if not re.fullmatch(r"[1-9][0-9]*", hop.host):
        raise TargetNotFound(f"{hop} is not nsenter://PID", hint="the process whose namespaces to enter")
    words = ("nsenter", f"--target={hop.host}", "--all", "--", ARGV)
    return Template(words, (), "the process must exist; only root may enter it", namespaces=_NAMESPACES)


def _chroot(hop: Hop) -> Template:
    path = _decoded(hop.host, hop)
    if not path.startswith("/") or ".." in path.split("/"):
        raise TargetNotFound(f"{hop} is not chroot:///DIRECTORY", hint="the directory is absolute and has no '..'")
    return Template(("chroot", path, ARGV), (), "only root may enter it, and it needs /bin/sh")


def _wsl(hop: Hop) -> Template:
    user = ("-u", _name(hop.user, "user", hop)) if hop.user else ()
    words = ("wsl.exe", "-d", _name(hop.host, "distribution", hop), *user, "--exec", ARGV)
    return Template(words, (), "wsl.exe --list --verbose shows the distributions", shares_sockets=False)


def _adb(hop: Hop) -> Template:
    serial = _name(hop.host, "device", hop) + (f":{hop.port}" if hop.port else "")
    hint = "adb devices shows the devices; harness needs Android 7 or later"
    start = ("adb", "-s", serial, "shell")
    return Template((*start, "-T", COMMAND), (*start, "-t", COMMAND), hint, shares_sockets=False)


def _gcloud(hop: Hop) -> Template:
    *where, instance = _parts(hop, "gcloud://[[project/]zone/]instance", 1, 3)
    options = [f"--zone={where.pop()}"] if where else []
    options += [f"--project={where.pop()}"] if where else []
    start = ("gcloud", "compute", "ssh", _name(instance, "instance", hop), *options, "--quiet", f"--command={COMMAND}")
    hint = "gcloud compute instances list shows the instances"
    return Template((*start, "--", "-T"), (*start, "--", "-t"), hint, shares_sockets=False)


def _vagrant(hop: Hop) -> Template:
    start = ("vagrant", "ssh", _name(hop.host, "machine", hop))
    hint = "vagrant status shows the machines of the directory"
    return Template((*start, "--no-tty", "-c", COMMAND), (*start, "--tty", "-c", COMMAND), hint, shares_sockets=False)


TEMPLATES: Mapping[str, Callable[[Hop], Template]] = {
    "adb": _adb,
    "chroot": _chroot,
    "gcloud": _gcloud,
    "incus": _lxd,
    "k8s": _kubernetes,
    "lxc": _lxd,
    "nsenter": _nsenter,
    "nspawn": _nspawn,
    "vagrant": _vagrant,
    "wsl": _wsl,
}
"""What makes the template of a URL, by scheme."""
