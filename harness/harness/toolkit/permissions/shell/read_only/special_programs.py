"""Checks of more programs with their own word syntax: awk, pagers, manuals, network and disk tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from ....redaction.patterns import is_secret_name
from ..words import Word, grammar, parse_options

__all__ = [
    "MORE_SPECIAL",
    "awk_program_only_prints",
]


# -- awk programs: a parser of the part of the language that does not write files, run commands or read other files.
#
# Two conditions: no word anywhere in the text runs, writes or reads; and the text consists of known tokens that do
# not print into a file. Where awk versions parse ``/`` differently, the check fails.


MAX_CHARS = 2_000
_RUNS = re.compile(
    r"system|getline|close|fflush|ENVIRON|SYMTAB|FUNCTAB|PROCINFO|ARG|BINMODE|include|load|eval|func|[@`]"
)
"""Names that must not even be part of a word."""
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+)|(?P<newline>\n)|(?P<string>\"(?:[^\"\\\n]|\\[^\n])*\")"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||\+\+|--|[-+*%^=!<>]=|!~|[-+*%^!<>=~?:,;(){}\[\]$])"
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?(?:[^\]/\n\\\[]|\[:[a-z]+:\])*\])+/")
_FUNCTIONS = frozenset(
    [
        *("length", "substr", "index", "split", "sub", "gsub", "match", "sprintf", "sin", "cos", "atan2", "exp", "log"),
        *("sqrt", "int", "rand", "srand", "tolower", "toupper", "strftime", "systime", "mktime", "gensub", "asort"),
        *("asorti", "strtonum", "and", "or", "xor", "lshift", "rshift", "compl"),
    ]
)
_KEYWORDS = frozenset(
    [
        *("if", "else", "while", "for", "do", "break", "continue", "in", "delete", "next", "nextfile", "exit"),
        *("print", "printf", "BEGIN", "END", "BEGINFILE", "ENDFILE"),
    ]
)
_BUILTIN = frozenset(
    [
        *("NR", "NF", "FNR", "FS", "OFS", "ORS", "RS", "RT", "RSTART", "RLENGTH", "SUBSEP", "FILENAME", "CONVFMT"),
        *("OFMT", "IGNORECASE"),
    ]
)
_VALUES = frozenset({"name", "number", "string", "regex"})
_CONTINUES = frozenset({",", "&&", "||", "{", "else", "do"})


class _Unknown(Exception):
    """The meaning of the program is not certain."""


def awk_program_only_prints(text: str) -> bool:
    """Return whether the whole program is understood and only computes and prints. Pure."""
    if len(text) > MAX_CHARS or (_RUNS.search(text) and not _only_systime(text)):
        return False
    try:
        tokens = list(_tokens(text))
    except _Unknown:
        return False
    return not _prints_into_a_file(tokens) and all(_known(tokens, at) for at in range(len(tokens)))


def _only_systime(text: str) -> bool:
    return _RUNS.search(re.sub(r"\bsystime\b", "", text)) is None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens, each with its kind.

    Raises:
        _Unknown: a part is not a known token, or awk versions parse it differently.
    """
    at, before = 0, ("", "")
    while at < len(text):
        if text[at] == "/":
            match = _slash(text, at, before)
            kind = "regex" if match else "sign"
            value = match[0] if match else "/"
        else:
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Unknown
            kind, value = match.lastgroup or "", match[0]
        at += len(value)
        if kind != "blank":
            before = (kind, value)
            yield before


def _slash(text: str, at: int, before: tuple[str, str]) -> re.Match[str] | None:
    """Return the regular expression that starts here; None if the slash is a division."""
    kind, value = before
    if kind in ("number", "string") or value in ("]", "++", "--", "$"):
        return None
    if kind == "name" and value not in _KEYWORDS:
        if value in _FUNCTIONS:
            raise _Unknown
        return None
    if value == ")":  # of a condition, or of an expression
        if re.search(r"[>\"]|\|(?!\|)", text.replace("||", "")):
            raise _Unknown
        return None
    match = _REGEX.match(text, at)
    if match is None:
        raise _Unknown
    return match


def _known(tokens: list[tuple[str, str]], at: int) -> bool:
    """Return whether a name belongs to the language or is a variable; only built-in functions may be called."""
    kind, value = tokens[at]
    if kind != "name" or value in _KEYWORDS or value in _FUNCTIONS:
        return True
    calls = tokens[at + 1 : at + 2] == [("sign", "(")]
    return not calls and (value in _BUILTIN or not value.isupper() or len(value) == 1)


