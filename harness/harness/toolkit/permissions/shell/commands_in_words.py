"""Words that run as commands though they stand as values: of variables, of options, of an index. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from .shelloptions import loose_values
from .shelltypes import Found, Word

__all__ = ["commands_in_options", "commands_in_variables", "evaluates_text"]

_COMMAND_VARIABLES = re.compile(
    r"[A-Z_]*(?:PAGER|EDITOR|BROWSER|ASKPASS|RSH)|VISUAL|GIT_SSH(?:_COMMAND)?|GIT_PROXY_COMMAND|GIT_EXTERNAL_DIFF"
    r"|SVN_SSH|LESSOPEN|LESSCLOSE|PROMPT_COMMAND|FCEDIT"
)
"""Variables whose value a program runs."""
_PROMPTS = re.compile(r"PS[0-4]|PROMPT|RPROMPT|PROMPT[1-4]|RPS1")
_RUNS_INSIDE = re.compile(r"\$\(|`|\$\{[^}]*@P\}")
_INDEX = re.compile(r"\[[^\]]*(?:\$\(|`)")
"""An index, which arithmetic runs: ``a[$(command)]``."""
_PROMPT_EXPANSION = re.compile(r"\$\{[^}\s]*@P\}")
_SETTERS = frozenset({"export", "declare", "typeset", "readonly", "local", "env", "set", "setenv", "sudo", "doas"})
_EVALUATING = frozenset(
    [
        *("printf", "read", "test", "[", "[[", "let", "declare", "typeset", "local", "export", "readonly", "unset"),
        *("wait", "getopts", "mapfile", "readarray", "set", "eval", "shift", "exit", "return", "break", "continue"),
    ]
)
"""What takes some of its words for arithmetic, or for names of variables with an index."""
_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("mapfile", "readarray"), "-C"),
    **dict.fromkeys(("complete", "compgen"), "-C"),
    "man": "-P --pager -H --html",
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"),
        "-I --use-compress-program --to-command -F --info-script --new-volume-script --rsh-command --rmt-command "
        "--checkpoint-action",
    ),
    "rsync": "-e --rsh",
    **dict.fromkeys(("scp", "sftp"), "-S -o"),
    **dict.fromkeys(("ssh", "autossh", "sshfs", "mosh"), "-o"),
    "split": "--filter",
    "sort": "--compress-program",
    "zip": "-TT --unzip-command",
    "tcpdump": "-z",
    "wget": "--use-askpass",
    **dict.fromkeys(("nc", "ncat", "netcat"), "-e -c --exec --sh-exec"),
    "rpm": "--pipe",
    **dict.fromkeys(("apt", "apt-get", "aptitude"), "-o --option"),
    "dpkg": "--pre-invoke --post-invoke",
    "start-stop-daemon": "-x --exec -a --startas",
    "nodemon": "-x --exec",
    "flatpak": "--command",
}
"""Options whose value is a command."""
_GIT_OPTIONS: Mapping[str, str] = {
    "rebase": "-x --exec",
    "difftool": "-x --extcmd",
    "grep": "-O --open-files-in-pager",
    "filter-branch": "--tree-filter --index-filter --msg-filter --env-filter --commit-filter --tag-name-filter "
    "--parent-filter --setup",
    **dict.fromkeys(("clone", "fetch", "pull", "ls-remote", "fetch-pack"), "-u --upload-pack"),
    **dict.fromkeys(("push", "send-pack"), "--receive-pack --exec"),
    "archive": "--exec",
    "send-email": "--sendmail-cmd --to-cmd --cc-cmd --header-cmd",
}
_GIT_SETTINGS = re.compile(
    r"(?i)(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor)|pager\..*|sequence\.editor|diff\..*\.(?:command|textconv)"
    r"|diff\.external|credential\..*helper|gpg\..*program|merge\..*driver|filter\..*|difftool\..*\.cmd|mergetool\..*\.cmd"
    r"|interactive\.difffilter|remote\..*\.(?:upload|receive)pack|uploadpack\.packobjectshook|alias\..*)=(?P<command>.*)",
    re.DOTALL,
)
_NODE = frozenset({"npm", "pnpm", "yarn"})
_NODE_SETTING = re.compile(
    r"(?:scripts\.[\w:.-]+|(?:script-)?shell|editor|viewer|init-module|git)(?:=(?P<command>.*))?", re.S
)
"""Settings of package managers that name a command for later."""
_TMUX_RUNS = frozenset(
    [
        *("new", "new-session", "neww", "new-window", "splitw", "split-window", "respawnp", "respawn-pane", "run"),
        *("respawn-window", "respawnw", "run-shell", "pipep", "pipe-pane", "if", "if-shell", "popup", "display-popup"),
    ]
)
"""Commands of tmux that take one for a shell."""
_ACTION = re.compile(r"(?:exec=|[\w:-]*Invoke[\w:]*=)(?P<command>.*)", re.DOTALL)
_SSH_COMMAND = re.compile(
    r"(?i)\s*(?:ProxyCommand|LocalCommand|KnownHostsCommand|RemoteCommand)\s*[=\s]\s*(?P<command>.+)", re.S
)
_SSH = frozenset({"ssh", "scp", "sftp", "autossh", "sshfs", "mosh"})
_ACTIONS = frozenset({"tar", "gtar", "bsdtar", "apt", "apt-get", "aptitude"})
"""Programs with options whose value is a command in some of its forms only."""
_USUAL = re.compile(
    r"(?:ssh|rsh|less|more|cat|most|vim?|nano|emacs|true|gzip|pigz|p?bzip2|pixz|xz|zstd(?:mt)?|lz4|lzip|lzop|brotli)"
    r"(?:[ ]-(?:[A-Za-z0-9]+|-[a-z-]+)(?:[ ][0-9]+)?)*"
)
"""Commands that are the usual ones there. Files in their words are judged with those of the program."""


def evaluates_text(found: Found) -> str:
    """Why a text in a simple command may run commands that nobody sees; empty when none does."""
    if _PROMPT_EXPANSION.search(found.text):
        return "${...@P} runs what is in a variable"
    prompts = (value for name, value in _assigned(found) if _PROMPTS.fullmatch(name))
    if any(_RUNS_INSIDE.search(value.text) for value in prompts):
        return "a prompt runs what is in it"
    name = found.words[0].text.rpartition("/")[2] if found.words else ""
    words = [*(word for _, word in found.assigned), *(found.words[1:] if name in _EVALUATING else ())]
    if any(word.known and _INDEX.search(word.text) for word in words):
        return "an index runs the command in it"
    return "a history expansion runs an earlier command" if re.match(r"!(?:[!\w?-]|$)", _first(found)) else ""


def _first(found: Found) -> str:
    """The first word, but for ``!`` before a command."""
    return found.words[0].raw if found.words and found.words[0].raw != "!" else ""


def commands_in_variables(found: Found) -> list[Word]:
    """The texts of variables that programs run: ``PAGER='less -R' man ls``."""
    values = (value for name, value in _assigned(found) if _COMMAND_VARIABLES.fullmatch(name) and value.known)
    return [value for value in values if _is_unusual(value.text)]


def _is_unusual(command: str) -> bool:
    return bool(command.strip()) and not command.startswith("-") and not _USUAL.fullmatch(command)


def _assigned(found: Found) -> list[tuple[str, Word]]:
    """What variables are set to, also by ``export`` and ``env``."""
    pairs = list(found.assigned)
    if found.words and found.words[0].text.rpartition("/")[2] in _SETTERS:
        for word in found.words[1:]:
            name, equals, value = word.text.partition("=")
            if equals and word.known and name.isidentifier():
                pairs.append((name, Word.of(_unquoted(value))))
    return pairs


def _unquoted(value: str) -> str:
    """``export A='b c'`` is read as one word with its quotes."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def commands_in_options(name: str, words: Sequence[Word]) -> list[Word]:
    """The texts in the options of a program that it runs as commands; those that are not known are left out.

    Args:
        name: the program, without its directory.
    """
    texts = [word.text for word in words if word.known]
    if name == "git":
        return _of_git(texts)
    if name in _NODE:
        return [Word.of(command) for text in texts if (command := _of_node(texts, text)) and _is_unusual(command)]
    names = _OPTIONS.get(name)
    values = loose_values(texts, names) if names is not None else ()
    if name in _SSH:
        kept = [value for value in values if _SSH_COMMAND.fullmatch(value) or not re.match(r"\s*[A-Za-z]+[=\s]", value)]
        values = [match["command"] if (match := _SSH_COMMAND.fullmatch(value)) else value for value in kept]
    commands = [match["command"] if (match := _ACTION.fullmatch(value)) else value for value in values]
    if name in _ACTIONS:  # of -o and --checkpoint-action, what is no command
        commands = [
            command for command in commands if not re.match(r"[\w.-]+(?:::[\w:-]*)?=|(?:dot|echo|bell)\b", command)
        ]
    if name == "tmux" and not _TMUX_RUNS.isdisjoint(texts):
        commands += [text for text in texts if re.search(r"\s", text) and "#{" not in text]
    if name == "socat":
        commands += [value for text in texts for value in re.findall(r"(?i)(?:exec|system|shell):\"?([^,\"]+)", text)]
    return [Word.of(command) for command in commands if _is_unusual(command)]


