"""Commands within words: evaluated values, loops over words, and scripts that a command writes. Pure."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, pairwise, product
from math import prod

from ..rules.rule import blocked, may_begin_blocked
from .read_only.programs import PROGRAMS
from .words import CommandClassification, Input, ParsedCommand, Redirect, SimpleCommand, Word, loose_values
from .wrappers import is_wrapper

__all__ = [
    "WRITERS",
    "commands_in_options",
    "commands_in_variables",
    "embedded_commands",
    "embedded_reason",
    "evaluates_text",
    "unrolled",
    "written_script",
]


# -- Scripts that a command writes, if its text contains them: ``cat > x.sh <<EOF``, ``echo "..." | tee x.py``. Pure.
#
# Their content is checked like a program for an interpreter: it may run later without a check.


WRITERS = frozenset({"cat", "tee", "echo", "printf"})
"""Programs that write their operands or their input."""
_SCRIPT = re.compile(
    r"(?:.*/)?(?:[^/]*\.(?:sh|bash|zsh|ksh|fish|py|pl|rb|php|lua|js|mjs|cjs|ts|ps1|mk|awk|tcl|service|timer|cron)"
    r"|(?:GNU)?[Mm]akefile|[Jj]ustfile|package\.json|Dockerfile|crontab|\.?[a-z]*(?:rc|profile|aliases)|envrc|\.envrc"
    r"|(?:.*/)?hooks/[a-z-]+|(?:\.git/|\.)?(?:git)?config)"
)
"""Names of files that run or that configure what runs."""


def written_script(name: str, words: Sequence[Word], given: Input, targets: Sequence[str]) -> str:
    """Return the text that a command writes into a file that may run.

    Args:
        name: the program, without its directory.
        words: its words; the first is its name.
        given: its standard input.
        targets: the files that its redirections write.

    Returns:
        The text; empty if it writes no such file, or a text that is not in the command.
    """
    if name not in WRITERS:
        return ""
    operands = [word.text for word in words[1:] if not word.text.startswith("-")]
    files = [*targets, *(operands if name == "tee" else ())]
    source = words if name in ("echo", "printf") else given.source
    text = given.text or (" ".join(word.text for word in source[1:]) if files else "")
    runs = any(_SCRIPT.fullmatch(file) for file in files) or text.lstrip().startswith("#!")
    return text if files and runs else ""


# -- Possible commands within the words of unknown programs: ``tini -- rm x``, ``perl -e 'system("rm x")'``. Pure.
#
# It finds far too many, so a match only makes the command ask: where such a command would be blocked or, in mode
# ``auto``, denied by a rule.


MAX_CHARS = 256 << 10
"""Maximum total characters of possible commands in one command, each counted up to its end; with more it asks."""
_SAY = frozenset({"echo", "printf", "logger", "wall", "write", "notify-send", "say", "tee", "cat", "true", ":"})
"""Programs that do not run their operands or input."""
_TAKE_MESSAGES = frozenset({"git", "gh", "glab", "hg", "svn", "jj"})
"""Programs that take texts for readers, such as ``commit -m``."""
_SEVERAL = frozenset(
    [
        *(name for name, program in PROGRAMS.items() if program.commands),
        *("npm", "yarn", "pnpm", "cargo", "go", "pip", "pip3", "uv", "pipx", "brew", "dnf", "yum", "zypper", "pacman"),
        *("gem", "bundle", "terraform", "vagrant", "gcloud", "aws", "az", "gh", "glab", "svn", "hg", "snap", "flatpak"),
        *("virsh", "rabbitmqctl", "restic", "borg", "rclone", "mc", "s3cmd", "lxc", "incus", "pct", "qm", "helm"),
        *("apt-get", "aptitude", "service", "rc-service", "initctl", "ip", "tc", "nft", "crictl"),
    ]
)
"""Programs with sub-commands, which are words such as ``rm`` and ``run``."""
_MARKS = frozenset({"exec", "run", "--", "-x", "-X", "--exec", "-exec", "foreach"})
"""After one of these words a program with sub-commands may take a command."""
_NAME = re.compile(r"[A-Za-z0-9_./+][\w./+-]*")
_ENDS = re.compile(r"[;|&\n`'\"(){}\[\]!<>$,%\\]+")
_LIST_BEGINS = re.compile(r"[\[(](?=\s*[rub]{0,2}['\"`]?[\w./])")
_LIST_ENDS = re.compile(r"[\])]")
_LIST_WORDS = 24
"""Words searched for the operands of ``rm`` and ``harness``, with any text between them."""


def embedded_reason(classification: CommandClassification, patterns: Sequence[str]) -> str:
    """Return why a program may run a blocked command; empty if none may."""
    for command in classification.commands:
        runs = _embedded(command)
        if runs is None:
            return (
                f"the words of {command.argv[0] if command.argv else 'it'} contain too many possible commands to check"
            )
        watched = {word for word in {words[0] for words in runs} if may_begin_blocked(word, patterns)}
        for words in runs:
            if words[0] in watched and (why := blocked(words, patterns)):
                return f"{command.argv[0] if command.argv else 'it'} may run {' '.join(words[:4])}: {why}"
    return ""


def embedded_commands(classification: CommandClassification) -> tuple[str, ...]:
    """Return the texts of commands that programs may run, in the form that rules match."""
    found = (words for command in classification.commands for words in _embedded(command) or ())
    return tuple(dict.fromkeys(" ".join((posixpath.basename(words[0]), *words[1:])) for words in found))


def _embedded(command: SimpleCommand) -> tuple[tuple[str, ...], ...] | None:
    """Return the possible commands in the words of another command; None if there are too many."""
    name = posixpath.basename(command.argv[0]) if command.argv else ""
    if command.read_only or name in _SAY:
        return _runs("", (), command.code) if name in WRITERS else ()
    return _runs(name, command.argv, command.code)


@lru_cache(maxsize=8)
def _runs(name: str, argv: tuple[str, ...], code: str) -> tuple[tuple[str, ...], ...] | None:
    texts = [word for word in argv[1:] if re.search(r"\s", word) and name not in _TAKE_MESSAGES]
    inner = () if is_wrapper(name) else _behind(name, argv)
    found, room = [], MAX_CHARS
    for words in chain(inner, chain.from_iterable(_in_text(text) for text in (*texts, code))):
        room -= sum(map(len, words)) + len(words)
        if room < 0:
            return None
        if words and _NAME.fullmatch(words[0]):
            found.append(words)
    return tuple(found)


def _behind(name: str, argv: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Yield the words after a program from each word that may name another program."""
    first = next((at + 1 for at, word in enumerate(argv) if word in _MARKS), len(argv)) if name in _SEVERAL else 1
    for at in range(first, len(argv)):
        yield tuple(argv[at:])