def _prints_into_a_file(tokens: list[tuple[str, str]]) -> bool:
    """Return whether a ``>`` after ``print``, outside of parentheses, opens a file."""
    is_printing, depth, last = False, 0, ""
    for kind, value in tokens:
        if value in ("print", "printf") and kind == "name":
            is_printing, depth = True, 0
        elif kind == "newline":
            is_printing = is_printing and (last in _CONTINUES or depth > 0)
        elif kind == "sign" and value in (";", "}"):
            is_printing = False
        elif kind == "sign" and value in "()":
            depth += 1 if value == "(" else -1
        elif is_printing and depth <= 0 and kind == "sign" and value in (">", ">="):
            return True
        last = value
    return False


# -- Checks of programs with their own word syntax.


Answer = tuple[str, tuple[Word, ...]]
"""Why a command is not read-only (empty if it is), and the files that it reads."""

_PLAIN = re.compile(r"[\w@%+=:,./-]*")
_RUN_TIME = "a word is only known at run time or has special characters"


def _texts(words: tuple[Word, ...]) -> list[str] | None:
    """Return the words if all are known and have no special characters, else None."""
    fine = all(word.known and _PLAIN.fullmatch(word.text) for word in words)
    return [word.text for word in words] if fine else None


def _unless(*allowed: str) -> Callable[[tuple[Word, ...]], Answer]:
    """Return a check that accepts exactly these words; ``NAME``, ``PATH`` and ``NUMBER`` are any such word."""
    patterns = [re.compile(" ".join(_name_or(part) for part in form.split())) for form in allowed]

    def check(words: tuple[Word, ...]) -> Answer:
        texts = _texts(words)
        if texts is None:
            return _RUN_TIME, ()
        said = " ".join(texts)
        return ("" if any(pattern.fullmatch(said) for pattern in patterns) else f"{said!r} is not on the allowlist"), ()

    return check


_PARTS = {"NAME": r"[A-Za-z0-9_][\w@:.-]*", "PATH": r"/[\w@:./-]*", "NUMBER": "[0-9]+"}


def _name_or(part: str) -> str:
    return _PARTS.get(part) or re.escape(part)


_AWK_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*=.*|(?:FS|OFS|ORS|RS|CONVFMT|OFMT)=.*", re.DOTALL)


def _awk(words: tuple[Word, ...]) -> Answer:
    options = parse_options(words, grammar("-Fv="), permute=False, loose=True)
    if options.reason:
        return f"awk: {options.reason}", ()
    given = [(name, word) for name, word in options.given if name == "-v"]
    if any(word is None or not _AWK_VARIABLE.fullmatch(word.text if word.known else word.lead) for _, word in given):
        return "awk: it sets a variable that is only known at run time or that awk itself uses", ()
    program, files = options.operands[:1], options.operands[1:]
    if not program or not program[0].known or not awk_program_only_prints(program[0].text):
        return "awk: the program may write files, run commands or read other files", ()
    if any(not word.operand and not word.pattern for word in files):
        return "awk: a file is only known at run time", ()
    if any((word.text if word.known else word.lead).startswith("/inet") for word in files):
        return "awk: a file is a network connection", ()
    return "", tuple(word for word in files if word.text != "-" and not re.match(r"[A-Za-z_]\w*=", word.text))


_LESS_COMMAND = re.compile(r"\+(?:G|F|g|[0-9]{1,9}[gG]?|/[\w .:,-]+)")


def _pager(words: tuple[Word, ...]) -> Answer:
    """Check ``less`` and ``more``: a ``+`` word is typed into the pager and may run a program."""
    typed = [word for word in words if word.text.startswith("+")]
    if any(not word.known or not _LESS_COMMAND.fullmatch(word.text) for word in typed):
        return "less: a + word may run a program", ()
    rest = [word for word in words if word not in typed]
    options = parse_options(
        rest, grammar("-eEFiIJKMmNnQqRrSsUwWX -d -l -u -c -# --no-init --chop-long-lines --quit-if-one-screen")
    )
    if options.reason:
        return f"less: {options.reason}", ()
    return "", tuple(word for word in options.operands if word.text != "-")


