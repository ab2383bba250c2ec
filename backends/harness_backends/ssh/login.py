"""Login with ``ssh``: prompts, their answers, and the cause of a failure."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import termios
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, Literal

import anyio
import anyio.to_thread
from anyio.abc import Process as AnyioProcess

from harness.errors import AuthenticationError, ConfigError, ConnectError, HarnessError, HostKeyError, TargetNotFound
from harness.login import LoginQuestion, Prompter, current_prompter, questions_forbidden
from harness.system.background_tasks import open_task_group
from harness.target import Target

from .known_hosts import changed_key, revoked_key, unknown_key
from .login_pacing import ThrottledError
from .without_ssh import no_ssh_hint

__all__ = [
    "AgentRefusedError",
    "NegotiationError",
    "add_advice",
    "classify",
    "diagnose",
    "find_cause",
    "log_in",
    "login_timed_out",
]


# -- Why the server refused a login: which key was not used, from ssh's debug log. Pure.
#
# The server always answers ``Permission denied``; the reason is mostly on this side.


@dataclass(frozen=True, slots=True)
class AuthFailureCause:
    """The reason why no key was accepted, and its remedy."""

    what: str
    hint: str


_MISSING = "name an existing key file (-i, identity, or IdentityFile in the ssh config)"
_FORMAT = (
    "it is damaged or in a format that ssh cannot read: check it with ssh-keygen -y -f FILE; "
    "convert a PuTTY key with puttygen -O private-openssh"
)
_START = "start one (eval $(ssh-agent); ssh-add), or point SSH_AUTH_SOCK or IdentityAgent to it"

# In order of preference: a problem with a certain key comes before the absence of keys.
_CAUSES = (
    (
        r"Permissions (\d+) for '(.+)' are too open",
        "the key {1} was ignored: other users can read it (mode {0})",
        "chmod 600 {1}",
    ),
    (
        r'Load key "(.+)": Permission denied',
        "the key {0} is not readable for this user",
        "check the file's owner and mode",
    ),
    (
        r'Load key "(.+)": incorrect passphrase',
        "the passphrase of the key {0} was wrong",
        "try again, or add the key to an agent with ssh-add",
    ),
    (r'Load key "(.+)": (.+)', "the key {0} was not used: {1}", _FORMAT),
    (r"Identity file (.+) not accessible: (.+?)\.?$", "the key {0} was not used: {1}", _MISSING),
    (r"no such identity: (.+): (.+)", "the key {0} was not used: {1}", _MISSING),
    (
        r"(signing failed for .+|no mutual signature.+)",
        "{0}",
        "unlock the key in its agent or token, or use another one",
    ),
)
_AGENT = (
    (r"agent contains no identities", "the agent holds no key", "add one with ssh-add"),
    (r"ssh_get_authentication_socket: (.+)", "the agent could not be reached ({0})", _START),
)
_ACCEPTED = re.compile(r"Server accepts key: (\S+)")
_OFFERED = re.compile(r"Offering public key: (\S+) (\S+)")
_METHODS = re.compile(r"Permission denied \(([a-z0-9@.,-]+)\)")


def find_cause(log: str) -> AuthFailureCause | None:
    """Return the cause of a refused login from ssh's log with debug lines; None if the log does not show it."""
    if cause := _first_refusal(_CAUSES, log) or _locked(log):
        return cause
    if not _wants_key(log):
        return None
    offered = [f"{name} ({kind})" for name, kind in _OFFERED.findall(log)]
    if offered:
        return AuthFailureCause(
            f"the server does not accept {', '.join(dict.fromkeys(offered))}",
            "check the user, and that the public key is in the account's authorized_keys on the host",
        )
    return _first_refusal(_AGENT, log) or AuthFailureCause(
        "no key was offered", f"{_MISSING}, or add one to an agent with ssh-add"
    )


def _first_refusal(table: tuple[tuple[str, str, str], ...], log: str) -> AuthFailureCause | None:
    for pattern, what, hint in table:
        if found := re.search(pattern, log, re.M):
            words = found.groups()
            return AuthFailureCause(what.format(*words), hint.format(*words))
    return None


