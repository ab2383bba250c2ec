"""An expression as other programs read it: ``rg``, and ``grep -E`` in the C locale. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .regexes import ALL, NEWLINE, Alternatives, Assertion, Bytes, Expression, Node, Repeat, Sequence

__all__ = ["extended", "rust"]

POSIX_SPECIAL = frozenset(b".[(){}*+?^$|\\")
_Writer = Callable[[frozenset[int]], str]


def rust(expression: Expression) -> str:
    """For ``rg``: of bytes, not of characters."""
    flags = "(?i-u)" if expression.folds else "(?-u)"
    return flags + _write(expression.node, _rust_bytes, "(?:", lazy=True)


def extended(expression: Expression) -> str:
    """For ``grep -E``, with ``-i`` if it folds; bytes that are no UTF-8 are surrogates."""
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
    """Characters are the bytes of the same number. Sets are written with the fewer members."""
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
    """``]`` first, ``[`` and ``-`` last: there they are letters."""
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
