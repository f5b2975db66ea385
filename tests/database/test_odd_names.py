"""A name that looks like a parameter, or like a placeholder of a library, is a name in every statement."""

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, strategies as st

from dbtools.backends import open_backend
from dbtools.backends.compiled import Compiled
from dbtools.backends.sqlite.reading.runner import filtering_plan
from dbtools.expressions.terms import Function, Measure
from dbtools.schema.catalog import Column, ForeignKey, RowFilter, Table
from dbtools.schema.paths import PathColumn, Place, Relation
from dbtools.schema.sql import Fragment, Parameter
from dbtools.settings.sections import GrantSection
from dbtools.statements.select import Condition, Match, Order, Output, QueryShape, Select, Shape
from dbtools.values.types import ColumnType, Family, Operator
from tests.database.query_shop import ServeQueries
from tests.database.role_callers import calling_as
from tests.database.shop import Serve, quote, rows_of

#: What is written for parameters, and for what is filled in later.
MARKS = (
    *("%(limit)s", "%(skip)s", "%(c0_0)s", "%(c1_0)s", "%(claim0)s", "%(h0_0)s", "%%(limit)s", "%(number)s"),
    *("$1", "$2", "$1::VARCHAR", "?", "?1", ":limit", ":c0_0", "%", "%%", "%s", "c0", "c0_0", "claim0"),
    *("__[POSTCOMPILE_limit]", "__[POSTCOMPILE_c0_0]", "__[POSTCOMPILE_c0_0~~x~~]", "__[SCHEMA__none]"),
    *("(1 + %(limit)s)", '"%(limit)s"', "<%(limit)s>", "{limit}", "\\1", "\\g<0>", "@limit", "t", "j1"),
)
PLAIN = tuple(f"plain {at}" for at in range(9))
INTEGER = ColumnType(family=Family.INTEGER, name="integer", cast="pg_catalog.int4")
OPERATORS = (Operator.EQ, Operator.CONTAINS, Operator.IN, Operator.NE, Operator.STARTS_WITH, Operator.BETWEEN)


def _shapes(dialect: str, names: Sequence[str]) -> Iterator[Shape]:
    """Yield statements about a schema, a type, and tables and columns of these *names*."""
    schema, kind, own, other, *columns = names
    cast = f"{quote(schema)}.{quote(kind)}" if dialect == "postgresql" else ""
    text = ColumnType(family=Family.TEXT, name="odd", cast=cast, large=True)
    filter = RowFilter(condition=Fragment(pieces=("1 = ", Parameter("claims.one"))), casts=(cast,))

    def table(name: str, key: str, *others: str) -> Table:
        texts = (Column(name=each, type=text) for each in others)
        key_column = Column(name=key, type=INTEGER, nullable=False)
        return Table(
            name=name, schema=schema, columns=(key_column, *texts), filter=filter, row_identifier="oid"
        )

    target, whole = table(other, *columns[:2]), table(own, *columns[2:])
    key = ForeignKey(columns=(columns[3],), target_schema=schema, target=other, target_columns=(columns[0],))
    path = (Relation(name=other, foreign_key=key, target=target),)
    terms: tuple[Place, ...] = (
        *whole.columns,
        *(PathColumn(path=path, column=column) for column in target.columns),
    )
    compared = tuple(
        Condition(term=term, operator=operator, parameters=(f"c{at}_0", f"c{at}_1")[: 1 + (at == 5)])
        for at, (term, operator) in enumerate(zip((*terms, terms[0]), OPERATORS, strict=True))
    )
    read = tuple(Output(term=term, cut=9 if term.type.large else None) for term in terms)
    order = tuple(Order(term=term) for term in terms)
    for match in Match:
        yield Select(table=whole, outputs=read, conditions=compared, match=match, order=order, skip=True)
    yield Select(table=whole, outputs=tuple(Output(term=each) for each in whole.columns), conditions=compared)
    measures = tuple(Output(term=Measure(function=Function.MAX, place=term)) for term in terms)
    yield Select(table=whole, outputs=measures, groups=terms, conditions=compared)
    yield QueryShape(
        name="q",
        pieces=("select ", Parameter("limit")),
        outputs=tuple(Output(term=Column(name=each, type=text), cut=9) for each in columns),
        types={"limit": INTEGER},
        casts={"limit": cast},
    )


def _plans(dialect: str, names: Sequence[str]) -> Iterator[Compiled]:
    runner = open_backend(f"{dialect}:///a").load_runner()
    for shape in _shapes(dialect, names):
        yield runner.compile(shape)
        if dialect == "sqlite" and isinstance(shape, Select):
            yield filtering_plan(shape)


letters = st.text(st.sampled_from("%()slimtck0_$1?:[]~'\"`<>{}\\ \n"), min_size=1, max_size=12)
names = st.one_of(st.sampled_from(MARKS), letters, st.builds("{}{}".format, st.sampled_from(MARKS), letters))


@given(odd=st.lists(names, min_size=len(PLAIN), max_size=len(PLAIN), unique_by=str.lower))
def test_statement_about_odd_names_is_that_about_plain_ones(odd: list[str], dialect: str) -> None:
    quoted = {quote(plain): quote(name) for plain, name in zip(PLAIN, odd, strict=True)}

    for plain, found in zip(_plans(dialect, PLAIN), _plans(dialect, odd), strict=True):
        assert found.sql == re.sub('"plain ."', lambda name: quoted[name[0]], plain.sql)
        assert (found.parameters, found.constants) == (plain.parameters, plain.constants)


def test_order_by_a_measure_is_by_no_column_of_its_output_s_name(serve: Serve, dialect: str) -> None:
    ddl = """
    create table c0 (id integer primary key, c0 varchar(9), c1 integer);
    insert into c0 values (1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'b', 2);
    """
    total = {"function": "sum", "column": "c1", "name": "total"}
    asked = {"table": "c0", "group_by": ["c0"], "measures": [total], "order_by": ["total"]}
    with serve(dialect, ddl) as shop:
        rows = rows_of(shop.call("aggregate_rows", asked).structured)

    assert rows == [["b", 2], ["a", 3]]


@pytest.mark.parametrize("name", MARKS)
def test_column_of_a_query_may_have_any_name(name: str, dialect: str, serve_queries: ServeQueries) -> None:
    query = f"-- name: odd\n-- param limit: text\nselect 'x' as {quote(name)}, 1 as other where 'y' = :limit"
    with serve_queries(dialect, "create table a (b integer);", {"odd.sql": query}) as shop:
        found = shop.call("odd", {"limit": "y"}).structured

    assert (found["columns"], found["rows"]) == ([name, "other"], [["x", 1]])


def test_giant_cell_of_a_hidden_row_of_odd_names_changes_nothing(serve: Serve) -> None:
    ddl = """
    create table "%(number)s" ("%(number)s" integer primary key, "%(limit)s" text, "DBTOOLS SEEN" integer);
    insert into "%(number)s" values (1, 'a', 0), (2, 'b', 0), (3, hex(zeroblob(9000000)), 1);
    alter table "%(number)s" add column "?" text default 'late';
    """
    grant = GrantSection(where='exists (select 1 from (select 3 as n) where n > "%(number)s")')
    other = {"column": "%(limit)s", "op": "ne", "value": "x"}
    asked = {"table": "%(number)s", "columns": ["%(limit)s", "?"], "where": [other]}
    with serve("sqlite", ddl) as shop, calling_as(shop, {"%(number)s": grant}) as caller:
        filtered = caller.rows("list_rows", **asked)

    assert filtered == [["a", "late"], ["b", "late"]]
