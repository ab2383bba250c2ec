"""Programs that run other programs (wrappers): what they run, and with which rights."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .container_commands import COMPOSERS, ENGINES, container_command
from .words import Input, Options, Word, grammar, harmless_assignment, lists_plain_words, parse_options

__all__ = [
    "FED_WORDS",
    "PRIVILEGED",
    "SHELLS",
    "SYSTEM_DIRECTORIES",
    "WRAPPERS",
    "WrappedCommands",
    "Wrapper",
    "found_file",
    "is_wrapper",
    "lists_null_separated",
    "program_name",
    "unwrap",
]


# -- The files that ``find`` passes to another program: what is known about their names. Pure.


_PLAIN_NAMES = re.compile(r"\*\.(?:log|md|html|css|js|ts|py|rb|go|rs|c|h|cc|cpp|java|php|service|timer|socket)")
"""Kinds of file names that no secret pattern matches."""
_TESTS = frozenset(
    [
        *(
            "-name",
            "-iname",
            "-type",
            "-path",
            "-ipath",
            "-size",
            "-mtime",
            "-mmin",
            "-atime",
            "-ctime",
            "-amin",
            "-cmin",
        ),
        *("-newer", "-newermt", "-maxdepth", "-mindepth", "-user", "-group", "-perm", "-uid", "-gid"),
    ]
)
_FLAGS = frozenset({"-xdev", "-mount", "-print", "-print0", "-empty", "-daystart", "-readable"})
_RUNS = frozenset({"-exec", "-execdir"})
_ACTIONS = frozenset({*_RUNS, "-print", "-print0"})


def found_file(words: Sequence[Word]) -> Word:
    """Return a word for a file that this ``find`` command finds: a path below its start, never an option.

    The word counts as a known file if the tests before the action select regular files of a kind that holds no
    secrets, and ``find`` follows no links.
    """
    return Word("{}", "{}", known=False, lead="./", pattern=_finds_plain_files(words))


def lists_null_separated(words: Sequence[Word]) -> bool:
    """Return whether a command is a ``find`` that prints only NUL-terminated paths."""
    texts = [word.text for word in words]
    printed = {text for text in texts if text.startswith(("-print", "-ls", "-fprint", "-fls"))}
    roots = _roots(words)
    fine = all(word.operand or (word.pattern and bool(word.lead)) for word in roots)
    return texts[:1] == ["find"] and printed == {"-print0"} and fine and not _RUNS & set(texts)


def _roots(words: Sequence[Word]) -> list[Word]:
    end = next((at for at, word in enumerate(words[1:], 1) if word.text[:1] in ("-", "(", "!")), len(words))
    return list(words[1:end])


def _finds_plain_files(words: Sequence[Word]) -> bool:
    rest = iter(words[1 + len(_roots(words)) :])
    given: list[tuple[str, str]] = []
    before: list[tuple[str, str]] | None = None
    for word in rest:
        if not word.known:
            return False
        if before is None and word.text in _ACTIONS:
            before = list(given)  # tests after an action do not restrict it
        if word.text in _RUNS:
            any(end.text in (";", "+") for end in rest)  # skip past the end of the command
        elif word.text in _TESTS and (value := next(rest, None)) is not None and value.known:
            given.append((word.text, value.text))
        elif word.text not in _FLAGS:
            return False
    tests = given if before is None else before
    named = any(test in ("-name", "-iname") and _PLAIN_NAMES.fullmatch(value) for test, value in tests)
    return named and ("-type", "f") in tests


# -- The option grammars of programs that run other programs.


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs the command after its options and ``skip`` operands.

    ``harmless``: options that do not keep it from being read-only. ``reason``: why it is never read-only itself.
    ``script``: options whose value is a shell text. ``joined``: it joins its words into one shell text; ``joins``: the
    options with which it does. ``tail``: it adds arguments from its input. ``assignments``: ``A=b`` may come first.
    ``permute``: options may follow operands. ``alone``: why it is not read-only without a command.
    """

    options: str = ""
    skip: int = 0
    harmless: str = ""
    reason: str = ""
    script: tuple[str, ...] = ()
    joined: bool = False
    joins: tuple[str, ...] = ()
    tail: bool = False
    assignments: bool = False
    permute: bool = False
    alone: str = "it waits for commands"


