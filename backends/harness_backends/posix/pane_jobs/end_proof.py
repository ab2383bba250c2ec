"""The secret that proves the end of a pane's job. Pure.

The job's record contains a digest of the secret. The shell that runs the job keeps the secret in memory and writes it
in the end marker; no file and no output contains it earlier.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import signal

from harness.results import Status

from .prompt_markers import PromptMarker

__all__ = ["TWICE", "imitates", "new_secret", "proof_of", "proves_end", "status_of_broken"]

TWICE = "another process recorded an exit of this command before it ended, so its exit code is not certain"


def new_secret() -> str:
    """Return a new secret, in letters and digits."""
    return os.urandom(16).hex()


def proof_of(secret: str) -> str:
    """Return the digest for the job's record; empty for a job without a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32] if secret else ""


def proves_end(secret: str, proof: str) -> bool:
    """Return whether the secret matches the digest; a job without a digest (in a nested shell) needs no secret."""
    return not proof or hmac.compare_digest(proof_of(secret), proof)


def imitates(mark: PromptMarker, job: int, proof: str) -> bool:
    """Return whether a marker that arrives while a job runs is output of its command.

    The job's shell writes markers only at the job's end, with the secret; before the command, to report that its
    directory was entered, or (with the secret) was not; for its working directory; and when the shell itself exits.
    """
    match mark.kind:
        case "end" | "over":
            return mark.job != job or not proves_end(mark.secret, proof)
        case "cwd":
            fact, _, secret = mark.text.partition(";")
            known = mark.text.startswith("/") or fact in ("", "in=0")
            return not known and not (proof and proves_end(secret, proof))
        case "exit":
            return False
        case _:
            return True


def status_of_broken(code: int | None, broken: str) -> Status:
    """Return the status of a command whose shell returned to its prompt before the line was complete.

    Args:
        code: the exit status that the prompt saw.
        broken: see :attr:`.PromptMarker.broken`; empty if the line was completed.
    """
    if broken and code == 128 + signal.SIGINT:
        return Status.INTERRUPTED
    return Status.UNKNOWN if broken == "n" else Status.COMPLETED
