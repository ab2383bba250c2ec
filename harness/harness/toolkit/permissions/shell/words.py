"""Words of a command line: types, quoting, variables and option grammars. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = [
    "CommandClassification",
    "Grammar",
    "Input",
    "Options",
    "ParsedCommand",
    "Redirect",
    "ShellParse",
    "SimpleCommand",
    "Word",
    "grammar",
    "harmless_assignment",
    "hides_substitution",
    "lists_plain_words",
    "loose_values",
    "parse_options",
    "prints_plain_words",
    "word_of",
]


# -- The parts of a parsed command text, before the programs are looked up.


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    ``text``: its value if ``known``, otherwise the known parts and the source text of the rest. ``lead``: its known
    beginning. ``spread``: it may expand to several words or none, which may begin with anything. ``pattern``: it is
    known apart from the file names that match it.
    """

    raw: str
    text: str
    known: bool = True
    lead: str = ""
    spread: bool = False
    pattern: bool = False
    plain: bool = False
    """It expands to numbers, ids or names, none of them an option or a pattern; it may expand to nothing."""

    @classmethod
    def of(cls, text: str) -> Word:
        """Return a word with exactly this text."""
        return cls(text, text, lead=text)

    @classmethod
    def unknown(cls, raw: str, *, spread: bool = True) -> Word:
        """Return a word whose value is unknown."""
        return cls(raw, raw, known=False, spread=spread)

    @property
    def operand(self) -> bool:
        """Whether it is certainly not an option, whatever it expands to."""
        first = self.text if self.known else self.lead
        certain = self.known or not self.spread or self.plain
        return certain and bool(first) and (first[0] != "-" or (self.known and first == "-"))


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection to or from a file; ``word`` is None for a redirection between descriptors."""

    operator: str
    word: Word | None = None

    @property
    def writes(self) -> bool:
        """Whether it opens its file for writing."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class Input:
    """The standard input of a command: the terminal, a pipe, a file, or a text in the command."""

    kind: Literal["terminal", "pipe", "file", "text"] = "terminal"
    text: str | None = None
    """For ``text``: its content; None if only known at run time."""
    source: tuple[Word, ...] = ()
    """For ``pipe``: the words of the simple command before it; empty for other commands."""


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A simple command of the text, or something else that runs or changes the shell (``special``)."""

    text: str
    words: tuple[Word, ...] = ()
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    input: Input = Input()
    special: str = ""
    """Why it is not read-only, regardless of its words."""
    values: tuple[Word, ...] = ()
    """The values of a loop variable."""
    loops: tuple[tuple[str, tuple[Word, ...]], ...] = ()
    """The variables of the enclosing loops, each with its values."""


@dataclass(slots=True)
class ShellParse:
    """A parsed text: the commands found, why it is not understood, and why shells may differ on it."""

    found: list[ParsedCommand] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    shapes: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """The offset and raw words of each simple command, to compare with the strict parser."""
    targets: list[tuple[int, str]] = field(default_factory=list)
    """The offsets and words of redirection targets, for the same comparison."""


# -- What classification says about the commands of a text.


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program that would run; a wrapper (``sudo``, ``timeout``) and the command it runs are separate entries.

    ``argv``: its words without quotes; words only known at run time are as written. Empty for what is not a program
    (``x=1``, ``>file``, a function). ``reason``: why it is not read-only. ``paths``: the files it names, as written
    (with ``~``, patterns and relative paths) and as an earlier ``cd`` would change them. ``writes``: the files that its
    own ``>`` opens, as written. ``privileged``: it runs as another user, elsewhere or later; then it is never
    read-only.
    """

    argv: tuple[str, ...]
    text: str
    read_only: bool
    reason: str
    paths: tuple[str, ...] = ()
    privileged: bool = False
    writes: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    """The words of ``argv``, each with what is known about it."""
    targets: tuple[Word, ...] = ()
    """The files that its own redirections open."""
    named: tuple[str, ...] = ()
    """The ``paths`` whose content it neither shows nor changes."""
    code: str = ""
    """The program it reads as an interpreter, a script it writes, and the variables set for it."""


@dataclass(frozen=True, slots=True)
class CommandClassification:
    """The classification of a whole command.

    ``parsed``: False if it is unknown what would run; ``commands`` may then be incomplete. ``doubt``: why another shell
    or a reader may understand it differently from bash; empty if neither would. ``read_only``: every part only reads,
    in every shell. ``reason``: why it is not read-only; empty if it is. ``values``: the values of variables that the
    text sets.
    """

    parsed: bool
    read_only: bool
    commands: tuple[SimpleCommand, ...]
    reason: str
    doubt: str = ""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


