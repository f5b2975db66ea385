"""Export telemetry (OTLP) if OpenTelemetry's environment variables name a collector.

An SDK that has been set up already, such as by `opentelemetry-instrument`, is used as it is.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from opentelemetry import metrics, trace

from dbtools.telemetry import flush, is_told

PACKAGES = {"http/protobuf": "http", "grpc": "grpc"}  #: below opentelemetry.exporter.otlp.proto
FLUSHING = 2.0  #: seconds to send what is left at the end
logger = logging.getLogger("dbtools")


@asynccontextmanager
async def exporting() -> AsyncIterator[None]:
    """Export what is recorded meanwhile, and at the end what is left: a worker runs no exit handlers."""
    if not is_told() and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        try:
            _set_up(_exporter("TRACES", "trace_exporter"), _exporter("METRICS", "metric_exporter"))
        except Exception as exc:
            hint = " The extra telemetry installs it." if isinstance(exc, ImportError) else ""
            logger.warning("No telemetry is exported: %s.%s", exc, hint)
    try:
        yield
    finally:
        flush(FLUSHING)


def _exporter(signal: str, module: str) -> Any:
    """Return the *module* that exports *signal*; None if the environment names no collector for it."""
    endpoint, protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")
        for name in ("ENDPOINT", "PROTOCOL")
    )
    if not endpoint or os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "otlp":
        return None
    package = PACKAGES.get(protocol or "http/protobuf")
    if package is None:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL wants {' or '.join(PACKAGES)}, not {protocol!r}")
    return import_module(f"opentelemetry.exporter.otlp.proto.{package}.{module}")


def _set_up(spans: Any, measures: Any) -> None:
    """Set up the SDK. Its providers do not wait for a collector when the process ends: `flush` does."""
    if not (spans or measures):
        return
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "dbtools"}))
    if spans:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(spans.OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
    if measures:
        reader = PeriodicExportingMetricReader(measures.OTLPMetricExporter())
        metrics.set_meter_provider(MeterProvider([reader], resource=resource, shutdown_on_exit=False))
