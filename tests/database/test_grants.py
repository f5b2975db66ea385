"""A login that `dbtools grants` creates reads what its role reads, and nothing else."""

import json
from pathlib import Path

import asyncpg
import pytest

from tests.database.granted_login import CLAIMS, ONE_FILTER, ROLES, SUPPORT, Places, Shop, shop as shop
from tests.protocol.command_line import run

CALLS = [
    ("list_customers", 'columns=["id", "name", "email", "phone", "tenant", "region_id", "mood"]'),
    (
        "list_customers",
        '{"where": [{"column": "mood", "value": "ok"}], "order_by": ["region.name desc", "id"]}',
    ),
    ("get_customers", "id=1"),
    ("get_orders", "id=3"),
    (
        "list_rows",
        '{"table": "orders", "columns": ["id", "customer.region.name", "customer.email", "customer.phone"]}',
    ),
    ("list_regions",),
    ("list_big",),
    (
        "aggregate_rows",
        '{"table": "orders", "group_by": ["customer.region.name", "customer.mood"], '
        '"measures": [{"function": "sum", "column": "total"}, {"function": "count"}]}',
    ),
    ("aggregate_rows", '{"table": "customers", "measures": [{"function": "count"}]}'),
]


def test_login_reads_what_the_role_reads_and_nothing_else(shop: Shop) -> None:
    script = shop.script(ROLES)

    shop.execute(script)
    shop.execute(script)

    assert shop.selectable() == SUPPORT


def test_login_of_another_role_reads_what_that_one_reads(shop: Shop) -> None:
    shop.execute(shop.script(ROLES, "boss"))
    found = shop.selectable()

    assert set(found) == {*SUPPORT}
    assert "phone" in found["public.customers"]
    assert "ssn" not in found["public.customers"]  # it is shown as ***, which needs no privilege


def test_login_of_several_roles_reads_what_any_of_them_reads(shop: Shop) -> None:
    clerk = '[roles.clerk]\ntables.secret = { columns = ["id"] }\n'
    shop.execute(script := shop.script(f"{ROLES}{clerk}", "support", "clerk"))

    assert shop.selectable() == {**SUPPORT, "public.secret": {"id"}}
    assert "the roles 'support' and 'clerk'" in " ".join(script.split("\n-- "))


