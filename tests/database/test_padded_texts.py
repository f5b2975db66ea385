"""A text of a fixed length is shown and compared without its padding."""

from collections.abc import Iterator

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.cells import masked_rows
from dbtools.values.types import Mask, masked_type
from tests.database.role_callers import KEY, calling_as
from tests.database.shop import Serve, Shop, Shops, open_shops

DDL = """
create table countries (code char(3) primary key, name char(8), motto text);
create table cities (id integer primary key, country_code char(3) references countries, tag varchar(9));
insert into countries values ('a', 'Ada', 'x  '), ('bb', null, ' y'), ('ccc', 'Ada', 'z');
insert into cities values (1, 'a', 'a'), (2, 'bb', 'a '), (3, null, 'bb');
"""
OF_POSTGRESQL = """
create domain code as char(4);
create table others (id integer primary key, codes char(3)[], nested code, loose bpchar);
insert into others values (1, '{a,null,bb}', 'ab', 'c   ');
"""


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, {"sqlite": DDL, "postgresql": DDL + OF_POSTGRESQL}) as shops:
        yield shops


def test_texts_are_shown_without_padding(shop: Shop) -> None:
    assert shop.rows("countries", order_by=["code"]) == [
        ["a", "Ada", "x  "],
        ["bb", None, " y"],
        ["ccc", "Ada", "z"],
    ]
    assert shop.get("countries", code="bb") == {"code": "bb", "name": None, "motto": " y"}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"column": "code", "value": "bb"}, ["bb"]),
        ({"column": "code", "op": "in", "values": ["a", "ccc"]}, ["a", "ccc"]),
        ({"column": "code", "op": "not_in", "values": ["a", "ccc"]}, ["bb"]),
        ({"column": "code", "op": "gt", "value": "a"}, ["bb", "ccc"]),
        ({"column": "code", "op": "starts_with", "value": "b"}, ["bb"]),
        ({"column": "code", "op": "ends_with", "value": "b"}, ["bb"]),
        ({"column": "code", "op": "contains", "value": "b "}, []),
        ({"column": "length(code)", "value": "2"}, ["bb"]),
        ({"column": "upper(code)", "value": "BB"}, ["bb"]),
        ({"column": "coalesce(name, code)", "value": "bb"}, ["bb"]),
        ({"column": "name", "op": "gt", "value_column": "motto"}, []),
        ({"column": "min(cities.country_code)", "value": "a"}, ["a"]),
        ({"some": "cities", "where": [{"column": "country_code", "value": "bb"}]}, ["bb"]),
    ],
)
def test_texts_are_compared_without_padding(
    condition: dict[str, object], found: list[str], shop: Shop
) -> None:
    rows = shop.rows("countries", where=[condition], columns=["code"], order_by=["code"])

    assert [code for (code,) in rows] == found


def test_what_is_computed_of_texts_has_no_padding(shop: Shop) -> None:
    columns = ["coalesce(name, code)", "lower(name)", "max(cities.country_code)"]

    assert shop.rows("countries", columns=columns, order_by=["code"]) == [
        ["Ada", "ada", "a"],
        ["bb", None, "bb"],
        ["Ada", "ada", None],
    ]
    measures = [{"function": "max", "column": "code"}, {"function": "count"}]
    grouped = shop.call("aggregate_rows", {"table": "countries", "group_by": ["name"], "measures": measures})
    assert grouped.structured["rows"] == [["Ada", "ccc", 2], [None, "bb", 1]]


def test_texts_lead_along_paths_and_pages_and_links(shop: Shop) -> None:
    pages = shop.pages("list_countries", [1], {"columns": ["code"], "order_by": ["name desc"]})
    city = shop.page("cities", columns=["country_code.code", "country_code.name"])

    assert [page["rows"] for page in pages] == [[["ccc"]], [["a"]], [["bb"]]]
    assert city["rows"] == [["a", "Ada"], ["bb", None], [None, None]]
    assert (
        shop.read("dbtools://row/countries/bb").content == b'{"row":{"code":"bb","name":null,"motto":" y"}}'
    )


def test_hash_is_that_of_the_text_without_padding(shop: Shop) -> None:
    grants = {"cities": GrantSection(mask={"country_code": Mask.HASH})}
    with calling_as(shop, grants) as caller:
        rows = caller.rows("list_cities", columns=["country_code"], order_by=["id"])

    places = ["\0".join((schema, "cities", "country_code")) for schema in ("", "public")]
    types = [masked_type(Mask.HASH, place) for place in places]
    assert rows[0][0] in masked_rows(types, [("a", "a")], KEY.encode())[0]


def test_texts_in_other_types_have_no_padding(shops: Shops) -> None:
    assert shops("postgresql").rows("others") == [[1, ["a", None, "bb"], "ab", "c"]]
