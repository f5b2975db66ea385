"""Record calls and statements as spans and metrics for OpenTelemetry: shapes and sizes, never values.

Without an OpenTelemetry SDK in the process, nothing is recorded, at almost no cost. Every request has an ID,
which the client, the log and the database share.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from typing import Literal

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode

RequestIdTarget = Literal["comment", "application_name"]  #: how the database learns the ID of a request
TRACER = trace.get_tracer("dbtools")
METER = metrics.get_meter("dbtools")
DURATION = METER.create_histogram("dbtools.call.duration", "s", "How long calls take")
ROWS = METER.create_histogram("dbtools.call.rows", "{row}", "How many rows calls return")
BYTES = METER.create_histogram("dbtools.call.bytes", "By", "How many bytes calls return")
REQUEST: ContextVar[str] = ContextVar("dbtools.request", default="")  #: the ID of the current request
REFUSED_REQUESTS = METER.create_counter("dbtools.http.refused", "{request}", "How many requests are rejected")
UNTRACED = nullcontext(INVALID_SPAN)
WAIT = METER.create_histogram("dbtools.pool.wait", "s", "How long statements wait for a connection")


def new_request_id() -> str:
    """Return a new ID for a request, of letters and digits."""
    return f"{getrandbits(64):016x}"


def request_id() -> str:
    """Return the ID of the current request: that of its trace (W3C Trace Context), if it has one."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else REQUEST.get()


def request_comment() -> str:
    """Return an SQL comment with the ID of the current request, in the form of sqlcommenter."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return f"/*request_id='{REQUEST.get()}'*/ "
    ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
    return f"/*traceparent='00-{ids}-{context.trace_flags:02x}'*/ "


def is_tracing() -> bool:
    """Return whether an SDK in this process records spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def is_measured() -> bool:
    """Return whether an SDK in this process records spans or metrics."""
    # The class of the API's provider, which replaces a missing SDK, is not public.
    return is_tracing() or not type(metrics.get_meter_provider()).__module__.startswith(
        "opentelemetry.metrics"
    )


def mark_failed(span: Span, type: str, message: str | None = None) -> None:
    """Mark the request of *span* as failed."""
    span.set_attribute("error.type", type)
    if message is not None:
        span.set_attribute("rpc.response.status_code", type)
    span.set_status(Status(StatusCode.ERROR, message))


def server_span(
    method: str, id: object, params: Mapping[str, object], version: str = ""
) -> AbstractContextManager[Span]:
    """Return the span of an MCP request; `_meta` may name its parent (W3C Trace Context)."""
    meta = params.get("_meta")
    carrier = meta if isinstance(meta, Mapping) and "traceparent" in meta else {}
    # The log and the database get the ID of the trace even without an SDK.
    if not (carrier or is_tracing()):
        return UNTRACED
    name = params.get("name")
    target = name if isinstance(name, str) else ""
    attributes = {"mcp.method.name": method, "mcp.protocol.version": version, "jsonrpc.request.id": str(id)}
    if method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
    texts = {key: each for key, each in carrier.items() if isinstance(each, str)}
    return TRACER.start_as_current_span(
        f"{method} {target}".rstrip(),
        context=propagate.extract(texts) if "traceparent" in texts else None,
        kind=SpanKind.SERVER,
        attributes={key: each for key, each in attributes.items() if each},
        record_exception=False,
        set_status_on_exception=False,
    )


@contextmanager
def statement_span(sql: str, operation: str, name: str) -> Iterator[Span]:
    """Run a statement on the table or query *name* within a span; *sql* holds placeholders, not values."""
    attributes = {"db.operation.name": operation, "db.query.text": sql}
    # A message of the database may quote hidden values: record only the type of the error.
    with TRACER.start_as_current_span(
        f"{operation} {name}",
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as exc:
            span.set_attribute("error.type", type(exc).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise


def note_wait(seconds: float) -> None:
    """Record how long a statement has waited for a connection."""
    WAIT.record(seconds)
    trace.get_current_span().set_attribute("dbtools.pool.wait", seconds)


def note_call(of: Mapping[str, str], duration: float, rows: int | None, size: int | None) -> None:
    """Record a call: *of* holds its tool, role and outcome."""
    DURATION.record(duration, of)
    if rows is not None:
        ROWS.record(rows, of)
    if size is not None:
        BYTES.record(size, of)
    span = trace.get_current_span()
    if span.is_recording():
        attributes = {"dbtools.role": of["role"], "dbtools.rows": rows, "dbtools.bytes": size}
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})
