"""The passwords for ``sudo`` in memory."""

from __future__ import annotations

from tests.support.sudo import Answers

from harness.config import Config
from harness.login import use_prompter
from harness.target import Target
from harness_backends.posix.sudo.passwords import PasswordAttempts, SudoPasswords
from harness_backends.posix.sudo.user_change import UserChange

PASSWORD = "corr3ct-h0rse"


async def test_no_representation_shows_a_password() -> None:
    passwords = SudoPasswords(Target.parse("ssh://web1"), Config())
    attempts = PasswordAttempts(passwords, "root")
    with use_prompter(Answers([PASSWORD])):
        assert await attempts.answer("password of ann") == PASSWORD
    attempts.accept()
    assert passwords.stored("ann") == PASSWORD
    change = UserChange("root", ("sudo",), "/run/askpass", None, attempts)
    assert PASSWORD not in repr((change, attempts, vars(passwords)["_accepted"]))
