"""Many rules, looked up by what they say: ten thousand cost a decision as much as ten. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from .globs import literal_prefix
from .rules import ANYTHING, Action, Match, Rule, Subjected

__all__ = ["RuleIndex"]


class _Beginnings:
    """Numbers of patterns by how the texts begin that they match."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, beginning: str, number: int) -> None:
        self._numbers.setdefault(beginning.lower(), []).append(number)
        self._lengths = tuple(sorted({*self._lengths, len(beginning)}))

    def of(self, text: str) -> Iterator[int]:
        folded = text.lower()
        for length in self._lengths:
            if length > len(folded):
                return
            yield from self._numbers.get(folded[:length], ())


class RuleIndex:
    """Rules in their order; the first that covers something is what counts.

    Rules that match by equality are found by (target, tool, argument). Of patterns those are tried whose literal
    beginning is that of the text.

    Args:
        names: other names of tools and what they stand for: a rule for one is a rule for the tool.
    """

    def __init__(self, rules: Iterable[Rule] = (), names: Mapping[str, str] | None = None) -> None:
        self.rules = tuple(rules)
        self._named = [replace(rule, tool=(names or {}).get(rule.tool, rule.tool)) for rule in self.rules]
        self.tools = frozenset(rule.tool for rule in self.rules)
        """What the rules call the tools: names and patterns."""
        self._actions = frozenset(rule.action for rule in self.rules)
        self._exact: dict[tuple[str, str, str | None], list[int]] = {}
        self._texts = _Beginnings()
        self._last_names = _Beginnings()
        for number, rule in enumerate(self._named):
            self._add(number, rule)

    def _add(self, number: int, rule: Rule) -> None:
        argument = rule.argument or ""
        if rule.is_exact:
            self._exact.setdefault((rule.target, rule.tool, rule.argument), []).append(number)
        elif rule.match is Match.GLOB:
            self._texts.add(literal_prefix(argument).rstrip("/"), number)
            if "/" not in argument:
                self._last_names.add(literal_prefix(argument), number)
        else:
            self._texts.add(argument.rstrip("/"), number)

    def first(self, forms: Iterable[Subjected], actions: Iterable[Action] = tuple(Action)) -> Rule | None:
        """The first rule of such an action that covers one of these texts."""
        wanted = self._actions.intersection(actions)
        if not wanted:
            return None
        best: int | None = None
        for what in forms:
            for number in self._candidates(what):
                rule = self._named[number]
                if (best is None or number < best) and rule.action in wanted and rule.covers(what):
                    best = number
        return None if best is None else self.rules[best]

    def _candidates(self, what: Subjected) -> Iterator[int]:
        targets, tools, arguments = {what.identity, what.url, ANYTHING}, (what.tool, ANYTHING), (what.text, None)
        for key in product(targets, tools, arguments):
            yield from self._exact.get(key, ())
        yield from self._texts.of(what.text)
        if what.kind == "path":
            yield from self._last_names.of(what.text.rpartition("/")[2])
