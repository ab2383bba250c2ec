"""From options to an open target: settings, logging, the connection."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import click

from ..context import ExecutionContext, connect
from ..settings import Settings, load_settings
from .options import Invocation, invocation_of
from .output import note
from .streams import Interruption, run_async

__all__ = ["Session", "on_target", "session_of"]

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class Session:
    """One run of the program: what was asked, and the settings that follow from it."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.settings: Settings = load_settings(invocation.choices)
        for warning in self.settings.warnings:
            note(warning)

    @property
    def json(self) -> bool:
        """Results are to be JSON."""
        return self.invocation.json

    @asynccontextmanager
    async def open(self, *, terminal: bool | None) -> AsyncIterator[ExecutionContext]:
        """Connect. ``terminal``: True needs tmux, False needs none, None is what the operator chose."""
        tmux = self.settings.tmux
        if terminal is not None:
            tmux = (tmux or True) if terminal else False
        pane = self.settings.pane if tmux is not False else None
        with self.questions():
            async with connect(self.settings.target, tmux=tmux, pane=pane, config=self.settings.config) as ctx:
                logging.getLogger("harness").info("connected: %s", ctx.describe())
                yield ctx

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
    *,
    terminal: bool | None = None,
) -> int:
    """Open the session's target, do ``work`` on it, and return its exit code."""

    async def main(interruption: Interruption) -> int:
        async with session.open(terminal=terminal) as ctx:
            with interruption.reaches():
                return await work(ctx, interruption) or 0
        return 0  # cancelled, for which the caller has a code

    return run_async(main)


def _set_up_logging(verbose: int) -> None:
    level = LEVELS[min(verbose, len(LEVELS) - 1)]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="harness: %(name)s: %(message)s")
    for name in ("harness", "harness_backends"):
        logging.getLogger(name).setLevel(level)
    if verbose >= 3:
        logging.getLogger().setLevel(logging.DEBUG)
