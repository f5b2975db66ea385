"""OpenTelemetry gets spans of statements within those of calls, and metrics, without any value."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings
from tests.protocol.client import MODERN, build_server, connect
from tests.protocol.http_server import call, http_server

DDL = "create table person (id integer primary key, name text); insert into person values (1, 'Ada');"


@pytest.fixture(scope="module")
def reader() -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    return url_of(DDL)


async def test_spans_of_statements_are_within_their_calls_without_values(
    url: str, exporter: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    exporter.clear()
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        async with connect(build_server(toolbox, Caller(), ""), version=MODERN) as client:
            await client.call("list_person", {"where": [{"column": "name", "value": "Secret Ada"}]})
            await client.error("tools/call", {"name": "no_such_tool", "arguments": {}})
    finally:
        await database.close()
    spans = exporter.get_finished_spans()
    told = reader.get_metrics_data()
    assert told is not None

    statement = next(each for each in spans if each.name == "SELECT person")
    call = next(each for each in spans if each.name == "tools/call list_person")
    assert _parent(statement, spans) == call
    assert 'from "' in str(statement.attributes["db.query.text"]).lower().replace("\n", "")  # type: ignore[index]
    assert statement.attributes["db.response.returned_rows"] == 0  # type: ignore[index]
    assert call.attributes["dbtools.role"] == "default"  # type: ignore[index]
    assert "Secret" not in f"{[each.to_json() for each in spans]}{told.to_json()}"
    assert all(f'"tool": "{tool}"' in told.to_json() for tool in ("list_person", "unknown"))
    assert "no_such_tool" not in told.to_json()
    assert "dbtools.pool.wait" in told.to_json()


async def test_changes_have_spans_without_values(url: str, exporter: InMemorySpanExporter) -> None:
    exporter.clear()
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url, writable=True)))
    try:
        async with connect(build_server(toolbox, Caller(), ""), version=MODERN) as client:
            await client.call("insert_person", {"rows": [{"id": 48151623, "name": "Secret Ada"}]})
            await client.call("update_person", {"id": 48151623, "set": {"name": "Secret Bea"}})
            await client.call("insert_person", {"rows": [{"id": 48151623, "name": "Secret Ada"}]})
            await client.call("delete_person", {"id": 48151623})
    finally:
        await database.close()
    spans = exporter.get_finished_spans()
    calls = {each.context.span_id: each.name for each in spans if each.name.startswith("tools/call")}
    changes = [each for each in spans if each.name.endswith(" person")]
    found = [
        {**(each.attributes or {}), "call": calls[each.parent.span_id]} for each in changes if each.parent
    ]

    assert [(each.name, attributes["call"]) for each, attributes in zip(changes, found, strict=True)] == [
        ("INSERT person", "tools/call insert_person"),
        ("UPDATE person", "tools/call update_person"),
        ("INSERT person", "tools/call insert_person"),
        ("DELETE person", "tools/call delete_person"),
    ]
    assert [each.get("db.response.returned_rows") for each in found] == [1, 1, None, 1]
    assert [each.get("error.type") for each in found] == [None, None, "ConstraintViolated", None]
    assert all(str(each["db.query.text"]).startswith(str(each["db.operation.name"])) for each in found)
    told = str([each.to_json() for each in spans])
    assert not any(each in told for each in ("Secret", "48151623"))


def _parent(span: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> ReadableSpan | None:
    for each in spans:
        if span.parent is not None and each.context.span_id == span.parent.span_id:
            return each
    return None


def test_exporter_of_the_host_is_noticed() -> None:
    script = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from dbtools.telemetry import is_measured, is_tracing
print(is_tracing(), is_measured())
metrics.set_meter_provider(MeterProvider())
print(is_tracing(), is_measured())
trace.set_tracer_provider(TracerProvider())
print(is_tracing(), is_measured())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.splitlines() == ["False False", "False True", "True True"]


#: Runs in each process before anything else, as the distribution of OpenTelemetry does.
CUSTOMIZED = """
import os
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

spans = ConsoleSpanExporter(
    out=open(os.environ["SPANS"], "a"), formatter=lambda span: span.to_json(indent=None) + os.linesep
)
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=3_600_000))
told = ConsoleMetricExporter(
    out=open(os.environ["METRICS"], "a"), formatter=lambda found: found.to_json(indent=None) + os.linesep
)
reader = PeriodicExportingMetricReader(told, export_interval_millis=3_600_000)
metrics.set_meter_provider(MeterProvider([reader]))
"""


async def test_what_workers_have_recorded_is_sent_when_they_end(path: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZED)
    spans, metrics = tmp_path / "spans", tmp_path / "metrics"
    environment = {"PYTHONPATH": str(tmp_path), "SPANS": str(spans), "METRICS": str(metrics)}
    async with http_server(path, tmp_path, "--workers", "2", environment=environment) as server:
        for _ in range(6):
            async with server.client() as client:
                await call(client, "list_person")
        await server.end()
    sent = [json.loads(line)["name"] for line in (await anyio.Path(spans).read_text()).splitlines()]
    measured = await anyio.Path(metrics).read_text()

    assert sent.count("tools/call list_person") == 6
    assert "dbtools.call.duration" in measured
