"""Traces and metrics of runs by OTLP, if the user names a collector.

Prefect emits a span per flow run and per task by itself, once the process has a tracer provider;
this module sets one up, and adds a span and metrics for each run.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.plain_logs import plain_logger
from vinedresser.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["emit_run", "end_telemetry", "start_telemetry"]

_LOG = plain_logger(__name__)
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PACKAGE = "opentelemetry.exporter.otlp.proto.http"
# Seconds of a request to the collector, with its repetitions, and of what remains at the exit.
_REQUEST, _EXIT = 5.0, 8.0
_NANOSECONDS = 1_000_000_000


class _Exporting:
    """The providers of this process; None until they are set up, or if they are not to be."""

    traces: TracerProvider | None = None
    metrics: MeterProvider | None = None
    refused: bool = False


def start_telemetry() -> bool:
    """Send spans and metrics to the collector of the environment; return whether they are sent.

    They are not if it names none, if the extra ``otel`` is not installed, or if
    ``OTEL_SDK_DISABLED`` is true.

    Raises:
        ConfigError: another of OpenTelemetry's variables has a value that its SDK refuses.
    """
    if _Exporting.traces is not None:
        return True
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not os.environ.get(_ENDPOINT) or not _is_installed():
        return False
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class SpanExporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            _Exporting.refused |= result is not SpanExportResult.SUCCESS
            return result

    # It logs each attempt; `end_telemetry` says it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it. Without an instance, the counters
    # of two commands would be one series, which each of them begins at 0.
    named = {"service.name": "vinedresser", "service.version": __version__}
    named["service.instance.id"] = str(uuid.uuid4())
    resource = Resource(named).merge(OTELResourceDetector().detect())
    try:
        spans = BatchSpanProcessor(SpanExporter(timeout=_REQUEST))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_REQUEST))
    except ValueError as error:
        raise ConfigError(f"OpenTelemetry's variables, OTEL_...: {error}") from error
    traces = TracerProvider(resource=resource)
    traces.add_span_processor(spans)
    _Exporting.traces = traces
    _Exporting.metrics = MeterProvider([reader], resource=resource)
    trace.set_tracer_provider(traces)
    metrics.set_meter_provider(_Exporting.metrics)
    return True


def _is_installed() -> bool:
    try:
        return find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:
        return False


def emit_run(
    name: str, began: float, ended: float, *, failed: str, attributes: Mapping[str, str | int]
) -> None:
    """Emit a run that has ended, as a span and in metrics, if `start_telemetry` has set them up.

    Args:
        began: seconds since the epoch.
        ended: likewise.
        failed: why it did not finish; "" if it did.
        attributes: what is known of it; ``vinedresser.state`` and ``vinedresser.rule`` are also
            attributes of the metrics.
    """
    if _Exporting.traces is None or _Exporting.metrics is None:
        return
    from opentelemetry.trace import Status, StatusCode

    tracer = _Exporting.traces.get_tracer("vinedresser", __version__)
    span = tracer.start_span(
        f"run {name}", attributes=dict(attributes), start_time=int(began * _NANOSECONDS)
    )
    span.set_status(Status(StatusCode.ERROR, failed) if failed else Status(StatusCode.OK))
    span.end(int(max(began, ended) * _NANOSECONDS))
    meter = _Exporting.metrics.get_meter("vinedresser", __version__)
    few = {
        key: value
        for key, value in attributes.items()
        if key in ("vinedresser.state", "vinedresser.rule")
    }
    meter.create_counter("vinedresser.runs", "{run}", "Runs that have ended").add(1, few)
    meter.create_histogram("vinedresser.run.duration", "s", "Duration of runs").record(
        max(ended - began, 0.0), few
    )


def end_telemetry() -> None:
    """Send what has not been sent, for a bounded time; say so if the collector does not take it."""
    traces, metrics = _Exporting.traces, _Exporting.metrics
    if traces is None or metrics is None:
        return
    _Exporting.traces = _Exporting.metrics = None
    # Their own time limit is half a minute for each.
    ends = [
        threading.Thread(target=one.shutdown, name="telemetry", daemon=True)
        for one in (traces, metrics)
    ]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join(_EXIT / len(ends))
    if _Exporting.refused or any(thread.is_alive() for thread in ends):
        _LOG.warning("OpenTelemetry's collector does not take all spans; runs are not affected")