_PATH_OF_DATA = re.compile(r"[.\w\[\]\"-]+")


def _yq(words: tuple[Word, ...]) -> Answer:
    """Check ``yq``: filters can load files and show variables, so only paths into the data are accepted."""
    options = parse_options(words, grammar("-rMCPy -op="))
    if options.reason:
        return f"yq: {options.reason}", ()
    path, files = options.operands[:1], options.operands[1:]
    if not path or not path[0].known or not _PATH_OF_DATA.fullmatch(path[0].text):
        return "yq: the filter may read other files or the environment", ()
    return "", tuple(word for word in files if word.text != "-")


_PAGE = re.compile(r"[\w.+:@\[-][\w.+:@\[\]-]*")


def _manual(words: tuple[Word, ...]) -> Answer:
    """Check ``man``: a word with a slash is a file, and options name pagers, browsers and settings."""
    options = parse_options(words, grammar("-afkwW -sS= --all --whatis --apropos --where --sections="))
    if options.reason:
        return f"man: {options.reason}", ()
    if any(not (word.known and _PAGE.fullmatch(word.text)) for word in options.operands):
        return "man: a page is a file or only known at run time", ()
    return "", ()


def _printenv(words: tuple[Word, ...]) -> Answer:
    """Check ``printenv NAME``: it prints the value without the name by which it would be redacted."""
    texts = _texts(words)
    if texts is None or any(not re.fullmatch(r"[A-Za-z_]\w*", text) for text in texts):
        return "a variable is only known at run time", ()
    secret = next(
        (
            text
            for text in texts
            if is_secret_name(text)
            or re.search(r"(?i)key|auth|url|dsn|pass|conn|hook|cred|cookie|session|login|cert|sas", text)
        ),
        "",
    )
    return (f"the value of {secret} may be a secret" if secret else ""), ()


def _parted(words: tuple[Word, ...]) -> Answer:
    texts = _texts(words)
    if texts is None:
        return _RUN_TIME, ()
    while texts and texts[0] in ("-s", "-m", "--script", "--machine"):
        texts.pop(0)
    if texts in (["-l"], ["--list"], ["--version"]):
        return "", ()
    device, rest = texts[:1], texts[1:]
    if rest[:1] == ["unit"]:
        rest = rest[2:]
    fine = bool(device) and not device[0].startswith("-") and rest in (["print"], ["print", "free"], ["print", "all"])
    return ("" if fine else "parted: it may change partitions"), ()


_SHOWS = frozenset({"show", "list", "ls"})
_ROUTE_OPTIONS = frozenset(
    {"-s", "-d", "-p", "-j", "-o", "-4", "-6", "-br", "-c", "-statistics", "-details", "-json", "-color"}
)


def _objects(*names: str) -> Callable[[tuple[Word, ...]], Answer]:
    """Return a check of ``bridge`` and ``tc``: an object, then a command that shows it."""

    def check(words: tuple[Word, ...]) -> Answer:
        texts = _texts(words)
        if texts is None:
            return _RUN_TIME, ()
        while texts and texts[0] in _ROUTE_OPTIONS:
            texts.pop(0)
        if texts in ([], ["-V"], ["-Version"]):
            return "", ()
        fine = texts[0] in names and (len(texts) == 1 or texts[1] in _SHOWS)
        return ("" if fine else f"{' '.join(texts[:2])} is not on the allowlist"), ()

    return check


_NMCLI = frozenset({"device", "dev", "d", "connection", "con", "c", "general", "g", "networking", "n"})


def _nmcli(words: tuple[Word, ...]) -> Answer:
    texts = _texts(words)
    if texts is None:
        return _RUN_TIME, ()
    while texts and texts[0] in (
        "-t",
        "-p",
        "--terse",
        "--pretty",
        "-f",
        "-g",
        "-m",
        "--fields",
        "--get-values",
        "--mode",
    ):
        takes_value = texts[0] in ("-f", "-g", "-m", "--fields", "--get-values", "--mode")
        texts = texts[2 if takes_value else 1 :]
    if texts in ([], ["--version"], ["-v"]):
        return "", ()
    shows = len(texts) == 1 or texts[1] in ("show", "status")
    secrets = any("secret" in text or "psk" in text or "password" in text for text in texts)
    fine = texts[0] in _NMCLI and shows and not secrets and not any(text.startswith("-") for text in texts[1:])
    return ("" if fine else f"nmcli {' '.join(texts[:2])} is not on the allowlist"), ()


