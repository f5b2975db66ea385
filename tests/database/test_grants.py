"""`dbtools grants`: the script makes a login that reads what a role reads, and nothing else."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.database.postgresql_catalog import connected
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

DDL = """
create schema app;
create schema types;
create type types.mood as enum ('sad', 'ok');
create function types.is_seen(text) returns boolean language sql stable as 'select $1 is not null';
create table regions (id integer primary key, name text not null, budget integer);
create table customers (
    id integer primary key, name text not null, email text, phone text, ssn text, tenant text,
    region_id integer references regions (id), mood types.mood
);
create table app.orders (
    id integer primary key, customer_id integer references customers (id), total integer, margin integer
);
create table secret (id integer primary key, value text);
create table permits (customer_id integer, who text, reason text);
create view big as select id, total from app.orders where total > 10;
insert into regions values (1, 'north', 5), (2, 'south', 6);
insert into customers values
    (1, 'Ann', 'ann@example.org', '1', 's1', 'a', 1, 'ok'),
    (2, 'Bob', 'bob@example.org', '2', 's2', 'b', 2, 'sad');
insert into app.orders values (1, 1, 10, 1), (2, 2, 20, 2), (3, 1, 30, 3);
insert into secret values (1, 'x');
insert into permits values (1, 'eve', 'why not');
"""
ROLES = """
[policy]
hash_key = "a key of more than sixteen characters"
[tables.secret]
description = "never shown"
[roles.support]
tables."*" = false
tables.secret = false
tables.regions = { columns = ["id", "name"] }
tables.orders = { exclude = ["margin"] }
tables.big = true
[roles.support.tables.customers]
exclude = ["ssn"]
where = \"\"\"tenant = :claims.tenant and exists (
    select 1 from permits p where p.customer_id = customers.id and p.who = :claims.who)\"\"\"
mask = { email = "hash", phone = "redact" }
[roles.boss]
tables."*" = true
tables.secret = false
tables.permits = { where = "who <> 'nobody'" }
"""
SUPPORT = {
    "public.regions": {"id", "name"},
    "app.orders": {"id", "customer_id", "total"},
    "public.big": {"id", "total"},
    "public.customers": {"id", "name", "email", "tenant", "region_id", "mood"},
    "public.permits": {"customer_id", "who"},
}
SELECTABLE = """
select n.nspname || '.' || c.relname as place, a.attname as column
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
join pg_attribute as a on a.attrelid = c.oid
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and n.nspname !~ '^pg_|^information_schema$'
    and a.attnum > 0
    and has_schema_privilege(n.oid, 'usage')
    and has_column_privilege(c.oid, a.attnum, 'select')
"""
Places = dict[str, set[str]]


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A database, a configuration of it, and the name of a login that is dropped in the end."""

    server: PostgresqlServer
    url: str
    login: str
    path: Path

    def configured(self, roles: str, url: str = "") -> str:
        """Write a configuration with *roles* and return where."""
        self.path.write_text(f'[database]\nurl = "{url or self.url}"\n{roles}')
        return str(self.path)

    def script(self, roles: str, *names: str) -> str:
        """Return the script for the roles *names*, by default support."""
        words = [word for name in names or ("support",) for word in ("--role", name)]
        result = run("grants", self.configured(roles), *words, "--login", self.login)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def execute(self, statements: str) -> None:
        """Run *statements* as a superuser."""
        self.server.execute(statements, url=self.url)

    @property
    def own_url(self) -> str:
        """The URL with the login that the script makes."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{self.login}@{parts.netloc.rpartition('@')[2]}").geturl()

    def selectable(self, *, after: str = "select") -> Places:
        """Return the columns that the login may select, once it has run *after*."""
        return self.server.portal.call(_selectable, self.own_url, after)


async def _selectable(url: str, after: str) -> Places:
    async with connected(url) as connection:
        await connection.execute(after)
        rows = await connection.fetch(SELECTABLE)
    places: Places = {}
    for row in rows:
        places.setdefault(row["place"], set()).add(row["column"])
    return places


@pytest.fixture
def shop(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    """Give a shop of one's own."""
    for name in ("DBTOOLS_ROLE", "DBTOOLS_CLAIMS"):
        monkeypatch.delenv(name, raising=False)
    login = f"dbtools_test_{secrets.token_hex(8)}"
    with postgresql_database(DDL) as url:
        shop = Shop(server=postgresql_server, url=url, login=login, path=tmp_path / "shop.toml")
        shop.execute("revoke create on schema public from public")
        try:
            yield shop
        finally:
            shop.execute(
                f"do $$ begin if exists (select from pg_roles where rolname = '{login}') then "
                f"drop owned by {login}; drop role {login}; end if; end $$"
            )


