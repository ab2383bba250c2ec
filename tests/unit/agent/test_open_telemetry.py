"""Telemetry: spans and metrics of what happens, to where the standard variables say, without content unless asked."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.own_home import here

from harness.agent.events import ModelRetry, Notice, TurnCompleted, TurnStarted, UsageChanged
from harness.agent.models import ModelProfile, OpenModel
from harness.agent.models.scripted import ScriptedCall, Step, open_scripted
from harness.agent.opening import open_agent
from harness.agent.trace import Observer
from harness.agent.trace.open_telemetry import Telemetry, providers_of, safe_name, without_content
from harness.agent.trace.telemetry import TelemetryOptions, open_telemetry, telemetry_options
from harness.context import ExecutionContext
from harness.errors import ConfigError
from harness.extras import install_extra
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import JobExited, JobStarted, PermissionAsked, PermissionReplied
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.values import ToolCall

__all__ = ["here"]

AUTO = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
SECRET = "correct-horse-battery-staple"
REDACTOR = PatternRedactor([SECRET])
PROFILE = ModelProfile("scripted", "scripted", "scripted")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SCRIPT = (
    Step("I look. ", calls=[ScriptedCall("run_shell", {"command": f"echo rainbow {SECRET}"})]),
    Step("It says rainbow."),
)


async def conversation(execution: ExecutionContext, observer: Observer) -> None:
    """A turn with one call."""

    @asynccontextmanager
    async def open_one(profile: ModelProfile) -> AsyncIterator[OpenModel]:
        yield open_scripted(SCRIPT)

    async with (
        open_toolkit(AUTO) as toolkit,
        open_agent(execution, toolkit, PROFILE, open_one=open_one, observers=[observer]) as agent,
    ):
        assert (await agent.turn("where is the rainbow?")).status == "completed"


@dataclass
class InMemory:
    """Telemetry whose spans and metrics stay here."""

    content: bool = False
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        redact = REDACTOR.text if self.content else None
        made = providers_of(self.exporter, self.reader, redact, {}, processor=SimpleSpanProcessor)
        self.telemetry = Telemetry(made.spans, made.metrics, content=self.content)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    @property
    def metrics(self) -> dict[str, list[object]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


async def test_requests_and_calls_are_spans_of_their_turn_without_what_was_said(here: ExecutionContext) -> None:
    made = InMemory()
    await conversation(here, made.telemetry)
    spans = made.spans
    assert set(spans) == {"turn", "chat scripted", "execute_tool run_shell"}
    turn = spans["turn"]
    assert turn.parent is None
    for name in ("chat scripted", "execute_tool run_shell"):
        assert spans[name].parent == turn.context
    assert turn.attributes is not None
    assert (turn.attributes["harness.status"], turn.attributes["harness.steps"]) == ("completed", 2)
    call = spans["execute_tool run_shell"].attributes
    assert call is not None
    assert (call["harness.status"], call["gen_ai.tool.name"]) == ("ok", "run_shell")
    request = spans["chat scripted"].attributes
    assert request is not None
    assert int(str(request["gen_ai.usage.output_tokens"])) > 0
    everything = " ".join(span.to_json() for span in made.exporter.get_finished_spans())
    for word in ("rainbow", SECRET, "echo", "production"):
        assert word not in everything
    assert {"harness.turn.duration", "harness.tool_call.duration", "gen_ai.client.token.usage"} <= set(made.metrics)
    assert "harness.tokens" in made.metrics


async def test_content_is_in_spans_when_it_is_switched_on_and_secrets_never_are(here: ExecutionContext) -> None:
    made = InMemory(content=True)
    await conversation(here, made.telemetry)
    everything = " ".join(span.to_json() for span in made.exporter.get_finished_spans())
    assert "where is the rainbow?" in everything
    assert "echo rainbow" in everything
    assert "It says rainbow." in everything
    assert SECRET not in everything


def test_approvals_jobs_and_retries_are_told_with_their_turn() -> None:
    made = InMemory()
    hear = made.telemetry.heard
    hear(TurnStarted(turn_id="t1", prompt="x"))
    hear(ModelRetry(turn_id="t1", attempt=1, seconds=2.0, reason="words"))
    hear(PermissionAsked(request_id="p", call=ToolCall("run_shell"), what="rm x", reason="words"))
    hear(PermissionReplied(request_id="p", allowed=False, by="operator"))
    for _ in range(2):
        hear(JobStarted(job_id="7", command="make"))
    hear(UsageChanged(input_tokens=10, output_tokens=2, context=12, limit=0, cost=0.5))
    hear(UsageChanged(input_tokens=15, output_tokens=3, context=18, limit=0, cost=0.75))
    hear(TurnCompleted(turn_id="t1", status="failed", failure="words", seconds=1.5))
    hear(JobExited(job_id="7", exit_code=3))
    hear(JobStarted(job_id="8", command="make"))
    hear(Notice(text="no span"))
    made.telemetry.close()
    spans = {
        (span.name, str((span.attributes or {}).get("harness.job_id", ""))): span
        for span in made.exporter.get_finished_spans()
    }
    assert set(spans) == {("turn", ""), ("approval", ""), ("job", "7"), ("job", "8")}
    turn = spans["turn", ""]
    assert turn.status.is_ok is False
    assert [event.name for event in turn.events] == ["model retry"]
    assert spans["approval", ""].parent == spans["job", "7"].parent == turn.context
    assert (spans["job", "7"].attributes or {})["harness.exit_code"] == 3
    assert (spans["job", "8"].attributes or {})["harness.unfinished"] is True
    assert "words" not in " ".join(span.to_json() for span in made.exporter.get_finished_spans())
    assert [point.value for point in made.metrics["harness.cost"]] == [0.75]  # type: ignore[attr-defined]  # a sum
    assert sorted(point.value for point in made.metrics["harness.tokens"]) == [3, 15]  # type: ignore[attr-defined]  # sums


def test_only_what_is_known_to_hold_no_content_leaves() -> None:
    known = {"harness.status": "ok", "gen_ai.usage.input_tokens": 1, "gen_ai.tool.name": "x"}
    content = {"harness.content.prompt": "a", "gen_ai.input.messages": "b", "gen_ai.tool.definitions": "c", "new": "d"}
    assert without_content({**known, **content}) == known
    assert without_content(None) == {}


@pytest.mark.parametrize("name", ["", "rm -rf /", "x" * 65, "a\nb", "ünï"])
def test_a_tool_that_cannot_be_one_has_no_name(name: str) -> None:
    assert safe_name(name) == "unknown"
    assert safe_name("mcp__files__read-all") == "mcp__files__read-all"


# -- whether, and where to


@pytest.mark.parametrize(
    ("environ", "wanted", "spans", "metrics"),
    [
        ({}, False, False, False),
        ({}, True, True, True),
        ({ENDPOINT: "http://x"}, False, True, True),
        ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "true"}, True, False, False),
        ({ENDPOINT: "http://x", "OTEL_METRICS_EXPORTER": "none"}, False, True, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, False, True, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, False, True, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True, False, True),
        ({ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, False, False),
        ({ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, False, True, True),
    ],
)
def test_the_settings_and_the_standard_variables_switch_it_on(
    environ: dict[str, str], wanted: bool, spans: bool, metrics: bool
) -> None:
    assert telemetry_options(environ=environ, wanted=wanted) == TelemetryOptions(spans, metrics)


def test_what_is_wanted_and_cannot_be_had_is_an_error() -> None:
    with pytest.raises(ConfigError, match="its library is not installed") as refused:
        telemetry_options(environ={}, wanted=True, has_library=False)
    assert refused.value.hint == install_extra("otel")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is grpc"):
        telemetry_options(environ={"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, wanted=True)
    assert not telemetry_options(environ={ENDPOINT: "http://x"}, has_library=False).on


@pytest.mark.usefixtures("needs_process")
def test_nothing_of_it_is_imported_when_it_is_off(tmp_path: Path) -> None:
    script = """
