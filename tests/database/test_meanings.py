"""Notes on rows that a condition leaves out count only rows that the caller may see and count."""

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.role_callers import calling_as
from tests.database.shop import Serve, literal

DDL = """
create table visits (id int not null primary key, region text, paid int, at timestamp);
insert into visits values
    (1, 'north', null, '2024-01-31 10:00:00'), (2, 'north', 5, '2024-01-30 10:00:00'),
    (3, 'south', null, '2024-01-31 11:00:00'), (4, 'south', null, '2024-01-31 12:00:00');
"""
UNPAID = {"column": "paid", "op": "ne", "value": "7"}
JANUARY = {"column": "at", "op": "between", "values": ["2024-01-01", "2024-01-31"]}
DAY_OF = ": to include that whole day, write at:day as the column."


@pytest.mark.parametrize(
    ("grant", "where", "note"),
    [
        pytest.param(GrantSection(), UNPAID, "3 rows with null in paid are left out.", id="all rows"),
        pytest.param(
            GrantSection(where="region = 'north'"),
            UNPAID,
            "1 row with null in paid is left out.",
            id="filter",
        ),
        pytest.param(GrantSection(where="paid is not null"), UNPAID, None, id="hidden nulls"),
        pytest.param(GrantSection(aggregate=False), UNPAID, None, id="rows that may not be counted"),
        pytest.param(
            GrantSection(where="region = 'north'"),
            JANUARY,
            f"1 row later on 2024-01-31 in at is left out{DAY_OF}",
            id="last day with a filter",
        ),
        pytest.param(GrantSection(where="at < '2024-01-31'"), JANUARY, None, id="hidden last day"),
    ],
)
def test_note_counts_only_rows_that_the_role_may_count(
    grant: GrantSection, where: dict[str, object], note: str | None, serve: Serve, dialect: str
) -> None:
    with serve(dialect, DDL) as shop, calling_as(shop, {"visits": grant}) as caller:
        answer = caller.call("list_visits", columns=["id"], where=[where])

    assert answer.get("note") == note


def test_note_is_given_once_for_a_list_of_several_pages(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL) as shop:
        shop.bare.execute("insert into visits values (5, 'north', 1, null)")
        pages = list(shop.pages("list_visits", [1], {"where": [UNPAID]}))

    notes = [str(page.get("note", "")) for page in pages]
    assert ["left out" in note for note in notes] == [True, False]


def test_row_of_a_hidden_spelling_is_not_seen_by_comparisons(serve: Serve) -> None:
    spellings = ["2024-01-05T10:00Z", "2024-01-05 12:00+02:00", "2024-01-05T10:00:00.000"]
    rows = ", ".join(f"({at}, 'south', null, {literal(each)})" for at, each in enumerate(spellings, 10))
    north = {"visits": GrantSection(where="region = 'north'")}
    with serve("sqlite", DDL) as shop, calling_as(shop, north) as caller:
        equal = {"column": "at", "value": "2024-01-05 10:00"}
        before = caller.call("list_visits", where=[equal], order_by=["at"])
        shop.bare.execute(f"insert into visits values {rows}")
        after = caller.call("list_visits", where=[equal], order_by=["at"])

    assert before == after
