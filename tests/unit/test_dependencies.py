"""Which tables SQL reads as whole rows, and which columns it changes."""

import pytest

from dbtools.backends.postgresql.queries.changed_columns import changes_in
from dbtools.backends.postgresql.schema.dependencies import whole_rows

READ = ("t", "orders")


@pytest.mark.parametrize(
    ("sql", "whole"),
    [
        ("select to_jsonb(t) from t", {"t"}),
        ("select to_jsonb(o) as o from app.orders as o", {"orders"}),
        ("select count(o) from t, orders o", {"orders"}),
        ("select o from t join orders o on o.id = t.id where t is null", {"t", "orders"}),
        ('select "O".id, "O" from orders "O"', {"orders"}),
        ("with x as (select o from orders o) select id from t", {"orders"}),
        ("update t set a = 1 returning to_json(t)", {"t"}),
        (
            "select 1 as t, o.t, x::t from orders o where exists (select 1 as one from t as p where p.a = 1)",
            set(),
        ),
        ("select t.id from t, orders as o left join t as u using (id)", set()),
        ("select to_jsonb(t.*) from t", {"t"}),
        ("select t.id from t where t.a is distinct from t.b and t is not null", {"t"}),
        ("delete from t using orders where orders.id = t.id", set()),
        ("insert into t (a) values ('t') on conflict do update set a = excluded.a where t.b", set()),
        ("select t(1) from orders limit 1", set()),
    ],
)
def test_whole_rows_are_names_of_tables_that_stand_for_values(sql: str, whole: set[str]) -> None:
    assert whole_rows(sql) & {*READ} == whole


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("update t set a = a is distinct from b, d = 2 where id = 1", [("update", "t", ["a", "d"])]),
        ("insert into t ((select 1))", [("insert", "t", [])]),
        (
            "insert into app.t (a, b) values (1, 2) on conflict (a) do update set (b, c) = (1, 2)",
            [("insert", "app.t", ["a", "b"]), ("update", "app.t", ["b", "c"])],
        ),
        (
            "with d as (delete from only t returning a) update u as x set b = 1",
            [("update", "u", ["b"]), ("delete", "t", [])],
        ),
        ("select a from t for update", []),
    ],
)
def test_changes_have_their_tables_and_columns(sql: str, changes: list[tuple[str, str, list[str]]]) -> None:
    assert [(each.kind, each.target, [*each.columns]) for each in changes_in(sql)] == changes
