"""The read-only check of one program and its words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..words import Options, Word, grammar, parse_options
from .host_programs import HOST_CHECKS
from .languages import SPECIAL
from .program_grammar import VERSIONS, Program
from .programs import PROGRAMS, shows_names_only

__all__ = [
    "CHECKS",
    "HARMLESS_NAME",
    "ReadOnlyResult",
    "examine",
    "readable_path",
]


# -- Conditions in addition to the option grammar of a program: uses that do more than read.


HARMLESS_NAME = re.compile(
    r"[a-z]|file|name|host|line|item|dir|svc|service|pod|ns|user|unit|dev|disk|node|port|out|res|result|count|total|key"
    r"|ip|pid|proc|mod|pkg|cert|conf|cfg|log|repo|branch|db|table|site|domain|url|id|vm|vol|pool|iface|nic|server"
    r"|container|image|ctr|cid|job|task|day|num|idx|word|src|dst|mnt|part|lv|vg|pv|cpu|netns|addr|ver|size|pct|use"
)
"""Variables that no shell or program uses. (``path``, ``status``, ``argv`` and others have a meaning in zsh.)"""


def _date(options: Options) -> str:
    return "" if all(word.lead.startswith("+") for word in options.operands) else "an operand without + sets the clock"


_PS_NAMES = ("-u", "-U", "-g", "-G", "-t", "-p", "-q", "-s")


def _ps(options: Options) -> str:
    """Check the BSD form, ``ps auxf``: an ``e`` there shows the environment of processes."""
    texts = [word.text for word in options.operands]
    if any(not word.known for word in options.operands):
        return "an operand is only known at run time"
    values = "".join(word.text for name, word in options.given if name in _PS_NAMES and word and not word.plain)
    if "x" in values and ("e" in values or options.has("-e")):
        return "ps may parse its options in the BSD form, in which e shows the environment"
    formats = [word.text for name, word in options.given if name in ("-o", "-O", "-k", "--format", "--sort") and word]
    if any("environ" in text for text in [*texts, *formats]):
        return "it shows the environment of processes"
    fine = all(re.fullmatch(r"[aAfFgjlLnrSTuvwxXZ]+o?|[0-9,]+|[a-z%_,]+(?:=[\w,]*)?", text) for text in texts)
    rest = texts[2 if texts and texts[0].endswith("o") else 1 :]
    fine = fine and all(text[0].isdigit() for text in rest)
    fine = fine and (not texts or re.fullmatch(r"[aAfFgjlLnrSTuvwxXZ]+o?|[0-9,]+", texts[0]) is not None)
    return "" if fine else "a BSD option is not on the allowlist"


def _getent(options: Options) -> str:
    first = options.operands[0] if options.operands else None
    known = first is not None and first.known and "shadow" not in first.text
    return "" if known else "the database holds password hashes or is only known at run time"


def _lsof(options: Options) -> str:
    """Check options that begin with ``+``: ``+D`` names a directory, ``+m`` reads a file."""
    starts = [word.text if word.known else word.lead for word in options.operands]
    fine = all(not start.startswith("+") or re.fullmatch(r"\+[dDcLwr|E][0-9]*", start) for start in starts)
    return "" if fine else "an option with + is not on the allowlist"


def _openssl_file(options: Options) -> str:
    found = [word.text for name, word in options.given if name == "-in" and word is not None]
    uri = next((text for text in found if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text)), "")
    return f"{uri} is a URI, not a file" if uri else ""


def _read(options: Options) -> str:
    fine = all(word.known and HARMLESS_NAME.fullmatch(word.text) for word in options.operands)
    return "" if fine else "it sets a variable that a program may use"


def _sysctl(options: Options) -> str:
    if any(".." in word.text for word in options.operands):
        return "an operand contains .. and may leave /proc/sys"
    return "" if all(word.known and "=" not in word.text for word in options.operands) else "an operand may set a value"


def _needs(*names: str) -> Callable[[Options], str]:
    def check(options: Options) -> str:
        return "" if options.has(*names) else f"without {' or '.join(names)} it does something else"

    return check


def _listed(*names: str) -> Callable[[Options], str]:
    """Return a check of a command whose operands create or change something without a listing option."""

    def check(options: Options) -> str:
        asked = options.has(*names)
        return "" if asked or not options.operands else f"{options.operands[0].raw} would be created or changed"

    return check


def _git_config(options: Options) -> str:
    if options.has("-l", "--list"):
        return "" if not options.operands else "an operand with --list"
    return (
        ""
        if options.has("--get", "--get-all", "--get-regexp", "--get-urlmatch") or _one_value(options)
        else "without --get it may set a value"
    )


def _one_value(options: Options) -> bool:
    """Return whether it is ``git config user.name``: one name with a dot, so not a sub-command of newer versions."""
    return len(options.operands) == 1 and options.operands[0].known and "." in options.operands[0].text


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
        if names & {"env", "ENV", "import", "include", "input_filename", "modulemeta"}
        else ""
    )


def _kubectl_get(options: Options) -> str:
    kinds = [part for word in options.operands for part in re.split(r"[,/]", word.text)]
    if any(not word.known for word in options.operands):
        return "the resource is only known at run time"
    if any(kind.lower().partition(".")[0] in ("secret", "secrets", "all-secrets") for kind in kinds):
        return "it shows secrets"
    return _kubectl_output(options)


_OUTPUTS = re.compile(
    r"json|yaml|wide|name|(?:jsonpath|jsonpath-as-json|go-template|template|custom-columns)=.*", re.DOTALL
)


def _kubectl_output(options: Options) -> str:
    """Check each output format, as versions differ on which one applies."""
    given = [word for name, word in options.given if name in ("-o", "--output") and word is not None]
    formats = ((word, word.text.removeprefix("=")) for word in given)
    unlisted = next((word for word, text in formats if not word.known or not _OUTPUTS.fullmatch(text)), None)
    return f"format {unlisted.raw} is not on the allowlist: some read a file" if unlisted is not None else ""


_IN_LISTS = "IPAddress|Gateway|MacAddress|NetworkID|GlobalIPv6Address|Source|Destination|Type|HostPort|HostIp|Mode|RW"
_SHOWN = re.compile(
    rf"\{{\{{ *(?:\.(?:{_IN_LISTS}|Config\.(?:Image|Hostname|User|WorkingDir)|LogPath|Platform)|\$[a-z]+) *\}}\}}"
    r"|\{\{ *\.HostConfig\.[A-Za-z.]+ *\}\}"
    r"|\{\{-? *(?:end|range (?:\$[a-z]+(?:, *\$[a-z]+)? *:= *)?\.(?:NetworkSettings|Mounts|State)[.A-Za-z]*) *-?\}\}"
    r"|\{\{ *(?:json +)?\.(?:State|NetworkSettings|Name|Id|ID|Image|Created|RestartCount|Mounts|Driver|Scope)"
    r"[.A-Za-z]* *\}\}"
)


def _inspect(options: Options) -> str:
    """Check the format of ``inspect``, as the configuration of a container holds its environment with passwords.

    Without a format each value has its name next to it, by which passwords are redacted.
    """
    word = options.value("-f", "--format")
    if word is None:
        return ""
    if not word.known:
        return "its format may show the environment of containers"
    return "" if "{{" not in _SHOWN.sub("", word.text) else "its format may show the environment of containers"


def _git_list(options: Options) -> str:
    listing = ("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
    return _git_log(options) or _listed(*listing)(options)


def _unzip(options: Options) -> str:
    return "" if options.has("-l", "-v", "-Z") else "without -l it writes files"


CHECKS: Mapping[str, Callable[[Options], str]] = {
    "date": _date,
    "ps": _ps,
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
    "git reflog show": _git_log,
    "git stash list": _git_log,
    "git for-each-ref": _git_log,
    "git rev-list": _git_log,
    "jq": _jq,
    "kubectl get": _kubectl_get,
    "kubectl describe": _kubectl_get,
    "oc get": _kubectl_get,
    "oc describe": _kubectl_get,
    **{f"kubectl {words}": _kubectl_output for words in ("version", "api-resources", "events", "config get-contexts")},
    "oc version": _kubectl_output,
    "lsof": _lsof,
    "openssl x509": _openssl_file,
    "openssl crl": _openssl_file,
    "unzip": _unzip,
    **{
        f"{engine} {words}": _inspect
        for engine in ("docker", "podman", "nerdctl")
        for words in ("inspect", "container inspect", "image inspect", "service inspect")
    },
    "rpm": _needs("-q", "-V", "--query", "--verify", "--version"),
    "docker compose config": _needs("-q", "--services", "--images", "--volumes", "--profiles", "--quiet", "--hash"),
    "podman compose config": _needs("-q", "--services", "--images", "--volumes", "--profiles", "--quiet", "--hash"),
    "nerdctl compose config": _needs("-q", "--services", "--images", "--volumes", "--profiles", "--quiet", "--hash"),
    "docker-compose config": _needs("-q", "--services", "--images", "--volumes", "--profiles", "--quiet", "--hash"),
    "dpkg": _needs(
        "-l",
        "-L",
        "-s",
        "-S",
        "-p",
        "-C",
        "--list",
        "--get-selections",
        "--listfiles",
        "--status",
        "--search",
        "--version",
        "--print-architecture",
        "--print-avail",
        "--audit",
    ),
    "swapon": _needs("-s", "--show", "--summary"),
    **HOST_CHECKS,
    **{name: _needs("--version", "-V", "-v", "-version", "--help") for name in VERSIONS},
}


# -- The check of a program with its words. An allowlist: what is not on it is not read-only.


_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/stdin", "/dev/fd/0"})
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STREAMS = re.compile(r"/proc/(kmsg|kcore|.*/mem|sysrq-trigger)|/sys/kernel/(debug|tracing)(/.*)?")


@dataclass(frozen=True, slots=True)
class ReadOnlyResult:
    """The result of the read-only check of one command.

    ``reason``: why it does more than read; empty if it only reads. ``paths``: the files it names. ``shows_content``: it
    may show their content. Names, sizes, dates and certificates are not secrets.
    """

    reason: str
    paths: tuple[str, ...] = ()
    shows_content: bool = True

    @property
    def read_only(self) -> bool:
        """Whether it only reads."""
        return not self.reason


def examine(name: str, words: Sequence[Word]) -> ReadOnlyResult:
    """Check a program, by its name without directory, with the words after it. Pure."""
    return replace(_examined(name, words), shows_content=not shows_names_only(name, words))


def _examined(name: str, words: Sequence[Word]) -> ReadOnlyResult:
    if name in SPECIAL:
        reason, paths = SPECIAL[name](tuple(words))
        return ReadOnlyResult(reason or _paths(paths), tuple(path.text for path in paths))
    program = PROGRAMS.get(name)
    if program is None:
        return ReadOnlyResult(f"{name} is not on the allowlist of reading programs")
    return _judge(name, program, words)


def _judge(name: str, program: Program, words: Sequence[Word]) -> ReadOnlyResult:
    if program.commands:
        return _with_command(name, program, words)
    if program.responses and (found := next((word for word in words if _may_be_response(word)), None)):
        return ReadOnlyResult(f"{name}: {found.raw} may be @FILE, a file with further arguments")
    known = grammar(program.options, one_dash=program.one_dash, own=program.own)
    only_named = program.operands == "names"
    options = parse_options(words, known, permute=program.permute, loose=program.loose, patterns=only_named)
    if program.operands in ("paths", "pattern") and (unclear := [word for word in options.operands if _unclear(word)]):
        return ReadOnlyResult(f"{name}: a word is only known at run time: {unclear[0].raw}")
    if options.reason:
        return ReadOnlyResult(f"{name}: {options.reason}")
    paths = [*options.paths, *_operands_read(program, options)]
    check = CHECKS.get(name)
    reason = _operands(program, options) or (check(options) if check is not None else "") or _paths(paths)
    named = options.operands if program.operands == "names" else []
    if name.startswith("git "):
        named = [*named, *_in_commits(options)]
    return ReadOnlyResult(f"{name}: {reason}" if reason else "", tuple(path.text for path in [*paths, *named]))


def _unclear(word: Word) -> bool:
    """Return whether a word may become an option that names a file, or other files than are visible."""
    return not word.known and not word.operand and not word.pattern


def _may_be_response(word: Word) -> bool:
    """Return whether a word begins with ``@`` or its beginning is unknown: a wildcard may match such a name, too."""
    start = word.text if word.known else word.lead
    return start.startswith("@") or (not start and not word.known)


def _in_commits(options: Options) -> list[Word]:
    """Return the files in operands such as ``HEAD:a/b`` and ``:(top)a/b``."""
    texts = [word.text for word in options.operands if ":" in word.text]
    return [Word.of(tail) for text in texts for tail in re.split(r":[0-3]:|:\([^)]*\)|:", text)[1:] if tail]


def _operands_read(program: Program, options: Options) -> list[Word]:
    if program.operands == "paths":
        return _with_suffixes([word for word in options.operands if word.text != "-"], program.suffixes)
    if program.operands == "pattern":
        first = 0 if options.has("-e", "-f", "--regexp", "--file", "--expression") else 1
        return _with_suffixes([word for word in options.operands[first:] if word.text != "-"], program.suffixes)
    return []


def _with_suffixes(words: list[Word], suffixes: Sequence[str]) -> list[Word]:
    return words + [replace(word, text=word.text + suffix) for word in words for suffix in suffixes]


def _operands(program: Program, options: Options) -> str:
    if program.operands == "none" and options.operands:
        return f"operand {options.operands[0].raw} may change something"
    if program.most is not None and len(options.operands) > program.most:
        return f"more than {program.most} operands"
    if program.most is not None and any(word.spread for word in options.operands):
        return "the number of its operands is only known at run time"
    return ""


def _with_command(name: str, program: Program, words: Sequence[Word]) -> ReadOnlyResult:
    first = parse_options(words, grammar(program.options), permute=False)
    if first.reason:
        return ReadOnlyResult(f"{name}: {first.reason}")
    paths = tuple(word.text for word in first.paths)
    if not first.operands:
        alone = "" if program.alone else f"{name} without a sub-command is not on the allowlist"
        return ReadOnlyResult(alone, paths)
    verb = first.operands[0]
    inner = program.commands.get(verb.text) if verb.known else None
    if inner is None:
        return ReadOnlyResult(f"{name} {verb.raw} is not on the allowlist", paths)
    finding = _judge(f"{name} {verb.text}", inner, first.operands[1:])
    return ReadOnlyResult(finding.reason, (*paths, *finding.paths))


def _paths(words: Sequence[Word]) -> str:
    """Return why one of the files may not be read without asking; empty if all may."""
    return next((reason for word in words if (reason := readable_path(word))), "")


def readable_path(word: Word) -> str:
    """Return why reading a file asks: it is unknown, or reading it has an effect; empty if it may be read."""
    if not (word.known or word.pattern):
        return f"the file {word.raw} is only known at run time"
    if re.match(r"~[-+0-9]", word.raw):
        return f"the directory of {word.raw} is only known at run time"
    plain = posixpath.normpath("/" + word.text.lstrip("/")) if word.text.startswith("/") else word.text
    if plain.startswith("/dev/") and plain not in _DEVICES:
        return f"{word.text} is a device or a connection"
    if _ELSEWHERE.match(word.text):
        return f"{word.text} is on another host"
    if _STREAMS.fullmatch(plain):
        return f"reading {word.text} consumes its data or shows kernel memory"
    return ""
