"""The secret that proves an end, and which marks a running command can have written itself."""

from __future__ import annotations

import re

import pytest

from harness.results import Status
from harness_backends.posix.pane_jobs.end_proof import imitates, new_secret, proof_of, proves_end, status_of_broken
from harness_backends.posix.pane_jobs.prompt_markers import PromptMarker

SECRET = "5ec2e7"
PROOF = proof_of(SECRET)


def test_a_secret_is_128_bits_that_are_never_the_same() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}", secret) for secret in secrets)


def test_a_proof_does_not_hold_the_secret_and_keeps_128_bits() -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", PROOF)
    assert SECRET not in PROOF
    assert proof_of("") == ""
    assert proof_of(SECRET) == PROOF != proof_of(SECRET + "0")


@pytest.mark.parametrize(
    ("secret", "proof", "proved"),
    [
        (SECRET, PROOF, True),
        ("", PROOF, False),
        ("0", PROOF, False),
        (PROOF, PROOF, False),
        ("", "", True),
        ("0", "", True),
    ],
)
def test_only_the_secret_proves_an_end_and_a_job_without_a_proof_needs_none(
    secret: str, proof: str, proved: bool
) -> None:
    assert proves_end(secret, proof) is proved


@pytest.mark.parametrize(
    ("mark", "proof", "imitation"),
    [
        (PromptMarker("end", 7, 0, secret=SECRET), PROOF, False),
        (PromptMarker("end", 7, 0), PROOF, True),
        (PromptMarker("end", 6, 0, secret=SECRET), PROOF, True),
        (PromptMarker("end", 7, 0), "", False),
        (PromptMarker("end", 8, 0), "", True),
        (PromptMarker("over", 7, secret=SECRET), PROOF, False),
        (PromptMarker("over", 7, secret="0"), PROOF, True),
        (PromptMarker("over", 6, secret=SECRET), PROOF, True),
        (PromptMarker("cwd", text="/tmp"), PROOF, False),
        (PromptMarker("cwd", text="/tmp;x"), PROOF, False),
        (PromptMarker("cwd", text="in=0"), PROOF, False),
        (PromptMarker("cwd", text="in=0;x"), PROOF, False),
        (PromptMarker("cwd", text=""), PROOF, False),
        (PromptMarker("cwd", text="in=1"), PROOF, True),
        (PromptMarker("cwd", text=f"in=1;{SECRET}"), PROOF, False),
        (PromptMarker("cwd", text=f"off=7;{SECRET}"), PROOF, False),
        (PromptMarker("cwd", text="off=7;"), PROOF, True),
        (PromptMarker("cwd", text="off=7;"), "", True),
        (PromptMarker("exit", code=1), PROOF, False),
        (PromptMarker("start", 7), PROOF, True),
        (PromptMarker("prompt", 7), PROOF, True),
        (PromptMarker("continue"), PROOF, True),
    ],
)
def test_what_a_running_command_wrote_is_told_from_what_its_shell_wrote(
    mark: PromptMarker, proof: str, imitation: bool
) -> None:
    assert imitates(mark, 7, proof) is imitation


@pytest.mark.parametrize(
    ("code", "broken", "status"),
    [
        (130, "", Status.COMPLETED),  # the line was complete: the command's own exit code
        (0, "", Status.COMPLETED),
        (None, "", Status.COMPLETED),
        (130, "b", Status.INTERRUPTED),
        (130, "n", Status.INTERRUPTED),
        (126, "b", Status.COMPLETED),
        (131, "b", Status.COMPLETED),
        (1, "n", Status.UNKNOWN),
        (0, "n", Status.UNKNOWN),
        (None, "n", Status.UNKNOWN),
    ],
)
def test_a_line_that_the_shell_aborted_was_interrupted_only_with_the_code_of_ctrl_c(
    code: int | None, broken: str, status: Status
) -> None:
    assert status_of_broken(code, broken) is status
