"""The type of an entry in the allowlist of reading programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["VERSIONS", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, or one of its sub-commands.

    ``operands``: files whose content it shows (``paths``), files that it only names (``names``), a pattern and then
    files (``pattern``), or words (``text``). ``most``: maximum number of operands. ``loose``: no option is harmful in
    any version, so words only known at run time are accepted. ``alone``: it may have no sub-command. ``own``: it parses
    its options in its own way. ``permute``: options may follow operands. ``responses``: it replaces any word ``@FILE``
    by the words in that file. ``suffixes``: it opens an operand with one of these appended if the file does not exist.
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
"""Programs that may run only to show their version, with the options for it."""
