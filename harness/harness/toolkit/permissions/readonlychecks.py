"""Conditions beside the option grammar of a program: what makes it do more than read, and no option says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .readonlyprogram import VERSIONS
from .shelloptions import Options

__all__ = ["CHECKS", "HARMLESS_NAME"]

HARMLESS_NAME = re.compile(
    r"[a-z]|file|name|host|line|item|dir|svc|service|pod|ns|user|unit|dev|disk|node|port|out|res|result|count|total|key"
)
"""Variables that nothing else looks at. (zsh gives ``path``, ``status``, ``argv`` and others a meaning.)"""


def _date(options: Options) -> str:
    return "" if all(word.lead.startswith("+") for word in options.operands) else "an operand without + sets the clock"


_PS_NAMES = ("-u", "-U", "-g", "-G", "-t", "-p", "-q", "-s")


def _ps(options: Options) -> str:
    """The old form: ``ps auxf``. An ``e`` there shows the environment of programs."""
    texts = [word.text for word in options.operands]
    if any(not word.known for word in options.operands):
        return "an operand that is only known at run time"
    values = "".join(word.text for name, word in options.given if name in _PS_NAMES and word is not None)
    if "x" in values and ("e" in values or options.has("-e")):
        return "with an x that is no option of it, ps takes its words in the old form, and e shows the environment"
    fine = all(re.fullmatch(r"[aAfFgjlLnrSTuvwxXZ]+|[0-9,]+", text) for text in texts)
    return "" if fine else "an option of the old form that is not on the list"


def _strings(options: Options) -> str:
    return (
        "@FILE makes the words of a file its options"
        if any((word.text if word.known else word.lead).startswith("@") for word in options.operands)
        else ""
    )


def _getent(options: Options) -> str:
    first = options.operands[0] if options.operands else None
    known = first is not None and first.known and "shadow" not in first.text
    return "" if known else "the database of passwords, or one that is only known at run time"


def _read(options: Options) -> str:
    fine = all(word.known and HARMLESS_NAME.fullmatch(word.text) for word in options.operands)
    return "" if fine else "it sets a variable that something else may look at"


def _sysctl(options: Options) -> str:
    if any(".." in word.text for word in options.operands):
        return "an operand that leads out of the system's values"
    return (
        "" if all(word.known and "=" not in word.text for word in options.operands) else "an operand may set something"
    )


def _needs(*names: str) -> Callable[[Options], str]:
    def check(options: Options) -> str:
        return "" if options.has(*names) else f"without {' or '.join(names)} it does something else"

    return check


def _listed(*names: str) -> Callable[[Options], str]:
    """Operands make something new, unless it is told to list."""

    def check(options: Options) -> str:
        asked = options.has(*names)
        return "" if asked or not options.operands else f"{options.operands[0].raw} would be made or changed"

    return check


def _git_config(options: Options) -> str:
    if options.has("-l", "--list"):
        return "" if not options.operands else "an operand with --list"
    return (
        ""
        if options.has("--get", "--get-all", "--get-regexp", "--get-urlmatch")
        else "without --get it may set a value"
    )


def _git_log(options: Options) -> str:
    texts = [word.text for name, word in options.given if name in ("--format", "--pretty") and word is not None]
    unclear = any(
        word is not None and not word.known for name, word in options.given if name in ("--format", "--pretty")
    )
    checks = any("%G" in text or "%(signature" in text for text in texts)
    return "a format that checks signatures runs a program" if unclear or checks else ""


def _jq(options: Options) -> str:
    first = options.operands[0] if options.operands else None
    if first is None or not first.known:
        return "its filter is missing or only known at run time"
    names = set(re.findall(r"[A-Za-z_]+", first.text))
    return (
        "its filter reads the environment or other files"
        if names & {"env", "ENV", "import", "include", "input_filename"}
        else ""
    )


def _kubectl_get(options: Options) -> str:
    kinds = [part for word in options.operands for part in re.split(r"[,/]", word.text)]
    if any(not word.known for word in options.operands):
        return "what it gets is only known at run time"
    if any(kind.lower().partition(".")[0] in ("secret", "secrets", "all-secrets") for kind in kinds):
        return "it shows secrets"
    output = options.value("-o", "--output")
    return "its output may come from a file" if output is not None and "file" in output.text else ""


_SHOWN = re.compile(
    r"\{\{ *(?:json +)?\.(?:State|NetworkSettings|Name|Id|ID|Image|Created|RestartCount|Mounts|Driver|Scope)"
    r"[.A-Za-z]* *\}\}"
)


def _inspect(options: Options) -> str:
    """What a container was made of holds its environment, and that holds passwords."""
    word = options.value("-f", "--format")
    if word is None or not word.known:
        return "it shows the environment of containers, unless a format asks for something else"
    return "" if "{{" not in _SHOWN.sub("", word.text) else "its format may show the environment of containers"


def _git_list(options: Options) -> str:
    listing = ("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
    return _git_log(options) or _listed(*listing)(options)


def _unzip(options: Options) -> str:
    return "" if options.has("-l", "-v", "-Z") else "without -l it writes files"


CHECKS: Mapping[str, Callable[[Options], str]] = {
    "date": _date,
    "ps": _ps,
    "strings": _strings,
    "getent": _getent,
    "read": _read,
    "sysctl": _sysctl,
    "top": _needs("-b"),
    "iptables": _needs("-L", "-S", "--list", "--list-rules"),
    "ip6tables": _needs("-L", "-S", "--list", "--list-rules"),
    "git branch": _git_list,
    "git tag": _git_list,
    "git remote": _listed(),
    "git config": _git_config,
    "git log": _git_log,
    "git show": _git_log,
    "git whatchanged": _git_log,
    "git for-each-ref": _git_log,
    "git rev-list": _git_log,
    "jq": _jq,
    "kubectl get": _kubectl_get,
    "kubectl describe": _kubectl_get,
    "oc get": _kubectl_get,
    "oc describe": _kubectl_get,
    "unzip": _unzip,
    **{
        f"{engine} {words}": _inspect
        for engine in ("docker", "podman")
        for words in ("inspect", "container inspect", "image inspect", "service inspect")
    },
    "rpm": _needs("-q", "--query", "--version"),
    "dpkg": _needs(
        "-l",
        "-L",
        "-s",
        "-S",
        "-p",
        "-C",
        "--list",
        "--listfiles",
        "--status",
        "--search",
        "--version",
        "--print-architecture",
        "--print-avail",
        "--audit",
    ),
    "swapon": _needs("-s", "--show", "--summary"),
    **{name: _needs("-v", "-V", "-l") for name in ("nginx", "httpd", "apachectl", "sshd")},
    **{name: _needs("--version", "-V", "-v", "-version") for name in VERSIONS},
}