CLAIMS = ("--claim", "tenant=a", "--claim", "who=eve")
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


def test_script_is_printed_as_json(shop: Shop) -> None:
    words = ("--role", "support", "--login", shop.login, "--json")
    printed = json.loads(run("grants", shop.configured(ROLES), *words).stdout)

    assert printed == {"login": shop.login, "roles": ["support"], "sql": shop.script(ROLES)}


def test_login_of_another_role_reads_what_that_one_reads(shop: Shop) -> None:
    shop.execute(shop.script(ROLES, "boss"))
    found = shop.selectable()

    assert set(found) == {*SUPPORT}
    assert found["public.customers"] >= {"ssn", "phone"}


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


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_calls_are_answered_as_with_a_login_that_may_do_anything(shop: Shop, call: tuple[str, ...]) -> None:
    shop.execute(shop.script(ROLES))

    def answer(url: str) -> tuple[int, object]:
        path = shop.configured(ROLES, url)
        result = run("call", path, *call, "--role", "support", *CLAIMS, "--json")
        found = json.loads(result.stdout)
        return result.exit_code, _by_name(found)

    assert answer(shop.own_url) == answer(shop.url)
    assert answer(shop.own_url)[0] == 0


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


@pytest.mark.parametrize(
    "statement",
    [
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
    ],
)
def test_database_refuses_the_login_everything_else(shop: Shop, statement: str) -> None:
    shop.execute(shop.script(ROLES))

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        shop.server.execute(statement, url=shop.own_url)


def test_login_writes_nothing_by_default(shop: Shop) -> None:
    shop.execute(shop.script(ROLES))

    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        shop.server.execute("create table public.mine (id integer)", url=shop.own_url)


ONE_FILTER = """
[roles.support]
tables.regions = {{ columns = ["id"], where = {where} }}
"""


@pytest.mark.parametrize(
    ("where", "read"),
    [
        pytest.param("name = 'x'", {"public.regions": {"id", "name"}}, id="hidden column"),
        pytest.param("true", {"public.regions": {"id"}}, id="no column"),
        pytest.param(
            "exists (select from permits)",
            {"public.regions": {"id"}, "public.permits": {"customer_id"}},
            id="table without a column",
        ),
        pytest.param(
            "exists (select * from permits where reason = 'x')",
            {"public.regions": {"id"}, "public.permits": {"customer_id", "who", "reason"}},
            id="star",
        ),
        pytest.param("regions is not null", {"public.regions": {"id", "name", "budget"}}, id="whole row"),
        pytest.param(
            "id in (select region_id from customers join app.orders o on o.customer_id = customers.id)",
            {
                "public.regions": {"id"},
                "public.customers": {"id", "region_id"},
                "app.orders": {"customer_id"},
            },
            id="join",
        ),
        pytest.param(
            "id in (select r.id from regions r natural join (select value as name from secret) s)",
            {"public.regions": {"id", "name"}, "public.secret": {"value"}},
            id="natural join",
        ),
        pytest.param(
            "id in (with w as (select total from big) select total from w)",
            {"public.regions": {"id"}, "public.big": {"total"}},
            id="view, not what it reads",
        ),
        pytest.param(
            "id = any(:claims.ids) and name = :claims.name::text -- :claims.none",
            {"public.regions": {"id", "name"}},
            id="claims",
        ),
        pytest.param(
            "exists (select from customers c where c.mood = :claims.mood and types.is_seen(:claims.name))",
            {"public.regions": {"id"}, "public.customers": {"mood"}},
            id="claim of a type",
        ),
        pytest.param("types.is_seen(id::text)", {"public.regions": {"id"}}, id="function of a schema"),
        pytest.param(
            "exists (select from pg_class, information_schema.tables)",
            {"public.regions": {"id"}},
            id="the system's own",
        ),
    ],
)
def test_filter_is_given_exactly_what_it_reads(shop: Shop, where: str, read: Places) -> None:
    roles = ONE_FILTER.format(where=json.dumps(where))
    shop.execute(shop.script(roles))
    claims = ("--claim", "ids={1}", "--claim", "name=x", "--claim", "mood=ok")
    result = run(
        "call", shop.configured(roles, shop.own_url), "list_regions", "--role", "support", *claims, "--json"
    )

    assert shop.selectable() == read
    assert (result.exit_code, result.stderr) == (0, "")


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
    roles = "[roles.support]\ntables.outer_orders = { accept_reads = true }\n"
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


