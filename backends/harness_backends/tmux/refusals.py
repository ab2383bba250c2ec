"""Why there is no session to attach to, or no space for a command, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from harness.errors import NoSpace, PaneGone, TerminalError
from harness.target import Target

from .naming import listed
from .setup import STATE_OPTION, Setup

__all__ = ["files_gone", "no_space", "renamed", "session_refusal", "state_question"]


def no_space(target: object) -> NoSpace:
    """The error about a command that could not be stored."""
    where = "free some space where harness keeps its state"
    return NoSpace("no space for the command, so nothing ran", target=target, hint=where)


def session_refusal(
    fields: Mapping[str, str], setup: Setup, target: Target, complaint: bytes = b""
) -> TerminalError | None:
    """What :func:`~.setup.setup_script` reported as an error; None when the session is there.

    ``complaint`` is what it wrote to standard error.
    """
    session = setup.session
    if "missing" in fields:
        return PaneGone(
            f"there is no tmux session {session!r}; {listed(fields['missing'].split())}",
            target=target,
            hint="--tmux NAME chooses one; the first command that is run in it makes it",
        )
    if "full" in fields:
        return TerminalError(
            f"session {session!r} would be more than max_sessions = {setup.config.max_sessions} allows; "
            f"{listed(fields['full'].split())}",
            target=target,
            hint="use that with --tmux NAME, end it with harness sessions kill NAME, or raise max_sessions",
        )
    if "foreign" in fields:
        return TerminalError(
            f"tmux session {session!r} was not made by harness", target=target, hint="use another name: --tmux NAME"
        )
    if "failed" in fields:
        why = fields["failed"] or complaint.decode("utf-8", "replace").strip() or "no reason given"
        return TerminalError(f"tmux could not start a session: {why}", target=target)
    return None


def renamed(session: str, name: str) -> str:
    """The session is found by its mark, so that nothing is lost."""
    return f"tmux session {session!r} is called {name!r} now: somebody renamed it; it is used as before"


def state_question(pane_id: str) -> tuple[str, ...]:
    """The tmux command that prints what :func:`files_gone` needs."""
    return ("display-message", "-p", "-t", pane_id, f"#{{{STATE_OPTION}}}")


def files_gone(pane: str, state: str, setup: Setup, target: object) -> TerminalError:
    """A pane without its files cannot be used: what its shell marks its output with is not known.

    Args:
        state: the state directory of the harness that made the pane; empty when it is of an earlier version.
    """
    if state and state != setup.root:
        return TerminalError(
            f"pane {pane!r} of tmux session {setup.name!r} belongs to another harness of this account: its state "
            f"directory is {state}, and ours is {setup.root}",
            target=target,
            hint="use a session of another name (--tmux NAME) or another tmux_socket; or the same XDG_STATE_HOME, "
            "to work in that session",
        )
    return TerminalError(
        f"the files of pane {pane!r} are gone",
        target=target,
        hint=f"harness sessions kill {setup.session} ends the session; the next command makes a new one",
    )
