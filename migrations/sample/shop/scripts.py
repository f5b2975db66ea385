"""What a revision of the sample does to a database: a file of SQL or rows in, nothing out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from json import dumps
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

from dbtools.backends.postgresql.registry import PIN
from migrations.sample.shop.tables import Json

FOLDER = Path(__file__).parent.parent


def run(name: str) -> None:
    """Run the statements of *name*, in the file for the dialect of the database."""
    connection = op.get_bind()
    path = FOLDER / f"{name}.{connection.dialect.name}.sql"
    with _naming(connection, None):
        for statement in re.split(r";\s*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if statement.strip():
                connection.exec_driver_sql(statement.strip())


def insert(rows: Mapping[str, Sequence[NamedTuple]], schema: str | None = None) -> None:
    """Insert *rows*, which stand under the names of their tables; in *schema* where there are schemas."""
    connection = op.get_bind()
    stored = _as_sqlite if connection.dialect.name == "sqlite" else _as_postgresql
    schema = None if connection.dialect.name == "sqlite" else schema
    for table, values in rows.items():
        columns: list[sa.ColumnClause[object]] = [sa.column(name) for name in values[0]._fields]
        records = [{name: stored(value) for name, value in row._asdict().items()} for row in values]
        with _naming(connection, schema):
            connection.execute(sa.insert(sa.table(table, *columns, schema=schema)), records)


def delete(rows: Mapping[str, Sequence[NamedTuple]], schema: str | None = None) -> None:
    """Delete what has the first values of *rows*, which stand under the names of their tables."""
    connection = op.get_bind()
    schema = None if connection.dialect.name == "sqlite" else schema
    for table, values in rows.items():
        key: sa.ColumnClause[object] = sa.column(values[0]._fields[0])
        gone = key.in_([row[0] for row in values])
        with _naming(connection, schema):
            connection.execute(sa.delete(sa.table(table, key, schema=schema)).where(gone))


@contextmanager
def _naming(connection: sa.Connection, schema: str | None) -> Iterator[None]:
    """Let names without a schema be looked up where the login does, unless there is a *schema*."""
    if connection.dialect.name == "sqlite" or schema is not None:
        yield
        return
    quote = connection.dialect.identifier_preparer.quote_identifier
    path = ", ".join(quote(name) for name in op.get_context().opts["own_schemas"])
    connection.exec_driver_sql(f"set local search_path = {path}")
    yield
    connection.exec_driver_sql(PIN)


def _as_sqlite(value: object) -> object:
    match value:
        case Json(text):
            return text
        case list():
            return dumps(value, ensure_ascii=False)
        case Decimal():
            return float(value)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case date():
            return value.isoformat()
        case _:
            return value


def _as_postgresql(value: object) -> object:
    return value.text if isinstance(value, Json) else value