def _in_text(text: str) -> Iterable[tuple[str, ...]]:
    """Yield possible commands in a program for an interpreter, also those written as lists of words."""
    parts = [part.split() for part in _ENDS.split(text)]
    for words in parts:
        for at in range(len(words)):
            yield tuple(words[at:])
    listed = [word for words in parts for word in words]
    for at, word in enumerate(listed):
        if posixpath.basename(word) in ("harness", "rm"):
            yield tuple(listed[at : at + _LIST_WORDS])
    yield from _lists(text)


def _lists(text: str) -> Iterable[tuple[str, ...]]:
    """Yield the words of each list: ``["git", "push"]``, ``spawn("git", ["push"])``."""
    ends = [match.start() for match in _LIST_ENDS.finditer(text)]
    for begin in _LIST_BEGINS.finditer(text):
        at = bisect_right(ends, begin.start())
        parts = _ENDS.split(text[begin.end() : ends[at] if at < len(ends) else len(text)])
        yield tuple(word for part in parts for word in part.split())


# -- Loops over words in the text: each command in the body is classified with each value of the variable. Pure.


MAX_VALUES = 24
"""Maximum values with which one command is classified; a loop with more counts as a loop over unknown words."""
_PIECE = re.compile(
    r"(?P<quote>\")|\$(?:(?P<name>[A-Za-z_]\w*)(?!:)|\{(?P<braced>[A-Za-z_]\w*)\})"  # zsh changes $f:h
    r"|[\w./:@%+,=-]+|(?P<glob>\*|\?)|~(?=/)| "
)
_GLOB = re.compile(r"[*?\[\\]")
_SPLITS = re.compile(r"\s")


def unrolled(found: ParsedCommand, *, changed: Sequence[str]) -> Iterator[ParsedCommand]:
    """Yield the command with each value of the enclosing loop variables, or unchanged.

    Args:
        found: the command.
        changed: variables that something else also sets.
    """
    values = {name: words for name, words in found.loops if name not in changed and all(map(_seen, words))}
    used = [name for name in values if any(name in _names(word) for word in _words(found))]
    if not used or not 0 < prod(len(values[name]) for name in used) <= MAX_VALUES:
        yield found
        return
    for combination in product(*(values[name] for name in used)):
        yield _with(found, dict(zip(used, combination, strict=True)))


