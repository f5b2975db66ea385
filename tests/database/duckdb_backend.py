"""DuckDB as a third database, for tests only: the smallest backend.

It proves that nothing outside of such a folder has to change: introspection, lists, paths, aggregates,
policies and permitted queries work through the port. It keeps no registry, and knows tables, not views.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from itertools import count
from typing import Any

import duckdb
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect as numbered_dialect
from sqlalchemy.types import UserDefinedType

from dbtools.answers.results import ResultSet
from dbtools.backends import port
from dbtools.backends.compile import sources
from dbtools.backends.compile.queries import compile_query
from dbtools.backends.compile.selects import compile_select
from dbtools.backends.compile.sources import Element, Truth, dialect_with_places
from dbtools.backends.compiled import ESCAPE, Compiled, identifier
from dbtools.backends.port import Declared, Facts, Inspected
from dbtools.backends.query_syntax import ListForms
from dbtools.backends.refusals import Cause
from dbtools.backends.runs import NO_SESSION, Run
from dbtools.errors import Refused
from dbtools.expressions.terms import Bucket, Calculation, Function
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, RowFilter, Selection, Table
from dbtools.schema.sql import Fragment, Lexis, Parameter
from dbtools.statements.select import Output, QueryShape, Shape
from dbtools.values.cells import Cut
from dbtools.values.types import ColumnType, Family, Operator

LEXIS = Lexis(
    name_quotes='"',
    nested_comments=False,
    dollar_quotes=True,
    escape_strings=True,
    line_ends="\n\r",
    native_marks="$?",
    lenient=False,
)
FORMS = ListForms(among="= any(", not_among="<> all(", closing=")")
TABLES = "select table_name, comment, sql from duckdb_tables() where not internal order by table_name"
COLUMNS = """
select column_name, data_type, is_nullable, comment
from duckdb_columns()
where table_name = $1
and not internal
order by column_index
"""
CONSTRAINTS = """
select constraint_type, constraint_column_names, referenced_table, referenced_column_names
from duckdb_constraints()
where table_name = $1
"""
FAMILIES: Mapping[str, Family] = {
    "INTEGER": Family.INTEGER,
    "BIGINT": Family.INTEGER,
    "DOUBLE": Family.NUMBER,
    "DECIMAL": Family.DECIMAL,
    "VARCHAR": Family.TEXT,
    "BOOLEAN": Family.BOOLEAN,
    "DATE": Family.DATE,
    "TIMESTAMP": Family.TIMESTAMP,
}
BITS = {"INTEGER": 31, "BIGINT": 63}
FORMATS: Mapping[Bucket, str] = {
    Bucket.YEAR: "%Y",
    Bucket.MONTH: "%Y-%m",
    Bucket.WEEK: "%G-W%V",
    Bucket.DAY: "%Y-%m-%d",
    Bucket.WEEKDAY: "%u",
    Bucket.HOUR: "%H",
}
#: The types of parameters of permitted queries, as their files declare them.
DECLARED: Mapping[str, str] = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "decimal": "DECIMAL(38,9)",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}


def type_of(declared: str) -> ColumnType:
    """Return the type that a column is *declared* as."""
    name = declared.partition("(")[0]
    family = FAMILIES.get(name, Family.OTHER)
    most = 2 ** BITS[name] - 1 if name in BITS else None
    return ColumnType(
        family=family,
        name=declared.lower(),
        cast=declared,
        minimum=None if most is None else -most - 1,
        maximum=most,
        large=family is Family.TEXT,
    )


class Named(UserDefinedType[Any]):
    """A type by its name."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: object) -> str:
        """Return the name."""
        return self.name


