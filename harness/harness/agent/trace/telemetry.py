"""Decides whether OpenTelemetry is used, and opens it; the library is imported only then.

``[agent] telemetry`` or the standard variables for endpoints switch it on. All else is configured by the standard
variables: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
OTEL_TRACES_SAMPLER and so on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anyio import to_thread

from ...errors import ConfigError
from ...extras import install_extra
from ...toolkit.values import JsonObject
from .observer import Observer

if TYPE_CHECKING:
    from types import ModuleType

    from ...toolkit.redaction.redactor import Redactor

__all__ = ["TelemetryOptions", "open_telemetry", "telemetry_options"]

log = logging.getLogger(__name__)

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
KINDS = ("TRACES", "METRICS")
PROTOCOLS = ("", "http/protobuf")
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """What is sent. ``content`` adds redacted prompts, responses, commands and results."""

    spans: bool = False
    metrics: bool = False
    content: bool = False

    @property
    def on(self) -> bool:
        """Whether anything is sent."""
        return self.spans or self.metrics


def telemetry_options(
    *, wanted: bool = False, content: bool = False, environ: Mapping[str, str] | None = None, has_library: bool = True
) -> TelemetryOptions:
    """Return what the settings and the variables select. Pure, except for the default of ``environ``.

    Args:
        wanted: ``[agent] telemetry``.
        content: ``[agent] telemetry_content``.
        environ: the variables; by default ``os.environ``.
        has_library: whether the extra ``otel`` is installed.

    Raises:
        ConfigError: it is switched on in the settings, and is not available.
    """
    env = os.environ if environ is None else environ
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return TelemetryOptions()
    chosen = {kind: _is_chosen(env, kind, wanted=wanted) for kind in KINDS}
    if not any(chosen.values()):
        return TelemetryOptions()
    problem, hint = _problem(env, has_library=has_library)
    if problem and wanted:
        raise ConfigError(f"telemetry is switched on, but cannot be sent: {problem}", hint=hint)
    if problem:  # the variables may be meant for other programs
        log.info("no telemetry is sent: %s (%s)", problem, hint)
        return TelemetryOptions()
    return TelemetryOptions(chosen["TRACES"], chosen["METRICS"], content)


def _is_chosen(env: Mapping[str, str], kind: str, *, wanted: bool) -> bool:
    exporter = env.get(f"OTEL_{kind}_EXPORTER", "")
    if exporter:
        return exporter == "otlp"
    return wanted or bool(env.get(ENDPOINT) or env.get(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT"))


def _problem(env: Mapping[str, str], *, has_library: bool) -> tuple[str, str]:
    names = ("OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_EXPORTER_OTLP_{kind}_PROTOCOL" for kind in KINDS))
    other = next((name for name in names if env.get(name, "") not in PROTOCOLS), "")
    if other:
        return f"{other} is {env[other]}", "harness speaks http/protobuf; set it so, and the port, which is often 4318"
    return ("", "") if has_library else ("its library is not installed", install_extra("otel"))


def _has_library() -> bool:
    try:
        return all(find_spec(name) is not None for name in NEEDED)
    except ModuleNotFoundError:
        return False


@asynccontextmanager
async def open_telemetry(
    redactor: Redactor, *, wanted: bool = False, content: bool = False, about: JsonObject | None = None
) -> AsyncIterator[Observer | None]:
    """Send spans and metrics of what happens inside the block; yields None if telemetry is off.

    Args:
        redactor: redacts what is sent.
        wanted: ``[agent] telemetry``.
        content: ``[agent] telemetry_content``.
        about: attributes of the program, such as ``service.version``.

    Raises:
        ConfigError: it is switched on in the settings, and is not available.
    """
    is_asked_for = wanted or any(name.startswith("OTEL_") for name in os.environ)
    has_library = is_asked_for and await to_thread.run_sync(_has_library)
    options = telemetry_options(wanted=wanted, content=content, has_library=has_library)
    if not options.on:
        yield None
        return
    otel: ModuleType = await to_thread.run_sync(import_module, ".open_telemetry", __package__)
    async with otel.open_exporters(
        redactor, about or {}, spans=options.spans, metrics=options.metrics, content=options.content
    ) as telemetry:
        yield telemetry