def test_roles_that_run_as_different_ones_have_different_logins(shop: Shop) -> None:
    other = '[roles.other]\nset_role = "somebody"\ntables."*" = true\n'
    words = ("--role", "support", "--role", "other")

    result = run("grants", shop.configured(f"{ROLES}{other}"), *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "run as different roles" in result.stderr


def test_calls_are_answered_as_with_a_login_that_may_do_anything(shop: Shop) -> None:
    shop.execute(shop.script(ROLES))

    def answer(url: str, call: tuple[str, ...]) -> tuple[int, object]:
        result = run("call", shop.configured(ROLES, url), *call, "--role", "support", *CLAIMS, "--json")
        return result.exit_code, _by_name(json.loads(result.stdout))

    for call in CALLS:
        code, found = answer(shop.own_url, call)
        assert (code, found) == answer(shop.url, call)
        assert code == 0


def _by_name(answer: dict[str, object]) -> object:
    """Return the rows of *answer* as objects: columns that cannot be read come last."""
    columns, rows = answer.get("columns"), answer.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return answer
    assert rows != []
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_check_finds_nothing_wrong_with_the_login(shop: Shop) -> None:
    for role in ("support", "boss"):
        shop.execute(shop.script(ROLES, role))
    strict = f"[server]\nstrict = true\n{ROLES}"
    result = run("check", shop.configured(strict, shop.own_url))

    assert (result.exit_code, result.stdout) == (0, "No problems found.\n")


def test_role_has_the_same_tools_with_either_login(shop: Shop) -> None:
    shop.execute(shop.script(ROLES))
    names = []
    for url in (shop.url, shop.own_url):
        result = run("tools", shop.configured(ROLES, url), "--role", "support", "--json")
        names.append([tool["name"] for tool in json.loads(result.stdout)])

    assert names[0] == names[1]


FORBIDDEN = (
    "select ssn from customers",
    "select phone from customers",
    "select count(*) from customers where ssn = 's1'",
    "select customers from customers",
    "select * from app.orders",
    "select budget from regions",
    "select reason from permits",
    "select from secret",
    "copy secret to stdout",
    "begin read write; insert into secret values (2, 'y')",
    "begin read write; update regions set name = 'x'",
    "begin read write; create table public.mine (id integer)",
)


def test_database_refuses_the_login_everything_else(shop: Shop) -> None:
    shop.execute(shop.script(ROLES))

    for statement in FORBIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            shop.server.execute(statement, url=shop.own_url)
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        shop.server.execute("create table public.mine (id integer)", url=shop.own_url)


#: Row filters, and what they read.
FILTERS: tuple[tuple[str, Places], ...] = (
    ("name = 'x'", {"public.regions": {"id", "name"}}),
    ("true", {"public.regions": {"id"}}),
    ("exists (select from permits)", {"public.regions": {"id"}, "public.permits": {"customer_id"}}),
    (
        "exists (select * from permits where reason = 'x')",
        {"public.regions": {"id"}, "public.permits": {"customer_id", "who", "reason"}},
    ),
    ("regions is not null", {"public.regions": {"id", "name", "budget"}}),
    (
        "id in (select region_id from customers join app.orders o on o.customer_id = customers.id)",
        {
            "public.regions": {"id"},
            "public.customers": {"id", "region_id"},
            "app.orders": {"customer_id"},
        },
    ),
    (
        "id in (select r.id from regions r natural join (select value as name from secret) s)",
        {"public.regions": {"id", "name"}, "public.secret": {"value"}},
    ),
    (
        "id in (with w as (select total from big) select total from w)",
        {"public.regions": {"id"}, "public.big": {"total"}},
    ),
    (
        "id = any(:claims.ids) and name = :claims.name::text -- :claims.none",
        {"public.regions": {"id", "name"}},
    ),
    (
        "exists (select from customers c where c.mood = :claims.mood and types.is_seen(:claims.name))",
        {"public.regions": {"id"}, "public.customers": {"mood"}},
    ),
    ("types.is_seen(id::text)", {"public.regions": {"id"}}),
    ("exists (select from pg_class, information_schema.tables)", {"public.regions": {"id"}}),
)


def test_filter_is_given_exactly_what_it_reads(shop: Shop) -> None:
    claims = ("--claim", "ids={1}", "--claim", "name=x", "--claim", "mood=ok")
    for where, read in FILTERS:
        roles = ONE_FILTER.format(where=json.dumps(where))
        shop.execute(shop.script(roles))
        path = shop.configured(roles, shop.own_url)
        result = run("call", path, "list_regions", "--role", "support", *claims, "--json")

        assert shop.selectable() == read, where
        assert (result.exit_code, result.stderr) == (0, "")
        shop.execute(f"drop owned by {shop.login}; drop role {shop.login}")


def test_view_that_asks_what_its_reader_may_do_needs_what_it_reads(shop: Shop) -> None:
    if shop.server.version < 15:
        pytest.skip("such views came with version 15")
    shop.execute(
        """
        create view inner_orders with (security_invoker = true) as
            select o.id, o.total from app.orders o where o.margin > 0;
        create view outer_orders with (security_invoker) as select id from inner_orders;
        """
    )
    roles = "[roles.support]\ntables.outer_orders = true\n"
    shop.execute(shop.script(roles))
    result = run(
        "call", shop.configured(roles, shop.own_url), "list_outer_orders", "--role", "support", "--json"
    )

    assert shop.selectable() == {
        "public.outer_orders": {"id"},
        "public.inner_orders": {"id"},
        "app.orders": {"id", "total", "margin"},
    }
    assert result.exit_code == 0


def test_table_that_is_seen_whole_is_granted_whole(shop: Shop) -> None:
    roles = """
        [roles.support]
        tables.regions = true
        tables.permits = { columns = ["customer_id", "who", "reason"] }
    """
    shop.execute(shop.script(roles))
    shop.execute("alter table regions add later integer; alter table permits add later integer")

    assert shop.selectable() == {
        "public.regions": {"id", "name", "budget", "later"},
        "public.permits": {"customer_id", "who", "reason"},
    }


def test_without_roles_all_that_is_served_is_granted(shop: Shop) -> None:
    everything = shop.script('exclude = ["secret"]\n', "default")
    shop.execute(everything)

    assert set(shop.selectable()) == {
        *("public.regions", "public.customers", "app.orders", "public.permits", "public.big")
    }


QUERIES = """
-- name: secret_of
-- param id: integer  Which.
select s.value from secret s where s.id = :id;
-- name: number_of_permits
select count(*) as number from permits;
-- name: hidden
select budget from regions;
"""


def test_login_reads_what_the_queries_of_its_role_read(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.sql").write_text(QUERIES)
    roles = '[queries]\ndirectory = "queries"\n[roles.support]\nqueries = ["secret_*", "number_*"]\n'
    script = shop.script(roles)
    shop.execute(script)

    selectable = shop.selectable()
    answers = [
        run("call", shop.configured(roles, shop.own_url), *words, "--role", "support", "--json")
        for words in (("secret_of", "id=1"), ("number_of_permits",))
    ]
    assert set(selectable) == {"public.secret", "public.permits"}
    assert selectable["public.secret"] == {"id", "value"}
    assert len(selectable["public.permits"]) == 1
    assert [json.loads(answer.stdout)["rows"] for answer in answers] == [[["x"]], [[1]]]