class Grammar(sources.Grammar):
    """The Grammar of DuckDB."""

    barrier = False
    dialect: sa.Dialect = dialect_with_places(numbered_dialect())  # type: ignore[no-untyped-call]

    def driver_value(self, value: object, type: ColumnType) -> object:
        """Return *value* as a text, which the database casts."""
        return value if value is None else str(value)

    def bound_list(self, values: Sequence[object], type: ColumnType) -> object:
        """Return *values* as texts."""
        return [self.driver_value(value, type) for value in values]

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter, cast to *type*."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(type.cast or "DOUBLE"))

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Compare with a list, which is one parameter."""
        listed = sa.cast(sa.bindparam(name, type_=sa.ARRAY(sa.Text)), Named(f"{type.cast}[]"))
        found = column.op("=", is_comparison=True)(sa.func.any(listed))
        return sa.not_(found) if negated else found

    def like(self, column: Element, name: str, operator: Operator, type: ColumnType) -> Truth:
        """Compare by ILIKE."""
        return sa.cast(column, sa.Text).ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE)

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Compare with each item."""
        return self.value(name, type).op("=", is_comparison=True)(sa.func.any(column))

    def array(self, name: str, cast: str) -> Element:
        """Return the parameter as a list of what *cast* names."""
        return sa.cast(sa.bindparam(name, type_=sa.ARRAY(sa.Text)), Named(cast or "VARCHAR[]"))

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter as what *cast* names."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(cast or "VARCHAR"))

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell: the driver keeps it exactly."""
        return (column,)

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Write dates."""
        if bucket is Bucket.QUARTER:
            year = sa.func.strftime(column, sa.literal_column("'%Y-Q'"))
            return year.op("||")(sa.func.quarter(column))
        return sa.func.strftime(column, sa.literal_column(f"'{FORMATS[bucket]}'"))

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Compute what the database has under the same name."""
        return getattr(sa.func, function)(column)  # type: ignore[no-any-return]

    def calculation_sql(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Refuse: this database is there for its seams."""
        raise AssertionError(term)


GRAMMAR = Grammar()


class Backend(port.Backend):
    """A DuckDB file."""

    facts = Facts(
        lexis=LEXIS,
        interval=1.0,
        claim_casts=DECLARED,
        implicit_casts={Family.DECIMAL: frozenset({Family.NUMBER})},
        alike=lambda target, source: target.type.family is source.type.family,
    )

    def __init__(self, url: str, **writing: Any) -> None:
        super().__init__(url, **writing)
        self._connection = duckdb.connect(url.partition("://")[2], read_only=True)

    @property
    def place(self) -> str:
        """The path of the file."""
        return self.url.partition("://")[2]

    def load_runner(self) -> "Runner":
        """Return what runs statements."""
        return Runner(self._connection)

    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return the tables of the file."""
        return await asyncio.to_thread(self._introspect, selection)

    def _introspect(self, selection: Selection) -> Catalog:
        cursor = self._connection.cursor()
        found = cursor.execute(TABLES).fetchall()
        tables = tuple(
            _table(cursor, name, comment) for name, comment, _ in found if selection.admits("", name)
        )
        return Catalog(tables=tables, stamp=stamp_of(cursor))

    @asynccontextmanager
    async def describe(self, session: Mapping[str, str] = NO_SESSION) -> AsyncIterator["DuckdbInspector"]:
        """Open an Inspector."""
        yield DuckdbInspector(self._connection.cursor())

    async def stamp(self) -> str:
        """Return the stamp of the schema now."""
        return await asyncio.to_thread(stamp_of, self._connection.cursor())

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()


def stamp_of(cursor: duckdb.DuckDBPyConnection) -> str:
    """Return what differs when the schema does."""
    return str(hash(tuple(cursor.execute(TABLES).fetchall())))


def _table(cursor: duckdb.DuckDBPyConnection, name: str, comment: str | None) -> Table:
    columns = tuple(
        Column(name=column, type=type_of(declared), nullable=nullable, comment=comment or "")
        for column, declared, nullable, comment in cursor.execute(COLUMNS, [name]).fetchall()
    )
    constraints = cursor.execute(CONSTRAINTS, [name]).fetchall()
    return Table(
        name=name,
        columns=columns,
        comment=comment or "",
        keys=tuple(
            Key(columns=tuple(key), primary=True) for kind, key, *_ in constraints if kind == "PRIMARY KEY"
        ),
        foreign_keys=tuple(
            ForeignKey(columns=tuple(key), target_schema="", target=target, target_columns=tuple(there))
            for kind, key, target, there in constraints
            if kind == "FOREIGN KEY"
        ),
    )


class DuckdbInspector:
    """Asks DuckDB what operators' SQL means to it."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    async def query(self, pieces: Sequence[str | Parameter], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the query in *pieces* is, whose parameters are what its file declares."""
        types = {name: _parameter_type(each) for name, each in declared.items()}
        nulls = (each if isinstance(each, str) else _null(types.get(each.name)) for each in pieces)
        try:
            rows = self._cursor.execute(f"describe select * from ({''.join(nulls)}\n)").fetchall()
        except duckdb.Error as exc:
            raise Refused(f"{exc}.") from exc
        casts = {name: type.cast for name, type in types.items()}
        columns = tuple(Column(name=name, type=type_of(type)) for name, type, *_ in rows)
        return Inspected(columns=columns, parameters=types, casts=casts, reads=None, functions=())

    async def condition(self, table: Table, condition: Fragment) -> RowFilter:
        """Return no types, once the database has understood *condition*."""
        numbers = count(1)
        written = condition.to_sql(lambda _: f"${next(numbers)}")
        nulls = [None for piece in condition.pieces if isinstance(piece, Parameter)]
        try:
            self._cursor.execute(f"explain select 1 from {identifier(table.name)} where ({written}\n)", nulls)
        except duckdb.Error as exc:
            raise Refused(f"{exc}.") from exc
        return RowFilter(condition=condition)