def _seen(word: Word) -> bool:
    """Return whether the text shows the word, apart from the names of files that match it."""
    return word.known or word.pattern or word.plain


def _words(found: ParsedCommand) -> Iterator[Word]:
    yield from found.words
    yield from (word for _, word in found.assigned)
    yield from (item.word for item in found.redirects if item.word is not None)


def _names(word: Word) -> set[str]:
    return set() if word.known else {match["name"] or match["braced"] or "" for match in _PIECE.finditer(word.raw)}


def _with(found: ParsedCommand, values: Mapping[str, Word]) -> ParsedCommand:
    return replace(
        found,
        words=tuple(_put(word, values) for word in found.words),
        assigned=tuple((name, _put(word, values)) for name, word in found.assigned),
        redirects=tuple(_redirect(item, values) for item in found.redirects),
    )


def _redirect(item: Redirect, values: Mapping[str, Word]) -> Redirect:
    return item if item.word is None else replace(item, word=_put(item.word, values))


def _may_stand(value: Word, is_quoted: bool) -> bool:
    """Return whether the shell inserts the value unchanged: ``~+`` expands, and unquoted blanks split it."""
    is_split = not is_quoted and not value.plain and _SPLITS.search(value.text) is not None
    return bool(value.text) and not is_split and not re.match(r"~[^/]", value.raw)


def _put(word: Word, values: Mapping[str, Word]) -> Word:
    """Return the word with the values inserted; unchanged if another part is unknown or a shell would split it."""
    if word.known or not _names(word) & set(values):
        return word
    text, is_quoted, is_pattern, at = "", False, False, 0
    while at < len(word.raw):
        piece = _PIECE.match(word.raw, at)
        if piece is None:
            return word
        at = piece.end()
        name = piece["name"] or piece["braced"]
        if piece["quote"]:
            is_quoted = not is_quoted
        elif name is None:
            is_pattern = is_pattern or (piece["glob"] is not None and not is_quoted)
            text += piece[0]
        else:
            value = values.get(name)
            if value is None or not _may_stand(value, is_quoted):
                return word
            if value.plain and word.raw.strip('"') in (f"${name}", f"${{{name}}}"):
                return replace(value, raw=word.raw, spread=False)
            is_pattern = is_pattern or value.pattern or value.plain
            is_pattern = is_pattern or (not is_quoted and _GLOB.search(value.text) is not None)
            text += "*" if value.plain else value.text
    if not is_pattern:
        return Word(word.raw, text, lead=text)
    first = _GLOB.search(text)
    return Word(word.raw, text, known=False, lead=text[: first.start()] if first else text, pattern=True)


# -- Values that run as commands: of variables, of options, of an array index. Pure.


_COMMAND_VARIABLES = re.compile(
    r"[A-Z_]*(?:PAGER|EDITOR|BROWSER|ASKPASS|RSH)|VISUAL|GIT_SSH(?:_COMMAND)?|GIT_PROXY_COMMAND|GIT_EXTERNAL_DIFF"
    r"|SVN_SSH|LESSOPEN|LESSCLOSE|PROMPT_COMMAND|FCEDIT"
)
"""Variables whose value a program runs as a command."""
_PROMPTS = re.compile(r"PS[0-4]|PROMPT|RPROMPT|PROMPT[1-4]|RPS1")
_RUNS_INSIDE = re.compile(r"\$\(|`|\$\{[^}]*@P\}")
_INDEX = re.compile(r"\[[^\]]*(?:\$\(|`)")
"""An array index whose command arithmetic runs: ``a[$(command)]``."""
_PROMPT_EXPANSION = re.compile(r"\$\{[^}\s]*@P\}")
_SETTERS = frozenset({"export", "declare", "typeset", "readonly", "local", "env", "set", "setenv", "sudo", "doas"})
_EVALUATING = frozenset(
    [
        *("printf", "read", "test", "[", "[[", "let", "declare", "typeset", "local", "export", "readonly", "unset"),
        *("wait", "getopts", "mapfile", "readarray", "set", "eval", "shift", "exit", "return", "break", "continue"),
    ]
)
"""Builtins that evaluate some of their words as arithmetic or as variable names with an index."""
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
"""Settings of package managers that store a command for later."""
_TMUX_RUNS = frozenset(
    [
        *("new", "new-session", "neww", "new-window", "splitw", "split-window", "respawnp", "respawn-pane", "run"),
        *("respawn-window", "respawnw", "run-shell", "pipep", "pipe-pane", "if", "if-shell", "popup", "display-popup"),
    ]
)
"""tmux commands that take a shell command."""
_ACTION = re.compile(r"(?:exec=|[\w:-]*Invoke[\w:]*=)(?P<command>.*)", re.DOTALL)
_SSH_COMMAND = re.compile(
    r"(?i)\s*(?:ProxyCommand|LocalCommand|KnownHostsCommand|RemoteCommand)\s*[=\s]\s*(?P<command>.+)", re.S
)
_SSH = frozenset({"ssh", "scp", "sftp", "autossh", "sshfs", "mosh"})
_ACTIONS = frozenset({"tar", "gtar", "bsdtar", "apt", "apt-get", "aptitude"})
"""Programs with options whose value is a command only in some forms."""
_USUAL = re.compile(
    r"(?:ssh|rsh|less|more|cat|most|vim?|nano|emacs|true|gzip|pigz|p?bzip2|pixz|xz|zstd(?:mt)?|lz4|lzip|lzop|brotli)"
    r"(?:[ ]-(?:[A-Za-z0-9]+|-[a-z-]+)(?:[ ][0-9]+)?)*"
)
"""Usual commands in such values; files in their words are checked with those of the program."""