def _locked(log: str) -> AuthFailureCause | None:
    """Return the cause if the server accepted a key that ssh could not decrypt."""
    accepted = _ACCEPTED.search(log)
    if accepted is None:
        return None
    return AuthFailureCause(
        f"the server accepts the key {accepted[1]}, but it could not be used: no passphrase was given",
        "add it to an agent with ssh-add, or answer the prompt at a terminal",
    )


def _wants_key(log: str) -> bool:
    methods = _METHODS.findall(log)
    return bool(methods) and "publickey" in methods[-1]


# -- Why a login failed, from ssh's log. Pure.


_NOISE = re.compile(r"^(debug\d: |OpenSSH_|Authenticated to |@{3,}|\s*$|Pseudo-terminal )")
_PRESENTED = re.compile(r"Server host key: (\S+) (SHA256:\S+)")
_OFFENDING = re.compile(r"Offending .*key in (.+)")

_REVOKED = "REVOKED HOST KEY"
_CHANGED = ("REMOTE HOST IDENTIFICATION HAS CHANGED", "host key mismatch")
_UNKNOWN = ("Host key verification failed", "host key is known for", "No matching host key fingerprint found")
_NAME = ("Could not resolve hostname", "Name or service not known", "no address associated with name")
_REFUSED = (
    "Permission denied",
    "Too many authentication failures",
    "No more authentication methods",
    "Authentication failed",
    "no mutual signature",
)
_CONFIG = (
    "Bad configuration option",
    "bad configuration options",
    "command-line line 0",
    "Bad owner or permissions",
    "Can't open user config file",
    "Unsupported option",
    "missing argument",
    "keyword ",
)

_REACH = "check that the host is up, its SSH port is reachable, and any jump host accepts the login"
_DROPPED = "the server closed the connection before the login: MaxStartups, a ban or a firewall"
_PROXY_COMMAND = "Executing proxy command"
_CONNECTING = (
    ("Connection refused", "no server listens on that port: check the port, and that the SSH server is running"),
    ("timed out during banner exchange", "the service on that port does not speak SSH, or the host is overloaded"),
    ("Connection timed out", "no answer: the host is down, or a firewall drops the connection"),
    ("No route to host", "the host is down, or a firewall refuses the connection"),
    ("Network is unreachable", "this machine has no route to that network: check the network or VPN"),
    (
        "Unable to negotiate",
        "client and server have no algorithm in common: allow an older one, e.g. -o HostKeyAlgorithms=+ssh-rsa",
    ),
    ("invalid characters", "the service on that port is not SSH: check the port"),
    ("Connection reset by ", _DROPPED),
    ("_identification: Connection closed by ", _DROPPED),
)
_KINDS = (
    (_CONFIG, ConfigError, "ssh rejects its configuration: ", "check it with: ssh -G HOST"),
    (
        ("Temporary failure in name resolution",),
        TargetNotFound,
        "",
        "the name server did not answer: check this machine's network",
    ),
    (_NAME, TargetNotFound, "", "check the name, or its Host entry in the ssh configuration"),
)


def diagnose(log: str, target: object) -> HarnessError:
    """Return the error for a failed login, with the line of ssh's log that gives the reason."""
    log = log.replace("\r", "")
    lines = [line.rstrip() for line in log.splitlines() if not _NOISE.match(line)]
    text = "\n".join(lines)
    if error := _host_key_error(text, log, target):
        return error
    for signs, kind, what, hint in _KINDS:
        if line := _first_line(signs, lines):
            return kind(f"{what}{_short(line)}", target=target, hint=hint)
    if line := _first_line(("Permission denied (",), lines) or _first_line(_REFUSED, lines):
        return _refused(line, log, target)
    for sign, hint in _CONNECTING:
        if line := _first_line((sign,), lines):
            return ConnectError(_short(line), target=target, hint=hint)
    return ConnectError(_short(_why(lines)), target=target, hint=_REACH)


