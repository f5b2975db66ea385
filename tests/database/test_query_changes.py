"""Permitted queries while the schema, their files and their functions change."""

import re

import pytest

from dbtools.errors import DatabaseUnavailable
from tests.database.query_shop import ServeQueries
from tests.database.query_tables import DDL, QUERIES, findings_of, queries_of, shops as shops

RENAME = "alter table customers rename column name to full_name"
RENAME_BACK = "alter table customers rename column full_name to name"


def test_query_that_a_change_breaks_is_withdrawn_until_it_is_fixed(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, QUERIES) as shop:
        before = shop.listed()
        answer = shop.call("customers_of", {"country": "PT"})
        shop.bare.execute(RENAME)
        stale = shop.refusal("customers_of", {"country": "PT"})
        shop.refresh()
        broken, reasons = shop.listed(), tuple(map(str, shop.view().problems))
        gone, absent = shop.refusal("customers_of"), shop.refusal("customers_at")
        kept = shop.rows("emails")
        shop.bare.execute(RENAME_BACK)
        shop.refresh()
        after = shop.listed()
        again = shop.call("customers_of", {"country": "PT"})

    assert stale == gone
    assert [each for each in before if each not in broken] == ["customers_of", "mine"]
    assert [each for each in broken if each not in before] == []
    assert [
        each
        for each in reasons
        if re.match(r"queries/shop.sql:[34]: error: query customers_of is withdrawn: ", each)
    ]
    assert gone.replace("customers_of", "…") == absent.replace("customers_at", "…")
    assert len(kept) == 3 if isinstance(kept, list) else False
    assert after == before
    assert again == answer


def test_plan_of_a_query_follows_the_types_of_its_parameters(serve_queries: ServeQueries) -> None:
    ddl = "create table t (name text, at integer); insert into t values ('x', 1);"
    query = "-- name: q\n-- param at: integer\nselect name from t where at = :at"
    with serve_queries("postgresql", ddl, {"q.sql": query}) as shop:
        assert shop.rows("q", {"at": 1}) == [["x"]]
        shop.bare.execute("alter table t alter column at type bigint; update t set at = 3000000000")
        shop.refresh()

        assert shop.rows("q", {"at": 3_000_000_000}) == [["x"]]


def test_file_that_changes_is_read_again(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, {"a.sql": "select 1 as one", "b.sql": "select 2 as two"}) as shop:
        (shop.path.parent / "queries" / "a.sql").write_text("select 10 as ten")
        (shop.path.parent / "queries" / "b.sql").unlink()
        shop.refresh()

        assert shop.call("a").structured["rows"] == [[10]]
        assert "b" not in shop.view().tools


def test_query_of_a_view_that_was_never_filled_touches_no_other(serve_queries: ServeQueries) -> None:
    ddl = f"{DDL} create materialized view empty as select id from customers with no data;"
    queries = {**QUERIES, "empty.sql": "-- description: Nothing yet.\nselect id from empty order by id"}
    with serve_queries("postgresql", ddl, queries) as shop:
        before = queries_of(shop, "default")
        (found,) = [each for each in findings_of(shop) if each["code"] == "withdrawn"]
        shop.bare.execute("refresh materialized view empty")
        shop.refresh()

        assert "empty" not in before
        assert "emails" in before
        assert (found["file"], found["line"]) == ("empty.sql", 1)
        assert "has not been populated" in str(found["message"])
        assert shop.rows("empty") == [[1], [2], [3]]


def test_query_of_a_table_that_a_migration_holds_is_looked_at_again(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", DDL, QUERIES) as shop:
        shop.bare.execute("begin; lock table secrets in access exclusive mode")
        shop.refresh()
        held, stamps = queries_of(shop, "default"), shop.portal.call(shop.toolbox.snapshot).stamps
        shop.bare.execute("rollback")
        shop.refresh()
        after = queries_of(shop, "default")
        shop.bare.execute("begin; lock table secrets in access exclusive mode")
        with pytest.raises(DatabaseUnavailable, match="peek"):
            shop.refresh()
        again = queries_of(shop, "default")
        shop.bare.execute("rollback")

    assert again == after
    assert "peek" not in held
    assert "emails" in held
    assert stamps["database"] == "unchecked"
    assert "peek" in after
