"""Listening on this machine: on which addresses, and what is removed at the end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from harness.forwards.listeners import listen_here
from harness.forwards.specification import SocketPath

WITHOUT_IPV6 = """
mount --bind "$2" /etc/hosts && ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 &&
exec "$1" -c '
from harness.forwards.listeners import listen_here
from harness.forwards.specification import TcpAddress
for host in (None, "localhost"):
    with listen_here(TcpAddress(host, 8080)) as sockets:
        print(host, *(one.getsockname()[0] for one in sockets))
'
"""


def test_a_machine_without_ipv6_listens_on_the_rest(needs_root: None, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n::1 localhost\n")
    argv = ["unshare", "--net", "--mount", "sh", "-c", WITHOUT_IPV6, "sh", sys.executable, str(hosts)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["None 127.0.0.1", "localhost 127.0.0.1"], done.stderr


def test_the_socket_of_a_busy_successor_is_not_removed(needs_process: None) -> None:
    with tempfile.TemporaryDirectory(prefix="hxf", dir="/tmp") as directory, ExitStack() as stack:
        path = f"{directory}/here"
        with listen_here(SocketPath(path)):
            os.unlink(path)
            successor = stack.enter_context(socket.socket(socket.AF_UNIX))
            successor.bind(path)
            successor.listen(0)
            is_full = False
            while not is_full:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                is_full = client.connect_ex(path) != 0
        assert Path(path).is_socket()