def _is_throttled(log: str, error: HarnessError) -> bool:
    """Return whether the server closed the connection before the key exchange ended, so that it saw no login.

    Args:
        log: ssh's log with debug lines.
        error: What :func:`diagnose` returned for it.
    """
    return type(error) is ConnectError and error.hint == _DROPPED and "SSH2_MSG_NEWKEYS received" not in log


def _proxy_failure(error: ConnectError, jump_host: str) -> ConnectError:
    """Return the error for a login through a proxy command, of which ssh discards the messages.

    Args:
        error: What :func:`diagnose` returned for ssh's log.
        jump_host: The jump host whose master is used; empty for a proxy command of the user.
    """
    if not jump_host and error.hint == _DROPPED:
        message = "the connection was closed before the login; the messages of the proxy command are not known"
        return ConnectError(message, target=error.target, hint="ssh -v HOST shows them")
    if jump_host and "timed out" in error.message:
        message = f"no answer through the jump host {jump_host}"
        return ConnectError(message, target=error.target, hint="the host is down, or a firewall drops the connection")
    return error


def _refused(line: str, log: str, target: object) -> AuthenticationError:
    what = f"the login was refused: {_short(line)}"
    cause = find_cause(log)
    if cause is None:
        return AuthenticationError(what, target=target, hint="check the user, and the key or the agent")
    return AuthenticationError(f"{what}; {cause.what}", target=target, hint=cause.hint)


def _host_key_error(text: str, log: str, target: object) -> HostKeyError | None:
    if _REVOKED in text:
        return revoked_key(_presented(log), target)
    if _any(_CHANGED, text):
        offending = _OFFENDING.search(text)
        return changed_key(_presented(log), offending[1] if offending else "", target)
    return unknown_key(_presented(log), target) if _any(_UNKNOWN, text) else None


def _presented(log: str) -> str:
    found = _PRESENTED.findall(log)
    return " ".join(found[-1]) if found else "not shown by ssh"


def _any(signs: tuple[str, ...], text: str) -> bool:
    return any(sign in text for sign in signs)


def _first_line(signs: tuple[str, ...], lines: list[str]) -> str:
    return next((line for line in lines if _any(signs, line)), "")


def _why(lines: list[str]) -> str:
    """Return the most informative line: a jump host's message is preferred to the 'closed by UNKNOWN' it causes."""
    telling = [line for line in lines if "UNKNOWN port" not in line and not line.startswith("Warning:")]
    return (telling or lines or ["ssh exited without a message"])[-1]


def _short(line: str) -> str:
    return line.removeprefix("ssh: ").removesuffix(".").strip()


# -- Running an ``ssh`` that logs in and goes to the background, and answering its prompts.
#
# ssh prompts at its controlling terminal, so it gets one of its own, driven by pexpect. Its log goes to an unnamed
# file, for the cause of a failed login. Answers are written to that terminal and stored nowhere.


STEP = 0.25
NO_TERMINAL = "no terminal was available to ask for a password or passphrase"
FORBIDDEN = "logins to many hosts, and with --batch, ask for no password or passphrase: use a key or an agent"
LOG_LIMIT = 256 * 1024

# The shell becomes the leader of a session on this terminal. Job control gives ssh its own process group, so that the
# end of the session does not kill a ProxyCommand that the connection needs.
_ON_TERMINAL = 'exec 0<>"$0" && set -m && "$@"; exit $?'

_PROMPT = re.compile(rb"[:?] ?\Z")
_ALL = re.compile(rb".+", re.S)
_OTP = re.compile(r"\b(code|otp|token|factor|passcode|one-time|verification|duo|totp|2fa|challenge|response)\b", re.I)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class AgentRefusedError(AuthenticationError):
    """The agent does not sign for this engine with a key that the server accepts; it may do so for ssh."""


class NegotiationError(ConnectError):
    """The key exchange failed, mostly for want of a common algorithm; no authentication was tried."""


def login_timed_out(timeout: float, target: Target) -> ConnectError:
    """Return the error of a login that took longer than ``login_timeout``."""
    return ConnectError(
        f"the login did not finish within {timeout:g} s",
        target=target,
        hint="raise login_timeout if the login needs more time",
    )


