"""A desktop that shows nothing: a D-Bus session with a service of notifications, which writes them down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Desktop", "desktop"]

INTERFACE = "org.freedesktop.Notifications"


@dataclass(frozen=True)
class Desktop:
    """A session; ``address`` is that of its bus."""

    address: str
    log: Path

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The notifications so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def _session(log: Path) -> Iterator[Desktop]:
    log.touch()
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert bus.stdout is not None
        address = bus.stdout.readline().strip()
        environment = os.environ | {"DBUS_SESSION_BUS_ADDRESS": address}
        service = subprocess.Popen(
            [sys.executable, __file__, str(log)], stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == "ready\n"
            yield Desktop(address, log)
        finally:
            service.kill()
            service.wait()
            service.stdout.close()
    finally:
        bus.kill()
        bus.wait()
        bus.stdout.close()


@pytest.fixture
def desktop(needs_desktop: None, tmp_path: Path) -> Iterator[Desktop]:
    """A desktop for ``notify-send``."""
    with _session(tmp_path / "notifications") as opened:
        yield opened


def _serve(log: Path) -> None:
    from jeepney import MessageType, new_method_return
    from jeepney.bus_messages import message_bus
    from jeepney.io.blocking import open_dbus_connection

    connection = open_dbus_connection()
    connection.send_and_get_reply(message_bus.RequestName(INTERFACE))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        message = connection.receive()
        if message.header.message_type is not MessageType.method_call:
            continue
        method = next((value for key, value in message.header.fields.items() if key.name == "member"), "")
        if method == "Notify":
            application, _, _, title, body, _, hints, _ = message.body
            shown = {"application": application, "title": title, "body": body, "urgency": hints["urgency"][1]}
            with log.open("a") as file:
                file.write(json.dumps(shown) + "\n")
            connection.send(new_method_return(message, "u", (1,)))
        elif method == "GetCapabilities":
            connection.send(new_method_return(message, "as", (["body", "body-markup"],)))
        elif method == "GetServerInformation":
            connection.send(new_method_return(message, "ssss", ("test", "harness", "1", "1.2")))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
