"""Export what OpenTelemetry is told, where its environment variables name a collector (OTLP).

Without a collector, or with an SDK that somebody else has set up (`opentelemetry-instrument`), nothing is
set up here. Either way what has been recorded is sent before the process ends.
"""

import logging
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from opentelemetry import metrics, trace

from dbtools.telemetry import flush, is_told

SIGNALS = ("TRACES", "METRICS")
PACKAGES = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}
NAME = "dbtools"  #: of the service, unless the environment has another
FLUSHING = 2.0  #: seconds for what is left to be sent at the end
logger = logging.getLogger("dbtools")


@asynccontextmanager
async def exporting() -> AsyncIterator[None]:
    """Export what is recorded meanwhile, and in the end what is left, for two seconds at most.

    uvicorn ends a worker by the signal itself, so that nothing is called at its exit.
    """
    wanted = [signal for signal in SIGNALS if _is_wanted(signal)]
    if wanted and not is_told() and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        _begin(wanted)
    try:
        yield
    finally:
        flush(FLUSHING)


def _is_wanted(signal: str) -> bool:
    """Return whether the environment names where *signal* goes."""
    return bool(_named(signal, "ENDPOINT")) and os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"


def _named(signal: str, name: str) -> str:
    """Return what the environment says of *name*, for *signal* or else for all."""
    of_all = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or of_all


def _begin(wanted: Collection[str]) -> None:
    """Set up the SDK for the signals that are *wanted*; the server runs without it where that fails."""
    try:
        _set_up(wanted)
    except ImportError as exc:
        logger.warning(
            "No telemetry is exported, although the environment names a collector: there is no module %s. "
            "The extra telemetry installs it.",
            exc.name,
        )
    except Exception as exc:
        logger.warning("No telemetry is exported: %s", exc)


def _set_up(wanted: Collection[str]) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": NAME}))
    # An exporter that gets no answer would hold up the end of the process: flush waits, and for so long.
    if "TRACES" in wanted:
        exporter = _exporter("TRACES", "trace_exporter").OTLPSpanExporter()
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracers)
    if "METRICS" in wanted:
        reader = PeriodicExportingMetricReader(_exporter("METRICS", "metric_exporter").OTLPMetricExporter())
        metrics.set_meter_provider(MeterProvider([reader], resource=resource, shutdown_on_exit=False))


def _exporter(signal: str, module: str) -> Any:
    """Return the *module* that exports *signal* by the protocol that the environment names."""
    protocol = _named(signal, "PROTOCOL") or "http/protobuf"
    if protocol not in PACKAGES:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL wants {' or '.join(PACKAGES)}, not {protocol!r}")
    return import_module(f"{PACKAGES[protocol]}.{module}")
