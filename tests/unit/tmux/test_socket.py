"""Which tmux server a target uses: that of its machine, or one of its own."""

from __future__ import annotations

from typing import cast

from harness import Target
from harness_backends.container.engine import Engine
from harness_backends.container.information import ContainerInfo
from harness_backends.container.transport import ContainerTransport

OWN = ("/", "/tmp", "/tmp/", "/tmp/tmux-0")
SHARED = ("/data", "/tmp/data", "/tmpfiles", "/var/tmp")


def socket_in(target: str, *mounts: str, container_id: str = "1a2b") -> str:
    info = ContainerInfo(container_id, "app", "image", "running", mounts=mounts)
    return ContainerTransport(Target.parse(target), cast(Engine, None), info).tmux_socket("harness")


def test_a_container_with_a_mount_over_the_sockets_of_tmux_has_its_own_server() -> None:
    assert socket_in("docker://app") == "harness"
    assert {path for path in (*OWN, *SHARED) if socket_in("docker://app", "/etc/hosts", path) != "harness"} == set(OWN)


def test_a_server_of_its_own_is_found_again_by_whatever_name_the_host_is_reached() -> None:
    names = [socket_in(f"ssh://{host}+docker://app", "/tmp") for host in ("web1", "deploy@web1.example.net")]
    assert len(set(names)) == 1
    others = {socket_in("ssh://web1+docker://other", "/tmp"), socket_in("docker://app", "/tmp", container_id="3c")}
    assert len(others | set(names)) == 3