_OTHER = "it runs as another user or elsewhere"
_SU = "-lmpPfsgGcT= --command= --session-command= --shell= --group= --supp-group= --login --preserve-environment"

PRIVILEGED = frozenset(
    [
        *("sudo", "doas", "su", "runuser", "pkexec", "chroot", "nsenter", "unshare", "systemd-run", "setpriv", "gosu"),
        *("su-exec", "runcon", "sg", "machinectl", "at", "batch", "ssh"),
    ]
)
"""Wrappers whose command runs as another user, elsewhere or later."""

WRAPPERS: Mapping[str, Wrapper] = {
    "sudo": Wrapper(
        "-ABbEHikKlnNPSsvVe -ugpCcDhRrtTU= --user= --group= --prompt= --close-from= --chdir= --host= --chroot= --role= "
        "--type= --other-user= --command-timeout= --login --shell --non-interactive --preserve-env? --stdin --set-home "
        "--background --askpass --edit --list --validate --remove-timestamp --reset-timestamp --bell --no-update",
        reason=_OTHER,
        joins=("-i", "-s", "--login", "--shell"),
        assignments=True,
    ),
    "doas": Wrapper("-nsL -uCa=", reason=_OTHER),
    "pkexec": Wrapper("--user= --disable-internal-agent --keep-cwd", reason=_OTHER),
    "su": Wrapper(
        "-lmpP -cgGswT= " + _SU.split(None, 1)[1], skip=99, reason=_OTHER, script=("-c", "--command"), permute=True
    ),
    "runuser": Wrapper(
        "-lmpP -cgGsuwT= " + _SU.split(None, 1)[1] + " --user=",
        reason=_OTHER,
        script=("-c", "--command"),
    ),
    "gosu": Wrapper(skip=1, reason=_OTHER),
    "su-exec": Wrapper(skip=1, reason=_OTHER),
    "setpriv": Wrapper(
        "--reuid= --regid= --clear-groups --init-groups --keep-groups --groups= --no-new-privs --reset-env "
        "--inh-caps= --ambient-caps= --bounding-set= --securebits=",
        reason=_OTHER,
    ),
    "runcon": Wrapper("-c -urtl= --user= --role= --type= --range= --compute", skip=1, reason=_OTHER),
    "sg": Wrapper("-c=", skip=1, reason=_OTHER, script=("-c",), joined=True),
    "chroot": Wrapper("--userspec= --groups= --skip-chdir", skip=1, reason=_OTHER),
    "nsenter": Wrapper(
        "-aFeZ -tSG= -muinpUCTrw? --target= --setuid= --setgid= --all --mount? --uts? --ipc? --net? --pid? --user? "
        "--cgroup? --time? --root? --wd? --no-fork --preserve-credentials --follow-context",
        reason=_OTHER,
    ),
    "unshare": Wrapper(
        "-fFrc -RwSGl= -muinpUCT? --mount? --uts? --ipc? --net? --pid? --user? --cgroup? --time? --fork "
        "--map-root-user "
        "--map-current-user --mount-proc? --kill-child? --root= --wd= --setuid= --setgid= --propagation=",
        reason=_OTHER,
    ),
    "systemd-run": Wrapper(
        "-tPqGdSr -upEMHCp= --user --system --scope --pty --pipe --wait --quiet --collect --no-block --same-dir "
        "--shell "
        "--remain-after-exit --slice-inherit --unit= --property= --setenv= --host= --machine= --slice= --uid= --gid= "
        "--nice= --description= --working-directory= --service-type= --on-active= --on-boot= --on-calendar= "
        "--timer-property=",
        reason=_OTHER,
    ),
    "machinectl": Wrapper("--uid= -q --quiet --setenv= -E=", skip=2, reason=_OTHER),
    "env": Wrapper(
        "-i0v -uC= --ignore-environment --null --debug --unset= --chdir= --block-signal? --default-signal? "
        "--ignore-signal?",
        harmless="-iv --ignore-environment",
        assignments=True,
        alone="",
    ),
    "nice": Wrapper("-n= -# --adjustment=", harmless="-n= -# --adjustment="),
    "ionice": Wrapper("-cnpPu= -t --class= --classdata= --ignore", harmless="-cn= -t --class= --classdata= --ignore"),
    "chrt": Wrapper("-aabfiorRvd -TPD= --batch --fifo --idle --other --rr", skip=1, reason="it changes priorities"),
    "taskset": Wrapper("-ac --all-tasks --cpu-list", skip=1, harmless="-c --cpu-list"),
    "nohup": Wrapper(reason="it writes nohup.out, and its command keeps running"),
    "timeout": Wrapper(
        "-fpv -ks= --foreground --preserve-status --verbose --kill-after= --signal=",
        skip=1,
        harmless="-fpv -ks= --foreground --preserve-status --verbose --kill-after= --signal=",
    ),
    "stdbuf": Wrapper("-ioe= --input= --output= --error=", harmless="-ioe= --input= --output= --error="),
    "setsid": Wrapper("-cfw --ctty --fork --wait", reason="its command leaves the terminal"),
    "time": Wrapper("-apvq -of= --append --output= --format= --portability --verbose", harmless="-p --portability -v"),
    "xargs": Wrapper(
        "-0rtpxo -nLPIdasER= -ile? --null --no-run-if-empty --verbose --interactive --exit --max-args= --max-lines? "
        "--max-procs= --replace? --delimiter= --arg-file= --max-chars= --eof? --open-tty --show-limits",
        harmless="-0rtx -nLPIds= -i? --null --no-run-if-empty --max-args= --max-lines? --max-procs= --replace? "
        "--delimiter=",
        tail=True,
        alone="",
    ),
    "watch": Wrapper(
        "-bcdegtxwCr -nq= --differences? --beep --color --errexit --chgexit --no-title --exec --interval= --equexit= "
        "--no-wrap --precise -p",
        harmless="-bcdegtxwC -n= --differences? --color --no-title --exec --interval=",
        joined=True,
    ),
    "flock": Wrapper(
        "-sxeunoFv -wEc= --shared --exclusive --unlock --nonblock --nb --timeout= --wait= --close "
        "--conflict-exit-code= "
        "--no-fork --verbose --command=",
        skip=1,
        reason="it creates or acquires a lock",
        script=("-c", "--command"),
    ),
    "script": Wrapper(
        "-aefq -cOIBTEmo= -t? --append --command= --return --flush --force --quiet --log-out= --log-in= --log-io= "
        "--log-timing= --echo= --logging-format= --output-limit= --timing?",
        reason="it writes a recording",
        script=("-c", "--command"),
        skip=1,
        permute=True,
    ),
    "strace": Wrapper(
        "-fFvqcCdhikknNrtTwxyYzZDV -espoauabEIOPSUX= --follow-forks --quiet? --trace= --output= --attach= "
        "--user= --env=",
        reason="it traces and may change its command",
    ),
    "ltrace": Wrapper("-fcCiSrtTV -aAeDFlLnopsuwxX= --output=", reason="it traces and may change its command"),
    "exec": Wrapper("-cl -a=", reason="it replaces the shell", alone="it changes the shell's open files"),
    "builtin": Wrapper(alone="", reason=""),
    "coproc": Wrapper(reason="it leaves a command running"),
    "noglob": Wrapper(reason="it exists in zsh only"),
    "nocorrect": Wrapper(reason="it exists in zsh only"),
    "-": Wrapper(reason="it exists in zsh only"),
    "and": Wrapper(reason="it exists in fish only"),
    "or": Wrapper(reason="it exists in fish only"),
    "not": Wrapper(reason="it exists in fish only"),
    "begin": Wrapper(reason="it exists in fish only", alone=""),
    "repeat": Wrapper(skip=1, reason="it exists in zsh only"),
}