async def log_in(argv: Callable[[bool], list[str]], target: Target, timeout: float, *, jump_host: str = "") -> None:
    """Run ``argv(questions)`` until the login has succeeded.

    Args:
        argv: builds the ssh command; its argument says whether prompts can be answered.
        target: for messages and prompts.
        timeout: seconds for the whole login, including the operator's answers.
        jump_host: the jump host that has already been logged in to, and that the command connects through.

    Raises:
        AuthenticationError, HostKeyError, TargetNotFound, ConnectError, ConfigError: see :mod:`harness.errors`.
        ThrottledError: the server closed the connection before it saw a login.
    """
    prompter = current_prompter()
    with tempfile.TemporaryFile() as log:
        try:
            with anyio.fail_after(timeout):
                if prompter is None:
                    status = await _run_silent(argv(_has_askpass()), log)
                else:
                    status = await _run_on_terminal(argv(True), log, _PromptLog(prompter, target))
        except TimeoutError:
            raise login_timed_out(timeout, target) from None
        except FileNotFoundError as error:
            raise ConnectError(f"{error.filename} is not installed", target=target, hint=no_ssh_hint()) from error
        if status != 0:
            raise _refusal(_text(log), target, argv(False), jump_host, asked=prompter is not None)


def _refusal(log: str, target: Target, argv: list[str], jump_host: str, *, asked: bool) -> HarnessError:
    error = diagnose(log, target)
    if type(error) is ConnectError and _PROXY_COMMAND in log:
        error = _proxy_failure(error, jump_host)
    if _is_throttled(log, error):
        return ThrottledError(error.message, target=target, hint=error.hint)
    add_advice(error, argv[argv.index("-F") + 1] if "-F" in argv[:-1] else "", asked=asked)
    return error


def add_advice(error: HarnessError, ssh_config: str, *, asked: bool) -> None:
    """Add to the hint of a refused login that nothing could be asked, and which configuration is used.

    Args:
        error: The error.
        ssh_config: The file of the ssh configuration; empty for the user's.
        asked: Whether the operator could be asked.
    """
    if isinstance(error, AuthenticationError) and not asked:
        error.hint += f"; {FORBIDDEN if questions_forbidden() else NO_TERMINAL}"
    if isinstance(error, HostKeyError) and ssh_config:
        error.hint = error.hint.replace("once with ssh to", f"once with ssh -F {shlex.quote(ssh_config)} to")


def _has_askpass() -> bool:
    """Return True if the user has configured an askpass program."""
    return bool(os.environ.get("SSH_ASKPASS")) and os.environ.get("SSH_ASKPASS_REQUIRE") in ("force", "prefer")


def _text(log: IO[bytes]) -> str:
    return os.pread(log.fileno(), LOG_LIMIT, 0).decode("utf-8", "replace")