def _of_node(texts: Sequence[str], text: str) -> str:
    """The command in ``npm pkg set scripts.NAME=COMMAND`` and ``npm config set script-shell=COMMAND``."""
    match = _NODE_SETTING.fullmatch(text)
    if match is None:
        return ""
    after = texts[texts.index(text) + 1 :]
    return match["command"] or (after[0] if after and not after[0].startswith("-") else "")


def _of_git(texts: Sequence[str]) -> list[Word]:
    found: list[str] = []
    for value in loose_values(texts, "-c"):
        if match := _GIT_SETTINGS.match(value):
            found.append(match["command"].lstrip("!"))
    for name, value in pairwise(texts) if "config" in texts else ():
        if match := _GIT_SETTINGS.match(f"{name}={value}"):
            found.append(match["command"].lstrip("!"))
    verbs = [text for text in texts if text in _GIT_OPTIONS]
    found += loose_values(texts, _GIT_OPTIONS[verbs[0]]) if verbs else []
    for marks in (("submodule", "foreach"), ("bisect", "run")):
        at = next((at for at in range(len(texts) - 1) if tuple(texts[at : at + 2]) == marks), None)
        if at is not None:
            found.append(" ".join(text for text in texts[at + 2 :] if text != "--recursive"))
    return [Word.of(command) for command in found if _is_unusual(command)]
