"""The script that `dbtools grants` prints: its content, and when it is refused."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import asyncpg
import pytest

from tests.database.granted_login import CLAIMS, ONE_FILTER, ROLES, SUPPORT, Shop, shop as shop
from tests.protocol.command_line import run


def test_script_is_printed_as_json(shop: Shop) -> None:
    words = ("--role", "support", "--login", shop.login, "--json")
    printed = json.loads(run("grants", shop.configured(ROLES), *words).stdout)

    assert printed == {"login": shop.login, "roles": ["support"], "sql": shop.script(ROLES)}


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


def test_login_may_run_sql(shop: Shop) -> None:
    roles = ROLES.replace("[roles.support]\n", "[roles.support]\nsql = true\n")
    shop.execute(shop.script(roles))
    words = (
        "run_sql",
        "sql=select c.name, phone, r.name from customers c join regions r on r.id = region_id",
    )
    result = run("call", shop.configured(roles, shop.own_url), *words, "--role", "support", *CLAIMS, "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["rows"] == [["Ann", "***", "north"]]


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
        create function {quoted}.{quoted}(integer) returns boolean language sql
            set search_path = pg_catalog as 'select true';
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


def test_script_states_what_is_left_to_do(shop: Shop) -> None:
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


def test_findings_of_the_role_are_printed_beside_the_script(shop: Shop) -> None:
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


def test_login_that_may_not_inspect_filters_gets_a_clear_error(
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
