"""How commands run as another user: checked first, by ``runuser`` or ``sudo``, with a password if that is required."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

import anyio

from harness.backend import Capabilities
from harness.config import Config
from harness.errors import HarnessError, UnsupportedOperation
from harness.login import WaitingSudo, use_prompter
from harness.system.background_tasks import open_background_tasks
from harness.transport import Transport

from ..jobs.launch import change_user, check_script, kill_rights, refusal, refusal_reason
from ..persistent_shell import PersistentShell
from .askpass import ONLY_PASSWORD, AskpassProcess, open_askpass, sudo_argv
from .passwords import PasswordAttempts, SudoPasswords

__all__ = ["UserChange", "UserChanges"]

log = logging.getLogger(__name__)

CHECK_TIMEOUT = 120.0
"""Seconds for ``sudo`` to ask, or to finish after an answer; PAM modules may be slow."""
DELIVERY_TIMEOUT = 60.0
"""Seconds for the ``sudo`` of a started command to ask."""


@dataclass(slots=True)
class UserChange:
    """A way to run one command as another user that was checked."""

    user: str
    argv: tuple[str, ...]
    """The words before the command's."""
    askpass: str = ""
    """The program for ``SUDO_ASKPASS``; empty if no password is required."""
    _process: AskpassProcess | None = None
    _attempts: PasswordAttempts | None = None

    async def deliver(self, ended: Callable[[], Awaitable[object]]) -> None:
        """Give the command's ``sudo`` the password that was checked, as soon as it asks.

        Args:
            ended: Waits for the command's end, when it no longer asks.
        """
        if self._process is None or self._attempts is None:
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when, tasks.cancel_scope, ended)
                with anyio.move_on_after(DELIVERY_TIMEOUT), suppress(HarnessError, OSError):
                    for _ in range(self._attempts.questions):
                        await self._answer(self._process, self._attempts)
                tasks.cancel_scope.cancel()
        finally:
            await self._process.close()

    async def keep_answering(self) -> None:
        """Give each further ``sudo`` the password that was checked, until cancelled."""
        if self._process is None or self._attempts is None:
            return
        with suppress(HarnessError, OSError):
            while True:
                await self._answer(self._process, self._attempts)

    async def _answer(self, process: AskpassProcess, attempts: PasswordAttempts) -> None:
        event = await process.next_event()
        if event.checked is None:
            await process.answer(await attempts.repeat(event.prompt))


async def _cancel_when(scope: anyio.CancelScope, ended: Callable[[], Awaitable[object]]) -> None:
    with suppress(HarnessError):
        await ended()
    scope.cancel()


