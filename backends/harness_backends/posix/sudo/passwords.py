"""Passwords for ``sudo`` on one target: from a command of the settings, or the operator, kept in memory for a while."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

import anyio

from harness.config import Config
from harness.errors import ConfigError, HarnessError, UnsupportedOperation
from harness.login import LoginQuestion, WaitingSudo, current_prompter
from harness.system.child_process import run_program
from harness.target import Target
from harness.wording import single_line

from .askpass import PROMPT

__all__ = ["ANSWER_TIMEOUT", "PasswordAttempts", "SudoPasswords", "account_of"]

ANSWER_TIMEOUT = 300.0
"""Seconds for the operator's answer."""
COMMAND_TIMEOUT = 60.0
MAX_PASSWORD_BYTES = 4 << 10
MAX_QUESTIONS = 3
"""Maximum times that the operator is asked for one command."""
MAX_DOUBTS = 2
"""How often a password that was accepted may be sent again after ``sudo`` refused a command."""
_ACCOUNT = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_.@+$-]{0,63}")
HINT = "for a password, use a terminal without --batch (on several hosts: --ask-sudo-password) or sudo_password_command"
COMMAND_REFUSED, COMMAND_HINT = "sudo refused the password of sudo_password_command", "correct what the command prints"


def account_of(prompt: str) -> str:
    """Return the account whose password a prompt of ``sudo`` requests, or nothing: it requests something else. Pure."""
    name = prompt.strip().removeprefix(PROMPT)
    return name if prompt.strip() != name and _ACCOUNT.fullmatch(name) else ""


@dataclass(slots=True)
class _StoredPassword:
    password: str = field(repr=False)
    expires: float