def test_script_takes_back_what_the_role_reads_no_more(shop: Shop) -> None:
    shop.execute(shop.script(ROLES))
    shop.execute(f"grant insert on secret to {shop.login}")

    shop.execute(shop.script('[roles.support]\ntables.regions = { columns = ["name"] }\n'))

    assert shop.selectable() == {"public.regions": {"name"}}
    assert run("check", shop.own_url).stdout.count("may insert") == 0


@pytest.mark.parametrize("power", ["superuser", "createrole", "bypassrls"])
def test_script_refuses_a_login_that_can_do_more(shop: Shop, power: str) -> None:
    shop.execute(f"create role {shop.login} login {power}")

    with pytest.raises(asyncpg.RaiseError):
        shop.execute(shop.script(ROLES))


def test_login_may_become_the_role_that_its_statements_run_as(shop: Shop) -> None:
    reader = f"{shop.login}_reader"
    roles = ROLES.replace("[roles.support]\n", f'[roles.support]\nset_role = "{reader}"\n')
    try:
        script = shop.script(roles)
        shop.execute(script)
        shop.execute(script)
        result = run(
            "call",
            shop.configured(roles, shop.own_url),
            "list_customers",
            "--role",
            "support",
            *CLAIMS,
            "--json",
        )
        checked = run("check", shop.configured(roles, shop.own_url))
        alone, become = shop.selectable(), shop.selectable(after=f"set role {reader}")
    finally:
        shop.execute(f"drop owned by {reader}; drop role {reader}")

    assert become == SUPPORT
    assert alone == {}
    assert (result.exit_code, json.loads(result.stdout)["row_count"]) == (0, 1)
    assert [line for line in checked.stdout.splitlines() if "role support" in line or "error" in line] == []


def test_role_that_is_there_already_keeps_what_it_was_granted(shop: Shop) -> None:
    reader = f"{shop.login}_reader"
    roles = ROLES.replace("[roles.support]\n", f'[roles.support]\nset_role = "{reader}"\n')
    shop.execute(f"create role {reader}; grant select (id) on regions to {reader}")
    try:
        shop.execute(shop.script(roles))
        become = shop.selectable(after=f"set role {reader}")
    finally:
        shop.execute(f"drop owned by {reader}; drop role {reader}")

    assert become == {"public.regions": {"id"}}


def test_script_refuses_a_login_that_owns_something(shop: Shop) -> None:
    shop.execute(f"create role {shop.login} login; alter table secret owner to {shop.login}")

    with pytest.raises(asyncpg.RaiseError):
        shop.execute(shop.script(ROLES))


