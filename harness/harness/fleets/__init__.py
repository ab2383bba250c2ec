"""Many hosts as one context: which hosts a pattern means, one command on all of them, and equal outputs merged.

>>> import harness
>>> async with harness.fleet("web[1-20],db1") as fleet:  # doctest: +SKIP
...     async for outcome in fleet.run_shell("uptime"):
...         print(outcome.host, outcome.result or outcome.error)
"""

from __future__ import annotations

from .calls import Fleet, HostOutcome, fleet
from .hosts import Host, resolve_hosts
from .inventory import Inventory, read_inventory
from .merging import OutcomeGroup, merge_outcomes

__all__ = [
    "Fleet",
    "Host",
    "HostOutcome",
    "Inventory",
    "OutcomeGroup",
    "fleet",
    "merge_outcomes",
    "read_inventory",
    "resolve_hosts",
]
