"""Runbooks: texts of the operator that clients offer to their users as prompts.

A runbook is a Markdown file ``NAME.md`` in ``runbooks/`` next to the user's settings, or in ``.harness/runbooks/`` of
the current directory if that is trusted. Its front matter has a ``description``, and perhaps ``arguments``: a mapping
of names to descriptions. ``{{name}}`` in the text is replaced by the value of that argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import HarnessError
from ...toolkit.operator_files import operator_directories, read_operator_file, split_front_matter

__all__ = ["Runbook", "RunbookError", "find_runbooks", "parse_runbook"]

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
PLACEHOLDER = re.compile(r"\{\{\s*([a-z0-9][a-z0-9_-]{0,63})\s*\}\}")
MAX_FILE_BYTES = 40 << 10
MAX_RUNBOOKS = 200
MAX_ARGUMENT_CHARS = 4_000


class RunbookError(HarnessError):
    """A runbook cannot be used as requested."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """A runbook; ``arguments`` are the descriptions of its arguments, all of which it needs."""

    name: str
    description: str
    text: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the text with the values of its arguments. Pure.

        Raises:
            RunbookError: An argument is missing, unknown or too long.
        """
        if missing := [name for name in self.arguments if not values.get(name)]:
            raise RunbookError(f"the runbook {self.name} needs {', '.join(missing)}")
        if unknown := [name for name in values if name not in self.arguments]:
            raise RunbookError(f"the runbook {self.name} has no argument {unknown[0]}")
        if long := [name for name, value in values.items() if len(value) > MAX_ARGUMENT_CHARS]:
            raise RunbookError(f"{long[0]} is longer than {MAX_ARGUMENT_CHARS} characters")
        return PLACEHOLDER.sub(lambda found: values[found[1]], self.text)


def parse_runbook(name: str, data: bytes) -> Runbook:
    """Return the runbook of a file. Pure.

    Raises:
        HarnessError: The front matter or an argument is wrong.
    """
    front = split_front_matter(data, f"{name}.md")
    given = front.values.get("arguments") or {}
    if not isinstance(given, dict) or not all(
        isinstance(key, str) and NAME.fullmatch(key) and isinstance(text, str) for key, text in given.items()
    ):
        raise RunbookError("its arguments must be a mapping of names (a-z, 0-9, _ and -) to descriptions")
    if undeclared := [found for found in PLACEHOLDER.findall(front.body) if found not in given]:
        raise RunbookError(f"{{{{{undeclared[0]}}}}} is not among its arguments")
    return Runbook(name, front.description(), front.body, {key: " ".join(text.split()) for key, text in given.items()})


def find_runbooks() -> tuple[dict[str, Runbook], list[str]]:
    """Return the runbooks by name, those of a trusted project over the user's, and why others cannot be used.

    Raises:
        ConfigError: The settings cannot be read.
    """
    found: dict[str, Runbook] = {}
    problems = []
    for path in _files():
        try:
            if len(found) >= MAX_RUNBOOKS:
                raise RunbookError(f"there are more than {MAX_RUNBOOKS} runbooks")
            if not NAME.fullmatch(path.stem):
                raise RunbookError("its name may have a-z, 0-9, _ and - only, up to 64 characters")
            found[path.stem] = parse_runbook(path.stem, read_operator_file(path, MAX_FILE_BYTES))
        except HarnessError as error:
            problems.append(f"the runbook {path} is left out: {error.message}")
    return found, problems


def _files() -> Iterator[Path]:
    for place in operator_directories("runbooks"):
        if place.trusted and place.directory.is_dir():
            yield from sorted(path for path in place.directory.glob("*.md") if path.name != "README.md")