class SudoPasswords:
    """The passwords of one target: those that ``sudo`` has accepted, and those that are not sent again."""

    def __init__(self, target: Target, config: Config) -> None:
        self.target = target
        self.config = config
        self._accepted: dict[str, _StoredPassword] = {}
        self._refused: set[tuple[str, str]] = set()
        self._doubts: dict[tuple[str, str], int] = {}

    def stored(self, account: str) -> str | None:
        """Return the password that was accepted for an account, unless it is too old."""
        known = self._accepted.get(account)
        if known is not None and known.expires <= time.monotonic():
            del self._accepted[account]
            known = None
        return known.password if known else None

    def accept(self, account: str, password: str) -> None:
        """Keep a password for ``sudo_password_max_age``."""
        self._refused.discard((account, password))
        self._doubts[account, password] = 0
        if self.config.sudo_password_max_age > 0:
            expires = time.monotonic() + self.config.sudo_password_max_age
            self._accepted[account] = _StoredPassword(password, expires)

    def refuse(self, account: str, password: str) -> None:
        """Forget a password; only the operator can send it again, as repeated wrong ones may lock the account."""
        self._accepted.pop(account, None)
        self._refused.add((account, password))

    def doubt(self, account: str, password: str) -> None:
        """Take a refusal that may be about the command: a password that was never accepted is refused with it."""
        doubts = self._doubts.get((account, password), MAX_DOUBTS) + 1
        self._doubts[account, password] = doubts
        if doubts > MAX_DOUBTS:
            self.refuse(account, password)

    def was_refused(self, account: str, password: str) -> bool:
        """Return whether ``sudo`` has refused this password before."""
        return (account, password) in self._refused

    def has_stored(self) -> bool:
        """Return whether there is a password that was accepted and is not too old."""
        return any(self.stored(account) is not None for account in tuple(self._accepted))

    async def command_was_refused(self) -> bool:
        """Return whether ``sudo_password_command`` prints only passwords that ``sudo`` has refused.

        Raises:
            ConfigError: It failed.
        """
        accounts = {account for account, _ in self._refused}
        printed = [(account, await self.from_command(account)) for account in sorted(accounts)]
        return bool(printed) and self._refused.issuperset(printed)

    async def from_command(self, account: str) -> str | None:
        """Return the password that ``sudo_password_command`` prints; None without that setting.

        Raises:
            ConfigError: It failed.
        """
        if not self.config.sudo_password_command:
            return None
        host = self.target.last.host or str(self.target)
        values = {"{user}": account, "{host}": host, "{target}": str(self.target)}
        argv = [_filled(word, values) for word in self.config.sudo_password_command]
        what = f"sudo_password_command ({argv[0]})"
        try:
            done = await run_program(
                argv, timeout=COMMAND_TIMEOUT, stdout_limit=MAX_PASSWORD_BYTES, stderr_limit=0, kills_over_limit=True
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise ConfigError(f"{what}: {reason}", target=self.target) from None
        if done.code != 0:
            failure = f"no answer within {COMMAND_TIMEOUT:g} s" if done.code is None else f"exit code {done.code}"
            raise ConfigError(f"{what} failed: {failure}", target=self.target)
        password = done.stdout.decode("utf-8", "surrogateescape").partition("\n")[0].removesuffix("\r")
        if not password:
            raise ConfigError(f"{what} printed no password", target=self.target)
        return password


def _filled(word: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(?:user|host|target)\}", lambda found: values[found[0]], word)


@dataclass(slots=True)
class PasswordAttempts:
    """The answers for one command: stored, from the command, then from the operator, each at most a few times."""

    passwords: SudoPasswords
    user: str
    """The user as whom the command is to run."""
    used: dict[str, str] = field(default_factory=dict, repr=False)
    """The last password that was sent, by account."""
    questions: int = 0
    """How many prompts there were since the last password was refused."""
    waiting: WaitingSudo | None = None
    """The ``sudo`` in a pane that the password is for, instead of a command; then nothing else is answered."""
    approved: bool = False
    """True if the operator has approved one try of the password for it; else, its answer is the approval."""
    _asked: int = 0
    _from_command: bool = False

    async def check_source(self, said: str) -> None:
        """Check that a prompt of ``sudo`` may be answered: PAM may count one without an answer as a wrong password.

        Args:
            said: Why ``sudo`` runs nothing without a password.

        Raises:
            UnsupportedOperation: Nothing can give a password.
            ConfigError: The command of the settings failed.
        """
        if current_prompter() is not None or self.passwords.has_stored():
            return
        if not self.passwords.config.sudo_password_command:
            raise self._error(said, HINT)
        if await self.passwords.command_was_refused():
            raise self._error(COMMAND_REFUSED, COMMAND_HINT)

    async def confirm(self) -> None:
        """Ask the operator before a known password is typed into a pane, unless that is approved.

        ``sudo`` must not ask yet, as a denial would count as a wrong password.

        Raises:
            UnsupportedOperation: The operator does not agree.
            ConfigError: The command of the settings failed.
        """
        prompter, passwords = current_prompter(), self.passwords
        by_command = bool(passwords.config.sudo_password_command)
        if self.approved or not (passwords.has_stored() or (by_command and not await passwords.command_was_refused())):
            return
        text = f"type the known password for sudo on {self._target} into {self.waiting}? [y/N] "
        answer = None
        if prompter is not None:
            with anyio.move_on_after(ANSWER_TIMEOUT):
                answer = await prompter.answer(LoginQuestion("sudo", text, False, self._target))
        if (answer or "").strip().lower() not in ("y", "yes"):
            raise self._error("the operator did not approve it", "")
        self.approved = True

    async def answer(self, prompt: str) -> str:
        """Return the answer to a prompt of ``sudo``; a second prompt for the same password refuses the first one.

        Raises:
            UnsupportedOperation: No answer arrives, or no further one.
            ConfigError: The command of the settings failed.
        """
        self.questions += 1
        account = account_of(prompt)
        if not account and self.waiting is not None:
            raise self._error("it asks for more than a password", "")
        if not account:
            return await self._ask_other(prompt)
        if account in self.used:
            self.questions = 1
            self.passwords.refuse(account, self.used.pop(account))
            if self.approved:
                raise self._error("sudo refused the password", "")
        password = await self._password(account)
        self.used[account] = password
        return password

    async def repeat(self, prompt: str) -> str:
        """Return the answer to the same prompt for the command itself: the password that was accepted.

        Raises:
            UnsupportedOperation: No answer arrives.
        """
        account = account_of(prompt)
        if not account:
            return await self._ask_other(prompt)
        if account not in self.used:
            raise self._error(f"sudo asks for the password of {account} only now", "")
        return self.used[account]

    def accept(self) -> None:
        """Keep the passwords that were sent last."""
        for account, password in self.used.items():
            self.passwords.accept(account, password)

    def doubt(self) -> None:
        """Take a refusal that may be about the passwords that were sent last, or about the command."""
        for account, password in self.used.items():
            self.passwords.doubt(account, password)

    async def _ask_other(self, prompt: str) -> str:
        return await self._ask(
            f"sudo on {self._target} asks, to run a command as {self.user}: {single_line(prompt)[:200]} "
        )

    async def _password(self, account: str) -> str:
        stored = self.passwords.stored(account)
        if stored is not None:
            return stored
        if not self._from_command:
            self._from_command = True
            password = await self.passwords.from_command(account)
            if password is not None and not self.passwords.was_refused(account, password):
                _remember(password)
                return password
        purpose = f"run a command as {self.user}" if self.waiting is None else f"type it into {self.waiting}"
        return await self._ask(f"password of {account} for sudo on {self._target}, to {purpose}: ")

    async def _ask(self, text: str) -> str:
        prompter = current_prompter()
        if prompter is None and self._from_command and self.passwords.config.sudo_password_command:
            raise self._error(COMMAND_REFUSED, COMMAND_HINT)
        if prompter is None:
            raise self._error("sudo asks for a password", HINT)
        if self._asked >= MAX_QUESTIONS:
            raise self._error("sudo refused the password", f"it was asked for {MAX_QUESTIONS} times")
        self._asked += 1
        question = LoginQuestion("sudo", text, True, self._target, self._asked)
        answer = None
        with anyio.move_on_after(ANSWER_TIMEOUT) as waiting:
            answer = await prompter.answer(question)
        if waiting.cancelled_caught:
            raise self._error(f"sudo asks for a password, and there was no answer within {ANSWER_TIMEOUT:g} s", HINT)
        if not answer:
            refused = self._asked > 1
            raise self._error(f"sudo {'refused the' if refused else 'asks for a'} password, and none was given", "")
        _remember(answer)
        return answer

    @property
    def _target(self) -> str:
        return str(self.passwords.target)

    def _error(self, reason: str, hint: str) -> HarnessError:
        text = reason if self.waiting is not None else f"cannot run as {self.user}: {reason}"
        return UnsupportedOperation(text, target=self.passwords.target, hint=hint)


def _remember(secret: str) -> None:
    """Let all that this process shows, stores or sends to a model redact the secret."""
    from harness.toolkit.redaction.redactor import remember  # loaded when there is a secret only

    remember(secret)
