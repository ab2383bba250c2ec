"""Reading what the choice of an engine depends on: variables, docker's configuration, sockets, programs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.account import home_directory
from harness.errors import ConfigError

from .endpoint import Context, EngineName, Snapshot, Tls

__all__ = ["read_snapshot"]

ENGINES: tuple[EngineName, ...] = ("docker", "podman")


def read_snapshot(environ: Mapping[str, str] | None = None) -> Snapshot:
    """Look around.

    Raises:
        ConfigError: docker's configuration cannot be read.
    """
    env = os.environ if environ is None else environ
    home = str(home_directory(env))
    folder = Path(env.get("DOCKER_CONFIG") or f"{home}/.docker")
    current = str(_read_json(folder / "config.json").get("currentContext", ""))
    wanted = env.get("DOCKER_CONTEXT", "") or current
    context = _read_context(folder, wanted) if wanted else None
    seen = Snapshot(
        docker_host=env.get("DOCKER_HOST", ""),
        docker_context=env.get("DOCKER_CONTEXT", ""),
        docker_tls_verify=bool(env.get("DOCKER_TLS_VERIFY")),
        docker_cert_path=env.get("DOCKER_CERT_PATH", ""),
        container_host=env.get("CONTAINER_HOST", ""),
        home=home,
        runtime_dir=env.get("XDG_RUNTIME_DIR", ""),
        current_context=current,
        contexts=(context,) if context else (),
        programs=tuple(name for name in ENGINES if shutil.which(name, path=env.get("PATH"))),
    )
    usual = [path for name in ENGINES for path in seen.usual_sockets(name)]
    return replace(seen, sockets=tuple(path for path in usual if os.path.exists(path)))


def _read_context(folder: Path, name: str) -> Context | None:
    """A context as docker stores it: in folders named by the hash of its name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = _read_json(folder / "contexts" / "meta" / digest / "meta.json")
    place = meta.get("Endpoints", {}).get("docker", {})
    if not place.get("Host"):
        return None
    files = folder / "contexts" / "tls" / digest / "docker"
    return Context(name, str(place["Host"]), _context_tls(files, skip=bool(place.get("SkipTLSVerify"))))


def _context_tls(files: Path, *, skip: bool) -> Tls | None:
    found = {name: str(files / f"{name}.pem") for name in ("ca", "cert", "key") if (files / f"{name}.pem").exists()}
    return Tls(found.get("ca", ""), found.get("cert", ""), found.get("key", ""), not skip) if found or skip else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return data if isinstance(data, dict) else {}