def _parameter_type(declared: Declared) -> ColumnType:
    type = type_of(DECLARED.get(declared.type, "VARCHAR"))
    if not declared.array:
        return type
    return ColumnType(family=Family.ARRAY, name=f"{type.name}[]", cast=f"{type.cast}[]", element=type)


def _null(type: ColumnType | None) -> str:
    return f"null::{type.cast if type else 'VARCHAR'}"


class Runner:
    """The Runner of DuckDB: each statement has a separate cursor and thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def compile(self, shape: Shape) -> Compiled:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, which is interrupted by its deadline or by cancellation."""
        cursor = self._connection.cursor()
        try:
            async with asyncio.timeout(run.context.timeout):
                rows = await asyncio.to_thread(_fetch, cursor, run)
        except TimeoutError as exc:
            raise Cause.TIMED_OUT.error() from exc
        except duckdb.Error as exc:
            raise cause_of(exc).error() from exc
        finally:
            cursor.interrupt()
        cells = tuple(tuple(map(_cell, row, run.plan.outputs)) for row in rows[: run.limit])
        return ResultSet(outputs=run.plan.outputs, rows=cells, more=len(rows) > run.limit)

    async def ready(self) -> None:
        """Return: the file is open."""

    async def probe(self) -> port.Probe:
        """Return: the file is opened for reading only."""
        return port.Probe(version=f"DuckDB {duckdb.__version__}", refuses_writes=True)

    async def close(self) -> None:
        """Return: the backend closes the file."""


def _fetch(cursor: duckdb.DuckDBPyConnection, run: Run) -> list[tuple[object, ...]]:
    return cursor.execute(run.plan.sql, list(run.parameters)).fetchmany(run.limit + 1)


def _cell(cell: object, output: Output) -> object:
    """Return *cell* as the encoder takes it: decimals and dates as texts, and long texts cut."""
    if isinstance(cell, Decimal | date):
        return str(cell)
    longest = output.longest
    if isinstance(cell, str) and longest is not None and len(cell) > longest:
        return Cut(start=cell[:longest], length=len(cell))
    return cell


def cause_of(error: duckdb.Error) -> Cause:
    """Return the cause of *error*."""
    match error:
        case duckdb.CatalogException() | duckdb.BinderException():
            return Cause.SCHEMA_CHANGED
        case duckdb.ConversionException():
            return Cause.BAD_VALUE
        case duckdb.OutOfRangeException():
            return Cause.OUT_OF_RANGE
        case _:
            return Cause.UNREADABLE
