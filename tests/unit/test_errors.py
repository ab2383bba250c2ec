"""The error tree: what each one is, what it says, and that the drawing in its module is true."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from harness import errors
from harness.errors import FileNotFound, HarnessError

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_every_error_joins_what_where_and_what_to_do_into_one_line() -> None:
    for kind in CLASSES:
        error = kind("it broke", target="ssh://web1", hint="try again")
        assert (error.message, error.target, error.hint) == ("it broke", "ssh://web1", "try again")
        assert str(error) == "ssh://web1: it broke (try again)"
        assert str(kind("it broke")) == "it broke"
        assert issubclass(kind, HarnessError)
        assert inspect.getdoc(kind)


def test_every_error_can_be_copied() -> None:
    for kind in CLASSES:
        error = kind("it broke", target="ssh://web1", hint="try again")
        for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(twin) == str(error)
            assert type(twin) is kind


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.FileNotFound, FileNotFoundError),
        (errors.FileExists, FileExistsError),
        (errors.PermissionDenied, PermissionError),
        (errors.IsADirectory, IsADirectoryError),
        (errors.NotADirectory, NotADirectoryError),
        (errors.NoSpace, OSError),
    ],
)
def test_errors_about_files_are_the_builtin_ones_too(kind: type[HarnessError], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)
    assert issubclass(kind, errors.FileError)
    with pytest.raises(builtin):
        raise kind("gone")


def test_the_drawing_names_every_error_below_its_parent() -> None:
    drawing = errors.__doc__ or ""
    drawn = set(re.findall(r"\b[A-Z][A-Za-z]+\b", drawing.split("::")[1].split("Each carries")[0]))
    assert set(errors.__all__) <= drawn


def test_one_handler_catches_everything_and_says_where() -> None:
    with pytest.raises(HarnessError, match="local:"):
        raise FileNotFound("/x: no such file", target="local:")
