"""`dbtools check --connect`: try each step from the login to a call. Settings in, findings out."""

import platform
import time

import dbtools
from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.catalog import Catalog
from dbtools.policy import Caller, Finding
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import Snapshot, View
from dbtools.service.toolbox import Toolbox
from dbtools.settings import Settings

OK, WARNING, ERROR = "ok", "warning", "error"
NOT_REFUSED = (
    "The database accepted a write. Use a login that can only read: `dbtools grants` prints its SQL."
)
MANY_TOKENS = 20_000  #: of definitions, which a model reads before it calls anything


async def examine(settings: Settings) -> tuple[Finding, ...]:
    """Return the finding of each step, or raise DatabaseUnavailable."""
    toolbox, backend = open_toolbox(settings)
    try:
        versions = f"dbtools {dbtools.__version__}, Python {platform.python_version()}."
        connection = await findings_of_connection(backend)
        snapshot = await toolbox.snapshot()
        login = [] if snapshot.catalog.posture else [_finding(OK, "posture", "The login can only read.")]
        return (
            _finding(OK, "versions", versions),
            *connection,
            *login,
            _finding(OK, "schema", f"The database has {_size(snapshot.catalog)}."),
            *(_cost(name, view) for name, view in snapshot.views.items()),
            await _call(toolbox, snapshot),
        )
    finally:
        await backend.close()


def _finding(level: str, code: str, message: str) -> Finding:
    return Finding(level=level, code=code, message=message)


async def findings_of_connection(backend: Backend) -> list[Finding]:
    """Return where the database is, and whether it refuses writes."""
    began = time.monotonic()
    probe = await (await backend.runner()).probe()
    where = f"{probe.version} at {backend.place} answers in {_milliseconds_since(began)}."
    proof = _finding(OK, "read_only", "The database refused a test write.")
    if not probe.refuses_writes:
        proof = _finding(ERROR, "not_read_only", NOT_REFUSED)
    return [_finding(OK, "connection", where), proof]


def _milliseconds_since(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"


def _size(catalog: Catalog) -> str:
    tables, columns = len(catalog.tables), sum(len(table.columns) for table in catalog.tables)
    return f"{tables} table{'s' if tables != 1 else ''} with {columns} column{'s' if columns != 1 else ''}"


def _cost(name: str, view: View) -> Finding:
    tokens = sum(view.costs)
    message = (
        f"role {name}: sees {_size(view.catalog)}; its {len(view.definitions)} tools cost {tokens:,} tokens."
    )
    if tokens <= MANY_TOKENS:
        return _finding(OK, "cost", message)
    return _finding(WARNING, "cost", f"{message} `dbtools tools --role {name} --tokens` shows which.")


async def _call(toolbox: Toolbox, snapshot: Snapshot) -> Finding:
    """Call list_rows once, on a table without a row filter if possible."""
    seen = [(name, view, table) for name, view in snapshot.views.items() for table in view.catalog.tables]
    if not seen:
        return _finding(WARNING, "call", "No role sees a table, so no call was tried.")
    name, view, table = min(seen, key=lambda each: (each[2].filter is not None, not each[2].keys))
    began = time.monotonic()
    try:
        arguments = {"table": view.catalog.unique_name(table), "limit": 1}
        await toolbox.call(Caller(role=name), "list_rows", arguments)
    except errors.Denied:
        command = f"dbtools call --role {name} --claim NAME=VALUE list_rows table={table.name}"
        message = f"role {name}: its row filters need claims, so no call was tried. Try one: `{command}`."
        return _finding(WARNING, "call", message)
    except errors.CallError as exc:
        return _finding(ERROR, "call", f"role {name}: list_rows on {table.name} fails: {exc}")
    took = _milliseconds_since(began)
    return _finding(OK, "call", f"role {name}: list_rows on {table.name} answers in {took}.")