@asynccontextmanager
async def _started(argv: list[str], log: IO[bytes], environ: dict[str, str] | None) -> AsyncIterator[AnyioProcess]:
    """Start a process in its own session without input or output; kill it when the context exits."""
    with anyio.CancelScope(shield=True):  # a cancel in between would leak a started process
        process = await anyio.open_process(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environ,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            with anyio.CancelScope(shield=True), suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _run_silent(argv: list[str], log: IO[bytes]) -> int:
    async with _started(argv, log, None) as process:
        return await process.wait()


async def _run_on_terminal(argv: list[str], log: IO[bytes], dialogue: _PromptLog) -> int:
    environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    with _LoginPty() as terminal:
        async with _started(["sh", "-c", _ON_TERMINAL, terminal.name, *argv], log, environ) as process:
            async with open_task_group() as tasks:
                tasks.start_soon(_hang_up_after, process, terminal)
                await _converse(terminal, dialogue, log)
            return await process.wait()


async def _converse(terminal: _LoginPty, dialogue: _PromptLog, log: IO[bytes]) -> None:
    """Relay prompts and answers until ssh exits.

    Raises:
        ConnectError: A prompt has no answer.
        Exception: The prompter raised it.
    """
    while (prompt := await terminal.next_prompt()) is not None:
        answer = await dialogue.answer(prompt, secret=terminal.hides_input())
        if answer is None:
            raise dialogue.declined(prompt, _text(log))
        terminal.type(answer)


async def _hang_up_after(process: AnyioProcess, terminal: _LoginPty) -> None:
    await process.wait()
    terminal.hang_up()


class _LoginPty:
    """The PTY on which ``ssh`` asks its questions, from the operator's side."""

    def __init__(self) -> None:
        from pexpect.fdpexpect import fdspawn

        self._keyboard, self._line = os.openpty()
        self.name = os.ttyname(self._line)
        self._line_open = True
        self._echoed = False
        self._spawn = fdspawn(self._keyboard, timeout=STEP)

    def __enter__(self) -> _LoginPty:
        return self

    def __exit__(self, *exception: object) -> None:
        self.hang_up()
        os.close(self._keyboard)

    def hang_up(self) -> None:
        """Close this process's copy of the terminal, so that reading ends once ssh has closed it too."""
        if self._line_open:
            self._line_open = False
            os.close(self._line)

    def hides_input(self) -> bool:
        """Return True if the terminal does not echo input."""
        return not termios.tcgetattr(self._line)[3] & termios.ECHO

    async def next_prompt(self) -> str | None:
        """Wait for the next prompt; return None once ssh has exited."""
        while self._line_open:
            text = await anyio.to_thread.run_sync(self._expect)
            if text and self._line_open:
                question = text.decode("utf-8", "replace").replace("\r\n", "\n")
                return (question.partition("\n")[2] if self._echoed else question).lstrip("\n")
        return None

    def _expect(self) -> bytes:
        """Return the output since the last answer if it is a prompt: it does not end a line, and no output follows."""
        from pexpect import EOF, TIMEOUT

        if self._spawn.expect([_PROMPT, TIMEOUT, EOF], timeout=STEP) == 1:
            pending = _bytes(self._spawn.before)
            if not pending or pending.endswith(b"\n") or self._spawn.expect([_ALL, TIMEOUT], timeout=0) == 1:
                return b""
        return _bytes(self._spawn.before) + _bytes(self._spawn.after)

    def type(self, answer: str) -> None:
        """Type a line, with control characters quoted so that the terminal passes them on unchanged."""
        self._echoed = not self.hides_input()
        raw = answer.encode("utf-8", "surrogateescape")
        os.write(self._keyboard, _CONTROL.sub(lambda found: b"\x16" + found[0], raw) + b"\n")


def _bytes(part: object) -> bytes:
    """Return what pexpect matched, or nothing where it holds a class instead of bytes."""
    return part if isinstance(part, bytes) else b""


class _PromptLog:
    """The prompter of one login, and how often each prompt was asked."""

    def __init__(self, prompter: Prompter, target: Target) -> None:
        self._prompter = prompter
        self._target = target
        self._asked: Counter[str] = Counter()

    async def answer(self, text: str, *, secret: bool) -> str | None:
        self._asked[text] += 1
        kind = classify(text, secret=secret)
        return await self._prompter.answer(LoginQuestion(kind, text, secret, str(self._target), self._asked[text]))

    def declined(self, text: str, log: str) -> ConnectError:
        """Return the error for a prompt without an answer."""
        if classify(text, secret=False) == "hostkey":
            error = diagnose(f"{log}\nHost key verification failed.", self._target)
            assert isinstance(error, HostKeyError)
            return error
        last = text.strip().splitlines()[-1] if text.strip() else "(empty)"
        return AuthenticationError(f"no answer to the login prompt {last!r}", target=self._target)


def classify(text: str, *, secret: bool) -> Literal["password", "passphrase", "otp", "hostkey", "other"]:
    """Return what kind of answer a prompt of ssh requires."""
    if "(yes/no" in text or "type 'yes'" in text:
        return "hostkey"
    if "passphrase for" in text or "PIN for" in text:
        return "passphrase"
    last = text.strip().rpartition("\n")[2]
    if _OTP.search(last):
        return "otp"
    return "password" if secret and "password" in last.lower() else "other"