class UserChanges:
    """The changes of user on one target; the passwords for ``sudo`` are kept as long as this object."""

    def __init__(
        self, transport: Transport, shell: PersistentShell, capabilities: Capabilities, config: Config
    ) -> None:
        self._transport = transport
        self._shell = shell
        self._capabilities = capabilities
        self._passwords = SudoPasswords(transport.target, config)
        self._asking = anyio.Lock()
        self._sudo_asks = False
        """Whether ``sudo`` has asked for a password: then trying without one only fills its log."""

    @asynccontextmanager
    async def open(self, user: str) -> AsyncIterator[UserChange]:
        """Provide a way to run a command as the user, which asks the operator for a password if ``sudo`` does.

        Raises:
            UnsupportedOperation: Commands cannot run as this user, or there is no password.
            ConnectError, ConnectionLost: No connection is available.
        """
        argv = change_user(user, self._capabilities, self._transport.target)
        sudo = self._capabilities.program("sudo")
        attempts, said = PasswordAttempts(self._passwords, user), "sudo asks for a password"
        if not self._sudo_asks:
            reply = await self._shell.call(check_script(argv))
            if reply.exit_code == 0:
                yield UserChange(user, argv)
                return
            stderr = reply.stderr.decode("utf-8", "replace")
            if argv[0] != sudo or self._capabilities.uid == 0:
                raise refusal(user, stderr, self._transport.target)
            said = refusal_reason(stderr)
        await attempts.check_source(said)
        root, sh = self._capabilities.state_dir, self._capabilities.program("sh")
        async with open_askpass(self._transport, root, sh, sudo, user) as process:
            async with self._asking:  # who waits here finds the password that another one was asked for
                await self._check(process, attempts)
            yield UserChange(user, sudo_argv(sudo, user), process.path, process, attempts)

    async def password_for(self, waiting: WaitingSudo, sudo: str, *, approved: bool) -> tuple[str, str]:
        """Return the account and the password for a ``sudo`` that waits in a pane; ``sudo`` has accepted it before.

        :meth:`check_password_source` comes first.

        Args:
            waiting: The one that waits.
            sudo: The path of the target's ``sudo``.
            approved: Whether the operator has approved this; otherwise the answer to the question for the password is
                the approval, or to a further question if the password is known.

        Raises:
            UnsupportedOperation: There is no password, or ``sudo`` refuses it.
            ConnectError, ConnectionLost: No connection is available.
        """
        attempts = PasswordAttempts(self._passwords, waiting.user, waiting=waiting, approved=approved)
        await attempts.confirm()
        root, sh = self._capabilities.state_dir, self._capabilities.program("sh")
        check = open_askpass(self._transport, root, sh, sudo, waiting.user, ONLY_PASSWORD)
        async with check as process, self._asking:
            await self._check(process, attempts)
        if len(attempts.used) != 1:
            raise UnsupportedOperation("sudo asks for no password when it is only checked", target=waiting.target)
        return next(iter(attempts.used.items()))

    async def check_password_source(self, waiting: WaitingSudo) -> None:
        """Check that there may be a password for a ``sudo`` that waits in a pane, before it is approved.

        Raises:
            UnsupportedOperation: Nothing can give a password.
            ConfigError: The command of the settings failed.
        """
        attempts = PasswordAttempts(self._passwords, waiting.user, waiting=waiting)
        await attempts.check_source("there is no password for it")

    def refuse(self, account: str) -> None:
        """Forget the password of an account, as a ``sudo`` in a pane has refused it."""
        if (password := self._passwords.stored(account)) is not None:
            self._passwords.refuse(account, password)

    async def _check(self, process: AskpassProcess, attempts: PasswordAttempts) -> None:
        """Answer ``sudo`` until it accepts or refuses.

        Raises:
            UnsupportedOperation: It refuses, or no answer arrives.
        """
        target = self._transport.target
        while True:
            with anyio.move_on_after(CHECK_TIMEOUT) as waiting:
                event = await process.next_event()
            if waiting.cancelled_caught:
                raise refusal(attempts.user, f"sudo did not answer within {CHECK_TIMEOUT:g} s", target)
            if event.checked == 0:
                attempts.accept()
                self._sudo_asks = attempts.questions > 0
                return
            if event.checked is not None:
                attempts.doubt()
                raise refusal(attempts.user, event.reason, target)
            await process.answer(await attempts.answer(event.prompt))

    @asynccontextmanager
    async def open_kill_rights(self, user: str, *, may_ask: bool) -> AsyncIterator[str | None]:
        """Provide shell code before a kill of a user's processes; None if they can only be asked to end, by ``sudo``.

        Args:
            user: The user of the job.
            may_ask: Whether the operator may be asked.
        """
        if user == self._capabilities.user or self._capabilities.uid == 0:
            yield ""
            return
        if self._asking.locked() and not may_ask:  # an operator's answer may take minutes
            yield None
            return
        async with AsyncExitStack() as stack:
            change = None
            try:
                with nullcontext() if may_ask else use_prompter(None):
                    change = await stack.enter_async_context(self.open(user))
            except HarnessError as error:
                log.warning("%s: cannot kill processes of %s: %s", self._transport.target, user, error.message)
            if change is not None and change.askpass:
                tasks = await stack.enter_async_context(open_background_tasks())
                tasks.start_soon(change.keep_answering)
            yield None if change is None else kill_rights(change.argv, change.askpass)
