"""An engine used through its own program, on any transport: no service, no exposed port, no second login."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

import anyio

from harness.errors import ConnectError, ConnectionLost
from harness.target import Target
from harness.transport import Process, Transport

from ..posix.files.transfer import drain
from .endpoints import EngineName
from .engine import PULL_TIMEOUT, Engine, EngineError, ExecRequest, exec_options
from .information import ContainerInfo, parse_info
from .temporary_container import LABEL, TemporaryContainer, program_words

__all__ = ["CliEngine", "open_cli_engine"]

logger = logging.getLogger(__name__)

CALL_TIMEOUT = 30.0
_NO_ENGINE = re.compile(r"cannot connect to the docker daemon|(unable to|cannot) connect to podman", re.IGNORECASE)
_NO_FILE = re.compile(r"could not find|could not be found|no such file|copied no items", re.IGNORECASE)


class CliEngine(Engine):
    """An engine that runs ``docker`` or ``podman`` on the transport of the containers' machine."""

    def __init__(self, program: EngineName, version: str, target: Target, base: Transport, *, here: bool) -> None:
        self.program = program
        self.name = "podman" if "podman" in version.lower() else program
        self.version = next((word.rstrip(",") for word in version.split() if word[:1].isdigit()), "")
        self._target = target
        self._base = base
        self._here = here

    async def inspect(self, name: str) -> ContainerInfo | None:
        words = [self.program, "inspect", "--type", "container", "--", name]
        code, stdout, stderr = await call(self._base, words, self._target)
        if code == 0:
            return self._parse(stdout)
        if "no such" in stderr.lower():
            return None
        raise self._down(stderr) or ConnectError(f"{self.program} refused: {stderr}", target=self._target)

    def _down(self, said: str) -> ConnectError | None:
        """Return the error for an engine that is not running; None for another message of its program."""
        if not _NO_ENGINE.search(said):
            return None
        start = "systemctl start docker" if self.program == "docker" else "podman machine start"
        return ConnectError(f"{self.program} is not running: {said}", target=self._target, hint=f"start it ({start})")

    def _parse(self, text: str) -> ContainerInfo:
        try:
            return parse_info(json.loads(text)[0])
        except (ValueError, LookupError, TypeError):
            raise ConnectError(f"{self.program} inspect printed no JSON", target=self._target) from None

    async def execute(self, request: ExecRequest) -> Process:
        return await self._base.open_process(self._words("-i", request))

    def _words(self, option: str, request: ExecRequest) -> list[str]:
        return [self.program, "exec", option, *exec_options(request), request.container_id, *request.argv]

    async def copy_out(self, container_id: str, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        source = (
            "//" if path == "/" else path
        )  # for one slash, podman copies the content of the root and not the root itself
        process = await self._base.open_process([self.program, "cp", "--", f"{container_id}:{source}", "-"])
        reply = await drain(process, sink)
        if reply.exit_code != 0:
            said = " ".join(reply.stderr.decode("utf-8", "replace").split())
            raise EngineError(404 if _NO_FILE.search(said) else 0, said)

    async def fetch(self, image: str) -> None:
        try:
            await self._ask("image", "inspect", "--", image)
        except EngineError:
            logger.info("%s: pulling the image %s", self._target, image)
            await self._ask("pull", "-q", "--", image, timeout=PULL_TIMEOUT)

    async def create(self, scratch: TemporaryContainer) -> str:
        return (await self._ask(*program_words(scratch))).split()[-1]

    async def remove(self, container_id: str) -> None:
        quickly = ("-t", "0") if self.name == "podman" else ()
        try:
            await self._ask("rm", "-f", "-v", *quickly, container_id)
        except EngineError as error:
            if "no such" not in error.message.lower() and "no container" not in error.message.lower():
                raise

    async def scratches(self) -> list[tuple[str, str]]:
        listed = await self._ask("ps", "-aq", "--no-trunc", "--filter", f"label={LABEL}")
        found = [await self.inspect(container_id) for container_id in listed.split()]
        return [(info.container_id, info.label) for info in found if info is not None]

    async def _ask(self, *words: str, timeout: float = CALL_TIMEOUT) -> str:
        code, stdout, stderr = await call(self._base, [self.program, *words], self._target, timeout=timeout)
        if code != 0:
            raise self._down(stderr) or EngineError(0, stderr)
        return stdout

    def interactive_argv(self, request: ExecRequest) -> list[str]:
        return self._words("-it", request)

    def describe(self) -> str:
        return f"{self.name} {self.version} program"


async def call(
    base: Transport, words: Sequence[str], target: Target, *, timeout: float = CALL_TIMEOUT
) -> tuple[int, str, str]:
    """Run a program of an engine with a timeout, and return its status and its two stripped streams.

    Raises:
        ConnectError: the program cannot be started.
        ConnectionLost: the program does not answer.
    """
    streams: dict[str, bytes] = {}

    async def drain(name: str, receive: Callable[[], Awaitable[bytes]]) -> None:
        chunks = []
        while data := await receive():
            chunks.append(data)
        streams[name] = b"".join(chunks)

    try:
        with anyio.fail_after(timeout):
            async with await base.open_process(words) as process:
                await process.send_eof()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(drain, "stdout", process.receive)
                    tasks.start_soon(drain, "stderr", process.receive_stderr)
                code = await process.wait()
    except TimeoutError:
        raise ConnectionLost(f"{words[0]} does not answer", target=target) from None
    stdout, stderr = (streams[name].decode("utf-8", "replace").strip() for name in ("stdout", "stderr"))
    return code, stdout, " ".join(stderr.split())


async def open_cli_engine(program: EngineName, target: Target, base: Transport, here: bool) -> CliEngine:
    """Query the program's version, as ``docker`` may be Podman's.

    Raises:
        ConnectError: the program is not installed, or fails.
        ConnectionLost: the program does not answer.
    """
    code, stdout, stderr = await call(base, [program, "--version"], target)
    if code == 0:
        return CliEngine(program, stdout, target, base, here=here)
    reason = "is not installed" if code == 127 else f"does not work: {stderr}"
    raise ConnectError(f"{program} {reason} on {base.target}", target=target, hint=f"install {program} on that machine")
