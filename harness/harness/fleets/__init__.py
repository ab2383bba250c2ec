"""Many hosts as one context: which hosts a pattern means, one command on all of them, and equal outputs merged.

>>> import harness
>>> async with harness.fleet("web[1-20],db1") as fleet:  # doctest: +SKIP
...     async for host, outcome in fleet.run_shell("uptime"):
...         print(host, outcome.result or outcome.error)
>>> from harness.fleets import read_inventory
>>> inventory = read_inventory("hosts.ini")  # doctest: +SKIP
>>> async with harness.fleet("@web,!web7", inventory=inventory) as fleet:  # doctest: +SKIP
...     outcomes = await fleet.gather("uptime")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .fleet_calls import Fleet, HostOutcome, fleet
from .hosts import Host, NamedTarget, resolve_hosts
from .inventories.inventory import Inventory
from .inventories.reading import read_inventory
from .merging import OutcomeGroup, merge_outcomes
from .session_context import FleetContext

if TYPE_CHECKING:
    from .dask_executor import DaskExecutor

__all__ = [
    "DaskExecutor",
    "Fleet",
    "FleetContext",
    "Host",
    "HostOutcome",
    "Inventory",
    "NamedTarget",
    "OutcomeGroup",
    "fleet",
    "merge_outcomes",
    "read_inventory",
    "resolve_hosts",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, {"dask_executor": ("DaskExecutor",)})
