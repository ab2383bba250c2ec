"""The bytes of named keys are those that tmux itself sends, in every mode of the terminal."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import TerminalError
from harness_backends.tmux.pane.key_bytes import KeyBytes, encode_keys

NAMED = [
    *("Up", "Down", "Left", "Right", "Home", "End", "NPage", "PageDown", "PgDn", "PPage", "PageUp", "PgUp"),
    *("IC", "Insert", "DC", "Delete", "BSpace", "BTab", "Enter", "Escape", "Space", "Tab", "KPEnter"),
    *(f"F{number}" for number in range(1, 13)),
    *(f"KP{char}" for char in "/*-+.0123456789"),
]
MODIFIED = [f"{modifier}{name}" for modifier in ("C-", "S-", "M-", "C-S-", "C-M-", "C-S-M-") for name in NAMED[:16]]
MODIFIED += [f"{modifier}F{number}" for modifier in ("S-", "C-", "M-S-") for number in range(1, 13)]
LETTERS = [f"C-{char}" for char in "abchijmz@[\\]^_ABC"] + [f"^{char}" for char in "acz"]
LETTERS += [
    "M-x",
    "M-X",
    "M-C-a",
    "C-M-z",
    "M-Enter",
    "M-Space",
    "M-BSpace",
    "M-Tab",
    "x",
    "ä",
    "M-é",
    "-",
    "^",
    ";",
    "~",
]
TERMINALS = {"plain": "", "cursor": "\\033[?1h", "keypad": "\\033="}


@pytest.fixture
def socket(needs_tmux: None, tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of its own."""
    tmux = ["tmux", "-L", f"hx-{secrets.token_hex(4)}", "-f", "/dev/null"]
    yield tmux
    subprocess.run([*tmux, "kill-server"], capture_output=True, timeout=20)


def what_tmux_sends(tmux: list[str], place: Path, mode: str, keys: list[str]) -> list[bytes]:
    """Have tmux press the keys in a terminal of that mode; each is followed by a mark."""
    got, ready = place / "got", place / "ready"
    script = f"stty raw -echo; printf '{mode}'; : >{ready}; exec cat -u >{got}"
    subprocess.run([*tmux, "new-session", "-d", script], check=True, timeout=20)
    wait(ready.exists)
    pressed = [word for key in keys for word in ("send-keys", "--", key, ";", "send-keys", "-l", "<|>", ";")]
    subprocess.run([*tmux, *pressed[:-1]], check=True, capture_output=True, timeout=20)
    wait(lambda: got.read_bytes().count(b"<|>") == len(keys))
    return got.read_bytes().split(b"<|>")[:-1]


def wait(condition: Callable[[], object]) -> None:
    """Return when a condition of the outside world, which cannot signal, has become true."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ours(key: KeyBytes, terminal: str) -> bytes:
    switched = {"cursor": "keypad_cursor_flag", "keypad": "keypad_flag"}.get(terminal, "?")
    return (key.application if key.mode == switched else key.normal).encode()


@pytest.mark.parametrize("terminal", TERMINALS)
def test_the_bytes_are_those_of_tmux(socket: list[str], tmp_path: Path, terminal: str) -> None:
    keys = [*NAMED, *MODIFIED, *LETTERS]
    sent = dict(zip(keys, what_tmux_sends(socket, tmp_path, TERMINALS[terminal], keys), strict=True))
    found = {key: ours(encode_keys([key], None)[0], terminal) for key in keys if sent[key]}
    assert found == {key: data for key, data in sent.items() if data}
    assert len(found) > 200


@pytest.mark.parametrize("key", ["C-nothing", "NoSuchKey", "F99", "", "C-", "Enterr"])
def test_what_is_not_the_name_of_a_key_is_an_error(key: str) -> None:
    with pytest.raises(TerminalError, match="not the name of a key"):
        encode_keys(["x", key], None)


@pytest.mark.parametrize("key", ["S-Enter", "C-S-x", "S-a", "C-é", "C-Escape", "C-KP1"])
def test_a_key_for_which_no_terminal_sends_anything_is_an_error(key: str) -> None:
    with pytest.raises(TerminalError, match="no terminal sends anything"):
        encode_keys([key], None)
