"""Tables and columns with any name can be listed, searched, ordered by and addressed."""

import json
import re
from collections.abc import Iterator

import pytest

from dbtools.schema.uris import cell_uri, row_uri
from dbtools.tools.get_row import GetRow
from dbtools.tools.list_rows import ListRows
from tests.database.shop import ROLE, Serve, Shop, Shops, open_shops, quote, rows_of

NAMES = (
    *("with space", " before", "after ", "it's", 'quo"te', '""', "sl/ash", "back\\slash", "d.ot", "a.b.c"),
    *("öäü", "ÖÄÜ2", "e\u0301", "é", "🦉", "日本語", "1digit", "42", "select", "order", "limit", "table"),
    *("x" * 62, "x" * 61 + "y", "a b", "a_b", "a-b", "a__b", "per%cent", "%s", "%%", "%(x)s", ":name"),
    *(
        "x:name y",
        "$1",
        "$$",
        "?",
        "new\nline",
        "tab\tbed",
        "--",
        "/*",
        "*/",
        ";",
        "(x)",
        "[x]",
        "`x`",
        "{x}",
    ),
    *("\u202eabc", "\u200b", "c0", "limit_1", "param_1", "cursor", "where", "columns", "row", "desc"),
    *("x desc", "'; drop table t; --", '"; drop table t; --', "<b>", "...", "_", "-", "TRUE", "\x01", "null"),
    *("#", "@x", "&", "com,ma"),
    *("%(limit)s", "%(c0_0)s", "%(skip)s", "%%(limit)s", "__[POSTCOMPILE_limit]", "c0_0", "$2", "?1"),
)
#: SQLite does not tell these from others, or has no such limit.
OWN_NAMES = {"sqlite": ("x" * 200, "rowid", "oid"), "postgresql": ("Mixed", "mixed", "MIXED", "oid", "ctid ")}
DDL = """
create table {name} ({name} varchar(100) not null primary key, {other} text);
insert into {name} values ('a/b', '{long}'), ('b', null);
"""
LONG = "v" * 2_100

each_name = pytest.mark.parametrize(
    ("dialect", "name"),
    [(dialect, name) for dialect, names in OWN_NAMES.items() for name in (*NAMES, *names)],
    ids=ascii,
)


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Yield a table of each name, whose key has that name too, and another column the same with a dot."""
    ddl = {dialect: "".join(map(_ddl, (*NAMES, *names))) for dialect, names in OWN_NAMES.items()}
    with open_shops(serve, ddl) as shops:
        yield shops


def _ddl(name: str) -> str:
    return DDL.format(name=quote(name), other=quote(name + "."), long=LONG)


def _tools(shop: Shop, name: str) -> tuple[ListRows, GetRow]:
    """Return the tools that list and get of the table *name*."""
    tools = shop.portal.call(shop.toolbox.view, ROLE).tools.values()
    listing = [
        tool for tool in tools if isinstance(tool, ListRows) and tool.table and tool.table.name == name
    ]
    getting = [tool for tool in tools if isinstance(tool, GetRow) and tool.table and tool.table.name == name]
    return listing[0], getting[0]


@each_name
def test_table_and_columns_of_any_name_answer_every_call(name: str, shop: Shop) -> None:
    other = name + "."
    listing, getting = _tools(shop, name)
    assert getting.lookup is not None
    (argument,) = getting.lookup.keys
    never = [{"column": column, "op": "ne", "value": "x"} for column in (name, other)]
    asked = {"columns": [other, name], "where": never, "match": "any", "order_by": [f"{other} desc", name]}

    pages = list(shop.pages(listing.definition.name, [1], asked))
    got = shop.call(getting.definition.name, {argument: "a/b"}).structured["row"]

    assert [page["columns"] for page in pages] == [[other, name]] * 2
    assert [row[1] for page in pages for row in rows_of(page)] == ["a/b", "b"]
    assert got == {name: "a/b", other: LONG}


@each_name
def test_row_and_cell_of_any_name_have_an_address(name: str, shop: Shop) -> None:
    listing, _ = _tools(shop, name)
    row, cell = row_uri(name, ["b"]), cell_uri(name, ["a/b"], name)
    assert row is not None
    assert cell is not None

    links = shop.call(listing.definition.name, {}).links

    assert json.loads(shop.read(row).content) == {"row": {name: "b", name + ".": None}}
    assert shop.read(cell).content == b"a/b"
    assert [(link.name, shop.read(link.uri).content) for link in links] == [(name + ".", LONG.encode())]


def test_names_of_tools_are_plain_and_different(shop: Shop) -> None:
    names = [definition.name for definition in shop.portal.call(shop.toolbox.list, ROLE)]

    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch("[a-z0-9_]{1,40}", name)] == []


def test_same_name_in_two_schemas_is_two_tables(serve: Serve) -> None:
    ddl = """
    create schema "other.one";
    create table t (id int primary key);
    create table "other.one".t (id int primary key);
    insert into t values (1);
    insert into "other.one".t values (2);
    """
    with serve("postgresql", ddl) as shop:
        found = [shop.rows(name) for name in ("t", "t_other_one")]
        rows = [json.loads(shop.read(f"dbtools://row/{name}").content) for name in ("t/1", "other.one.t/2")]

    assert found == [[[1]], [[2]]]
    assert rows == [{"row": {"id": 1}}, {"row": {"id": 2}}]
