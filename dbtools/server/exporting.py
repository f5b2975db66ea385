"""Export telemetry (OTLP) if OpenTelemetry's environment variables name a collector.

An SDK that has been set up already, such as by `opentelemetry-instrument`, is used as it is.
"""

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from typing import Any

from opentelemetry import metrics, trace

from dbtools.telemetry import is_told

ENDPOINTS = {
    signal: ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    for signal in ("TRACES", "METRICS")
}
FLUSHING = 2.0  #: seconds to send what is left at the end
logger = logging.getLogger("dbtools")


@contextmanager
def exporting() -> Iterator[None]:
    """Export what is recorded meanwhile, and at the end what is left: a worker runs no exit handlers."""
    wanted = [signal for signal, names in ENDPOINTS.items() if any(map(os.environ.get, names))]
    if wanted and not is_told() and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        try:
            _set_up(wanted)
        except Exception as exc:
            hint = ". The extra telemetry installs it." if isinstance(exc, ImportError) else ""
            logger.warning("No telemetry is exported: %s%s", exc, hint)
    try:
        yield
    finally:
        _flush(FLUSHING)


def _set_up(wanted: list[str]) -> None:
    """Set up the SDK as the environment says; what it leaves out is OTLP over HTTP, by the name dbtools."""
    from opentelemetry.distro import OpenTelemetryConfigurator
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    os.environ.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    for signal in wanted:
        os.environ.setdefault(f"OTEL_{signal}_EXPORTER", "otlp")
    is_named = not str(Resource.create().attributes[SERVICE_NAME]).startswith("unknown_service")
    configurator: Any = OpenTelemetryConfigurator()  # type: ignore[no-untyped-call]
    configurator.configure(resource_attributes={} if is_named else {SERVICE_NAME: "dbtools"})
    # At exit the providers would wait for a collector that does not answer. `_flush` has done that.
    providers: tuple[Any, ...] = (trace.get_tracer_provider(), metrics.get_meter_provider())
    for each in providers:
        atexit.unregister(each.shutdown)


def _flush(patience: float) -> None:
    """Have what was recorded in this process sent, and wait so many seconds for that at the most."""
    providers = trace.get_tracer_provider(), metrics.get_meter_provider()
    sends = [send for each in providers if (send := getattr(each, "force_flush", None)) is not None]
    # An exporter that gets no answer tries again for longer than anybody wants to wait.
    threads = [Thread(target=send, name="telemetry", daemon=True) for send in sends]
    for thread in threads:
        thread.start()
    ends = monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, ends - monotonic()))
