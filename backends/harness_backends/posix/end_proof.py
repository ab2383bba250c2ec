"""The secret that proves the end of a pane's job. Pure.

The record of a job holds a digest of the secret. The secret itself is given to the shell that runs the job, which keeps
it in its memory and shows it in the end mark: until then no file and no output holds it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import signal

from harness.results import Status

from .markers import PromptMarker

__all__ = ["TWICE", "imitates", "new_secret", "proof_of", "proves_end", "status_of_broken"]

TWICE = "something else had recorded an end of this command before it ended, so its exit code is not sure"


def new_secret() -> str:
    """Return a new secret, in letters and digits."""
    return os.urandom(16).hex()


def proof_of(secret: str) -> str:
    """Return the digest that the record of the job holds; empty for a job without a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32] if secret else ""


def proves_end(secret: str, proof: str) -> bool:
    """Return whether the secret belongs to the digest. A job without a digest, in a nested shell, needs no secret."""
    return not proof or hmac.compare_digest(proof_of(secret), proof)


def imitates(mark: PromptMarker, job: int, proof: str) -> bool:
    """Return whether a mark that comes while a job runs is output of its command.

    The job's shell writes nothing then. It says when the job has ended, with the secret; or, before the command, that
    its directory was entered, or, with the secret, that it was not; or where it is. And it may end.
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
    """Return how a command ended whose shell came back to its prompt without the line having run to its end.

    Args:
        code: the exit status that the prompt saw.
        broken: see :attr:`.PromptMarker.broken`; empty when the line did run to its end.
    """
    if broken and code == 128 + signal.SIGINT:
        return Status.INTERRUPTED
    return Status.UNKNOWN if broken == "n" else Status.COMPLETED
