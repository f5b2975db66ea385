"""`describe_tables` shows the values of text columns that hold few, to roles that see all rows."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dbtools.backends.compile.selects import compile_select
from dbtools.backends.compile.sources import Grammar
from dbtools.backends.postgresql.reading.grammar import PostgresqlGrammar
from dbtools.backends.sqlite.reading.grammar import SqliteGrammar
from dbtools.settings.sections import GrantSection
from dbtools.statements.select import Order, Output, Select
from dbtools.values.types import Mask
from tests.database.role_callers import Grants, calling, calling_as
from tests.database.shop import DIALECTS, Serve, Shop, Shops, literal, open_shops
from tests.unit.shop import column, table

DDL = """
create table kinds (code text primary key, label text);
insert into kinds values ('x', 'X'), ('y', 'Y');
create table things (
    id integer primary key, discontinued text, state text, name text, kind text references kinds (code),
    word text unique, note varchar(99), size integer, chosen text check (chosen in ('p', 'q'))
);
create view shown as select * from things;
"""
STATES = ("new", "paid", "it's", 'a "b"', None)
ROWS = [
    (str(at % 2), STATES[at % 5], f"name {at}", "x", f"word {at}", f"{at % 2} is long" * 9)
    for at in range(40)
]
VALUES = ", ".join(
    f"({at}, {', '.join('null' if cell is None else literal(cell) for cell in row)}, 1, 'p')"
    for at, row in enumerate(ROWS)
)
FILLED = f"{DDL} insert into things values {VALUES}; analyze;"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, dict.fromkeys(DIALECTS, FILLED)) as shops:
        yield shops


def _columns(described: object) -> list[object]:
    assert isinstance(described, dict)
    (table,) = described["tables"]
    columns = table["columns"]
    assert isinstance(columns, list)
    return columns


def test_few_values_of_text_columns_are_shown(shop: Shop) -> None:
    summary = _columns(shop.call("describe_tables", {"tables": ["things"]}).structured)
    full = _columns(shop.call("describe_tables", {"tables": ["things"], "detail": "full"}).structured)

    assert summary == [
        "id integer key",
        'discontinued text: "0" | "1"',
        r'state text: "a \"b\"" | "it\'s" | "new" | "paid"'.replace(r"\'", "'"),
        "name text",
        "kind text → kinds.code",
        "word text",
        "note varchar(99)",
        "size integer",
        "chosen p|q",
    ]
    assert [each.get("stored_values") for each in full if isinstance(each, dict)] == [
        *(None, ["0", "1"], ['a "b"', "it's", "new", "paid"]),
        *([None] * 6),
    ]


@pytest.mark.parametrize("grammar", [SqliteGrammar(), PostgresqlGrammar()])
def test_reading_of_groups_alone_may_end_when_there_are_enough(grammar: Grammar) -> None:
    state = column("state")
    groups = Select(table=table(state, key=()), outputs=(Output(term=state),), groups=(state,))
    ordered = replace(groups, order=(Order(term=state),))

    assert compile_select(groups, grammar).sql.startswith("SELECT DISTINCT t.")
    assert "GROUP BY" in compile_select(ordered, grammar).sql


def test_names_and_views_are_described_without_values(shop: Shop) -> None:
    described = shop.call("describe_tables", {"detail": "names"}).structured

    assert described["tables"] == [{"name": "kinds"}, {"name": "shown"}, {"name": "things"}]
    assert "discontinued text" in _columns(shop.call("describe_tables", {"tables": ["shown"]}).structured)


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(GrantSection(where="id < 20"), id="filter"),
        pytest.param(GrantSection(aggregate=False), id="aggregate"),
        pytest.param(GrantSection(mask={"discontinued": Mask.HASH, "state": Mask.PARTIAL}), id="masks"),
        pytest.param(GrantSection(columns=("id", "name")), id="columns"),
    ],
)
def test_hidden_cells_are_not_among_the_values(grant: GrantSection, serve: Serve, dialect: str) -> None:
    grants: Grants = {"things": grant}
    hidden = "insert into things values (99, 'CANARY', 'CANARY', 'n', null, null, null, 1, 'p');" * (
        grant.where is not None
    )
    with serve(dialect, f"{FILLED} {hidden} analyze;") as rich, calling_as(rich, grants) as caller:
        for detail in ("summary", "full"):
            told = str(caller.outcome(calling("describe_tables", detail=detail)))
            assert "things" in told
            assert not any(word in told for word in ("CANARY", "'0'", "paid", '"0"'))


def test_values_of_a_row_that_is_new_are_shown_at_once(serve: Serve, dialect: str) -> None:
    with serve(dialect, FILLED) as shop:
        shop.call("describe_tables", {})
        shop.bare.execute("update things set discontinued = 'maybe' where id = 1")
        columns = _columns(shop.call("describe_tables", {"tables": ["things"]}).structured)

    assert columns[1] == 'discontinued text: "0" | "1" | "maybe"'


def test_migration_shows_in_the_next_description(serve: Serve, dialect: str) -> None:
    with serve(dialect, FILLED) as shop:
        shop.call("describe_tables", {})
        shop.bare.execute("alter table things rename column state to status")
        columns = _columns(shop.call("describe_tables", {"tables": ["things"]}).structured)

    assert str(columns[2]).startswith("status text")
