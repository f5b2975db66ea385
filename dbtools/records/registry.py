"""The registry, in SQLAlchemy Core for every database: permitted queries, and the audit log as rows.

Import this module only when it is needed: SQLAlchemy doubles the time to start.
"""

import json
from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any

import orjson
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy.dialects import registry as dialects

from dbtools import errors
from dbtools.backends import open_backend, read_registry
from dbtools.backends.records import NO_REGISTRY, Purpose, RecordStore, RegistryEntry, moment_of, rfc3339
from dbtools.errors import DatabaseUnavailable, did_you_mean, listing
from dbtools.values.cells import json_of
from dbtools.values.types import quote

WRITE_TIMEOUT = 2.0  #: seconds for the database to store some entries of the log
AT_ONCE = 500  #: entries that are written or read together
OVERLAP = 1_000  #: entries may arrive with numbers up to this much below the newest

TABLES = sa.MetaData()
QUERIES = sa.Table(
    "dbtools_query",
    TABLES,
    sa.Column("name", sa.Text),
    sa.Column("version", sa.Integer),
    sa.Column("text", sa.Text),
    sa.Column("enabled", sa.Boolean),
    sa.Column("changed_at", sa.DateTime(timezone=True)),
)
CALLS = sa.Table(
    "dbtools_call",
    TABLES,
    sa.Column("id", sa.BigInteger),
    sa.Column("time", sa.DateTime(timezone=True)),
    sa.Column("identity", sa.Text),
    sa.Column("role", sa.Text),
    sa.Column("tool", sa.Text),
    sa.Column("arguments", sa.JSON),
    sa.Column("rows", sa.BigInteger),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("truncated", sa.Boolean),
    sa.Column("affected", sa.BigInteger),
    sa.Column("dry_run", sa.Boolean),
    sa.Column("changes", sa.JSON),
    sa.Column("confirmed", sa.Text),
    sa.Column("duration", sa.Double),
    sa.Column("outcome", sa.Text),
    sa.Column("code", sa.Text),
    sa.Column("protocol", sa.Text),
    sa.Column("client", sa.Text),
)
CALL_COLUMNS = tuple(str(column.name) for column in CALLS.columns if column.name != "id")
JSON_COLUMNS = ("arguments", "changes")
BOOLEANS = ("truncated", "dry_run")


async def read_entries(url: str) -> Mapping[str, RegistryEntry]:
    """Return the queries of the registry in the database at *url* by name, or raise ConfigurationError."""
    registry = await read_registry(url)
    if registry is None:
        raise errors.ConfigurationError(NO_REGISTRY, hint="`dbtools registry upgrade URL` creates one.")
    return registry.entries()


async def entry_of(url: str, name: str) -> RegistryEntry:
    """Return the query *name* of the registry at *url*, or raise ConfigurationError."""
    entries = await read_entries(url)
    if name not in entries:
        hint = f"{did_you_mean(name, entries)}Queries: {listing(entries)}." if entries else "It is empty."
        raise errors.ConfigurationError(f"The registry has no query {quote(name)}.", hint=hint)
    return entries[name]


async def add(url: str, texts: Mapping[str, str]) -> Mapping[str, RegistryEntry]:
    """Store *texts*, by the names of their queries, in the registry at *url*; return their entries.

    A query whose text is unchanged is only enabled, so that its previous version is kept.
    """
    before = await read_entries(url)
    changes = [each for name, text in texts.items() for each in _changes(before.get(name), name, text)]
    if changes:
        await _change(url, changes)
    after = await read_entries(url)
    return {name: after[name] for name in texts}


async def change(url: str, name: str, verb: str) -> None:
    """Apply *verb*, which is remove, enable or disable, to the query *name* of the registry at *url*."""
    await entry_of(url, name)
    removed = sa.delete(QUERIES).where(QUERIES.c.name == name)
    await _change(url, [removed if verb == "remove" else _set_enabled(name, enabled=verb == "enable")])


def _changes(entry: RegistryEntry | None, name: str, text: str) -> Sequence[sa.UpdateBase]:
    """Return the statements that serve the query *name* with *text*."""
    if entry is not None and entry.current.text == text:
        return [] if entry.current.enabled else [_set_enabled(name, enabled=True)]
    values = {"name": name, "version": _latest_version(name) + 1, "text": text}
    return [
        sa.insert(QUERIES).values(**values, enabled=True, changed_at=sa.func.now()),
        sa.delete(QUERIES).where(QUERIES.c.name == name, QUERIES.c.version < _latest_version(name) - 1),
    ]


def _set_enabled(name: str, *, enabled: bool) -> sa.Update:
    current = (QUERIES.c.name == name, QUERIES.c.version == _latest_version(name))
    return sa.update(QUERIES).where(*current).values(enabled=enabled, changed_at=sa.func.now())


def _latest_version(name: str) -> sa.ScalarSelect[int]:
    """Return the highest version of the query *name*, or 0."""
    kept = QUERIES.alias("kept")
    highest = sa.func.coalesce(sa.func.max(kept.c.version), 0)
    return sa.select(highest).where(kept.c.name == name).scalar_subquery()


