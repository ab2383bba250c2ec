"""Engines behind an address: TCP with TLS both ways, contexts, and what people are told when nothing answers."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest
from tests.support.contained import MakeWay, make_way
from tests.support.daemons import Daemon, recipe
from tests.support.engines import PREFIX, Engine, container, private_engine
from tests.support.sshd import free_port

from harness import connect
from harness.config import Config
from harness.discovery import open_target
from harness.errors import ConfigError, ConnectError
from harness.target import Target
from harness.testing.contract import run_transport_check, transport_checks

__all__ = ["make_way"]


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


def make_certificates(folder: Path) -> None:
    """An authority, and a key with a certificate for the server and for the client each."""
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-subj", "/CN=ca", "-keyout", f"{folder}/ca-key.pem", "-out", f"{folder}/ca.pem")
    for name, usage in (("server", "serverAuth"), ("client", "clientAuth")):
        (folder / f"{name}.ext").write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\n")
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{folder}/{name}-key.pem", "-out", f"{folder}/{name}.csr")
        signed = ("-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca-key.pem", "-CAcreateserial", "-days", "2")
        files = ("-in", f"{folder}/{name}.csr", "-out", f"{folder}/{name}.pem", "-extfile", f"{folder}/{name}.ext")
        openssl("x509", "-req", *signed, *files)


@dataclass
class Remote:
    """A Docker Engine that listens on TCP too, for clients that its authority knows."""

    engine: Engine
    port: int
    certificates: Path


@contextmanager
def a_remote_engine() -> Iterator[Remote]:
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        certificates = Path(folder, "certificates")
        certificates.mkdir()
        make_certificates(certificates)
        port = free_port()
        files = [("tlscacert", "ca"), ("tlscert", "server"), ("tlskey", "server-key")]
        tls = (f"--{option}={certificates}/{name}.pem" for option, name in files)
        base = recipe("docker", Path(folder, "d"))
        last = base.services[-1]
        listening = replace(last, argv=(*last.argv, "-H", f"tcp://127.0.0.1:{port}", "--tlsverify", *tls))
        daemon = Daemon(replace(base, services=(*base.services[:-1], listening)))
        try:
            daemon.start()
            yield Remote(Engine(daemon.recipe), port, certificates)
        finally:
            daemon.stop()


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with a_remote_engine() as found:
        yield found


def client_folder(remote: Remote, folder: Path) -> Path:
    """The client's files under the names that docker looks for."""
    for name, source in (("ca", "ca"), ("cert", "client"), ("key", "client-key")):
        (folder / f"{name}.pem").write_bytes((remote.certificates / f"{source}.pem").read_bytes())
    return folder


@pytest.mark.parametrize("item", transport_checks(), ids=lambda item: item.name)
async def test_the_contract_holds_over_tls(
    remote: Remote, make_way: MakeWay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: object
) -> None:
    make_way("docker")
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{remote.port}")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(client_folder(remote, tmp_path)))
    with container(remote.engine) as one:
        async with open_target(Target.parse(one.target), Config()) as backend:
            await run_transport_check(item, backend.transport)  # type: ignore[arg-type]  # one of transport_checks()


async def test_a_context_leads_to_its_engine(
    remote: Remote, make_way: MakeWay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_way("docker")
    digest = hashlib.sha256(b"far").hexdigest()
    meta, tls = tmp_path / "contexts/meta" / digest, tmp_path / "contexts/tls" / digest / "docker"
    meta.mkdir(parents=True)
    tls.mkdir(parents=True)
    client_folder(remote, tls)
    place = {"docker": {"Host": f"tcp://127.0.0.1:{remote.port}"}}
    (meta / "meta.json").write_text(json.dumps({"Name": "far", "Endpoints": place}))
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    with container(remote.engine) as one:
        async with connect(one.target) as ctx:
            assert (await ctx.run_shell("cat", stdin=b"x" * 100_000)).stdout_bytes == b"x" * 100_000
        monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
        with pytest.raises(ConfigError, match="nowhere"):
            async with connect(one.target):
                pass


async def test_a_client_that_is_not_known_is_told_so(
    remote: Remote, make_way: MakeWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_way("docker")
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{remote.port}")
    with pytest.raises(ConnectError) as plain:
        async with connect("docker://app"):
            pass
    assert "HTTPS" in str(plain.value)


@pytest.mark.parametrize("url", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
async def test_an_address_where_nothing_answers_is_named(
    make_way: MakeWay, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    make_way("docker")
    monkeypatch.setenv("DOCKER_HOST", url)
    with pytest.raises(ConnectError, match="no engine answers") as caught:
        async with connect("docker://app"):
            pass
    assert url in caught.value.hint
    assert "DOCKER_HOST" in caught.value.hint


async def test_a_cancelled_start_does_not_wait_for_an_engine_that_hangs(
    make_way: MakeWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_way("docker")
    with private_engine("docker") as (engine, daemon), container(engine) as one:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
        async with open_target(Target.parse(one.target), Config()) as backend:
            pid = int((daemon.recipe.directory / "docker.pid").read_text())
            os.kill(pid, signal.SIGSTOP)
            try:
                with anyio.fail_after(10), anyio.move_on_after(0.3) as scope:
                    await backend.transport.open_process(["true"])
                assert scope.cancelled_caught
            finally:
                os.kill(pid, signal.SIGCONT)
            async with await backend.transport.open_process(["true"]) as process:
                assert await process.wait() == 0


async def test_the_engine_that_has_the_container_is_found_without_a_name(make_way: MakeWay) -> None:
    way = make_way("podman")
    with container(way.engine) as one:
        async with way.connect(f"container://{one.name}") as ctx:
            assert (await ctx.run_shell("hostname")).ok
