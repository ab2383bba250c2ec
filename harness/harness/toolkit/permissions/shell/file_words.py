"""Files that a program names in a part of a word, each in its own way: ``curl --cert FILE:PASSWORD``. Pure.

What stands in a word by itself, behind ``=``, ``@`` or ``:``, or in a list is found without knowing the program. This
takes more than there is: what is no file is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from .words import loose_values

__all__ = ["files_in_words", "near_files", "unseen_files"]

_PROSE = 16
"""Words of one text from which on it is a sentence: of the others those count that have a sign of a file's name."""
_NAMES = re.compile(r"[/~_\d-]|\.\w").search
_ENDS = re.compile(r"[\s=@:,;|<>!'\"(){}\[\]&?]+")
_CURL_VALUES = "AbcCdDeEFhHKmoPQrtTuUwXyYz"
_WGET_VALUES = "oaeiBtOTwQPUlARDIX"
_SSH_VALUES = "BbcDEeFIiJLlmOopPQRSWw"
_CERTIFICATE = re.compile(r"-[A-Za-z0-9#]*E|--(?:proxy-)?cer[a-z]*")
_UNESCAPED_COLON = re.compile(r"(?<!\\):")
_FORM = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|([^,;]*))\s*(?:;(?:"(?:\\.|[^"\\])*"|[^,"])*)?""")
"""A file of ``curl -F``, and what follows it of its type and name."""
_OUTPUT = re.compile(r"%output\{(?:>>)?([^}]*)\}")
_OPENS = r"(?i:(?:open|read|file|load|exec)\w{0,30}|path|include|require|source|system|run|[<>`])"
_QUOTED = re.compile(rf"""(?P<opens>{_OPENS}[ \t]{{0,8}}[(]?[ \t]{{0,8}})?['"`](?P<text>[^'"`\n]+)['"`]""")
_OPENING = (
    ("sed", re.compile(r"(?:^|[\s;{}/!$0-9,gpI])(?:[rRwW]|e(?:[ \t]+[^\s;}]+)*)[ \t]+([^\s;}]+)")),
    (
        "ed|ex|n?vim?|view|less",
        re.compile(
            r"(?m)(?:^|[\s+:;|!$%0-9,])(?:r|e|w|read|edit|write|tabe|sp|split|so|source|view|n)!?[ \t]+([^\s|]+)"
        ),
    ),
    ("m4", re.compile(r"\b(?:s?include|undivert)\(\s*([^)\s]+)")),
    ("[gnt]roff", re.compile(r"(?m)^[.'][ \t]*(?:so|mso|open|opena|psbb)[ \t]+(?:\S+[ \t]+)?(\S+)")),
    ("gcc.*|g\\+\\+.*|cc|c\\+\\+|clang.*|cpp.*", re.compile(r"(?m)^\s*#\s*include\s*[\"<]([^\">]+)")),
    ("tclsh.*|expect", re.compile(r"\b(?:open|source|spawn|exec)[ \t]+(?:\S+[ \t]+)?([^\s;\]]+)")),
)
"""Commands of some interpreters that open a file."""
_RSH = "-e --rsh -f --filter --include-from --exclude-from"
_SQL_FILES = re.compile(
    r"(?ix)(?: \\(?:i|ir|o|g|w|copy\s.*?\s(?:from|to)) | \.\s*(?:read|import|open|once|output|save|restore|backup|load)"
    r" | \bsource | \b(?:in|out|dump)file | \b(?:from|to) | \\\. | \b(?:readfile|writefile|load_file|load_extension"
    r" | edit | read_csv(?:_auto)? | read_text | read_blob | read_parquet | pg_read_(?:binary_)?file | pg_ls_dir"
    r" | lo_import | lo_export)\s*\( ) \s* [\"']? ([^\s\"';,)]+)"
)


def files_in_words(name: str, words: Sequence[str]) -> Iterable[str]:
    """What may be files in the words behind a program.

    Args:
        name: the program, without its directory.
    """
    read = _READERS.get(name)
    return dict.fromkeys(found for found in (read(words) if read is not None else ()) if found)


def near_files(name: str, code: str) -> Iterable[str]:
    """What may be near files in a program for an interpreter: its texts in quotes, and commands that open files.

    Args:
        name: the interpreter, without its directory.
    """
    texts = _opened(code)
    quoted = (word for text in texts for number, word in enumerate(text.split()) if number < _PROSE or _NAMES(word))
    opened = next((pattern for names, pattern in _OPENING if re.fullmatch(names, name)), None)
    found = (match[1].strip("'\"`") for match in opened.finditer(code)) if opened is not None else ()
    return dict.fromkeys((*found, *quoted))


def _opened(code: str) -> Iterable[str]:
    """The texts in quotes that look like files, or stand where one is opened: ``open F, "<", "x"``."""
    before = ""
    for match in _QUOTED.finditer(code):
        if match["opens"] or before in ("<", "+<", ">", ">>", "r", "rb") or re.search(r"[./\s]", match["text"]):
            yield match["text"]
        before = match["text"]


def unseen_files(name: str, words: Sequence[str]) -> str:
    """Why nobody sees in the words of a program which files it opens; empty when that is not so."""
    if name != "curl":
        return ""
    if any(word.startswith("--expand-") for word in words):
        return "which files curl opens is only known when it expands its variables"
    if {"-", "/dev/stdin", "/dev/fd/0"} & {*loose_values(words, "-K --config")}:
        return "which files curl opens is told by what it reads"
    if any(re.search(r"#\d", value) for value in loose_values(words, "-o --output")):
        return "which files curl writes depends on the parts of an address"
    return ""


def _tokens(words: Iterable[str]) -> Iterable[str]:
    """All parts of some words."""
    for word in words:
        yield from (part for part in _ENDS.split(word) if part and not part.isdigit())


def _behind_letters(words: Iterable[str], values: str) -> Iterable[str]:
    """The value in the same word as the letters of several options: ``-sKFILE``."""
    for word in words:
        match = re.match(rf"-[A-Za-z0-9#]*?[{values}]", word)
        if match is not None and not word.startswith("--"):
            yield word[match.end() :].lstrip("@=")


def _curl(words: Sequence[str]) -> Iterable[str]:
    yield from _behind_letters(words, _CURL_VALUES)
    for option, value in pairwise(words):
        if _CERTIFICATE.fullmatch(option):
            yield _certificate(value)
    for word in words:
        match = re.match(r"-(?!-)[A-Za-z0-9#]*?E|--(?:proxy-)?cer[a-z]*=", word)
        if match is not None:
            yield _certificate(word[match.end() :])
        yield from _OUTPUT.findall(word)
    for value in loose_values(words, "-F --form --for --form-"):
        yield from _form_files(value.partition("=")[2])


def _certificate(value: str) -> str:
    """``FILE:PASSWORD``, in which a colon of FILE stands behind a backslash."""
    return re.sub(r"\\(.)", r"\1", _UNESCAPED_COLON.split(value)[0])


def _form_files(content: str) -> Iterable[str]:
    """``@FILE,"FILE";type=x`` and ``<FILE``."""
    content = content.lstrip()
    if not content.startswith(("@", "<")):
        return
    rest, more = content[1:], True
    while more and (match := _FORM.match(rest)) is not None:
        yield re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2].strip()
        rest = rest[match.end() :].lstrip()
        more, rest = rest.startswith(","), rest[1:]


def _wget(words: Sequence[str]) -> Iterable[str]:
    yield from _behind_letters(words, _WGET_VALUES)
    for value in loose_values(words, "-e --execute --exec"):
        yield value.partition("=")[2].strip()


def _ssh(words: Sequence[str]) -> Iterable[str]:
    yield from _behind_letters(words, _SSH_VALUES)
    yield from _tokens(loose_values(words, "-o"))


def _rsync(words: Sequence[str]) -> Iterable[str]:
    yield from _tokens(loose_values(words, _RSH))


def _sql(words: Sequence[str]) -> Iterable[str]:
    """Commands and functions that name files, and ``host=x sslkey=FILE``."""
    for word in words:
        yield from (match[1] for match in _SQL_FILES.finditer(word))
        yield from re.findall(r"\b(?:ssl\w+|passfile|service\w*|\w*file)\s*=\s*'?([^\s&'\"]+)", word)


def _git(words: Sequence[str]) -> Iterable[str]:
    """Settings for one command, of which some are commands."""
    yield from _tokens(value.partition("=")[2] for value in loose_values(words, "-c --config"))


_READERS: Mapping[str, Callable[[Sequence[str]], Iterable[str]]] = {
    "curl": _curl,
    "git": _git,
    "rsync": _rsync,
    **dict.fromkeys(("wget", "wget2"), _wget),
    **dict.fromkeys(("ssh", "scp", "sftp", "autossh", "ssh-copy-id", "sshfs", "mosh"), _ssh),
    **dict.fromkeys(("psql", "mysql", "mariadb", "sqlite3", "duckdb", "sqlite", "clickhouse-client", "pg_dump"), _sql),
    **dict.fromkeys(
        (
            *("openssl", "socat", "http", "https", "xh", "xhs", "ffmpeg", "ffprobe", "ffplay", "convert", "magick"),
            *("identify", "montage", "mogrify", "composite", "ansible", "qemu-img", "smbclient", "lftp", "ftp", "aws"),
            *("grpcurl", "websocat", "gst-launch-1.0", "mpv", "vlc", "sox", "gnutls-cli", "stunnel", "swaks"),
        ),
        _tokens,
    ),
}
