"""All recorded telemetry reaches a collector before a server or a worker ends (OTLP over HTTP)."""

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import anyio
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from dbtools.server.running import exporting
from tests.protocol.client import ProcessClient, spawn
from tests.protocol.http_server import call, http_server

DDL = "create table person (id integer primary key, name text); insert into person values (1, 'Ada');"
CALLS = 12
SPAN, MEASURED = "tools/call list_person", "dbtools.call.duration"


class Collector:
    """Counts the spans that arrive, the calls that are measured, and the services that send them."""

    def __init__(self) -> None:
        self.spans: Counter[str] = Counter()
        self.measured: Counter[str] = Counter()
        self.services: set[str] = set()
        self.may_answer = Event()
        self.may_answer.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, content)
                collector.may_answer.wait()
                with suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            # Nothing is sent before the end.
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
            "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
        }

    def take(self, path: str, content: bytes) -> None:
        """Count what is in the *content* of a request to *path*."""
        if path == "/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(content).resource_spans:
                self._note(traces.resource)
                self.spans.update(span.name for scope in traces.scope_spans for span in scope.spans)
        else:
            assert path == "/v1/metrics"
            for metrics in ExportMetricsServiceRequest.FromString(content).resource_metrics:
                self._note(metrics.resource)
                for metric in (each for scope in metrics.scope_metrics for each in scope.metrics):
                    self.measured[metric.name] += sum(point.count for point in metric.histogram.data_points)

    def _note(self, resource: object) -> None:
        attributes = resource.attributes  # type: ignore[attr-defined]
        self.services |= {each.value.string_value for each in attributes if each.key == "service.name"}

    def close(self) -> None:
        """End, and let everybody go."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def open_collector() -> Iterator[Collector]:
    """Yield a collector, and end it."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with open_collector() as collector:
        yield collector


@pytest.fixture
def path(sqlite_database: Callable[[str], Path]) -> Path:
    return sqlite_database(DDL)


async def test_server_over_http_exports_everything_before_it_ends(
    collector: Collector, path: Path, tmp_path: Path
) -> None:
    options = ("--workers", "2")
    async with http_server(path, tmp_path, *options, environment=collector.environment) as server:
        for _ in range(CALLS):
            async with server.client() as client:
                await call(client, "list_person")
        await server.end()

    assert (collector.spans[SPAN], collector.spans["SELECT person"]) == (CALLS, CALLS)
    assert (collector.measured[MEASURED], collector.services) == (CALLS, {"dbtools"})


async def _called(client: ProcessClient) -> None:
    await client.open()
    for _ in range(CALLS):
        await client.call("list_person")


@pytest.mark.parametrize("ending", ["stdin", "SIGINT"])
async def test_server_over_stdio_exports_everything_before_it_ends(
    collector: Collector, ending: str, path: Path, tmp_path: Path
) -> None:
    environment = {**collector.environment, "OTEL_SERVICE_NAME": "shop"}
    async with spawn(path, tmp_path, environment=environment) as client:
        await _called(client)
        if ending == "stdin":
            await client.rest()
        else:
            client.process.send_signal(signal.Signals[ending])
        status = await client.status()

    assert status == (130 if ending == "SIGINT" else 0)
    assert (collector.spans[SPAN], collector.measured[MEASURED]) == (CALLS, CALLS)
    assert collector.services == {"shop"}


@pytest.mark.parametrize("is_there", [False, True])
async def test_server_answers_and_ends_although_no_collector_does(
    is_there: bool, collector: Collector, path: Path, tmp_path: Path
) -> None:
    collector.may_answer.clear()
    nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    environment = collector.environment if is_there else nobody
    async with spawn(path, tmp_path, environment=environment) as client:
        await _called(client)
        await client.rest()
        status = await client.status()
    others = [line for line in client.log.read_text().splitlines() if line[:1] != "{"]

    assert status == 0
    assert [line for line in others if not line.startswith("dbtools: ")] == []


#: What else the environment says, and which signals arrive then.
SIGNALS = {
    "no metrics": ({"OTEL_METRICS_EXPORTER": "none"}, {"spans"}),
    "no spans": ({"OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
    "disabled": ({"OTEL_SDK_DISABLED": "true"}, set()),
    "an unknown protocol": ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, set()),
}


@pytest.mark.parametrize("case", SIGNALS)
async def test_environment_says_what_is_exported(
    case: str, collector: Collector, path: Path, tmp_path: Path
) -> None:
    environment, signals = SIGNALS[case]
    async with spawn(path, tmp_path, environment=collector.environment | environment) as client:
        await _called(client)
        await client.rest()
        await client.status()
    arrived = {"spans": collector.spans[SPAN], "metrics": collector.measured[MEASURED]}
    told = client.log.read_text()

    assert {name for name, number in arrived.items() if number} == signals
    assert ("protocol 'carrier/pigeon'" in told) is (case == "an unknown protocol")


async def test_only_signals_with_an_endpoint_are_exported(
    collector: Collector, path: Path, tmp_path: Path
) -> None:
    environment = dict(collector.environment)
    url = environment.pop("OTEL_EXPORTER_OTLP_ENDPOINT")
    environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{url}/v1/traces"
    async with spawn(path, tmp_path, environment=environment) as client:
        await _called(client)
        await client.rest()
        status = await client.status()

    assert (status, collector.spans[SPAN], collector.measured[MEASURED]) == (0, CALLS, 0)
    assert "opentelemetry" not in client.log.read_text().lower()


async def test_without_the_extra_a_server_says_which_one_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.distro", None)

    with exporting():
        await anyio.lowlevel.checkpoint()

    assert "The extra telemetry installs it." in caplog.text
