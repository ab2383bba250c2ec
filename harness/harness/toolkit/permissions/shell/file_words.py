"""Files that a program names in a part of a word, in its own syntax: ``curl --cert FILE:PASSWORD``. Pure.

Files that are a whole word, follow ``=``, ``@`` or ``:``, or are in a list are found for every program. The results may
include texts that are not files; such files do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from .words import loose_values

__all__ = ["files_in_words", "near_files", "unseen_files"]

_PROSE = 16
"""Words of a text that all count; in a longer text, a sentence, later words count only if they look like file names."""
_NAMES = re.compile(r"[/~_\d-]|\.\w").search
_ENDS = re.compile(r"[\s=@:,;|<>!'\"(){}\[\]&?]+")
_CURL_VALUES = "AbcCdDeEFhHKmoPQrtTuUwXyYz"
_WGET_VALUES = "oaeiBtOTwQPUlARDIX"
_SSH_VALUES = "BbcDEeFIiJLlmOopPQRSWw"
_CERTIFICATE = re.compile(r"-[A-Za-z0-9#]*E|--(?:proxy-)?cer[a-z]*")
_UNESCAPED_COLON = re.compile(r"(?<!\\):")
_FORM = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|([^,;]*))\s*(?:;(?:"(?:\\.|[^"\\])*"|[^,"])*)?""")
"""A file of ``curl -F``, and the type and name after it."""
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
    """Return the possible files in the words after a program.

    Args:
        name: the program, without its directory.
        words: the words after it.
    """
    read = _READERS.get(name)
    return dict.fromkeys(found for found in (read(words) if read is not None else ()) if found)


def near_files(name: str, code: str) -> Iterable[str]:
    """Return possible relative files in a program for an interpreter: quoted texts and operands of open commands.

    Args:
        name: the interpreter, without its directory.
        code: the program text.
    """
    texts = _opened(code)
    quoted = (word for text in texts for number, word in enumerate(text.split()) if number < _PROSE or _NAMES(word))
    opened = next((pattern for names, pattern in _OPENING if re.fullmatch(names, name)), None)
    found = (match[1].strip("'\"`") for match in opened.finditer(code)) if opened is not None else ()
    return dict.fromkeys((*found, *quoted))


def _opened(code: str) -> Iterable[str]:
    """Yield the quoted texts that look like files or are opened: ``open F, "<", "x"``."""
    before = ""
    for match in _QUOTED.finditer(code):
        if match["opens"] or before in ("<", "+<", ">", ">>", "r", "rb") or re.search(r"[./\s]", match["text"]):
            yield match["text"]
        before = match["text"]


def unseen_files(name: str, words: Sequence[str]) -> str:
    """Return why the words of a program do not show which files it opens; empty if they do."""
    if name != "curl":
        return ""
    if any(word.startswith("--expand-") for word in words):
        return "which files curl opens is only known when it expands its variables"
    if {"-", "/dev/stdin", "/dev/fd/0"} & {*loose_values(words, "-K --config")}:
        return "which files curl opens depends on its input"
    if any(re.search(r"#\d", value) for value in loose_values(words, "-o --output")):
        return "which files curl writes depends on the parts of a URL"
    return ""


def _tokens(words: Iterable[str]) -> Iterable[str]:
    """Yield all parts of some words."""
    for word in words:
        yield from (part for part in _ENDS.split(word) if part and not part.isdigit())


def _behind_letters(words: Iterable[str], values: str) -> Iterable[str]:
    """Yield values in the same word as several option letters: ``-sKFILE``."""
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
    """Return the file of ``FILE:PASSWORD``; a colon in FILE is escaped with a backslash."""
    return re.sub(r"\\(.)", r"\1", _UNESCAPED_COLON.split(value)[0])


def _form_files(content: str) -> Iterable[str]:
    """Yield the files of ``@FILE,"FILE";type=x`` and ``<FILE``."""
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
    """Yield files in SQL commands and functions, and in ``host=x sslkey=FILE``."""
    for word in words:
        yield from (match[1] for match in _SQL_FILES.finditer(word))
        yield from re.findall(r"\b(?:ssl\w+|passfile|service\w*|\w*file)\s*=\s*'?([^\s&'\"]+)", word)


def _git(words: Sequence[str]) -> Iterable[str]:
    """Yield parts of settings for one command, as some settings are commands."""
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