def _nft(words: tuple[Word, ...]) -> Answer:
    """Check ``nft``, which joins its words into one program, in which ``;`` ends a statement."""
    texts = _texts(words)
    if texts is None:
        return _RUN_TIME, ()
    while texts and re.fullmatch(r"-[anNsjyS]+|--handle|--json|--stateless|--numeric", texts[0]):
        texts.pop(0)
    fine = texts[:1] == ["list"] and len(texts) > 1 and not any(text.startswith("-") for text in texts)
    return ("" if fine or texts in (["-v"], ["--version"]) else "nft: it may change rules"), ()


_REDIS = re.compile(
    r"(?i)ping|dbsize|lastsave|time|role|info( \w+)?|client (list|info)|memory (usage \S+|stats|doctor)"
    r"|cluster (info|nodes|slots)|slowlog (len|get( \d+)?)|latency (latest|doctor)|command count|module list"
)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def _redis(words: tuple[Word, ...]) -> Answer:
    texts = _texts(words)
    if texts is None:
        return _RUN_TIME, ()
    while len(texts) > 1 and texts[0] in ("-p", "-n", "-s", "-h", "--raw", "--no-raw"):
        if texts[0] == "-h" and texts[1] not in _LOCAL:
            return "redis-cli: it connects to another host", ()
        texts = texts[1 if texts[0].startswith("--") else 2 :]
    fine = _REDIS.fullmatch(" ".join(texts)) is not None or texts in (["--version"], ["-v"])
    return ("" if fine else "redis-cli: the command is not on the allowlist"), ()


_TMUX = frozenset(
    [
        *("ls", "list-sessions", "lsw", "list-windows", "lsp", "list-panes", "lsc", "list-clients", "list-keys", "lsk"),
        *(
            "list-commands",
            "lscm",
            "has-session",
            "has",
            "show-options",
            "show",
            "show-window-options",
            "showw",
            "info",
        ),
    ]
)


def _tmux(words: tuple[Word, ...]) -> Answer:
    """Check ``tmux``: a format may contain ``#(command)``, and ``;`` at the end of a word starts another command."""
    texts = _texts(words)
    if texts is None:
        return "tmux: a word is only known at run time or may run a program", ()
    while len(texts) > 1 and texts[0] in ("-L", "-S"):
        texts = texts[2:]
    if texts in (["-V"], ["--version"]):
        return "", ()
    options = parse_options([Word.of(text) for text in texts[1:]], grammar("-agswv -t="))
    fine = bool(texts) and texts[0] in _TMUX and not options.reason
    return ("" if fine else "tmux: it may change sessions or run a program"), ()


_CTL = ("configtest", "-t", "-S", "-M", "-v", "-V", "-l", "-L", "-t -D DUMP_VHOSTS", "-t -D DUMP_MODULES")