# -- What ``sudo``, ``env``, ``xargs``, ``sh -c``, ``ssh host`` and others would run.


SYSTEM_DIRECTORIES = frozenset({"/bin", "/usr/bin", "/sbin", "/usr/sbin"})
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "ksh93"})
_SHELL_OPTIONS = (
    "-abcefhiklmnprstuvxBCEHPT -o= -O= --norc --noprofile --login --posix --rcfile= --init-file= --no-config "
    "--restricted --verbose --command="
)
_HARMLESS_SHELL = frozenset({"-c", "-e", "-u", "-x", "-f"})
FED_WORDS = "arguments from stdin"
"""Placeholder among the words of a command for the arguments that a wrapper adds from its input."""
_SAYS_VERSION = frozenset(
    [
        *(
            "bash",
            "zsh",
            "fish",
            "xargs",
            "nohup",
            "timeout",
            "nice",
            "env",
            "stdbuf",
            "setsid",
            "flock",
            "watch",
            "sudo",
        ),
        *("ionice", "taskset", "chrt", "strace", "ltrace", "script", "parallel", "unshare", "nsenter"),
    ]
)
"""Programs that run nothing when ``--version`` or ``--help`` is their only argument."""
_UNKNOWN_TAIL = Word.unknown(FED_WORDS)


