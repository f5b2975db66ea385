"""No stored cell of any type makes an aggregate fail: the call is answered, or rejected before it runs."""

from collections.abc import Iterator, Mapping
from itertools import product

import asyncpg
import pytest

from dbtools.errors import BadArgument, CallError
from dbtools.expressions.terms import Bucket, Function
from tests.database.shop import Serve, Shop, literal, rows_of
from tests.database.test_totality import EXPECTED, FEW, each_declared, sqlite as sqlite

#: Types of PostgreSQL with values at their ends.
TYPES: Mapping[str, tuple[str, ...]] = {
    "int2": ("-32768", "32767"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807", "9223372036854775807"),
    "numeric": ("NaN", "Infinity", "-Infinity", "1e-300", "-1e300", "1.50", "1.5"),
    "numeric(12,4)": ("NaN", "99999999.9999", "-0.0001"),
    "float4": ("NaN", "Infinity", "-Infinity", "3.4e38", "1e-45", "-0", "0"),
    "float8": ("NaN", "Infinity", "-Infinity", "1e308", "5e-324", "-0", "0"),
    "bool": ("true", "false"),
    "text": ("", " ", "ß", "🦉", "x" * 3_000),
    "varchar(40)": ("", "a", "A"),
    "char(3)": ("", "a  ", "a"),
    '"char"': ("", "a"),
    "name": ("", "a"),
    "citing": ("", "a"),
    "bytea": ("\\x", "\\x00ff", "\\x00"),
    "date": ("infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-01-01", "9999-12-31"),
    "time": ("00:00", "24:00:00", "23:59:59.999999"),
    "timetz": ("00:00+15:59", "24:00:00-15:59"),
    "timestamp": ("infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59", "2024-02-29"),
    "timestamptz": ("infinity", "-infinity", "4713-01-02 00:00:00+00 BC", "294276-12-31 23:59:59+00"),
    "interval": ("0", "-178000000 years", "178000000 years", "1 month", "30 days", "infinity"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "json": ("null", "{}", '[1, "a"]', '""'),
    "jsonb": ("null", "{}", '[1, "a"]', '""'),
    "jsonpath": ("$", "$.a[*]"),
    "xml": ("<a/>", ""),
    "point": ("(NaN,Infinity)", "(0,-0)", "(0,0)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(0,0),(1,1)", "(0,0),(0,0)"),
    "path": ("[(0,0)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1),(1,0))",),
    "circle": ("<(0,0),1>", "<(1,1),1>"),
    "inet": ("10.0.0.1", "10.0.0.1/8", "::1"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "bit(8)": ("10101010", "00000000"),
    "varbit": ("", "1"),
    "money": ("-92233720368547758.08", "92233720368547758.07"),
    "tsvector": ("", "a:1 b:2A"),
    "tsquery": ("", "a & !b"),
    "int4range": ("empty", "(,)", "[1,2)"),
    "numrange": ("empty", "[-Infinity,NaN]"),
    "tstzrange": ("(,)", "[infinity,infinity]"),
    "int4multirange": ("{}", "{(,1),[5,6)}"),
    "oid": ("0", "4294967295"),
    "regclass": ("pg_class", "-"),
    "regtype": ("int4", "text[]"),
    "regrole": ("-",),
    "xid": ("0", "4294967295"),
    "xid8": ("0", "18446744073709551615"),
    "cid": ("0",),
    "tid": ("(0,0)", "(4294967295,65535)"),
    "pg_lsn": ("0/0", "FFFFFFFF/FFFFFFFF"),
    "pg_snapshot": ("1:2:1",),
    "refcursor": ("",),
    "int2vector": ("", "1 2"),
    "oidvector": ("", "1 2"),
    "int4[]": ("{}", "{1,NULL}", "{{1,2},{3,4}}"),
    "text[]": ("{}", '{"",NULL}'),
    "float8[]": ("{NaN,-0}", "{NaN,0}"),
    "json[]": ("{}", "{null}"),
    "point[]": ("{}", '{"(0,0)"}'),
    "mood": ("sad", ""),
    "mood[]": ("{}", '{sad,""}'),
    "mood_domain": ("sad", ""),
    "positive": ("1", "2147483647"),
    "tags": ("{}", "{a}"),
    "part": ("(,)", '(NaN,"")', "(1.50,a)", "(1.5,a)"),
    "part[]": ("{}", '{"(1,a)",NULL}'),
    "part_domain": ("(1,a)",),
    "odd_part": ("(,)", '({},"(0,0)")'),
    "odd_part[]": ("{}",),
}
OWN_TYPES = """
create type mood as enum ('sad', '');
create domain mood_domain as mood;
create domain positive as int check (value > 0);
create domain tags as text[];
create domain citing as text collate "C";
create type part as (number numeric, word text);
create domain part_domain as part;
create type odd_part as (content json, place point);
"""
#: Types whose measures have another type, or that of the column.
MEASURED = ("int8", "numeric", "float4", "bool", "text", "date", "timestamptz", "interval", "uuid", "mood")
COMPARING = ("eq", "lt", "between", "contains")
#: Some servers are built without XML, or do not know an infinite interval yet.
UNCERTAIN = ("xml", "interval")


@pytest.fixture(scope="module")
def postgresql(serve: Serve) -> Iterator[Shop]:
    """Yield a table with a column of every type, rows of values at their ends, and one of nulls."""
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(TYPES))
    with serve("postgresql", f"{OWN_TYPES} create table t (id int primary key, {columns});") as shop:
        shop.bare.execute("insert into t values (0)")
        for row in range(max(map(len, TYPES.values()))):
            cells = ", ".join(_cell(shop, name, values[row % len(values)]) for name, values in TYPES.items())
            shop.bare.execute(f"insert into t select {row + 1}, {cells}")
        yield shop


def _cell(shop: Shop, name: str, value: str) -> str:
    """Return *value* of the type *name* as SQL, or null where the server does not know it."""
    cell = f"{literal(value)}::{name}"
    if name in UNCERTAIN:
        try:
            shop.bare.rows(f"select ({cell})::text")
        except asyncpg.PostgresError:
            return "null"
    return cell


def outcomes(shop: Shop, column: str) -> Mapping[str, object]:
    """Return the rows, or the type of the error, of each measure and each group of *column* of `t`."""
    count = {"function": "count"}
    groups = [column, *(f"{column}:{bucket}" for bucket in Bucket)]
    asked: dict[str, dict[str, object]] = {
        **{
            f"{function}": {"measures": [{"function": function, "column": column, "name": "m"}]}
            for function in Function
        },
        **{group: {"group_by": [group], "measures": [count]} for group in groups},
    }
    varied = dict(asked)
    for name, call in asked.items():
        term = name if name in groups else "m"
        varied[f"{name} in order"] = {**call, "order_by": [f"{term} desc"]}
        if name not in groups:
            condition = {"column": "m", "op": "is_null", "value": False}
            varied[f"{name} having"] = {**call, "having": [condition]}
    return {name: _outcome(shop, call) for name, call in varied.items()}


def _outcome(shop: Shop, arguments: Mapping[str, object]) -> object:
    try:
        return rows_of(shop.call("aggregate_rows", {"table": "t", **arguments}).structured)
    except CallError as exc:
        return type(exc)


def _check(shop: Shop, column: str, found: Mapping[str, object]) -> None:
    """Assert that every outcome is rows or a refusal, and that the database counts as many groups."""
    [(count,)] = shop.bare.rows(f"select count({column}) from t")
    refused = {name for name, each in found.items() if each is BadArgument}

    assert {name: each for name, each in found.items() if not isinstance(each, list)} == dict.fromkeys(
        refused, BadArgument
    )
    assert found["count"] == [[count]]
    # What can be counted apart can be grouped by.
    assert ("count_distinct" in refused) is (column in refused)
    if column not in refused:
        [(groups,)] = shop.bare.rows(f"select count(*) from (select distinct {column} from t) as d")
        rows = found[column]
        assert isinstance(rows, list)
        assert len(rows) == groups
        assert found["count_distinct"] == [[groups - 1]]


def _unclean(shop: Shop, column: str) -> Mapping[tuple[str, str, str], object]:
    """Return what neither finds rows nor says what is wrong, among conditions on measures of *column*."""
    found = {}
    for function, operator, value in product(Function, COMPARING, FEW):
        condition: dict[str, object] = {"column": "m", "op": operator}
        condition |= {"values": [value, value]} if operator == "between" else {"value": value}
        measure = {"function": function, "column": column, "name": "m"}
        found[function, operator, value] = _outcome(shop, {"measures": [measure], "having": [condition]})
    return {call: each for call, each in found.items() if not isinstance(each, list) and each not in EXPECTED}


@pytest.mark.parametrize(("at", "name"), [pytest.param(at, name, id=name) for at, name in enumerate(TYPES)])
def test_every_measure_and_group_of_every_type_is_answered_or_refused(
    at: int, name: str, postgresql: Shop
) -> None:
    found = outcomes(postgresql, f"c{at}")

    _check(postgresql, f"c{at}", found)


@pytest.mark.parametrize("name", MEASURED)
def test_every_condition_on_a_measure_is_answered_or_refused(name: str, postgresql: Shop) -> None:
    assert _unclean(postgresql, f"c{list(TYPES).index(name)}") == {}


@each_declared
def test_every_measure_and_group_is_total_whatever_a_cell_holds(at: int, sqlite: Shop) -> None:
    found = outcomes(sqlite, f"c{at}")

    _check(sqlite, f"c{at}", found)


@each_declared
def test_every_condition_on_a_measure_is_total_whatever_a_cell_holds(at: int, sqlite: Shop) -> None:
    assert _unclean(sqlite, f"c{at}") == {}