# -- Substitutions whose kind of output is known: numbers, ids, dates and host names, never an option.


_PRINTS = re.compile(
    r"\$\((?:"
    r"pgrep(?: -[fnox]+| -[uUgGP] [\w,-]+)* [\w./-]+|pidof(?: -[sx]+)* [\w./-]+|seq(?: -w)?(?: [0-9]+){1,3}"
    r"|(?:docker|podman) (?:ps|images|volume ls|network ls)"
    r"(?: (?:-[al]*q[al]*|--quiet|-[al]+|--all|(?:--filter|-f) [\w.=-]+))+"
    r"|date(?: -u)? [\"']?\+(?:%[YmdHMSsFTjuy]|[0-9A-Za-z_:.])(?:%[YmdHMSsFTjuy]|[\w:.-])*[\"']?"
    r"|hostname(?: -[sfI])?|uname -[rmns]|id -[ugn]+|whoami|nproc|arch"
    r")\)"
)


def prints_plain_words(raw: str) -> bool:
    """Return whether a substitution expands to words that are not options or patterns, or to nothing. Pure."""
    if not _PRINTS.fullmatch(raw):
        return False
    lists = re.match(r"\$\((?:docker|podman) ", raw)
    return not lists or re.search(r" (?:-[al]*q|--quiet)", raw) is not None


def lists_plain_words(words: Sequence[Word]) -> bool:
    """Return whether a simple command prints only such words, see :func:`prints_plain_words`. Pure."""
    said = " ".join(word.text for word in words)
    return bool(words) and all(word.known for word in words) and prints_plain_words(f"$({said})")


# -- Variables that may be set for a reading command: those that select a language, a time zone, a width or no pager.


_LOCALE = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE")
_VALUES = {
    "TZ": re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"),
    "COLUMNS": re.compile(r"[0-9]{1,4}"),
    "LINES": re.compile(r"[0-9]{1,4}"),
    "PAGER": re.compile(r"cat|"),
    "GIT_PAGER": re.compile(r"cat|"),
    "SYSTEMD_PAGER": re.compile(r"cat|"),
    "SYSTEMD_COLORS": re.compile(r"[a-z0-9]*"),
    "NO_COLOR": re.compile(r"[a-z0-9]*"),
    "TERM": re.compile(r"dumb"),
    "GIT_OPTIONAL_LOCKS": re.compile(r"0"),
}


def harmless_assignment(name: str, value: Word) -> str:
    """Return why setting the variable may change what a command does; empty if it does not."""
    pattern = re.compile(r"[A-Za-z0-9_.@-]*") if _LOCALE.fullmatch(name) else _VALUES.get(name)
    if pattern is None:
        return f"{name} is set, and a program may use it"
    if not value.known or not pattern.fullmatch(value.text):
        return f"{name} is set to a value that is not on the allowlist"
    return ""


# -- Values of words: quotes and escapes removed, parts only known at run time marked.