def test_names_are_taken_for_names_whatever_they_hold(shop: Shop) -> None:
    name = 'a "b"; -- \' $dbtools$ \\q :x\ndrop table secret; --'
    quoted = '"' + name.replace('"', '""') + '"'
    shop.execute(
        f"""
        create schema {quoted};
        create table {quoted}.{quoted} ({quoted} integer, other integer);
        alter table {quoted}.{quoted} enable row level security;
        grant select (other) on {quoted}.{quoted} to public;
        create function {quoted}.{quoted}(integer) returns boolean language sql as 'select true';
        revoke execute on function {quoted}.{quoted}(integer) from public;
        """
    )
    where = json.dumps(f"{quoted}.{quoted}({quoted})")
    script = shop.script(f'[roles.support]\ntables."a *" = {{ exclude = ["other"], where = {where} }}\n')
    shop.execute(script)

    assert (shop.selectable())[f"{name}.{name}"] == {name, "other"}
    assert "public.secret" not in shop.selectable()
    shop.execute("select from secret")
    assert [
        line for line in script.partition("commit;")[2].splitlines() if line and not line.startswith("--")
    ] == []


def test_name_of_the_login_is_taken_for_a_name(shop: Shop) -> None:
    path = shop.configured(ROLES)
    login = f"{shop.login} \"x' $dbtools$"
    script = run("grants", path, "--role", "support", "--login", login).stdout
    shop.execute(script)
    quoted = '"' + login.replace('"', '""') + '"'

    shop.execute(f"drop owned by {quoted}; drop role {quoted}")


def test_script_tells_what_is_left_to_do(shop: Shop) -> None:
    told = shop.script("[roles.support]\ntables.regions = true\n").partition("commit;")[2]
    database = shop.url.rpartition("/")[2]

    for each in (
        f'\\password "{shop.login}"',
        f'revoke temporary on database "{database}" from public;',
        'revoke create on schema "public" from public;',
        f'"{shop.login}" sees no row without a policy',
    ):
        assert each in " ".join(told.replace("--  ", "").split()), each


def test_search_path_of_the_writer_is_given_to_the_login(shop: Shop) -> None:
    roles = '[roles.support]\ntables.regions = { where = "exists (select from orders)" }\n'
    path = shop.configured(roles, f"{shop.url}?options=-csearch_path%3Dapp,public")
    result = run("grants", path, "--role", "support", "--login", shop.login)
    shop.execute(result.stdout)
    own = run("call", shop.configured(roles, shop.own_url), "list_regions", "--role", "support", "--json")

    assert set(shop.selectable()) == {"public.regions", "app.orders"}
    assert own.exit_code == 0


def test_what_is_wrong_with_the_role_is_told_beside_the_script(shop: Shop) -> None:
    path = shop.configured("[roles.support]\ntables.regions = true\ntables.nothing = true\n")
    result = run("grants", path, "--role", "support", "--login", shop.login)

    assert result.exit_code == 0
    assert 'on table "public"."regions"' in result.stdout
    assert result.stderr.startswith(f"dbtools: {path}:5: error: role support, tables.nothing:")


def test_strict_server_does_not_keep_the_script_from_being_written(shop: Shop) -> None:
    assert shop.script(f"[server]\nstrict = true\n{ROLES}") == shop.script(ROLES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--role", "nobody"), "There is no role 'nobody'.", id="unknown role"),
        pytest.param((), "There is no role 'default'.", id="no role"),
        pytest.param(("--role", "support", "--login", "x" * 64), "at most 63 bytes", id="long name"),
        pytest.param(("--role", "support", "--login", ""), "at most 63 bytes", id="no name"),
    ],
)
def test_script_that_cannot_be_written_ends_with_2(shop: Shop, words: tuple[str, ...], said: str) -> None:
    result = run("grants", shop.configured(ROLES), *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_login_that_may_not_ask_what_filters_read_is_told_so(
    shop: Shop, postgresql_login: Callable[[str, str], AbstractContextManager[str]]
) -> None:
    database = shop.url.rpartition("/")[2]
    shop.execute(f"revoke temporary on database {database} from public")
    with postgresql_login(shop.url, "grant select on regions to {}") as url:
        roles = ONE_FILTER.format(where=json.dumps("id = 1"))
        result = run("grants", shop.configured(roles, url), "--role", "support", "--login", shop.login)
        plain = run("grants", url, "--login", shop.login)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "temporary views" in result.stderr
    assert plain.exit_code == 0


def test_file_has_no_logins(sqlite_database: Callable[[str], Path]) -> None:
    result = run("grants", str(sqlite_database("create table t (id integer primary key)")))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no logins" in result.stderr


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
