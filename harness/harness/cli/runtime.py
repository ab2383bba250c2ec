"""From options to an open target: settings, logging, the connection."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import click

from ..context import ExecutionContext, connect
from ..discovery import open_target
from ..settings import Settings, load_settings
from ..terminal import Sessions
from .options import Invocation, invocation_of
from .output import warn
from .streams import Interruption, run_async

__all__ = ["LOOKS", "PLAIN", "Needs", "Session", "on_target", "session_of"]

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a command needs of its target. ``terminal``: True needs tmux, False needs none, None: the operator chose."""

    terminal: bool | None = None
    create: bool = False
    """A missing session or pane is made: only for what runs something, or a typing error would make one."""
    pane: bool = True
    """It works on the pane that was chosen."""


PLAIN: Final = Needs(terminal=False)
"""The target, without tmux."""
LOOKS: Final = Needs(terminal=True)
"""A pane that is there."""


class Session:
    """One run of the program: what was asked, and the settings that follow from it."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.settings: Settings = load_settings(invocation.choices)
        for warning in self.settings.warnings:
            warn(warning, as_json_document=invocation.json)

    @property
    def json(self) -> bool:
        """Results are to be JSON."""
        return self.invocation.json

    @asynccontextmanager
    async def open(self, needs: Needs) -> AsyncIterator[ExecutionContext]:
        """Connect, as a command needs it."""
        tmux = self.settings.tmux
        if needs.terminal is not None:
            tmux = (tmux or True) if needs.terminal else False
        pane = self.settings.pane if needs.pane and tmux is not False else None
        target, config = self.settings.target, self.settings.config
        with self.questions():
            async with connect(target, tmux=tmux, pane=pane, config=config, create=needs.create) as ctx:
                logging.getLogger("harness").info("connected: %s", ctx.describe())
                yield ctx

    @asynccontextmanager
    async def open_sessions(self) -> AsyncIterator[Sessions]:
        """The target's tmux sessions, attaching to none."""
        tmux, config = self.settings.tmux, self.settings.config
        name = tmux if isinstance(tmux, str) else config.session
        with self.questions():
            async with open_target(self.settings.target, config) as backend, backend.open_sessions(name) as sessions:
                yield sessions

    def questions(self) -> AbstractContextManager[None]:
        """Logins inside may ask the operator, unless --batch was given."""
        if not self.invocation.batch:
            return nullcontext()
        from ..login import use_prompter

        return use_prompter(None)


def session_of(ctx: click.Context) -> Session:
    """The session of a command, with logging set up."""
    invocation = invocation_of(ctx)
    if invocation.color is False:
        ctx.color = False
    _set_up_logging(invocation.verbose)
    return Session(invocation)


def on_target(
    session: Session,
    work: Callable[[ExecutionContext, Interruption], Awaitable[int | None]],
    needs: Needs,
) -> int:
    """Open the session's target, do ``work`` on it, and return its exit code."""

    async def main(interruption: Interruption) -> int:
        async with session.open(needs) as ctx:
            with interruption.reaches():
                return await work(ctx, interruption) or 0
        return 0  # cancelled, for which the caller has a code

    return run_async(main)


def _set_up_logging(verbose: int) -> None:
    level = LEVELS[min(verbose, len(LEVELS) - 1)]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="harness: %(name)s: %(message)s")
    for name in ("harness", "harness_backends"):
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)  # of libraries, to their users; an operator can do nothing about them
    logging.getLogger("py.warnings").setLevel(logging.WARNING if verbose else logging.ERROR)
    if verbose >= 3:
        logging.getLogger().setLevel(logging.DEBUG)