import anyio, sys
from harness.agent.trace.telemetry import open_telemetry
from harness.toolkit.redaction.redactor import PatternRedactor
async def main():
    async with open_telemetry(PatternRedactor()) as telemetry:
        heavy = ("opentelemetry.sdk", "requests", "pydantic_ai")
        print(telemetry, [name for name in sys.modules if name.startswith(heavy)])
anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", script], env={"HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout == "None []\n", done.stderr


# -- a real receiver


class Receiver(ThreadingHTTPServer):
    """Takes what is sent to it, as a collector does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[str] = []
        self.metrics: set[str] = set()
        self.services: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            for spans in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {item.key: item.value.string_value for item in spans.resource.attributes}
                self.server.services.add(names["service.name"])
                self.server.spans += [span.name for scope in spans.scope_spans for span in scope.spans]
        elif self.path == "/v1/metrics":
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.server.metrics |= {one.name for scope in metrics.scope_metrics for one in scope.metrics}
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def test_a_collector_gets_spans_and_metrics_over_http(
    here: ExecutionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as server:
        monkeypatch.setenv(ENDPOINT, server.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        monkeypatch.setattr("harness.agent.trace.open_telemetry.CLOSE_LIMIT", 60.0)
        async with open_telemetry(REDACTOR, about={"service.version": "1"}) as telemetry:
            assert telemetry is not None
            await conversation(here, telemetry)
        assert sorted(server.spans) == ["chat scripted", "chat scripted", "execute_tool run_shell", "turn"]
        assert {"harness.turn.duration", "gen_ai.client.token.usage"} <= server.metrics
        assert server.services == {"mine"}


ALONE = """
import anyio, logging
from harness.agent.events import TurnCompleted, TurnStarted
from harness.agent.trace.telemetry import open_telemetry
from harness.toolkit.redaction.redactor import PatternRedactor
logging.basicConfig(level=logging.WARNING)
async def main():
    async with open_telemetry(PatternRedactor(), wanted=True) as telemetry:
        telemetry.heard(TurnStarted(turn_id="t", prompt="x"))
        telemetry.heard(TurnCompleted(turn_id="t", status="completed"))
anyio.run(main)
print("ended")
"""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.timeout(200)
def test_without_a_collector_one_line_says_so_and_the_process_ends(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), ENDPOINT: "http://127.0.0.1:1"}
    argv = [sys.executable, "-c", ALONE]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 1
    assert all(
        line.startswith("WARNING:harness.agent.trace.open_telemetry:telemetry is not delivered:") for line in lines
    )
