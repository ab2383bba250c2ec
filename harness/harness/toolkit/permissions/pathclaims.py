"""The claim of a subject that is a file."""

from __future__ import annotations

from ...context import ExecutionContext
from ..values import Subject
from .claims import Claim, Piece
from .harddenials import HardDenials
from .lookalikes import odd_characters
from .rules import Allows, Subjected
from .targetpaths import PathFinder, RealPath

__all__ = ["path_claim", "path_forms"]


async def path_claim(
    subject: Subject, tool: str, base: str, execution: ExecutionContext, denials: HardDenials, *, read_only: bool
) -> Claim:
    """What a read or a write of a path is, judged by what the path is on the target now.

    Raises:
        HarnessError: the link was lost.
    """
    if "\0" in subject.text or not subject.text:
        return _no_path(subject, tool, execution)
    path = await PathFinder(execution).find(subject.text, base)
    writes = subject.kind == "write"
    forbidden = await denials.of_path(path, execution, writes=writes)
    odd = odd_characters(subject.text)
    certain = read_only and not writes and path.is_known and not odd
    forms = path_forms(path, tool, execution)
    return Claim(
        kind=subject.kind,
        shown=_shown(subject, path, odd),
        whole=forms[0],
        pieces=(Piece(path.real, forms, certain),),
        forbidden=forbidden,
        must_ask=odd,
    )


def path_forms(path: RealPath, tool: str, execution: ExecutionContext, allows: Allows = "any") -> tuple[Subjected, ...]:
    """The names by which rules may know a path, its real one first: only that, and the same with ``~``, may allow."""
    identity, home = execution.identity, execution.capabilities.home.rstrip("/")
    names: dict[str, Allows] = {path.real: allows if path.is_known else _at_most_exact(allows)}
    if home and path.real.startswith(f"{home}/"):
        names["~" + path.real[len(home) :]] = names[path.real]
    for form in path.forms:
        names.setdefault(form, "none")
    return tuple(Subjected(identity, tool, name, "path", allows=way) for name, way in names.items())


def _at_most_exact(allows: Allows) -> Allows:
    return "exact" if allows != "none" else "none"


def _shown(subject: Subject, path: RealPath, odd: str) -> str:
    real = "" if path.real == subject.text else f" (that is {path.real})"
    note = f"; {odd}" if odd else ""
    return f"{subject.kind} {subject.text}{real}{note}"


def _no_path(subject: Subject, tool: str, execution: ExecutionContext) -> Claim:
    whole = Subjected(execution.identity, tool, subject.text, "path", allows="none")
    return Claim(subject.kind, subject.kind, whole, (), forbidden="it is no path")