async def _change(url: str, statements: Sequence[sa.UpdateBase]) -> None:
    """Run all *statements* in the registry at *url*, or none."""

    def change() -> None:
        with closing(open_backend(url).open_records(None)) as store, store.begin(Purpose.CHANGE_QUERIES):
            for statement in statements:
                _fetch(store, statement)

    try:
        await to_thread.run_sync(change)
    except OSError as exc:
        raise DatabaseUnavailable(f"The registry cannot be written: {exc}.") from exc


def _fetch(store: RecordStore, statement: sa.ClauseElement) -> Sequence[Sequence[Any]]:
    compiled = _compile_for_store(store, statement)
    return store.fetch(str(compiled), [compiled.params[name] for name in compiled.positiontup or ()])


def _compile_for_store(
    store: RecordStore, statement: sa.ClauseElement, **options: Any
) -> sa.sql.compiler.SQLCompiler:
    """Return *statement* in the dialect of *store*."""
    compiled = statement.compile(
        dialect=_dialect(store.DIALECT),
        schema_translate_map={None: store.SCHEMA},
        render_schema_translate=True,
        compile_kwargs={"render_postcompile": True},
        **options,
    )
    assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
    return compiled


@cache
def _dialect(name: str) -> sa.Dialect:
    dialect: sa.Dialect = dialects.load(name)()
    return dialect


class RegistrySink:
    """Writes entries of the audit log to the registry in the database at *url*."""

    def __init__(self, url: str) -> None:
        self._store = open_backend(url).open_records(WRITE_TIMEOUT)

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines* in batches, removing them from the left."""
        while lines:
            calls = [self._stored_call(orjson.loads(line)) for line in islice(lines, AT_ONCE)]
            try:
                with self._store.begin(Purpose.APPEND_CALLS):
                    compiled = _compile_for_store(self._store, sa.insert(CALLS), column_keys=CALL_COLUMNS)
                    rows = [[call[key] for key in CALL_COLUMNS] for call in calls]
                    self._store.execute_many(str(compiled), rows)
            except (OSError, DatabaseUnavailable) as exc:
                raise OSError(f"the registry cannot be written: {exc}") from exc
            for _ in calls:
                lines.popleft()

    def _stored_call(self, call: dict[str, Any]) -> dict[str, Any]:
        written = {key: json.dumps(call[key]) for key in JSON_COLUMNS if call.get(key) is not None}
        return {**call, **written, "time": self._store.moment(call["time"])}

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


def follow_registry(url: str, since: datetime) -> Generator[bytes | None, None, None]:
    """Yield the audit log in the registry at *url* line by line, and None each time that the end is reached.

    Several servers write at once, so an entry may arrive after one with a higher number.
    """
    newest, missing = 0, set[int]()
    with closing(open_backend(url).open_records(None)) as store:
        start = sa.literal(store.moment(rfc3339(since)), CALLS.c.time.type)
        while True:
            found = _read(store, start, newest, missing)
            for number, call in found:
                yield _line(call)
                missing.discard(number)
                missing.update(range(max(newest, number - OVERLAP) + 1, number))
                newest = max(newest, number)
            missing = {number for number in missing if number > newest - OVERLAP}
            if not found:
                yield None


def _read(
    store: RecordStore, start: sa.ColumnElement[Any], newest: int, missing: Collection[int]
) -> Sequence[tuple[int, dict[str, Any]]]:
    """Return some entries after *newest*, and those of *missing* that have arrived, by their numbers."""
    number = CALLS.c.id
    conditions = (
        number >= min(missing, default=newest + 1),
        (number > newest) | number.in_(missing),
        CALLS.c.time >= start,
    )
    try:
        with store.begin(Purpose.READ_CALLS):
            wanted = sa.select(*map(_selected_column, CALLS.c)).where(*conditions)
            rows = _fetch(store, wanted.order_by(number).limit(AT_ONCE))
    except OSError as exc:
        raise DatabaseUnavailable("[registry] url: The calls in the registry cannot be read.") from exc
    except DatabaseUnavailable as exc:
        raise DatabaseUnavailable(f"[registry] url: {exc.message}", hint=exc.hint) from exc
    calls = (dict(zip(CALLS.c.keys(), row, strict=True)) for row in rows)
    return [(call["id"], call) for call in calls]


def _selected_column(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return *column* as text unless it is a number: databases store times and JSON differently."""
    return column if column.type.python_type in (int, bool, float) else sa.cast(column, sa.Text)


def _line(call: Mapping[str, Any]) -> bytes:
    """Return *call* as a line of the log; a value that dbtools would not write becomes null."""
    moment = moment_of(call["time"])
    content = {key: call.get(key) for key in CALL_COLUMNS} | {"time": rfc3339(moment) if moment else None}
    content |= {key: bool(content[key]) for key in BOOLEANS if content[key] is not None}
    content |= {key: _decode_json(content[key]) for key in JSON_COLUMNS}
    return json_of(content).encode()


def _decode_json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None
