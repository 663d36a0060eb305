"""Traces and metrics of a flow and its runs, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.cli.command_line import vinedresser
from tests.flows.test_notification_blocks import TRAINING
from tests.flows.test_sweep_flow import write
from vinedresser.errors import ConfigError
from vinedresser.infra.services.telemetry import start_telemetry
from vinedresser.store.reading.reader import open_run

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("shared_prefect"),
]

KINDS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP.

    Attributes:
        got: requests by path.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: dict[str, list[Any]] = {path: [] for path in KINDS}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        self.server.got[self.path].append(KINDS[self.path].FromString(content))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def train(folder: Path) -> tuple[int, str]:
    """Train until a rule stops it; return exit code and output."""
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    command = f'[run]\nname = "broken"\ncommand = ["{sys.executable}", "train.py"]\n'
    (folder / "experiment.toml").write_text(command, encoding="utf-8")
    done = vinedresser("train", "experiment.toml", cwd=folder)
    return done.returncode, done.stdout + done.stderr


def attributes(one: Any) -> dict[str, Any]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in one.attributes}


def test_a_collector_gets_the_spans_of_the_flow_its_tasks_and_its_runs(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    collector: Collector,
) -> None:
    mlflow_store(tmp_path / "runs")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    code, output = train(tmp_path)
    assert code == 0, output
    run = open_run(next((tmp_path / "runs").glob("broken*")))
    resources = [one for got in collector.got["/v1/traces"] for one in got.resource_spans]
    assert {attributes(one.resource)["service.name"] for one in resources} == {"vinedresser"}
    instances = {
        attributes(one.resource)["service.instance.id"]
        for one in (
            *resources,
            *(each for got in collector.got["/v1/metrics"] for each in got.resource_metrics),
        )
    }
    assert len(instances) == 1
    spans = [span for one in resources for scope in one.scope_spans for span in scope.spans]
    named = {span.name: span for span in spans}
    tasks = [name for name in named if name.startswith(("launch", "judge", "record", "finish"))]
    assert len(tasks) == 4
    flow = named["train experiment"]
    assert {named[name].parent_span_id for name in tasks} == {flow.span_id}
    span = named[f"run {run.info.name}"]
    found = attributes(span)
    finding = next(one for one in run.findings() if one.severity == "stop")
    assert found["vinedresser.run.id"] == run.info.id
    assert (found["vinedresser.state"], found["vinedresser.rule"]) == ("stopped", finding.rule)
    assert found["vinedresser.rule.step"] == finding.step
    assert span.trace_id == flow.trace_id
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert span.start_time_unix_nano == int(run.info.created * 1e9)
    assert span.end_time_unix_nano == int((run.status.ended or 0) * 1e9)
    points = {
        metric.name: attributes(point)
        for got in collector.got["/v1/metrics"]
        for one in got.resource_metrics
        for scope in one.scope_metrics
        for metric in scope.metrics
        for point in (*metric.sum.data_points, *metric.histogram.data_points)
    }
    expected = {"vinedresser.state": "stopped", "vinedresser.rule": finding.rule}
    assert points["vinedresser.runs"] == points["vinedresser.run.duration"] == expected


@pytest.mark.slow
def test_a_collector_that_is_silent_or_not_named_harms_nothing(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    collector: Collector,
) -> None:
    mlflow_store(tmp_path / "runs")
    code, output = train(tmp_path)
    assert code == 0, output
    assert not any(collector.got.values())
    # It accepts connections, and answers none.
    monkeypatch.setattr(_Handler, "do_POST", lambda _: time.sleep(60))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    code, output = train(tmp_path)
    assert code == 0, output
    told = "OpenTelemetry's collector does not take all spans"
    assert output.count(told) == 1
    assert "Traceback" not in output
    # The warning comes by a handler of Prefect.
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    code, output = train(tmp_path)
    assert code == 0, output
    (warning,) = [one for one in map(json.loads, output.splitlines()) if told in one["message"]]
    assert (warning["level"], warning["logger"].rpartition(".")[2]) == ("warning", "telemetry")
    states = [open_run(path).status.state for path in (tmp_path / "runs").glob("broken*")]
    assert states == ["stopped"] * 3


@pytest.mark.parametrize("silent", [False, True])
def test_spans_of_a_flow_that_raises_are_sent_or_missed_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector, silent: bool
) -> None:
    if silent:
        monkeypatch.setattr(_Handler, "do_POST", lambda _: time.sleep(60))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    write(tmp_path, "x = [0.5]")
    done = vinedresser("sweep", "sweep.toml", "--resume", cwd=tmp_path)
    output = done.stdout + done.stderr
    assert done.returncode == 2, output
    assert "no sweep to resume" in output
    assert "Traceback" not in output
    told = "OpenTelemetry's collector does not take all spans"
    assert output.count(told) == silent
    spans = [
        span
        for got in collector.got["/v1/traces"]
        for one in got.resource_spans
        for scope in one.scope_spans
        for span in scope.spans
    ]
    failed = [one.name for one in spans if one.status.code == one.status.STATUS_CODE_ERROR]
    assert failed == ([] if silent else ["sweep sweep"])


def test_a_variable_that_the_sdk_refuses_is_one_error(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(ConfigError, match="OTEL_"):
        start_telemetry()