@dataclass(frozen=True, slots=True)
class WrappedCommands:
    """The commands that a wrapper runs: programs, shell texts, or neither.

    ``reason``: why the wrapper itself is not read-only; empty if it is. ``unknown``: why it is unknown what would run.
    """

    argvs: tuple[tuple[Word, ...], ...] = ()
    scripts: tuple[Word, ...] = ()
    reason: str = ""
    privileged: bool = False
    unknown: str = ""


def program_name(word: Word) -> str:
    """Return the name of a program given by name or by a path in a system directory; empty for other paths."""
    if not word.known:
        return ""
    directory, name = posixpath.split(word.text)
    if "/" not in word.text:
        return word.text
    return name if directory in SYSTEM_DIRECTORIES else ""


def is_wrapper(name: str) -> bool:
    """Return whether the program with this name (without directory) runs others."""
    return name in SHELLS or name in _SPECIAL or name in WRAPPERS


def unwrap(words: Sequence[Word], given: Input) -> WrappedCommands | None:
    """Return what a command would run in addition to itself; None if it is not a known wrapper."""
    if not words or not words[0].known:
        return None
    name = posixpath.basename(words[0].text)  # by any path: rules against the inner command apply there, too
    rest = tuple(words[1:])
    if name in _SAYS_VERSION and [word.text for word in rest] in (["--version"], ["--help"]):
        return WrappedCommands()
    if name in SHELLS:
        return _shell(name, rest, given)
    if name in _SPECIAL:
        return _SPECIAL[name](rest, given)
    if name in WRAPPERS:
        return _general(name, WRAPPERS[name], rest, given)
    return None