_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\(\n|["\\$`])')
_GLOB = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_BRACES = re.compile(r"(?<!\\)(?:\\\\)*(?:\{(?!\})|(?<!\{)\})")
_RANGE = re.compile(r"\{[0-9]{1,4}\.\.[0-9]{1,4}\}")
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$\(|[<>]\()")
_BARE = frozenset({"word", "number", "variable_name", "extglob_pattern", "test_operator"})
_LITERAL = frozenset({"raw_string", "ansi_c_string", "command_substitution", "process_substitution"})
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}


def word_of(node: Node, source: bytes) -> Word:
    """Return the word of a syntax node. Pure."""
    raw = _text(node, source)
    if raw == "{}":
        return Word.of(raw)
    if node.type != "concatenation":
        return _join(raw, [_part(node, source)])
    if _gaps(node):
        return Word.unknown(raw)
    parts: list[Word] = []
    for is_bare, group in groupby(node.children, key=lambda child: child.type in _BARE):
        children = list(group)
        if is_bare:  # the grammar splits at braces
            parts.append(_bare("".join(_text(child, source) for child in children)))
        else:
            parts += [_part(child, source) for child in children]
    return _join(raw, parts)


def hides_substitution(node: Node, source: bytes) -> bool:
    """Return whether a leaf of the word contains a substitution that the grammar parsed as text. Pure."""
    if node.type in _LITERAL:
        return False
    if node.named_child_count:
        return any(hides_substitution(child, source) for child in node.named_children)
    return node.is_named and _SUBSTITUTION.search(_text(node, source)) is not None


def _gaps(node: Node) -> bool:
    """Return whether there is text between the parts that the grammar did not parse."""
    ends = [child.end_byte for child in node.children[:-1]]
    return any(end != child.start_byte for end, child in zip(ends, node.children[1:], strict=True))


def _join(raw: str, parts: list[Word]) -> Word:
    lead, pieces = "", [part for part in parts if part.text or not part.known]
    if len(pieces) == 1 and pieces[0].plain:
        return replace(pieces[0], raw=raw)
    for part in parts:
        lead += "" if part.plain else part.lead  # it may be empty
        if not part.known:
            break
    return Word(
        raw=raw,
        text="".join(part.text for part in parts),
        known=all(part.known for part in parts),
        lead=lead,
        spread=any(part.spread for part in parts),
        pattern=all(part.known or part.pattern for part in parts) and not all(part.known for part in parts),
    )


def _part(node: Node, source: bytes) -> Word:
    raw = _text(node, source)
    if node.type in _BARE:
        return _bare(raw)
    if node.type == "raw_string":
        return _exactly(raw, raw[1:-1])
    if node.type == "ansi_c_string":
        return _ansi(raw)
    if node.type in ("string", "translated_string"):
        return _string(node, source)
    if prints_plain_words(raw):
        return Word(raw, raw, known=False, lead="0", spread=True, plain=True)
    return Word.unknown(raw)


def _bare(raw: str) -> Word:
    text = _ESCAPE.sub(lambda match: "" if match[1] == "\n" else match[1], raw)
    if _RANGE.fullmatch(raw):  # some shells do not expand it
        return Word(raw, raw, known=False, lead="0", spread=True, plain=True)
    if _BRACES.search(raw):
        return Word(raw, text, known=False, spread=True)
    match = _GLOB.search(raw)
    if match is None:
        return _exactly(raw, text)
    lead = _ESCAPE.sub(lambda found: found[1], raw[: match.end() - 1])
    return Word(raw, text, known=False, lead=lead, spread=False, pattern=True)


def _exactly(raw: str, text: str) -> Word:
    return Word(raw, text, lead=text)


def _ansi(raw: str) -> Word:
    """Return the value of ``$'..'`` as bash and zsh read it."""

    def value(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else ""
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return chr(ord(code[1]) & 0x1F)
        return _ANSI_NAMED.get(code, code)

    return _exactly(raw, _ANSI.sub(value, raw[2:-1]))


def _string(node: Node, source: bytes) -> Word:
    """Return the word of a double-quoted string: expansions in it are unknown parts of one word."""
    parts: list[Word] = []
    opening = node.children[0] if node.children else node
    at = opening.end_byte
    for child in node.children[1:]:
        if child.is_named and child.type != "string_content":
            parts += [_literal(source[at : child.start_byte]), _inside(_text(child, source))]
            at = child.end_byte
    parts.append(_literal(source[at : node.end_byte - 1]))
    return _join(_text(node, source), parts)


def _inside(raw: str) -> Word:
    """Return the word of an expansion in double quotes; only ``"$@"`` and arrays become several words."""
    if prints_plain_words(raw):
        return Word(raw, raw, known=False, lead="0", plain=True)
    return Word.unknown(raw, spread="@" in raw or "[" in raw)


def _literal(data: bytes) -> Word:
    text = data.decode("utf-8", "replace")
    return _exactly(text, _QUOTED_ESCAPE.sub(lambda match: "" if match[1] == "\n" else match[1], text))


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


# -- Option grammars: which options a program has, which of them take a value, and where its operands start.
#
# A grammar is a list of words: ``-lah`` are flags, ``-nu=`` take a value, ``-f:`` takes the path of a file that is
# read, ``-i?`` may have an attached value, ``-#`` is a number (``head -5``); ``--all``, ``--lines=``, ``--file:``,
# ``--color?`` are the same for long options. With ``one_dash`` a whole word after one dash is one name (``find
# -name``). ``own`` is for programs that parse several letters after one dash in their own way: they are flags, or
# one letter and a number.


_KINDS = "=:?"
_LIKE_OPTION = re.compile(r"--?[A-Za-z]")
"""Words that a program may not accept as the value of the option before them."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options of one program, each with its kind: none, ``=``, ``:`` or ``?``."""

    known: dict[str, str]
    numbers: bool = False
    one_dash: bool = False
    own: bool = False


@dataclass(slots=True)
class Options:
    """The options and operands of a command; ``reason`` is set if they cannot be determined."""

    given: list[tuple[str, Word | None]] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    paths: list[Word] = field(default_factory=list)
    reason: str = ""

    def has(self, *names: str) -> bool:
        """Return whether one of these options is given."""
        return any(name in names for name, _ in self.given)

    def value(self, *names: str) -> Word | None:
        """Return the last value of one of these options, or None."""
        return next((word for name, word in reversed(self.given) if name in names), None)


@lru_cache(maxsize=512)
def grammar(spec: str, *, one_dash: bool = False, own: bool = False) -> Grammar:
    """Parse an option grammar in the notation described above."""
    known: dict[str, str] = {}
    for token in spec.split():
        kind = token[-1] if token[-1] in _KINDS else ""
        name = token.removesuffix(kind) if kind else token
        if name.startswith("--") or one_dash:
            known[name] = kind
        else:
            known.update({f"-{letter}": kind for letter in name[1:]})
    return Grammar(known, numbers=known.pop("-#", None) is not None, one_dash=one_dash, own=own)


def parse_options(
    words: Sequence[Word], options: Grammar, *, permute: bool = True, loose: bool = False, patterns: bool = False
) -> Options:
    """Separate options from operands.

    Args:
        words: the words after the program.
        options: the option grammar of the program.
        patterns: wildcards count as operands; that no matching name begins with ``-`` is checked elsewhere.
        permute: options may follow operands, as in GNU programs; otherwise the first operand ends them.
        loose: no option of the program is harmful: words only known at run time count as operands, and the value of
            an option may look like one.

    Returns:
        The options and operands.
    """
    taken = Options()
    rest = list(words)
    while rest and not taken.reason:
        word = rest.pop(0)
        if word.known and word.text == "--":
            taken.operands += rest
            break
        if not word.known and not word.operand:
            if not loose and not (patterns and word.pattern and not word.lead):
                taken.reason = f"a word is only known at run time: {word.raw}"
            taken.operands.append(word)
        elif word.operand or word.text in ("", "-"):
            taken.operands.append(word)
            if not permute:
                taken.operands += rest
                break
        else:
            _option(word, rest, options, taken, loose)
    return taken


def _option(word: Word, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    text = word.text
    if options.numbers and text[1:].isdigit() and text.isascii():
        taken.given.append(("-#", Word.of(text[1:])))
    elif text.startswith("--") or options.one_dash:
        name, equals, value = text.partition("=")
        _take(name, Word.of(value) if equals else None, rest, options, taken, loose)
    else:
        _cluster(text[1:], rest, options, taken, loose)


def _cluster(letters: str, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    given = ""
    while letters and not taken.reason:
        name, letters = f"-{letters[0]}", letters[1:]
        kind = options.known.get(name)
        if options.own and kind and ((letters and not letters.isdigit()) or given):
            taken.reason = f"{name} is combined with other letters, which this program parses in its own way"
            return
        if kind in ("=", ":", "?") and letters:
            _take(name, Word.of(letters), rest, options, taken, loose)
            return
        _take(name, None, rest, options, taken, loose)
        given += name


def _take(name: str, value: Word | None, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    kind = options.known.get(name)
    if kind is None or (kind == "" and value is not None):
        taken.reason = f"option {name} is not on the allowlist"
        return
    if kind in ("=", ":") and value is None:
        is_last = len(rest) == 1 and rest[0].plain  # if it expands to nothing, the value is only missing
        if (
            not rest
            or (rest[0].spread and not is_last)
            or (rest[0].known and not loose and _LIKE_OPTION.match(rest[0].text))
        ):
            taken.reason = f"the value of option {name} is missing, an option, or only known at run time"
            return
        value = rest.pop(0)
    taken.given.append((name, value))
    if kind == ":" and value is not None:
        taken.paths.append(value)
        if value.text.startswith("="):  # some programs drop the = of -f=FILE
            taken.paths.append(replace(value, text=value.text[1:]))


def loose_values(words: Sequence[str], names: str) -> list[str]:
    """Return the values of the options in ``names`` (``-v --volume``); for a flag, the next word. Pure.

    It may return too many: letters after one dash may also be a value.
    """
    wanted = names.split()
    found: list[str] = []
    for word, after in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            found += [value if equals else after] if name in wanted else []
        elif match := re.match(r"-[A-Za-z0-9]*", word):
            found += [word[at + 1 :].removeprefix("=") or after for at in _letters(match[0], wanted)]
    return found


def _letters(cluster: str, wanted: Sequence[str]) -> list[int]:
    return [at for at in range(1, len(cluster)) if f"-{cluster[at]}" in wanted]