MORE_SPECIAL: Mapping[str, Callable[[tuple[Word, ...]], Answer]] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "yq": _yq,
    **dict.fromkeys(("less", "more", "zless", "zmore"), _pager),
    **dict.fromkeys(("man", "apropos", "whatis"), _manual),
    **dict.fromkeys(("apachectl", "apache2ctl", "httpd", "apache2"), _unless(*_CTL)),
    "printenv": _printenv,
    "parted": _parted,
    "bridge": _objects("link", "fdb", "vlan", "mdb"),
    "tc": _objects("qdisc", "class", "filter"),
    "nmcli": _nmcli,
    "nft": _nft,
    "redis-cli": _redis,
    "tmux": _tmux,
    "screen": _unless("-ls", "-list", "-v", "--version", "-ls NAME"),
    "service": _unless("NAME status", "--status-all", "--version"),
    "crontab": _unless("-l", "-l -u NAME", "-u NAME -l"),
    "mailq": _unless("", "-v"),
    "exim": _unless("-bp", "-bpc", "-bV"),
    "sshd": _unless("-T", "-t", "-V", "-T -q"),
    "wg": _unless("", "show", "show NAME", "--version"),
    "multipath": _unless("-ll", "-l", "-ll NAME", "-l NAME", "-ll PATH"),
    "exportfs": _unless("", "-v", "-s"),
    "iscsiadm": _unless(
        *(
            f"-m {mode}{level}"
            for mode in ("session", "node", "iface")
            for level in ("", *(f" -P {n}" for n in "0123"))
        ),
        "--version",
    ),
    "ldconfig": _unless("-p", "--print-cache", "-V", "--version"),
    "auditctl": _unless("-l", "-s", "-v"),
    "ssh-add": _unless("-l", "-L"),
    "xfs_info": _unless("PATH", "-V"),
    "aa-status": _unless("", "--verbose", "--json", "--enabled"),
    "ipmitool": _unless(
        *("sdr", "sdr list", "sdr elist", "sdr list full", "sdr type NAME", "sel", "sel info", "sel list", "sel elist"),
        *("sensor", "sensor list", "chassis status", "power status", "chassis power status", "fru", "fru print"),
        *("mc info", "lan print", "lan print NUMBER", "user list", "user list NUMBER", "-V"),
    ),
    "ceph": _unless(
        *("-s", "status", "health", "health detail", "df", "df detail", "osd tree", "osd df", "osd stat", "mon stat"),
        *("pg stat", "osd pool ls", "osd pool ls detail", "versions", "-v", "--version"),
    ),
    "brctl": _unless("show", "show NAME", "showmacs NAME", "showstp NAME"),
    "snap": _unless("list", "list --all", "version", "services", "changes"),
    "flatpak": _unless("list", "list --app", "--version"),
    "drbdadm": _unless("status", "status NAME"),
    "pcs": _unless("status", "--version"),
    "crm_mon": _unless("-1", "-1r", "-1 -r", "--version"),
    "monit": _unless("summary", "status", "status NAME", "-V"),
    "apt-get": _unless(
        *(
            f"{simulated} {verb}"
            for simulated in ("-s", "--simulate", "--dry-run")
            for verb in ("upgrade", "dist-upgrade", "full-upgrade", "autoremove", "install NAME", "remove NAME")
        ),
        "--version",
        "check -s",
    ),
    "brew": _unless("list", "list --versions", "leaves", "--version"),
    "passwd": _unless("-S", "-S NAME", "-S -a", "-Sa", "--status", "--status NAME"),
    "psql": _unless("-l", "--list", "--version", "-V"),
    "tput": _unless("cols", "lines", "colors", "longname"),
    "clear": _unless(""),
    "uuidgen": _unless("", "-r", "-t"),
    "mktemp": _unless("-u"),
    "tcpdump": _unless("-D", "--list-interfaces", "--version"),
    "iw": _unless(
        "dev", "list", "phy", "dev NAME link", "dev NAME info", "dev NAME station dump", "reg get", "--version"
    ),
    "iwconfig": _unless("", "NAME", "--version"),
    "rfkill": _unless("", "list", "--version"),
    "lldpctl": _unless("", "NAME", "-v"),
    "bootctl": _unless("", "status", "list", "is-installed", "--version"),
    "systemd-resolve": _unless("--status", "--statistics", "--version"),
    "hash": _unless(""),
    "terraform": _unless("version", "--version", "-version"),
    "caddy": _unless("version"),
    "helmfile": _unless("--version", "version"),
    "lsb_release": _unless("-a", "-d", "-r", "-c", "-i", "-s -c", "-sc", "-cs", "-rs", "-is", "-ds"),
    "gcloud": _unless("version", "--version"),
    "az": _unless("version", "--version"),
    "pveversion": _unless("", "-v", "--verbose"),
    "qm": _unless("list", "status NUMBER", "listsnapshot NUMBER"),
    "pct": _unless("list", "status NUMBER", "listsnapshot NUMBER"),
    "rc-status": _unless("", "-a", "--all", "-s"),
    "initctl": _unless("list", "status NAME", "version"),
    "pg_lsclusters": _unless("", "-h"),
    "virt-what": _unless("", "--version"),
    "ntpstat": _unless(""),
    "bpftool": _unless(
        *("prog", "prog list", "prog show", "map", "map list", "map show", "net", "net list", "link list", "version"),
    ),
    "postqueue": _unless("-p", "-j"),
    "gem": _unless("list", "list --local", "--version", "-v"),
    "lxc": _unless("list", "version", "info NAME"),
    "npm": _unless(
        "--version",
        "-v",
        *(
            f"{verb}{more}"
            for verb in ("ls", "list")
            for more in ("", " -g", " --depth=0", " -g --depth=0", " --all", " --depth=NUMBER")
        ),
    ),
}
