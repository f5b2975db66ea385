"""Values of every type are read back as written, and the schemas of tools say what can be written."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection, RoleLimitsSection, RoleSection
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import Serve, Shop, Shops, quote, same

LARGE = "é" * 400_000
DDL = {
    "sqlite": """
    create table cells (
        id integer primary key, whole integer, small int check (small between 1 and 9), number double,
        money decimal(10,2), flag boolean, word text, label text check (label in ('a', 'b')), code char(3),
        moment timestamp, day date, clock time, document json, data blob, loose,
        needed text not null default 'x'
    );
    insert into cells (id) values (1);
    create table strict_cells (id integer primary key, whole int, number real, word text, data blob,
        loose any) strict;
    insert into strict_cells (id) values (1);
    create table loose_keys (id primary key not null, word text);
    insert into loose_keys values (5, 'number'), ('5', 'text'), ('x', 'one');
    """,
    "postgresql": """
    create type mood as enum ('a', 'b');
    create domain positive as integer check (value > 0);
    create table cells (
        id integer primary key, whole bigint, small smallint check (small between 1 and 9), number float8,
        money numeric(10,2), exact numeric, flag boolean, word text, label mood, code char(3),
        short varchar(3), moment timestamp, instant timestamptz, day date, clock time, span interval,
        uuid uuid, document json,
        data bytea, numbers integer[], moods mood[], words text[], address inet, stretch int4range,
        lexemes tsvector, positive positive, needed text not null default 'x'
    );
    insert into cells (id) values (1);
    """,
}
ALL = GrantSection(insert=True, update=True, delete=True)
#: By column: what is written, and what is read if that is not the same.
BOTH: list[tuple[str, Any, Any]] = [
    ("whole", 0, 0),
    ("whole", 2**63 - 1, str(2**63 - 1)),
    ("whole", str(-(2**63)), str(-(2**63))),
    ("number", 0.1, 0.1),
    ("number", 1e308, 1e308),
    ("number", 5e-324, 5e-324),
    ("flag", True, True),
    ("flag", False, False),
    ("word", "", ""),
    ("word", "null", "null"),
    ("word", "naïve 😀 \u200d \n\t'\"\\", "naïve 😀 \u200d \n\t'\"\\"),
    ("word", 5, "5"),
    ("label", "a", "a"),
    ("day", "0001-01-01", "0001-01-01"),
    ("day", "9999-12-31", "9999-12-31"),
    ("day", "20240305", "2024-03-05"),
    ("day", "2024-03-05T00:00:00Z", "2024-03-05"),
    (
        "document",
        {"a": [1, None, {"b": 10**30}], "ü": "\u2028"},
        {"a": [1, None, {"b": str(10**30)}], "ü": "\u2028"},
    ),
    ("document", "text", "text"),
    ("document", "[NaN]", "[NaN]"),
    ("document", "[" * 1_500, "[" * 1_500),
    ("document", '{"a": 1.10}', {"a": 1.1}),
    ("document", 0.1, 0.1),
    ("document", [], []),
    ("document", None, None),
    ("data", "aGVsbG8=", "aGVsbG8="),
    ("data", "", ""),
    ("needed", "", ""),
]
OWN: Mapping[str, list[tuple[str, Any, Any]]] = {
    "sqlite": [
        ("money", "19.90", 19.9),
        ("moment", "2024-03-05T14:30:00Z", "2024-03-05 14:30:00"),
        ("moment", 1709649000, 1709649000),
        ("moment", "2024-03-05T14:30", "2024-03-05 14:30:00"),
        ("moment", "2024-03-05", "2024-03-05 00:00:00"),
        ("moment", "2024-03-05T14:30:00.500Z", "2024-03-05 14:30:00.5"),
        ("moment", "2024-03-05T14:30:00+02:00", "2024-03-05 12:30:00"),
        ("clock", "14:30", "14:30:00"),
        ("loose", 5, 5),
        ("loose", "5", "5"),
        ("loose", 5.5, 5.5),
    ],
    "postgresql": [
        ("number", "NaN", "NaN"),
        ("number", "-Infinity", "-Infinity"),
        ("money", "19.999", "20.00"),
        ("money", 19.9, "19.90"),
        ("exact", "1" * 60 + "." + "2" * 60, "1" * 60 + "." + "2" * 60),
        ("exact", "NaN", "NaN"),
        ("code", "a", "a"),
        ("short", "😀😀😀", "😀😀😀"),
        ("moment", "2024-03-05T14:30:00Z", "2024-03-05T14:30:00"),
        ("moment", "2024-03-05T14:30:00+02:00", "2024-03-05T12:30:00"),
        ("moment", "infinity", "infinity"),
        ("instant", "2024-03-05T14:30:00+02:00", "2024-03-05T12:30:00Z"),
        ("clock", "14:30", "14:30:00"),
        ("span", "P1DT2H", "P1DT2H"),
        ("span", "1 day", "P1D"),
        ("uuid", "3F2B8C1E0D4A4B6E9C551A2B3C4D5E6F", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"),
        ("numbers", [1, None, 3], [1, None, 3]),
        ("numbers", [[1, 2], [3, None]], [[1, 2], [3, None]]),
        ("numbers", [], []),
        ("numbers", "[1, 2]", [1, 2]),
        ("moods", ["a", None], ["a", None]),
        ("words", ["", "NULL", "{}", '"', None, "a,b"], ["", "NULL", "{}", '"', None, "a,b"]),
        ("address", "10.0.0.0/8", "10.0.0.0/8"),
        ("stretch", "[1,5)", "[1,5)"),
        ("lexemes", "a b", "'a' 'b'"),
        ("positive", 1, 1),
    ],
}
#: Values that no row can hold, by column; each gives an error that names what was given.
BOTH_REFUSED: list[tuple[str, Any]] = [
    ("whole", 2**63),
    ("whole", 1.5),
    ("whole", True),
    ("whole", ""),
    ("whole", [1]),
    ("number", "x"),
    ("number", "1e309"),
    ("flag", "perhaps"),
    ("word", {"a": 1}),
    ("label", "c"),
    ("moment", "2024-02-30"),
    ("day", "0000-01-01"),
    ("day", "2024-03-05T23:30:00-05:00"),
    ("day", "2024-03-05T14:30"),
    ("data", "hello!"),
    ("needed", None),
    ("small", 0),
    ("small", 10),
]
OWN_REFUSED: Mapping[str, list[tuple[str, Any]]] = {
    "sqlite": [],
    "postgresql": [
        ("small", 2**15),
        ("money", "123456789.00"),
        ("code", "abcd"),
        ("short", "abcd"),
        ("span", "P99999999999Y"),
        ("uuid", "x"),
        ("numbers", 5),
        ("numbers", "[" * 100),
        ("numbers", "{1,2}"),
        ("numbers", [2**31]),
        ("numbers", [[1], [2, 3]]),
        ("moods", ["c"]),
        ("address", "x"),
        ("stretch", "[5,1)"),
        ("positive", 0),
    ],
}


CLASSES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "string": (str,),
}


@pytest.fixture(scope="module")
def caller(shops: Shops, dialect: str) -> Iterator[Caller]:
    grants = {"cells": ALL} | ({"strict_cells": ALL, "loose_keys": ALL} if dialect == "sqlite" else {})
    with calling_as(shops(dialect), grants) as caller:
        yield caller


def _schema(caller: Caller, tool: str) -> Mapping[str, Any]:
    view = caller.portal.call(caller.toolbox.view, caller.role)
    return view.tools[tool].definition.input_schema


def _cell(answer: Mapping[str, Any], column: str) -> object:
    ((cells),) = answer["rows"]
    return dict(zip(answer["columns"], cells, strict=True))[column]


def test_what_is_written_is_read_back_and_can_be_written_and_expected(caller: Caller, dialect: str) -> None:
    for column, given, wanted in [*BOTH, *OWN[dialect]]:
        answer = caller.call("update_cells", id=1, set={column: given})
        row: Any = caller.call("get_cells", id=1)["row"]
        comparable = column not in ("document", "numbers", "moods", "words")
        expected = {"expected": {column: wanted}} if comparable else {}
        again = caller.call("update_cells", id=1, set={column: wanted}, **expected)

        found = (_cell(answer, column), row[column], _cell(again, column))
        assert [*map(same, found)] == [same(wanted)] * 3, (column, given)


def test_value_that_cannot_be_stored_is_named(caller: Caller, shop: Shop, dialect: str) -> None:
    for column, given in [*BOTH_REFUSED, *OWN_REFUSED[dialect]]:
        before = repr(shop.bare.rows("select * from cells"))
        with pytest.raises(errors.CallError) as caught:
            caller.call("update_cells", id=1, set={column: given})

        assert caught.value.code in ("bad_value", "constraint"), (column, given)
        if column != "positive":  # The check of a domain has no column.
            assert column in str(caught.value), (column, given, str(caught.value))
        assert repr(shop.bare.rows("select * from cells")) == before


def test_megabyte_is_stored_whole(caller: Caller, shop: Shop) -> None:
    caller.call("update_cells", id=1, set={"word": LARGE})

    assert shop.bare.rows("select word from cells where id = 1") == [(LARGE,)]
    with pytest.raises(errors.BadArgument):
        caller.call("update_cells", id=1, set={"word": LARGE * 3})


@pytest.mark.parametrize("word", ["\0", "\ud800", "a\udfffb"])
def test_text_that_no_database_holds_is_refused(word: str, caller: Caller) -> None:
    with pytest.raises(errors.BadArgument):
        caller.call("update_cells", id=1, set={"word": word})


def test_schema_accepts_what_can_be_written(caller: Caller, dialect: str) -> None:
    schema = _schema(caller, "update_cells")
    for column, given, _ in [*BOTH, *OWN[dialect]]:
        declared = schema["properties"]["set"]["properties"][column]
        items = CLASSES[declared["items"]["type"]] if "items" in declared else object
        # Numbers and arrays as texts, JSON as it is, null and arrays of arrays are accepted beside the type.
        if isinstance(given, CLASSES[declared["type"]]):
            plain = not isinstance(given, list) or all(isinstance(each, items) for each in given)
            if plain:
                jsonschema.validate({"id": 1, "set": {column: given}}, schema)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"id": 5, "label": "c"}, id="enum"),
        pytest.param({"id": 5, "small": 0}, id="minimum"),
        pytest.param({"id": 5, "small": 10}, id="maximum"),
        pytest.param({"id": 5, "whole": [1]}, id="type"),
    ],
)
def test_schema_and_binding_refuse_the_same(row: dict[str, Any], caller: Caller) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"rows": [row]}, _schema(caller, "insert_cells"))
    with pytest.raises(errors.CallError):
        caller.call("insert_cells", rows=[row])


def test_schema_and_binding_require_and_limit_the_same(serve: Serve, dialect: str) -> None:
    ddl = "create table notes (id integer not null primary key, title text not null, body text)"
    if dialect == "sqlite":
        ddl = ddl.replace("integer not null primary key", "int not null primary key")
    section = GrantSection(insert=True, max_affected=2)
    rows = [{"id": at, "title": "x"} for at in range(3)]
    with serve(dialect, ddl) as shop, calling_as(shop, {"notes": section}) as caller:
        schema = _schema(caller, "insert_notes")
        jsonschema.validate({"rows": rows[:2]}, schema)
        caller.call("insert_notes", rows=rows[:2])
        for refused in ([{"id": 7}], [{"title": "x"}], rows, []):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"rows": refused}, schema)
            with pytest.raises(errors.CallError):
                caller.call("insert_notes", rows=refused)


def test_strict_and_loose_columns_keep_the_kind_of_a_value(serve: Serve, shops: Shops) -> None:
    shop = shops("sqlite")
    with calling_as(shop, {"strict_cells": ALL}) as caller:
        values = {"whole": "5", "number": 1, "word": 5, "data": "aGVs", "loose": "5"}
        caller.call("update_strict_cells", id=1, set=values)

    assert shop.bare.rows("select whole, number, word, data, loose from strict_cells") == [
        (5, 1.0, "5", b"hel", "5")
    ]


def test_key_that_means_two_rows_changes_neither(shops: Shops) -> None:
    shop = shops("sqlite")
    with calling_as(shop, {"loose_keys": ALL}) as caller:
        caller.call("update_loose_keys", id="x", set={"word": "changed"}, expected={"id": "x"})
        for ask in ({"set": {"word": "both"}}, {}):
            with pytest.raises(errors.TooManyRows):
                caller.call("update_loose_keys" if ask else "delete_loose_keys", id=5, **ask)

    assert shop.bare.rows("select word from loose_keys order by word") == [
        ("changed",),
        ("number",),
        ("text",),
    ]


def test_row_that_is_too_large_to_show_is_changed_all_the_same(serve: Serve, dialect: str) -> None:
    columns = [f"a_rather_long_name_of_a_column_{at}" for at in range(120)]
    ddl = f"create table wide (id integer primary key, {', '.join(f'{each} text' for each in columns)})"
    with serve(dialect, ddl) as shop:
        shop.bare.execute("insert into wide (id) values (1)")
        role = RoleSection(tables={"wide": ALL}, limits=RoleLimitsSection(max_tokens=1_000))
        with calling_as(shop, {"wide": ALL}, roles={"small": role}) as caller:
            small = Caller(**{**vars(caller), "role": "small"})
            answer = small.call("update_wide", id=1, set={columns[0]: "x"})

        assert shop.bare.rows(f"select {columns[0]} from wide") == [("x",)]
    assert (answer["affected"], answer["rows"]) == (1, [])
    assert "0 of 1 rows" in str(answer["note"])


ODD_NAMES = (
    *("set_set", "a b", "%(limit)s", "$1", "?", 'x"y', ":name", "c0_0", "x0", "claim0", "identity0", "limit"),
    *("key", "expected", "dry_run", "Größe", "{0}", "percent%", "back\\slash", "select", "table"),
)


def test_columns_with_odd_names_are_written(serve: Serve, dialect: str) -> None:
    columns = ", ".join(f"{quote(each)} text" for each in ODD_NAMES)
    ddl = f'create table "odd %s" ("set" integer primary key, region text not null, {columns})'
    values = {name: f"of {name}" for name in ODD_NAMES}
    claim = ":claims.region"
    section = GrantSection(
        where=f'"odd %s".region = {claim} and "set" in (select "set" from "odd %s" where region = {claim})',
        check="\"%(limit)s\" <> '?' and \"?\" not like '%$1'",
        insert=True,
        update=True,
        delete=True,
        preset={"region": claim},
    )
    with serve(dialect, ddl) as shop, calling_as(shop, {"odd %s": section}, {"region": "north"}) as caller:
        assert caller.problems() == ()
        caller.call("insert_rows", table="odd %s", rows=[{"set": 1, **values}])
        changed = {name: text.upper() for name, text in values.items()}
        tool = next(each for each in caller.tools() if each.startswith("update_") and each != "update_rows")
        caller.call(tool, key={"set": 1}, set=changed, expected=values)
        found = shop.bare.rows('select * from "odd %s"')
        deleted = caller.call("delete_rows", table="odd %s", key={"set": 1}, expected=changed)

    assert found == [(1, "north", *changed.values())]
    assert deleted["affected"] == 1
