"""Teaching the markers to the shell that reads a pane's keyboard: asking for its kind, typing the hooks."""

from __future__ import annotations

import anyio

from .foreground import Foreground
from .keyboard import CLEAR, type_text, unlock
from .link import Link
from .nested import hook_lines, probe_line, probe_line_fish
from .pane import NestedShell, Pane
from .replaced import while_known

__all__ = ["adopt", "until_prompt"]

ADOPT_TIMEOUT = 4.0


async def until_prompt(pane: Pane, timeout: float) -> bool:
    """Wait for the pane's shell to show its prompt; False when it did not within ``timeout`` seconds."""
    with anyio.move_on_after(timeout):
        while pane.phase != "prompt" and not pane.gone:
            await pane.changed.wait()
    return pane.phase == "prompt"


async def adopt(link: Link, pane: Pane, front: Foreground) -> bool:
    """Teach the markers to the shell in front. False when nothing answered.

    That may be the shell that is known already, when its log was removed and nothing was seen of it: it must keep its
    own markers. It shows them with its prompt, so that the answer to a second question comes after them.
    """
    nonce, is_sure = link.token(), bool(pane.shell.pid)
    pane.push_shell(NestedShell(nonce, "?"))
    kind = await _ask_kind(link, pane, nonce, front)
    if kind is not None and not is_sure:
        kind = await _ask_kind(link, pane, nonce, front)
    if pane.shell.nonce != nonce:  # the shell that is known already has read what was typed
        return await until_prompt(pane, ADOPT_TIMEOUT)
    if kind is None:
        pane.pop_shell(nonce)
        return False
    pane.shells[-1] = NestedShell(nonce, kind, image=front.image)
    pane.phase = "starting"  # before the last line is typed: its prompt may come with the answer
    for line in hook_lines(kind, nonce, tag=link.setup.config.prompt_tag):
        await _type_line(link, pane, line)
    return await until_prompt(pane, ADOPT_TIMEOUT)


async def _ask_kind(link: Link, pane: Pane, nonce: str, front: Foreground) -> str | None:
    probes = [probe_line(nonce), probe_line_fish(nonce)]
    if front.name == "fish":
        probes.reverse()
    pane.kind = None
    for probe in probes:
        await _type_line(link, pane, probe)
        with anyio.move_on_after(ADOPT_TIMEOUT):
            while pane.kind is None and pane.shell.nonce == nonce:
                await pane.changed.wait()
        if pane.kind is not None or pane.shell.nonce != nonce:
            break
    return pane.kind


async def _type_line(link: Link, pane: Pane, line: str) -> None:
    typed = type_text(link.setup.version, pane.pane_id, f"{CLEAR}{line}\r")
    await link.request(while_known(pane, unlock(pane.pane_id), *typed, here=link.setup.here))
