"""Whether a person typed into a pane while a command ran: the terminal's echo of it then stands in the output."""

from __future__ import annotations

from harness.errors import ConnectionLost, TerminalError

from .link import Link
from .pane import Pane
from .plain import PlainTmux

__all__ = ["NOTICE", "parse_clients", "person_typed"]

FASTEST_HAND = 0.5
"""Seconds; while a shorter command ran nobody has unlocked a locked keyboard and typed."""
NOTICE = "an operator was typing while this ran: what was typed may stand in the output"


async def person_typed(link: Link | PlainTmux, pane: Pane, seconds: float) -> bool:
    """Somebody used an attached terminal in the last ``seconds``, and the keyboard was not locked, or was unlocked."""
    lock = link.setup.config.keyboard_lock
    if lock and seconds < FASTEST_HAND:
        return False
    try:
        now, clients = await link.ask(
            ("display-message", "-p", "-t", pane.pane_id, "%s #{@harness_unlocked}"),
            ("list-clients", "-F", "#{client_control_mode} #{client_activity}"),
        )
    except (ConnectionLost, TerminalError):
        return False
    clock, _, unlocked = now.text.partition(" ")
    if not clock.isdecimal() or (lock and unlocked != "1"):
        return False
    return any(active >= int(clock) - seconds - 1 for active in parse_clients(clients.text))


def parse_clients(text: str) -> list[int]:
    """When the people's clients were last used, in seconds since the epoch; control clients are programs."""
    pairs = (line.split(" ") for line in text.splitlines())
    return [int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] != "1" and pair[1].isdecimal()]
