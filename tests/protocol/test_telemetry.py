"""What OpenTelemetry is told: spans of statements within those of calls, and metrics, without any value."""

from collections.abc import Callable

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dbtools.config import DatabaseSection, Settings, open_toolbox
from dbtools.policy import Caller
from dbtools.server.protocol import always, build_server
from tests.protocol.client import MODERN, connect

DDL = "create table person (id integer primary key, name text); insert into person values (1, 'Ada');"


@pytest.fixture(scope="module")
def reader() -> InMemoryMetricReader:
    """Give what keeps metrics."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Give what keeps spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Give a database of each dialect."""
    return url_of(DDL)


async def test_statements_are_told_within_their_calls_and_no_value(
    url: str, exporter: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    exporter.clear()
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        async with connect(build_server(toolbox, always(Caller()), ""), version=MODERN) as client:
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


def _parent(span: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> ReadableSpan | None:
    for each in spans:
        if span.parent is not None and each.context.span_id == span.parent.span_id:
            return each
    return None