def evaluates_text(found: ParsedCommand) -> str:
    """Return why a text in a simple command may run commands that are not in it; empty if none may."""
    if _PROMPT_EXPANSION.search(found.text):
        return "${...@P} may run a command in a variable"
    prompts = (value for name, value in _assigned(found) if _PROMPTS.fullmatch(name))
    if any(_RUNS_INSIDE.search(value.text) for value in prompts):
        return "a prompt variable contains a command that the shell runs"
    name = found.words[0].text.rpartition("/")[2] if found.words else ""
    words = [*(word for _, word in found.assigned), *(found.words[1:] if name in _EVALUATING else ())]
    if any(word.known and _INDEX.search(word.text) for word in words):
        return "an array index contains a command that the shell runs"
    return "a history expansion runs an earlier command" if re.match(r"!(?:[!\w?-]|$)", _first(found)) else ""


def _first(found: ParsedCommand) -> str:
    """Return the first word; empty for ``!`` before a command."""
    return found.words[0].raw if found.words and found.words[0].raw != "!" else ""


def commands_in_variables(found: ParsedCommand) -> list[Word]:
    """Return the values of variables that programs run as commands: ``PAGER='less -R' man ls``."""
    values = (value for name, value in _assigned(found) if _COMMAND_VARIABLES.fullmatch(name) and value.known)
    return [value for value in values if _is_unusual(value.text)]


def _is_unusual(command: str) -> bool:
    return bool(command.strip()) and not command.startswith("-") and not _USUAL.fullmatch(command)


def _assigned(found: ParsedCommand) -> list[tuple[str, Word]]:
    """Return the variables that the command sets, also by ``export`` and ``env``, with their values."""
    pairs = list(found.assigned)
    if found.words and found.words[0].text.rpartition("/")[2] in _SETTERS:
        for word in found.words[1:]:
            name, equals, value = word.text.partition("=")
            if equals and word.known and name.isidentifier():
                pairs.append((name, Word.of(_unquoted(value))))
    return pairs


def _unquoted(value: str) -> str:
    """Remove quotes: ``export A='b c'`` is parsed as one word with its quotes."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def commands_in_options(name: str, words: Sequence[Word]) -> list[Word]:
    """Return the option values of a program that it runs as commands, without those only known at run time.

    Args:
        name: the program, without its directory.
        words: the words after it.
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
    if name in _ACTIONS:  # drop values of -o and --checkpoint-action that are not commands
        commands = [
            command for command in commands if not re.match(r"[\w.-]+(?:::[\w:-]*)?=|(?:dot|echo|bell)\b", command)
        ]
    if name == "tmux" and not _TMUX_RUNS.isdisjoint(texts):
        commands += [text for text in texts if re.search(r"\s", text) and "#{" not in text]
    if name == "socat":
        commands += [value for text in texts for value in re.findall(r"(?i)(?:exec|system|shell):\"?([^,\"]+)", text)]
    return [Word.of(command) for command in commands if _is_unusual(command)]


def _of_node(texts: Sequence[str], text: str) -> str:
    """Return the command in ``npm pkg set scripts.NAME=COMMAND`` or ``npm config set script-shell=COMMAND``."""
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
