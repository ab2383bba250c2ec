"""Ending a pane's job that another harness dispatched: all is done on the target, without its stream."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import anyio

from harness.results import Status

from .jobprocesses import PaneProcesses, goes_on, signal_job
from .shell import HeldShell
from .state import JobRecord, JobStore

__all__ = ["PaneEnding"]

INTERRUPT_GRACE = 1.0
KILL_GRACE = 3.0
LOOK_AGAIN = 0.1


@dataclass(frozen=True, slots=True)
class PaneEnding:
    """``socket`` is tmux's; ``wait`` waits for the job's end for some seconds."""

    shell: HeldShell
    store: JobStore
    socket: str
    record: JobRecord
    uid: str
    wait: Callable[[float], Awaitable[None]]

    async def end(self, age: float, signal: str, grace: float) -> None:
        """C-c, then ``signal``, then KILL; ``age`` is the job's, in seconds. Nothing where its pane has gone."""
        began = time.monotonic() - age
        where = PaneProcesses(await self._first_process() or 0, f"{self.store.root}/panes/{self.uid}/pid", age)
        if where.session:  # a C-c may end the parents of what is in a session of its own
            where = await signal_job(self.shell, where, "0")
        session = await self._interrupt()
        if session is None:
            return
        where = replace(where, session=session)
        await self.wait(INTERRUPT_GRACE)
        for name, seconds in ((signal, grace), ("KILL", KILL_GRACE)):
            stop = not await self._ended() and (name == "KILL" or goes_on(self.record.command))
            where = replace(where, age=time.monotonic() - began)
            where = await signal_job(self.shell, where, name, end_shell=stop)
            if await self._gone(where, seconds):
                await self._record_end()
                return

    async def _interrupt(self) -> int | None:
        """Type C-c into the job's pane, wherever tmux runs; returns the pane's first process on the target."""
        if not self.record.host:
            return await self._type(self.shell)
        there = self.store.log_places.get(self.record.host)
        if there is not None:
            await self._type(there.shell)
        return await self._first_process()

    async def _first_process(self) -> int | None:
        """The parent of the pane's shell."""
        home = shlex.quote(f"{self.store.root}/panes/{self.uid}/pid")
        reply = await self.shell.call(
            f"read -r pid <{home} || exit\n"
            '{ read -r line <"/proc/$pid/stat" || line=") - $(ps -o ppid= -p "$pid")"; } 2>/dev/null\n'
            "set -- ${line##*) }; echo $2"
        )
        return int(reply.text) if reply.text.strip().isdecimal() else None

    async def _type(self, shell: HeldShell) -> int | None:
        tmux = f"tmux -L {shlex.quote(self.socket)}"
        reply = await shell.call(
            f"{tmux} list-panes -a -F '#{{@harness_uid}} #{{pane_id}} #{{pane_pid}}' 2>/dev/null |\n"
            f'while read -r uid pane pid; do [ "$uid" = {shlex.quote(self.uid)} ] || continue\n'
            f'{tmux} select-pane -t "$pane" -e \\; send-keys -t "$pane" C-c; echo "$pid"; break; done'
        )
        words = reply.text.split()
        return int(words[0]) if words and words[0].isdecimal() else None

    async def _ended(self) -> bool:
        path = shlex.quote(self.store.path(self.record.job_id, "exit"))
        return bool((await self.shell.call(f"[ -s {path} ] && echo ended")).stdout)

    async def _gone(self, where: PaneProcesses, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.wait(seconds)
            while not await self._ended() or (await signal_job(self.shell, where, "0")).known:  # noqa: ASYNC110  # it cannot signal us
                await anyio.sleep(LOOK_AGAIN)
            return True
        return False

    async def _record_end(self) -> None:
        path = shlex.quote(self.store.path(self.record.job_id, "exit"))
        await self.shell.call(
            f"umask 077\nread -r code rest <{path} && echo $code {Status.INTERRUPTED} >{path}.new &&\n"
            f"mv -f {path}.new {path}"
        )