def _general(name: str, wrapper: Wrapper, rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    options = parse_options(rest, grammar(wrapper.options), permute=wrapper.permute)
    if options.reason:
        return _lost(name, options.reason)
    operands = options.operands
    if wrapper.assignments:
        count = _assignments(operands)
        wrapper = replace(wrapper, reason=wrapper.reason or _environment(operands[:count]))
        operands = operands[count:]
    skipped, inner = operands[: wrapper.skip], tuple(operands[wrapper.skip :])
    if any(not word.known and word.spread for word in skipped):
        return _lost(name, f"a word is only known at run time: {skipped[0].raw}")
    reason = wrapper.reason or _unlisted(options, wrapper.harmless)
    outcome = WrappedCommands(reason=reason, privileged=name in PRIVILEGED)
    script = options.value(*wrapper.script)
    if script is None and len(inner) > 1 and inner[0].known and inner[0].text in wrapper.script:
        script = inner[1]
    if script is not None:
        return replace(outcome, scripts=(script,))
    if inner and (wrapper.joined or options.has(*wrapper.joins)):
        return replace(outcome, scripts=(_joined(inner),))
    if not inner:
        return replace(outcome, reason=reason or wrapper.alone)
    if wrapper.tail:
        inner = (*(_replaced(word, options) for word in inner), _tail(options, given))
    return replace(outcome, argvs=(inner,))


def _lost(name: str, reason: str) -> WrappedCommands:
    return WrappedCommands(
        unknown=f"what {name} would run is unknown: {reason}", reason=reason, privileged=name in PRIVILEGED
    )


def _unlisted(options: Options, harmless: str) -> str:
    allowed = grammar(harmless).known if harmless else {}
    numbers = "-#" in harmless
    odd = [name for name, _ in options.given if name not in allowed and not (name == "-#" and numbers)]
    return f"option {odd[0]} is not on the allowlist" if odd else ""


def _assignments(words: Sequence[Word]) -> int:
    """Return how many of the first words set variables."""
    for number, word in enumerate(words):
        name = (word.text if word.known else word.lead).partition("=")
        if not name[1] or not name[0].replace("_", "a").isalnum():
            return number
    return len(words)


def _environment(words: Sequence[Word]) -> str:
    """Return why ``A=b`` before a command may change what it does; empty if it does not."""
    for word in words:
        name, _, value = word.text.partition("=")
        reason = harmless_assignment(name, replace(word, text=value))
        if reason:
            return reason
    return ""


def _joined(words: Sequence[Word]) -> Word:
    """Join words with spaces into the text that a shell parses again."""
    text = " ".join(word.text for word in words)
    if all(word.known for word in words):
        return Word.of(text)
    return Word.unknown(text)


def _tail(options: Options, given: Input) -> Word:
    """Return a word for what xargs adds: any words, or the paths that a ``find`` prints."""
    if options.has("-a", "--arg-file", "-d", "--delimiter"):  # other input, or other separators
        return _UNKNOWN_TAIL
    if options.has("-0", "--null") and lists_null_separated(given.source):
        return found_file(given.source)
    if lists_plain_words(given.source):
        return Word("arguments from stdin", "arguments from stdin", known=False, lead="0", spread=True, plain=True)
    return _UNKNOWN_TAIL


def _replaced(word: Word, options: Options) -> Word:
    """Return a word of the xargs command; it is unknown if xargs replaces a mark in it."""
    mark = options.value("-I", "-i", "--replace")
    marks = {mark.text if mark is not None else "{}"} if options.has("-I", "-i", "--replace") else set()
    if any(text and text in word.text for text in marks):
        return Word.unknown(word.raw, spread=False)
    return word


def _shell(name: str, rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    plain = tuple(word for word in rest if not (word.known and word.text in ("+e", "+u", "+x", "+m", "+o")))
    options = parse_options(plain, grammar(_SHELL_OPTIONS), permute=False)
    if options.reason:
        return _lost(name, options.reason)
    reason = ""
    odd = [option for option, _ in options.given if option not in _HARMLESS_SHELL]
    if odd or len(plain) < len(rest):
        reason = f"{name} with other options than -c"
    command = options.value("--command")
    if options.has("-c") and options.operands:
        command = options.operands[0]
    if command is not None:
        return WrappedCommands(scripts=(command,), reason=reason)
    if options.has("-c"):
        return _lost(name, "the text of its -c is missing")
    if options.operands and not options.has("-s"):
        return WrappedCommands(reason=f"{name} runs a file")
    return _reads_script(name, given)


def _reads_script(name: str, given: Input) -> WrappedCommands:
    """Return what a program runs that takes shell commands from its standard input."""
    if given.kind == "text" and given.text is not None:
        return WrappedCommands(scripts=(Word.of(given.text),), reason=f"{name} runs its input")
    if given.kind in ("text", "pipe"):
        return _lost(name, "it runs its input, which is only known at run time")
    return WrappedCommands(reason=f"{name} waits for commands or runs a file")


def _eval(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    rest = rest[1:] if rest and rest[0].known and rest[0].text == "--" else rest
    return (
        WrappedCommands(scripts=(_joined(rest),), reason="it runs its words as commands") if rest else WrappedCommands()
    )


def _trap(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    if len(rest) > 1 and not (rest[0].known and rest[0].text in ("-", "-l", "-p", "")):
        script = rest[1] if rest[0].known and rest[0].text == "--" else rest[0]
        return WrappedCommands(scripts=(script,), reason="it sets a command to run later")
    return WrappedCommands(reason="it changes signal handling")


def _alias(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    values = [word for word in rest if not (word.known and "=" not in word.text)]
    scripts = tuple(Word.of(word.text.partition("=")[2]) if word.known else word for word in values)
    unclear = "aliases are not classified" if rest else ""
    return WrappedCommands(scripts=scripts, reason="it changes what command names run" if scripts else unclear)


def _command(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    options = parse_options(rest, grammar("-vVp"), permute=False)
    if options.reason:
        return _lost("command", options.reason)
    if options.has("-v", "-V"):
        spread = any(not word.known for word in options.operands)
        return WrappedCommands(reason="a name is only known at run time" if spread else "")
    return WrappedCommands(argvs=(tuple(options.operands),)) if options.operands else WrappedCommands()


def _parallel(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    marks = [number for number, word in enumerate(rest) if word.text.startswith(":::")]
    head = rest[: marks[0]] if marks else rest
    options = parse_options(
        head, grammar("-jNnPaILdS= -0kqtuvXm --jobs= --dry-run --bar --keep-order --halt= --null"), permute=False
    )
    if options.reason:
        return _lost("parallel", options.reason)
    reason = "it runs commands in parallel"
    values = tuple(word for word in rest[marks[0] + 1 :] if not word.text.startswith(":::")) if marks else ()
    if options.operands:
        text = _joined(options.operands)
        scripts = tuple(_with_value(text, value.text if value.known else "$value") for value in values)
        return WrappedCommands(scripts=scripts or (_with_value(text, "$value"),), reason=reason)
    return WrappedCommands(scripts=values, reason=reason) if values else _reads_lines("parallel", given)


def _with_value(text: Word, value: str) -> Word:
    """Return a command of parallel with a value appended, or in place of ``{}``."""
    if not text.known:
        return text
    return Word.of(text.text.replace("{}", value) if "{}" in text.text else f"{text.text} {value}")


def _reads_lines(name: str, given: Input) -> WrappedCommands:
    return replace(_reads_script(name, given), reason=f"{name} runs its input")


def _at(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    options = parse_options(rest, grammar("-fqt= -mMlrdcvVb"))
    if options.reason:
        return _lost("at", options.reason)
    if options.has("-f", "-l", "-d", "-r", "-c"):
        return WrappedCommands(reason="the jobs of at are not classified", privileged=True)
    return replace(_reads_script("at", given), privileged=True, reason="it runs later")


def _crontab(rest: tuple[Word, ...], given: Input) -> WrappedCommands | None:
    texts = [word.text for word in rest]
    if "-l" in texts and "-" not in texts:
        return None
    if any(text != "-" for text in texts):
        return WrappedCommands(reason="it changes or shows scheduled commands", privileged=True)
    if given.kind != "text" or given.text is None:
        return replace(_lost("crontab", "the table is only known at run time"), privileged=True)
    lines = [line.split(None, 1 if line.startswith("@") else 5) for line in given.text.splitlines()]
    scripts = tuple(Word.of(parts[-1]) for parts in lines if len(parts) in (2, 6) and not parts[0].startswith("#"))
    return WrappedCommands(scripts=scripts, reason="it changes scheduled commands", privileged=True)


def _ssh(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    if [word.text for word in rest] == ["-V"]:
        return WrappedCommands()
    options = parse_options(rest, grammar("-1246AaCfGgKkMNnqsTtVvXxYy -BbcDEeFIiJLlmOopPQRSWw="), permute=False)
    if options.reason or not options.operands:
        return (
            _lost("ssh", options.reason or "the host is missing")
            if options.reason
            else WrappedCommands(reason="the host is missing")
        )
    again = parse_options(
        options.operands[1:], grammar("-1246AaCfGgKkMNnqsTtVvXxYy -BbcDEeFIiJLlmOopPQRSWw="), permute=False
    )
    local = tuple(_local_command(word) for name, word in [*options.given, *again.given] if name == "-o" and word)
    scripts = tuple(word for word in local if word is not None)
    if again.operands:
        scripts = (*scripts, _joined(again.operands))
    elif given.kind in ("pipe", "text"):
        return replace(_reads_script("ssh", given), privileged=True, reason="it runs on another host")
    return WrappedCommands(scripts=scripts, reason="it runs on another host", privileged=True, unknown=again.reason)


def _local_command(word: Word) -> Word | None:
    """Return the command of an ssh option that runs one locally, or a ``RemoteCommand``; None for other options."""
    name, _, value = word.text.replace("=", " ", 1).partition(" ")
    if name.lower() not in ("proxycommand", "localcommand", "knownhostscommand", "remotecommand"):
        return None
    return Word.of(value) if word.known else word


def _containers(engine: str, rest: tuple[Word, ...], given: Input) -> WrappedCommands | None:
    found = container_command((Word.of(engine), *rest))
    if found is None:
        return None
    if found.reason:
        return _lost("the container engine", found.reason)
    if not found.runs:
        return None
    return WrappedCommands(
        argvs=(found.inner,) if found.inner else (), reason="it runs in a container", privileged=True
    )


def _kubectl(rest: tuple[Word, ...], given: Input) -> WrappedCommands | None:
    verbs = [number for number, word in enumerate(rest) if word.known and word.text in ("exec", "run", "debug")]
    if not verbs:
        return None
    marks = [number for number, word in enumerate(rest) if word.known and word.text == "--"]
    if marks:
        argv = rest[marks[0] + 1 :]
        return WrappedCommands(argvs=(argv,) if argv else (), reason="it runs in a container", privileged=True)
    plain = [word for word in rest[verbs[0] + 1 :] if not (word.known and word.text.startswith("-"))]
    argv = tuple(plain[1:])  # the old form: kubectl exec POD COMMAND
    return WrappedCommands(argvs=(argv,) if argv else (), reason="it runs in a container", privileged=True)


def _find(rest: tuple[Word, ...], given: Input) -> WrappedCommands | None:
    argvs: list[tuple[Word, ...]] = []
    file = found_file((Word.of("find"), *rest))
    at = 0
    while at < len(rest):
        if rest[at].known and rest[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [n for n in range(at + 1, len(rest)) if rest[n].known and rest[n].text in (";", "+")]
            end = next((n for n in ends if rest[n].text == ";" or rest[n - 1].text == "{}"), len(rest))
            argvs.append(tuple(_place(word, file) for word in rest[at + 1 : end]))
            at = end
        at += 1
    return WrappedCommands(argvs=tuple(argv for argv in argvs if argv)) if argvs else None


def _place(word: Word, file: Word) -> Word:
    """Return a word of the find command; ``{}`` is a path below its start, never an option."""
    if word.text == "{}":
        return file
    if "{}" in word.text:
        return Word.unknown(word.raw, spread=False)
    return word


def _runuser(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    """Unwrap ``runuser``: with ``-u`` like sudo, without it like su."""
    plain = parse_options(rest, grammar(WRAPPERS["runuser"].options), permute=False)
    wrapper = WRAPPERS["runuser"] if plain.has("-u", "--user") else WRAPPERS["su"]
    return _general("runuser", wrapper, rest, given)


def _runcon(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    """Unwrap ``runcon``: a context precedes the command, or options hold its parts."""
    plain = parse_options(rest, grammar(WRAPPERS["runcon"].options), permute=False)
    wrapper = replace(WRAPPERS["runcon"], skip=0) if plain.given else WRAPPERS["runcon"]
    return _general("runcon", wrapper, rest, given)


_SHARED = (
    "-hv -oiF= --ssh= --container= --engine= --image= --memory= --cpus= --network= --mount= --target= --tmux? "
    "--no-tmux --pane= --option= --identity= --ssh-config= --dedicated-connection --fresh-connection "
    "--config= --json --verbose --no-color --trace= --record --batch --model= --plain --version --help"
)
_RUN = "--timeout= --on-timeout= --no-wait --cwd= --env= --user= --stdin --max-output="


def _harness(rest: tuple[Word, ...], given: Input) -> WrappedCommands | None:
    """Unwrap ``harness run``: one word is a shell text, several are a program and its arguments."""
    shared = parse_options(rest, grammar(_SHARED), permute=False)
    if shared.reason:
        return _lost("harness", shared.reason)
    words = shared.operands
    if words and words[0].text != "run" and shared.has("--tmux"):
        words = words[1:]  # the name of the session
    if not words or words[0].text != "run":
        return None
    options = parse_options(words[1:], grammar(f"{_SHARED} {_RUN}"), permute=False)
    if options.reason:
        return _lost("harness run", options.reason)
    inner, reason = tuple(options.operands), "it runs on the target of that harness command"
    if len(inner) == 1:
        return WrappedCommands(scripts=inner, reason=reason, privileged=True)
    return WrappedCommands(argvs=(inner,) if inner else (), reason=reason, privileged=True)


def _busybox(rest: tuple[Word, ...], given: Input) -> WrappedCommands:
    if not rest or (rest[0].known and rest[0].text.startswith("-")):
        return WrappedCommands(reason="busybox options are not classified")
    return WrappedCommands(argvs=(rest,))


_SPECIAL: Mapping[str, Callable[[tuple[Word, ...], Input], WrappedCommands | None]] = {
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "command": _command,
    "parallel": _parallel,
    "at": _at,
    "batch": _at,
    "crontab": _crontab,
    "ssh": _ssh,
    **{engine: partial(_containers, engine) for engine in (*ENGINES, *COMPOSERS)},
    "kubectl": _kubectl,
    "oc": _kubectl,
    "find": _find,
    "runuser": _runuser,
    "runcon": _runcon,
    "harness": _harness,
    "busybox": _busybox,
}
