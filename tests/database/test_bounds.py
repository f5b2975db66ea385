"""The size of a call is limited before it reaches a database."""

from itertools import product

import pytest

from dbtools.errors import BadArgument, BadOperator, CallError
from tests.database.shop import Serve, Shop

PARENTS = ("a", "b", "c", "d")
CIRCLES = f"""
create table node (
    id integer primary key,
    name text,
    {", ".join(f"{name}_id integer references node (id)" for name in PARENTS)}
);
insert into node (id, name) values (1, 'root');
"""
PATHS = [".".join((*steps, "name")) for length in (1, 2, 3) for steps in product(PARENTS, repeat=length)]


def test_paths_through_too_many_tables_are_refused(dialect: str, serve: Serve) -> None:
    with serve(dialect, CIRCLES) as shop:
        few = shop.call("list_rows", {"table": "node", "columns": PATHS[:20]}).structured

        with pytest.raises(BadArgument, match="more than 30 tables"):
            shop.call("list_rows", {"table": "node", "columns": PATHS})

    assert few["rows"] == [[None] * 20]


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_least_and_greatest_of_numbers_are_numbers(dialect: str, serve: Serve) -> None:
    """An empty text is what a blank cell of CSV becomes, and greater than any number."""
    ddl = "create table t (v decimal(10,2), n integer); insert into t values (1.5, 3), (2.5, 1), ('', '');"
    measures = [{"function": function, "column": column} for column in "vn" for function in ("min", "max")]
    with serve(dialect, ddl) as shop:
        found = shop.call("aggregate_rows", {"table": "t", "measures": measures}).structured

    assert found["rows"] == [[1.5, 2.5, 1, 3]]


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_name_of_an_object_tells_nothing_of_what_there_is(dialect: str, serve: Serve) -> None:
    """Read as a regclass, the name of a hidden table is a value and that of no table an error."""
    ddl = "create table t (id int primary key, c regclass); insert into t values (1, 'pg_class');"
    with serve(dialect, ddl) as shop:
        said = {name: _said(shop, name) for name in ("pg_authid", "nosuch")}
        found = shop.page("t", where=[{"column": "c", "op": "contains", "value": "class"}])

    assert len(set(said.values())) == 1
    assert found["row_count"] == 1


def _said(shop: Shop, name: str) -> str:
    with pytest.raises(CallError) as raised:
        shop.page("t", where=[{"column": "c", "value": name}])
    return str(raised.value).replace(name, "…")


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_single_bytes_are_not_ordered(dialect: str, serve: Serve) -> None:
    """The planner of the server fails on them where it has statistics."""
    ddl = """
    create table t (id int primary key, c "char");
    insert into t select n, chr(97 + n % 3)::"char" from generate_series(1, 50) as n;
    analyze t;
    """
    with serve(dialect, ddl) as shop:
        found = shop.page("t", where=[{"column": "c", "value": "a"}])

        with pytest.raises(BadOperator):
            shop.page("t", where=[{"column": "c", "op": "gt", "value": "a"}])
        with pytest.raises(BadArgument, match="cannot be sorted"):
            shop.page("t", order_by=["c"])

    assert found["row_count"] == 16
