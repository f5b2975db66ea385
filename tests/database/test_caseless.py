"""Searches ignore the case of all letters alike on every database; accents count."""

import unicodedata
from collections.abc import Iterator

import pytest

from tests.database.shop import DIALECTS, Serve, Shop, Shops, literal, open_shops
from tests.database.test_moments import plan_of

FILLING = "-" * 1_200  #: so that the search is that of long texts
TEXTS = (
    "École", "école", "ÉCOLE", "ecole", "e\u0301cole", "E\u0301COLE", "Straße", "STRASSE", "STRAẞE",
    "İstanbul", "istanbul", "ISTANBUL", "ıstanbul", "ΟΔΟΣ", "οδοσ", "οδος", "Жук", "ЖУК", "жук",
    "\u212a", "k", "K", "naïve", "Ǆ", "ǆ", "ſ", "s", "😀É", "",
)  # fmt: skip


def _rows(texts: tuple[str, ...]) -> str:
    return ", ".join(f"({id}, {literal(text)})" for id, text in enumerate(texts))


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Yield the texts, each alone, and with much before and after it."""
    ddl = f"""
    create table words (id int not null primary key, v text);
    create table long (id int not null primary key, v text);
    insert into words values {_rows(TEXTS)};
    insert into long select id, v || {literal(FILLING)} || v from words;
    """
    with open_shops(serve, dict.fromkeys(DIALECTS, ddl)) as shops:
        yield shops


def _simple(text: str) -> str:
    """Return *text* in lower case by the simple mapping of each letter in Unicode's data."""
    return "".join("i" if each == "İ" else each.lower() for each in text)


@pytest.mark.parametrize("table", ["words", "long"])
@pytest.mark.parametrize(
    "wanted", [*filter(None, TEXTS), "É", "Σ", "ς", "ß", "ẞ", "SS", "İ", "I", "ı", "\u0301"]
)
def test_searches_ignore_the_case_of_each_letter(wanted: str, table: str, shop: Shop) -> None:
    tests = {"contains": str.__contains__, "starts_with": str.startswith, "ends_with": str.endswith}

    found = {
        operator: [
            id
            for (id,) in shop.rows(
                table,
                columns=["id"],
                where=[{"column": "v", "op": operator, "value": wanted}],
                order_by=["id"],
            )
        ]
        for operator in tests
    }

    assert found == {
        operator: [id for id, text in enumerate(TEXTS) if test(_simple(text), _simple(wanted))]
        for operator, test in tests.items()
    }


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param("é", ["École", "école", "ÉCOLE", "😀É"], id="accent"),
        pytest.param("e\u0301", ["e\u0301cole", "E\u0301COLE"], id="accent of its own"),
        pytest.param("ecole", ["ecole"], id="no accent"),
        pytest.param("straße", ["Straße", "STRAẞE"], id="sharp s"),
        pytest.param("strasse", ["STRASSE"], id="two letters"),
        pytest.param("istanbul", ["İstanbul", "istanbul", "ISTANBUL"], id="dotted I"),
        pytest.param("ıstanbul", ["ıstanbul"], id="dotless i"),
        pytest.param("οδοσ", ["ΟΔΟΣ", "οδοσ"], id="sigma"),
        pytest.param("οδος", ["οδος"], id="final sigma"),
        pytest.param("жУк", ["Жук", "ЖУК", "жук"], id="Cyrillic"),
        pytest.param("k", ["\u212a", "k", "K"], id="sign of Kelvin"),
    ],
)
def test_letters_that_have_no_single_other_case_are_what_they_are(
    wanted: str, found: list[str], shop: Shop
) -> None:
    condition = {"column": "v", "op": "contains", "value": wanted}

    rows = shop.rows("words", columns=["v"], where=[condition], order_by=["id"])

    assert [text for (text,) in rows] == found


def test_equality_respects_case_and_normal_forms(shop: Shop) -> None:
    both = ["É", "é"]
    found = {
        text: shop.rows("words", columns=["v"], where=[{"column": "v", "value": text}], order_by=["id"])
        for text in ("École", unicodedata.normalize("NFD", "école"))
    }

    assert found == {"École": [["École"]], "e\u0301cole": [["e\u0301cole"]]}
    assert shop.rows("words", where=[{"column": "v", "op": "in", "values": both}]) == []


def test_index_serves_the_beginning_of_a_text(serve: Serve) -> None:
    ddl = """
    create table t (id integer primary key, v text collate nocase);
    insert into t values (1, 'MÉdoc'), (2, 'médoc'), (3, 'Merlot');
    create index by_v on t (v);
    """
    asked = {"table": "t", "columns": ["v"], "where": [{"column": "v", "op": "starts_with", "value": "MÉ"}]}
    with serve("sqlite", ddl) as shop:
        found = shop.rows("t", where=asked["where"], columns=["id"], order_by=["id"])
        plan = plan_of(shop, "list_rows", {**asked, "order_by": ["v"]})

    assert found == [[1], [2]]
    assert "SEARCH t USING COVERING INDEX by_v (v>? AND v<?)" in plan, plan
