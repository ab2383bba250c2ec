"""The options of commands on many hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from ...completed_names import complete_file, complete_pattern
from ...options import HostCount, Invocation

__all__ = [
    "EACH",
    "FORKS",
    "RETRY_UNREACHABLE",
    "SCHEDULER",
    "FleetOptions",
    "collected_options",
    "fleet_options",
]


class FleetOptions(NamedTuple):
    """The options of a command for many hosts."""

    patterns: tuple[str, ...] = ()
    inventory: str | None = None
    forks: int | None = None
    rolling: str | None = None
    first: int | None = None
    max_fail: str | None = None
    retry_unreachable: int | None = None
    each: bool = False
    scheduler: str | None = None
    ask_sudo_password: bool = False

    @property
    def given(self) -> bool:
        """Whether any of them was given."""
        return self != FleetOptions()

    def used_by(self, invocation: Invocation) -> bool:
        """Return whether a command works on many hosts, by these options or by several ``--ssh``."""
        return self.given or bool(invocation.several)

    def start_arguments(self) -> dict[str, Any]:
        """Return the arguments of a fleet's call that decide which hosts start when."""
        from ....fleets.fleet_calls import DEFAULT_FORKS

        only_first = self.first is not None and self.rolling is None
        return {
            "forks": self.forks or DEFAULT_FORKS,
            "rolling": self.rolling if self.first is None else [self.first, self.rolling or "100%"],
            "max_fail": self.max_fail or ("100%" if only_first else None),  # the operator decides, not a limit
            "retry_unreachable": self.retry_unreachable or 0,
        }


_COUNT: dict[str, Any] = {"type": HostCount(), "metavar": "N|N%"}
FORKS = click.option("--forks", type=click.IntRange(min=1), metavar="N", help="Hosts at the same time (default: 64).")
EACH = click.option("--each", is_flag=True, help="Print the hosts' lines as they come, with the host's name.")
RETRY_UNREACHABLE = click.option(
    "--retry-unreachable",
    type=click.IntRange(min=0),
    metavar="N",
    help="Try N times more to log in to a host that was not reached.",
)
_SESSION_OPTIONS = (
    click.option(
        "--hosts",
        "patterns",
        metavar="PATTERN",
        multiple=True,
        shell_complete=complete_pattern,
        help="Use each of these hosts; repeatable.",
    ),
    click.option(
        "--inventory",
        metavar="FILE",
        shell_complete=complete_file,
        help="Take hosts and groups from FILE: a list, or Ansible's INI or YAML.",
    ),
)
_HOST_OPTIONS = (*_SESSION_OPTIONS, FORKS, RETRY_UNREACHABLE)
_START_OPTIONS = (
    click.option("--rolling", **_COUNT, help="Start N hosts when the N before have ended without a failure."),
    click.option("--first", type=click.IntRange(min=1), metavar="N", help="Ask whether to continue after N hosts."),
    click.option("--max-fail", **_COUNT, help="When N hosts failed, start no further one."),
)
SCHEDULER = click.option(
    "--scheduler", metavar="ADDRESS", help="Run on the workers of the Dask scheduler at ADDRESS (tcp://HOST:8786)."
)
ASK_SUDO_PASSWORD = click.option(
    "--ask-sudo-password", is_flag=True, help="Ask once for the password that sudo wants on these hosts (--user)."
)
_Function = Callable[..., int | None]


def fleet_options(
    *, changes: bool = False, each: bool = False, session: bool = False
) -> Callable[[_Function], _Function]:
    """Declare the options for many hosts; the command gets them as ``fleet``, a :class:`FleetOptions`.

    Args:
        changes: Whether the command changes hosts, so that it takes the options that start few of them first.
        each: Whether it runs a command, so that it can print lines as they come, and run on workers.
        session: Whether it opens a session on the hosts, whose calls name some of them.
    """

    hosts = _SESSION_OPTIONS if session else _HOST_OPTIONS
    return collected_options(
        *hosts, *(_START_OPTIONS if changes else ()), *((EACH, SCHEDULER, ASK_SUDO_PASSWORD) if each else ())
    )


def collected_options(*options: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Declare options that are fields of :class:`FleetOptions`; the command gets them as ``fleet``."""

    def declare(function: _Function) -> _Function:
        @wraps(function)
        def collected(*args: Any, **values: Any) -> int | None:
            chosen = {name: values.pop(name) for name in FleetOptions._fields if name in values}
            return function(*args, fleet=FleetOptions(**chosen), **values)

        for option in reversed(options):
            option(collected)
        return collected

    return declare
