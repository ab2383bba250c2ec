"""The socket of a login that ends before asyncssh has taken it."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from harness_backends.ssh.asyncssh_login import _closing_unused


@pytest.mark.parametrize("taken", [False, True])
async def test_a_cancelled_login_closes_the_socket_that_nobody_has_taken(taken: bool) -> None:
    client: Any = SimpleNamespace(has_connection=taken)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with anyio.CancelScope() as scope:
            scope.cancel()
            with _closing_unused(ours, client):
                await anyio.sleep_forever()
        assert (ours.fileno() == -1) is not taken
