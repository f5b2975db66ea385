"""Spans and metrics of calls and statements for OpenTelemetry: shapes and sizes, and never a value.

Without an SDK of OpenTelemetry in the process, nothing is recorded, and that costs next to nothing. Every
request has an ID, by which its client, the log and the database can refer to it.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from typing import Literal

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode

Tells = Literal["comment", "application_name"]  #: how a database is told the id of a request
TRACER = trace.get_tracer("dbtools")
METER = metrics.get_meter("dbtools")
DURATION = METER.create_histogram("dbtools.call.duration", "s", "How long calls take")
ROWS = METER.create_histogram("dbtools.call.rows", "{row}", "How many rows calls answer")
BYTES = METER.create_histogram("dbtools.call.bytes", "By", "How many bytes calls answer")
REQUEST: ContextVar[str] = ContextVar("dbtools.request", default="")  #: the id of the one being answered
REFUSED = METER.create_counter("dbtools.http.refused", "{request}", "How many requests are refused")
WAIT = METER.create_histogram("dbtools.pool.wait", "s", "How long statements wait for a connection")


def new_request_id() -> str:
    """Return an id for a request that nobody has given one, of letters and digits."""
    return f"{getrandbits(64):016x}"


def request_id() -> str:
    """Return the id of the request that is being answered: its trace's (W3C Trace Context), if it has one."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else REQUEST.get()


def request_comment() -> str:
    """Return an SQL comment that names the request that is being answered, as sqlcommenter writes it."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return f"/*request_id='{REQUEST.get()}'*/ "
    ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
    return f"/*traceparent='00-{ids}-{context.trace_flags:02x}'*/ "


def is_told() -> bool:
    """Return whether somebody in this process listens to what is told of spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def is_measured() -> bool:
    """Return whether somebody in this process listens to what is told of calls."""
    # The provider that the API has without an SDK is not public.
    return is_told() or not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")


class RequestSpan:
    """The span of a request, where somebody is told."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def failed(self, type: str, message: str | None = None) -> None:
        """Say that the request has failed."""
        self._span.set_attribute("error.type", type)
        if message is not None:
            self._span.set_attribute("rpc.response.status_code", type)
        self._span.set_status(Status(StatusCode.ERROR, message))


UNTOLD = nullcontext(RequestSpan(INVALID_SPAN))


def server_span(
    method: str, id: object, params: Mapping[str, object], version: str = ""
) -> AbstractContextManager[RequestSpan]:
    """Return the span of a request of MCP; its parent is that which `_meta` names (W3C Trace Context)."""
    meta = params.get("_meta")
    carrier = meta if isinstance(meta, Mapping) and "traceparent" in meta else {}
    # Without an SDK too, what is logged and what the database is told name the trace.
    return _server_span(method, id, params.get("name"), version, carrier) if carrier or is_told() else UNTOLD


@contextmanager
def _server_span(
    method: str, id: object, name: object, version: str, carrier: Mapping[str, object]
) -> Iterator[RequestSpan]:
    target = name if isinstance(name, str) else ""
    attributes = {"mcp.method.name": method, "mcp.protocol.version": version, "jsonrpc.request.id": str(id)}
    if method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
    texts = {key: each for key, each in carrier.items() if isinstance(each, str)}
    with TRACER.start_as_current_span(
        f"{method} {target}".rstrip(),
        context=propagate.extract(texts) if "traceparent" in texts else None,
        kind=SpanKind.SERVER,
        attributes={key: each for key, each in attributes.items() if each},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield RequestSpan(span)


@contextmanager
def statement_span(sql: str, read: str) -> Iterator[Span]:
    """Run a statement that reads a table or a query within a span; *sql* has places for values, and none."""
    attributes = {"db.operation.name": "SELECT", "db.query.text": sql}
    # Words of the database may quote what is hidden: an error is told by its kind alone.
    with TRACER.start_as_current_span(
        f"SELECT {read}",
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
    """Tell how long a statement has waited for a connection."""
    WAIT.record(seconds)
    trace.get_current_span().set_attribute("dbtools.pool.wait", seconds)


def note_call(of: Mapping[str, str], duration: float, rows: int | None, size: int | None) -> None:
    """Tell of a call: *of* which tool, role and outcome it is, and what it took."""
    DURATION.record(duration, of)
    if rows is not None:
        ROWS.record(rows, of)
    if size is not None:
        BYTES.record(size, of)
    span = trace.get_current_span()
    if span.is_recording():
        told = {"dbtools.role": of["role"], "dbtools.rows": rows, "dbtools.bytes": size}
        span.set_attributes({name: value for name, value in told.items() if value is not None})
