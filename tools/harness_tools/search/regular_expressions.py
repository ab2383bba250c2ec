"""Regular expressions that every search program reads alike: parsed once, and written for each. Pure.

Supported are literals, ``.``, ``[...]`` with ranges and ``[:alpha:]``, ``\\d \\w \\s \\D \\W \\S \\t \\xHH``,
``^ $ \\b \\B``, groups, ``|``, ``* + ? {m,n}`` and their lazy forms, and a leading ``(?i)``. Look-around and
back-references, which take unbounded time, are rejected. Expressions match bytes: beyond ASCII, ``.`` and ``[^x]``
match one byte of a character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Alternatives",
    "Assertion",
    "Bytes",
    "Expression",
    "Node",
    "Repeat",
    "Sequence",
    "extended",
    "parse",
    "rust",
]


LENGTH = 2_000
"""Maximum characters of an expression."""
SIZE = 2_000
"""Maximum number of bytes that it may describe, with repetitions written out."""
DEPTH = 50
"""Maximum nesting of groups."""
COUNT = 255
"""The largest number in ``{m,n}``: what POSIX guarantees."""
NEWLINE = 10
WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
DIGIT = frozenset(b"0123456789")
SPACE = frozenset(b" \t\n\r\f\v")
ALL = frozenset(range(1, 256))
"""Without NUL, because a file with one is not searched."""
CLASSES = {
    "alpha": WORD - DIGIT - {ord("_")},
    "digit": DIGIT,
    "alnum": WORD - {ord("_")},
    "upper": frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "lower": frozenset(b"abcdefghijklmnopqrstuvwxyz"),
    "space": SPACE,
    "blank": frozenset(b" \t"),
    "punct": frozenset(byte for byte in range(33, 127)) - (WORD - {ord("_")}),
    "xdigit": frozenset(b"0123456789abcdefABCDEF"),
    "cntrl": frozenset([*range(1, 32), 127]),
    "print": frozenset(range(32, 127)),
    "graph": frozenset(range(33, 127)),
    "word": WORD,
}
SHORT = {"d": DIGIT, "w": WORD, "s": SPACE, "D": ALL - DIGIT, "W": ALL - WORD, "S": ALL - SPACE}
CONTROLS = {"t": 9, "r": 13, "f": 12, "v": 11, "e": 27, "a": 7}


@dataclass(frozen=True, slots=True)
class Bytes:
    """One byte of a set."""

    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes one after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several nodes, the first that leads to a match."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``least`` to ``most`` repetitions; None is any number."""

    item: Node
    least: int
    most: int | None
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Assertion:
    """A position: ``^`` and ``$`` of a line, ``b`` at the edge of a word, ``B`` not at one."""

    kind: Literal["^", "$", "b", "B"]


