"""The entry of a program on the list of those that only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["VERSIONS", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, or one of its sub-commands.

    ``operands``: files whose content it shows (``paths``), files that it only names (``names``), a pattern and then
    files (``pattern``), or words. ``loose``: no option of it does harm in any version, so that words which are only
    known at run time may be among them. ``alone``: it may stand without a sub-command. ``own``: it reads its options in
    a way of its own. ``permute``: options may stand behind operands. ``responses``: it replaces a word ``@FILE``,
    wherever it stands, by the words in that file. ``suffixes``: it opens an operand with one of these behind it when
    there is no file of the plain name.
    """

    options: str = ""
    operands: Literal["none", "text", "names", "paths", "pattern"] = "none"
    most: int | None = None
    loose: bool = False
    one_dash: bool = False
    alone: bool = False
    own: bool = False
    permute: bool = True
    responses: bool = False
    suffixes: tuple[str, ...] = ()
    commands: Mapping[str, Program] = field(default_factory=dict)


VERSIONS: Mapping[str, str] = {
    **dict.fromkeys(("python", "python3", "mysql", "curl", "wget", "postgres", "mongo"), "--version -V"),
    **dict.fromkeys(
        (
            *("tee", "split", "csplit", "cp", "mv", "rm", "ln", "mkdir", "rmdir", "touch", "chmod", "chown", "install"),
            *("truncate", "shred", "systemd", "virt-top", "grub-install", "useradd", "usermod", "ssh-copy-id", "scp"),
        ),
        "--version --help",
    ),
    **dict.fromkeys(
        (
            *(
                "gcc",
                "g++",
                "clang",
                "cmake",
                "ruby",
                "vim",
                "rsync",
                "ansible",
                "ansible-playbook",
                "aws",
                "perf",
                "dig",
            ),
            *(
                "host",
                "mongod",
                "mongosh",
                "sqlite3",
                "nano",
                "emacs",
                "htop",
                "updatedb",
                "keepalived",
                "certtool",
                "perl",
            ),
            *("buildah", "skopeo", "packer", "vagrant", "pipx", "lua", "R", "gdb", "ld", "as", "ansible-lint", "vault"),
            *(
                "consul",
                "nomad",
                "etcdctl",
                "rabbitmqctl",
                "certbot",
                "traceroute",
                "iperf3",
                "udevadm",
                "tcpdump",
                "lynx",
            ),
        ),
        "--version",
    ),
    **dict.fromkeys(("mtr", "nmap", "socat", "zabbix_agentd", "zabbix_agent2", "varnishd", "ping"), "--version -V"),
    **dict.fromkeys(("node", "make", "redis-server", "ruby", "perl"), "--version -v"),
    "java": "--version -version",
}
"""Programs of which only the version is asked for, and how."""
