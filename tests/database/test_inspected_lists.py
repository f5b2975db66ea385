"""Lists in a query: written as the database reads them, at any length."""

import json
from collections.abc import Mapping

import pytest

from dbtools.backends import open_backend
from dbtools.backends.postgresql.queries.inspection import LIST_FORMS as POSTGRESQL_LISTS
from dbtools.backends.query_syntax import with_lists
from dbtools.backends.sqlite.queries.inspection import LIST_FORMS as SQLITE_LISTS
from dbtools.errors import Refused
from dbtools.schema.sql import Parameter, scan
from tests.database.inspecting import inspected, lent, postgresql as postgresql, sqlite as sqlite, url as url


async def test_misplaced_list_gets_the_right_form_on_sqlite(sqlite: str) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(sqlite, "select id from people where id = :ids", ids="integer[]")

    assert caught.value.message == (":ids is a list: write in (:ids), not in (:ids) or = any(:ids).")


LISTS = [
    ("x in (:ids)", "x = any(:ids)", "x in (J(:ids))"),
    ("x IN ( :ids )", "x = any( :ids )", "x in (J( :ids ))"),
    ("x not in (:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x Not /* in ( */ in\n(:ids) and y", "x <> all(:ids) and y", "x not in (J(:ids)) and y"),
    ("x = any(:ids)", "x = any(:ids)", "x in (J(:ids))"),
    ("x <> ALL (:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x != all(:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x <= any(:ids)", "x <= any(:ids)", "x <= any(:ids)"),
    ("x in (1, :ids)", "x in (1, :ids)", "x in (1, :ids)"),
    ("x in (:ids, 1)", "x in (:ids, 1)", "x in (:ids, 1)"),
    ("x in (:one)", "x in (:one)", "x in (:one)"),
    ("f(:ids)", "f(:ids)", "f(:ids)"),
    ("x = -- in (\n:ids", "x = -- in (\n:ids", "x = -- in (\n:ids"),
    ("x in (:ids) or y in (:ids)", "x = any(:ids) or y = any(:ids)", "x in (J(:ids)) or y in (J(:ids))"),
]


@pytest.mark.parametrize(("sql", "postgresql_sql", "sqlite_sql"), LISTS)
def test_lists_are_written_as_the_database_reads_them(sql: str, postgresql_sql: str, sqlite_sql: str) -> None:
    for scheme, forms, expected in (
        ("postgresql://a", POSTGRESQL_LISTS, postgresql_sql),
        ("sqlite:///a", SQLITE_LISTS, sqlite_sql.replace("J(", "select value from json_each(")),
    ):
        lexis = open_backend(scheme).facts.lexis
        pieces = scan(sql, lexis).pieces

        written = with_lists(pieces, {"ids"}.__contains__, forms)

        assert "".join(map(str, written)) == expected
        assert [isinstance(each, Parameter) for each in written] == [
            isinstance(each, Parameter) for each in pieces
        ]


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("id in (:ids)", {0: 0, 3: 3, 10_000: 10}),
        ("id = any(:ids)", {0: 0, 3: 3, 10_000: 10}),
        ("id not in (:ids)", {0: 10, 3: 7, 10_000: 0}),
        ("id <> all(:ids)", {0: 10, 3: 7, 10_000: 0}),
    ],
)
async def test_lists_of_any_length_run(
    url: str, dialect: str, condition: str, rows: Mapping[int, int]
) -> None:
    lexis = open_backend(url).facts.lexis
    pieces = scan(f"select count(*) as n from orders where {condition}", lexis).pieces
    forms = POSTGRESQL_LISTS if dialect == "postgresql" else SQLITE_LISTS
    written = with_lists(pieces, {"ids"}.__contains__, forms)
    sql = "".join(each if isinstance(each, str) else "$1" for each in written)

    async with lent(url) as connection:
        for length, expected in rows.items():
            ids = list(range(1, length + 1))
            if dialect == "postgresql":
                assert await connection.fetchval(sql, ids) == expected
            else:
                cursor = await connection.execute(sql, (json.dumps(ids),))
                assert await cursor.fetchone() == (expected,)


@pytest.mark.parametrize(
    "condition",
    ["id in (:ids, 2)", "id in (2, :ids)", "id not in (:ids, 2)", "id >= (:ids)", "id = :ids", "id < :ids"],
)
async def test_list_that_is_compared_as_one_value_is_refused(url: str, condition: str) -> None:
    with pytest.raises(Refused):
        await inspected(url, f"select id from orders where {condition}", ids="integer[]")


@pytest.mark.parametrize(
    "shown", ["json_array_length(:ids)", ":ids", "(select count(*) from json_each(:ids))"]
)
async def test_list_may_be_shown_and_read_as_json(sqlite: str, shown: str) -> None:
    found = await inspected(sqlite, f"select {shown} as shown from orders", ids="integer[]")

    assert [column.name for column in found.columns] == ["shown"]