Node = Bytes | Sequence | Alternatives | Repeat | Assertion


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; ``folds``: it ignores case."""

    node: Node
    folds: bool = False
    multiline: bool = False

    @property
    def has_edges(self) -> bool:
        """Whether it contains word edges."""
        return any(isinstance(node, Assertion) and node.kind in "bB" for node in _nodes(self.node))

    @property
    def may_be_empty(self) -> bool:
        """Whether it matches the empty text somewhere."""
        return _nullable(self.node)


def parse(text: str, *, fixed: bool = False, folds: bool = False, multiline: bool = False) -> Expression:
    """Parse an expression, or a literal text if ``fixed``.

    Args:
        folds: Whether it ignores case.
        multiline: Whether it may match across line ends.

    Raises:
        ValueError: The expression is invalid or unsupported; the message says where and what to write instead.
    """
    if not text:
        raise ValueError("the pattern is empty")
    if len(text) > LENGTH:
        raise ValueError(f"the pattern is longer than {LENGTH} characters")
    if not fixed and text.startswith("(?i)"):
        text, folds = text[4:], True
    reader = _Reader(text, folds=folds, multiline=multiline)
    node = reader.literal() if fixed else reader.whole()
    if (size := size_of(node)) > SIZE:
        raise ValueError(f"the repetitions in the pattern make it too large ({size} positions, {SIZE} at most)")
    found = Expression(node, folds, multiline)
    if multiline and found.may_be_empty:
        raise ValueError("the pattern matches the empty text; with multiline it must not")
    return found


def size_of(node: Node) -> int:
    """Return the maximum number of bytes that it describes, with repetitions written out."""
    if isinstance(node, Sequence | Alternatives):
        return 1 + sum(size_of(item) for item in node.items)
    if isinstance(node, Repeat):
        times = node.most if node.most is not None else node.least + 1
        return 1 + size_of(node.item) * max(times, 1)
    return 1


def _nodes(node: Node) -> Iterable[Node]:
    yield node
    if isinstance(node, Repeat):
        yield from _nodes(node.item)
    elif isinstance(node, Sequence | Alternatives):
        for item in node.items:
            yield from _nodes(item)


def _nullable(node: Node) -> bool:
    if isinstance(node, Repeat):
        return node.least == 0 or _nullable(node.item)
    if isinstance(node, Sequence):
        return all(_nullable(item) for item in node.items)
    if isinstance(node, Alternatives):
        return any(_nullable(item) for item in node.items)
    return isinstance(node, Assertion)


class _Reader:
    """Parser of one expression."""

    def __init__(self, text: str, *, folds: bool, multiline: bool) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.folds = folds
        self.multiline = multiline

    def literal(self) -> Node:
        return Sequence(tuple(self.character(char) for char in self.text))

    def whole(self) -> Node:
        node = self.alternatives()
        if self.at < len(self.text):
            raise self.wrong("a ) without its (; write \\) for the character")
        return node

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"at character {self.at + 1}: {what}")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise self.wrong("the pattern ends too early")
        self.at += 1
        return char

    def alternatives(self) -> Node:
        items = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            items.append(self.sequence())
        return items[0] if len(items) == 1 else Alternatives(tuple(items))

    def sequence(self) -> Node:
        items: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.repeated(self.atom()))
        if not items:
            raise self.wrong("nothing to match here; write (...)? for an optional part")
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def repeated(self, node: Node) -> Node:
        while (counts := self.counts()) is not None:
            if isinstance(node, Assertion):
                raise self.wrong("an assertion such as ^ cannot be repeated")
            lazy = self.peek() == "?"
            self.at += lazy
            if self.peek() == "+" and not lazy:
                raise self.wrong("possessive repetition is not supported; remove the +")
            node = Repeat(node, *counts, lazy)
        return node

    def counts(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.take()]
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : max(end, self.at)].partition(",")
        if end < 0 or not least.isdecimal() or (most and not most.isdecimal()):
            raise self.wrong("{ starts a count such as {2,5}; write \\{ for the character")
        low = int(least[:6])
        high = (int(most[:6]) if most else None) if comma else low
        if max(low, high or 0) > COUNT or (high is not None and high < low):
            raise self.wrong(f"a count must go from the smaller to the larger number, {COUNT} at most")
        if high == 0:
            raise self.wrong("a count of 0 matches nothing")
        self.at = end + 1
        return low, high

    def atom(self) -> Node:
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.bracket()
        if char == ".":
            return Bytes(ALL - {NEWLINE})
        if char in "^$":
            return Assertion("^" if char == "^" else "$")
        if char in "*+?{":
            self.at -= 1
            raise self.wrong(f"{char} has nothing to repeat; write \\{char} for the character")
        return self.escape() if char == "\\" else self.character(char)

    def group(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH:
            raise self.wrong(f"more than {DEPTH} nested groups")
        if self.peek() == "?":
            self.kind_of_group()
        node = self.alternatives()
        if self.peek() != ")":
            raise self.wrong("a ( without its ); write \\( for the character")
        self.at += 1
        self.depth -= 1
        return node

    def kind_of_group(self) -> None:
        rest = self.text[self.at :]
        if rest.startswith("?:"):
            self.at += 2
        elif rest.startswith(("?P<", "?<")) and not rest.startswith(("?<=", "?<!")) and ">" in rest:
            self.at += rest.index(">") + 1
        else:
            raise self.wrong("look-around and inner flags are not supported; (?:...) and a leading (?i) are")

    def character(self, char: str) -> Node:
        """Return a literal character as its bytes; beyond ASCII both cases are written out."""
        if char == "\n" and not self.multiline:
            raise self.wrong("lines are searched separately; a line end needs multiline")
        if char == "\0":
            raise self.wrong("text contains no NUL")
        if char.isascii():
            return Bytes(frozenset({ord(char)}))
        forms = {char, char.lower(), char.upper()} if self.folds else {char}
        items = [_encoded(form) for form in sorted(forms) if len(form) == 1]
        return items[0] if len(items) == 1 else Alternatives(tuple(items))

    def escape(self) -> Node:
        char = self.take()
        if char in SHORT:
            return Bytes(self.within(SHORT[char]))
        if char in "bB":
            return Assertion("b" if char == "b" else "B")
        if char == "n":
            return self.character("\n")
        if char in "<>":
            raise self.wrong(f"\\{char} is not supported; write \\b for the edge of a word, {char} for the character")
        byte = self.named_byte(char)
        return self.character(char) if byte is None else Bytes(frozenset({byte}))

    def named_byte(self, char: str) -> int | None:
        """Return the byte that an escape names; None for a literal character."""
        if char in CONTROLS:
            return CONTROLS[char]
        if char == "x":
            digits = self.text[self.at : self.at + 2]
            if len(digits) < 2 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise self.wrong("\\x requires two hexadecimal digits")
            self.at += 2
            if int(digits, 16) in (0, NEWLINE):
                raise self.wrong("text contains no NUL, and a line end is \\n, with multiline")
            return int(digits, 16)
        if char.isdecimal() and char.isascii():
            raise self.wrong("back-references are not supported")
        if char.isalpha() and char.isascii():
            raise self.wrong(f"\\{char} is not supported")
        return None

    def within(self, values: frozenset[int]) -> frozenset[int]:
        """Return the bytes of a class that the searched text can contain."""
        return values if self.multiline else values - {NEWLINE}

    def bracket(self) -> Node:
        negated = self.peek() == "^"
        self.at += negated
        values: set[int] = set()
        beyond: list[str] = []
        first = True
        while (char := self.take()) != "]" or first:
            first = False
            low = self.member(char, values, beyond)
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.span(low, values)
            elif low is not None:
                values.add(low)
        return self.chosen(frozenset(values), beyond, negated=negated)

    def member(self, char: str, values: set[int], beyond: list[str]) -> int | None:
        """Return the byte of one member; None for a class or a character beyond ASCII, which is recorded."""
        if char == "[" and self.peek() == ":":
            values |= self.posix_class()
            return None
        if char == "\\":
            escaped = self.take()
            if escaped in SHORT:
                values |= SHORT[escaped]
                return None
            if escaped == "n":
                return NEWLINE
            byte = self.named_byte(escaped)
            if byte is not None:
                return byte
            char = escaped
        if not char.isascii():
            beyond.append(char)
            return None
        return ord(char)

    def posix_class(self) -> frozenset[int]:
        end = self.text.find(":]", self.at)
        name = self.text[self.at + 1 : max(end, self.at)]
        if end < 0 or name not in CLASSES:
            raise self.wrong(f"[: starts a class; known are {', '.join(CLASSES)}")
        self.at = end + 2
        return CLASSES[name]

    def span(self, low: int | None, values: set[int]) -> None:
        self.at += 1
        none: list[str] = []
        high = self.member(self.take(), values, none)
        if low is None or high is None or none or high < low:
            raise self.wrong("a range goes from one ASCII character to a later one; write \\- for the character")
        values |= set(range(low, high + 1))

    def chosen(self, values: frozenset[int], beyond: list[str], *, negated: bool) -> Node:
        if negated and beyond:
            raise self.wrong(f"[^...] takes ASCII characters only, not {beyond[0]!r}")
        if self.folds:
            values |= frozenset(byte ^ 32 for byte in values if chr(byte).isascii() and chr(byte).isalpha())
        kept = self.within((ALL - values) if negated else values & ALL)
        items: list[Node] = [Bytes(kept)] if kept else []
        items += [self.character(char) for char in dict.fromkeys(beyond)]
        if not items:
            raise self.wrong("the brackets match nothing that a line can contain")
        return items[0] if len(items) == 1 else Alternatives(tuple(items))


def _encoded(char: str) -> Node:
    data = char.encode("utf-8", "surrogateescape")
    return Sequence(tuple(Bytes(frozenset({byte})) for byte in data)) if len(data) > 1 else Bytes(frozenset(data))


# -- Writing an expression for ``rg``, and for ``grep -E`` in the C locale. Pure.


POSIX_SPECIAL = frozenset(b".[(){}*+?^$|\\")
_Writer = Callable[[frozenset[int]], str]


def rust(expression: Expression) -> str:
    """Return the expression for ``rg``, of bytes instead of characters."""
    flags = "(?i-u)" if expression.folds else "(?-u)"
    return flags + _write(expression.node, _rust_bytes, "(?:", lazy=True)


def extended(expression: Expression) -> str:
    """Return the expression for ``grep -E``, with ``-i`` if it folds; bytes that are not UTF-8 are surrogates."""
    text = _write(expression.node, _posix_bytes, "(", lazy=False)
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def _write(node: Node, write: _Writer, opening: str, *, lazy: bool) -> str:
    if isinstance(node, Bytes):
        return write(node.values)
    if isinstance(node, Assertion):
        return node.kind if node.kind in "^$" else f"\\{node.kind}"
    if isinstance(node, Sequence):
        return "".join(_inner(item, write, opening, lazy=lazy) for item in node.items)
    if isinstance(node, Alternatives):
        return "|".join(_write(item, write, opening, lazy=lazy) for item in node.items)
    inside = _write(node.item, write, opening, lazy=lazy)
    grouped = inside if isinstance(node.item, Bytes) else f"{opening}{inside})"
    return grouped + _times(node) + ("?" if lazy and node.lazy else "")


def _inner(node: Node, write: _Writer, opening: str, *, lazy: bool) -> str:
    text = _write(node, write, opening, lazy=lazy)
    return f"{opening}{text})" if isinstance(node, Alternatives) else text


def _times(node: Repeat) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (node.least, node.most) in short:
        return short[node.least, node.most]
    most = "" if node.most is None else str(node.most)
    return f"{{{node.least}}}" if node.least == node.most else f"{{{node.least},{most}}}"


def _rust_bytes(values: frozenset[int]) -> str:
    if len(values) == 1:
        return _rust_byte(next(iter(values)))
    runs = (_rust_byte(low) if low == high else f"{_rust_byte(low)}-{_rust_byte(high)}" for low, high in _runs(values))
    return f"[{''.join(runs)}]"


def _rust_byte(byte: int) -> str:
    letter = 48 <= byte < 58 or 65 <= byte < 91 or 97 <= byte < 123
    return chr(byte) if letter else f"\\x{byte:02X}"


def _posix_bytes(values: frozenset[int]) -> str:
    """Return the bracket expression with fewer members; characters represent the bytes of their number."""
    if len(values) == 1:
        byte = next(iter(values))
        return f"\\{chr(byte)}" if byte in POSIX_SPECIAL else chr(byte)
    others = ALL - values - {NEWLINE}
    if not others:
        return "."
    return f"[^{_members(others)}]" if len(values) > len(others) else _plain_bracket(values)


def _plain_bracket(values: frozenset[int]) -> str:
    members = _members(values)
    if members.startswith("^"):  # only - and [ can follow it
        members = members[1:] + "^" if members[1] != "-" else "-" + "^"
    return f"[{members}]"


def _members(values: frozenset[int]) -> str:
    """Return the members with ``]`` first, ``[`` and ``-`` last, where they are literal."""
    signs = frozenset(b"]^[-")
    runs = ((chr(low), chr(high)) for low, high in _runs(values - signs))
    middle = "".join(low if low == high else f"{low}-{high}" for low, high in runs)
    first = "]" if ord("]") in values else ""
    return first + middle + "".join(sign for sign in "^[-" if ord(sign) in values)


def _runs(values: frozenset[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for byte in sorted(values):
        if found and found[-1][1] == byte - 1:
            found[-1] = (found[-1][0], byte)
        else:
            found.append((byte, byte))
    return found
