"""By which name a server's tool is called here: one that every provider takes, and never another tool's. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from ..toolkit.contract import NAME

__all__ = ["is_nameable", "local_name"]

OTHER = re.compile(r"[^A-Za-z0-9_-]")
LONGEST = 64
DIGITS = 8
REMOTE_LONGEST = 128


def is_nameable(remote: str) -> bool:
    """Whether a tool can be told to people and to rules by its own name: no spaces, nothing that cannot be seen."""
    return 0 < len(remote) <= REMOTE_LONGEST and remote.isprintable() and " " not in remote


def local_name(server: str, remote: str, servers: Iterable[str] = ()) -> str:
    """``SERVER_TOOL``, which depends on nothing that the server may change later.

    A name that had to be changed, and one that could also be that of a tool of another server, ends in eight digits
    of the digest of the whole: so two tools never share a name, and a name never passes from one to the other.

    Args:
        servers: the names of all servers.
    """
    wanted = f"{server}_{remote}"
    ambiguous = any(wanted.startswith(f"{other}_") for other in servers if other.startswith(f"{server}_"))
    if NAME.fullmatch(wanted) and not ambiguous:
        return wanted
    digest = hashlib.sha256(f"{server}\0{remote}".encode()).hexdigest()[:DIGITS]
    return f"{OTHER.sub('_', wanted)[: LONGEST - DIGITS - 1]}_{digest}"
