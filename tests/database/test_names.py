"""Tables and columns of any name can be listed, got, searched, ordered by and addressed, on every database."""

import json
from collections.abc import Iterator

import pytest

from dbtools.links import cell_uri, row_uri
from dbtools.tools.get_row import GetRow
from dbtools.tools.list_rows import ListRows
from tests.database.conftest import Serve
from tests.database.shop import ROLE, Shop, quote, rows_of

NAMES = (
    *(
        "with space",
        " before",
        "after ",
        "it's",
        'quo"te',
        '""',
        "sl/ash",
        "back\\slash",
        "d.ot",
        "a.b.c",
        "com,ma",
    ),
    *(
        "öäü",
        "ÖÄÜ2",
        "e\u0301",
        "é",
        "🦉",
        "日本語",
        "1digit",
        "42",
        "select",
        "order",
        "limit",
        "table",
        "null",
    ),
    *(
        "x" * 63,
        "x" * 62 + "y",
        "a b",
        "a_b",
        "a-b",
        "a__b",
        "per%cent",
        "%s",
        "%%",
        "%(x)s",
        ":name",
        "x:name y",
    ),
    *(
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
        "#",
        "@x",
        "&",
    ),
    *(
        "\u202eabc",
        "\u200b",
        "c0",
        "limit_1",
        "param_1",
        "cursor",
        "where",
        "columns",
        "row",
        "desc",
        "x desc",
    ),
    *("'; drop table t; --", '"; drop table t; --', "<b>", "...", "_", "-", "TRUE", "\x01"),
)
#: SQLite does not tell these from others, or has no such limit.
OWN_NAMES = {
    "sqlite": ("x" * 200, "rowid", "oid"),
    "postgresql": ("Mixed", "mixed", "MIXED", "oid", "ctid "),
}
LONG = "v" * 2_100


@pytest.fixture(scope="module")
def shop(dialect: str, serve: Serve) -> Iterator[Shop]:
    """Give a table of each name, whose key and another column have the same name, more or less."""
    tables = [
        f"create table {quote(name)} ({quote(name)} varchar(100) not null primary key, {quote(name + '.')} text);"
        f"insert into {quote(name)} values ('a/b', '{LONG}'), ('b', null);"
        for name in _names(dialect)
    ]
    with serve(dialect, "\n".join(tables)) as shop:
        yield shop


def _names(dialect: str) -> tuple[str, ...]:
    names = (*NAMES, *OWN_NAMES[dialect])
    fitting = (name for name in names if dialect == "sqlite" or len((name + ".").encode()) <= 63)
    return tuple(fitting)


def _tools(shop: Shop, name: str) -> tuple[str, str]:
    """Return the names of the tools that list and get of the table *name*."""
    tools = shop.portal.call(shop.toolbox.view, ROLE).tools.values()
    listing = [
        each.definition.name for each in tools if isinstance(each, ListRows) and each.table.name == name
    ]
    getting = [each.definition.name for each in tools if isinstance(each, GetRow) and each.table.name == name]
    return listing[0], getting[0]


@pytest.mark.parametrize(
    ("dialect", "name"),
    [(dialect, name) for dialect in OWN_NAMES for name in _names(dialect)],
    indirect=["dialect"],
    scope="module",
    ids=ascii,
)
def test_table_and_columns_of_any_name_answer_every_call(name: str, shop: Shop) -> None:
    other = name + "."
    listing, getting = _tools(shop, name)
    (argument,) = shop.portal.call(shop.toolbox.view, ROLE).tools[getting].definition.input_schema["required"]

    pages = list(
        shop.pages(
            listing,
            [1],
            {
                "columns": [other, name],
                "where": [
                    {"column": name, "op": "ne", "value": "c"},
                    {"column": other, "op": "ne", "value": "x"},
                ],
                "match": "any",
                "order_by": [f"{other} desc", f"{name} desc"],
            },
        )
    )
    got = shop.call(getting, {argument: "a/b"}).structured["row"]

    assert [page["columns"] for page in pages] == [[other, name]] * 2
    assert [row[1] for page in pages for row in rows_of(page)] == ["a/b", "b"]
    assert got == {name: "a/b", other: LONG}


@pytest.mark.parametrize(
    ("dialect", "name"),
    [(dialect, name) for dialect in OWN_NAMES for name in _names(dialect)],
    indirect=["dialect"],
    scope="module",
    ids=ascii,
)
def test_row_and_cell_of_any_name_have_an_address(name: str, shop: Shop) -> None:
    listing, _ = _tools(shop, name)
    links = shop.call(listing, {}).links
    row = row_uri(name, ["b"])
    cell = cell_uri(name, ["a/b"], name)
    assert row is not None
    assert cell is not None

    assert json.loads(shop.read(row).content) == {"row": {name: "b", name + ".": None}}
    assert shop.read(cell).content == b"a/b"
    assert [(link.name, shop.read(link.uri).content) for link in links] == [(name + ".", LONG.encode())]


def test_names_of_tools_are_plain_and_different(shop: Shop) -> None:
    names = [definition.name for definition in shop.portal.call(shop.toolbox.list, ROLE)]

    assert len(set(names)) == len(names)
    assert [
        name
        for name in names
        if not (name.isascii() and name.replace("_", "a").isalnum() and len(name) <= 40)
    ] == []


def test_same_name_in_two_schemas_is_two_tables(serve: Serve) -> None:
    ddl = """
    create schema "other.one";
    create table t (id int primary key);
    create table "other.one".t (id int primary key);
    insert into t values (1);
    insert into "other.one".t values (2);
    """
    with serve("postgresql", ddl) as shop:
        found = {name: shop.call(name, {}).structured["rows"] for name in ("list_t", "list_t_other_one")}
        rows = [
            json.loads(shop.read(uri).content) for uri in ("dbtools://row/t/1", "dbtools://row/other.one.t/2")
        ]

    assert found == {"list_t": [[1]], "list_t_other_one": [[2]]}
    assert rows == [{"row": {"id": 1}}, {"row": {"id": 2}}]
