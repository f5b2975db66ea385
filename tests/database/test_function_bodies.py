"""A function that resolves the names in its body when it runs withholds what calls it."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from tests.database.test_replaced_names import (
    ATTACKS,
    ServeRoles,
    execute,
    filtered,
    serve_roles as serve_roles,
    shown,
)
from tests.protocol.command_line import run

#: Makes `=` of two texts of limited length true, and lower() of one 'north'.
ATTACK = f"{ATTACKS['<>'][2].replace('<>', '=')};{ATTACKS['lower'][2]}"
NORTH = "$$ select v = 'north'::varchar $$"
#: What the database has, a condition that shows two of six rows, and the function that is reported, if any.
BODIES = {
    "SQL": (
        f"create function public.f1(v varchar) returns boolean language sql stable as {NORTH}",
        "f1(region)",
        "f1",
    ),
    "with its schema": ("", "public.f1(region)", "f1"),
    "PL/pgSQL": (
        "create function public.f2(v varchar) returns boolean language plpgsql stable"
        " as $$ begin return lower(v) = 'north'; end $$",
        "f2(region)",
        "f2",
    ),
    "other settings": (
        f"create function public.f3(v varchar) returns boolean language sql set work_mem = '1MB' as {NORTH}",
        "f3(region)",
        "f3",
    ),
    "an operator": (
        """
        create function public.same(varchar, varchar) returns boolean language sql as 'select $1 = $2';
        create operator public.=== (leftarg = varchar, rightarg = varchar, function = public.same)
        """,
        "region operator(public.===) 'north'::varchar",
        "same",
    ),
    "an aggregate": (
        """
        create function public.also(boolean, varchar) returns boolean language sql
            as $$ select $1 and $2 = 'north'::varchar $$;
        create aggregate public.norths(varchar) (sfunc = also, stype = boolean, initcond = 'true')
        """,
        "(select norths(o.region) from public.orders as o where o.id = orders.id)",
        "also",
    ),
    "called by a body of BEGIN ATOMIC": (
        f"""
        create function public.inner_one(v varchar) returns boolean language sql as {NORTH};
        create function public.f4(v varchar) returns boolean language sql return public.inner_one(v)
        """,
        "f4(region)",
        "inner_one",
    ),
    "a default of an argument": (
        """
        create function public.word() returns text language sql as $$ select lower('NORTH'::varchar) $$;
        create function public.f5(v text, w text default public.word()) returns boolean language sql
            set search_path = pg_catalog as 'select v = w'
        """,
        "f5(region)",
        "word",
    ),
    "an extension": (
        f"""
        create function public.f6(v varchar) returns boolean language sql stable as {NORTH};
        alter extension plpgsql add function public.f6(varchar)
        """,
        "f6(region)",
        "f6",
    ),
    "a value of a column": (
        """
        create function public.own(orders) returns boolean language sql
            as $$ select $1.region = 'north'::varchar $$
        """,
        "orders.own",
        "own",
    ),
    "its own search path": (
        f"""
        create function public.f7(v varchar) returns boolean language sql
            set search_path = pg_catalog as {NORTH}
        """,
        "f7(region)",
        "",
    ),
    "BEGIN ATOMIC": (
        """
        create function public.f8(v varchar) returns boolean language sql
            begin atomic select v = 'north'::varchar; end
        """,
        "f8(region)",
        "",
    ),
}
QUERIES = """-- name: ours
-- description: Orders that are mine.
select id from orders where f1(region)

-- name: pay
-- description: Pay them.
-- writes: 6
update orders set status = 'paid' where f1(region) returning id
"""
ROLES = {
    **{f"r{at}": filtered(where) for at, (_, where, _) in enumerate(BODIES.values())},
    "asker": 'queries = ["ours", "pay"]',
    "changer": """tables.orders = { update = ["status"], check = "f1(status)" }""",
}


def test_what_calls_an_unfixed_body_is_withheld_until_the_remedy_is_applied(serve_roles: ServeRoles) -> None:
    tools = [*((f"r{at}", "list_orders") for at in range(len(BODIES))), ("asker", "ours"), ("asker", "pay")]
    change = {"id": 1, "set": {"status": "VOID"}}
    with serve_roles(ROLES, both=QUERIES) as shop:
        execute(shop, ";".join(ddl for ddl, _, _ in BODIES.values() if ddl))
        before = [shown(shop, tool, role) for role, tool in tools]
        unknown = shop.refusal("update_orders", change, role="changer")
        checked = run("check", str(shop.path), "--json")
        messages = [each["message"] for each in json.loads(checked.stdout)["findings"]]
        remedies = set()
        for at, (_, _, function) in enumerate(BODIES.values()):
            for found in (each for each in messages if f"role r{at}, " in each and "search path" in each):
                altering = found[found.index("alter function") : found.index(". Other names")]
                assert f"public.{function}(" in altering
                remedies.add(altering)
        execute(shop, ";".join(remedies))
        fixed = [shown(shop, tool, role) for role, tool in tools]
        denied = shop.refusal("update_orders", change, role="changer")
        execute(shop, ATTACK)
        after = [shown(shop, tool, role) for role, tool in tools]

    unfixed = [function for _, _, function in BODIES.values()]
    assert before == [*("unknown_tool" if each else 2 for each in unfixed), "unknown_tool", "unknown_tool"]
    assert len(remedies) == len(set(filter(None, unfixed)))
    assert checked.exit_code == 1
    called = "The function public.f1(v character varying) is called"
    for name in ("ours", "pay"):
        assert [each for each in messages if f"{name} is withdrawn: {called}" in each] != []
    assert [each for each in messages if "changer" in each and called in each] != []
    assert (fixed, after) == ([2] * len(tools), [2] * len(tools))
    assert unknown.startswith("unknown")
    assert denied.startswith("denied")


def test_login_that_cannot_create_views_is_told_what_may_be_meant(
    serve_roles: ServeRoles, postgresql_login: Callable[..., AbstractContextManager[str]]
) -> None:
    grants = """
    grant usage on schema late to {};
    grant select on all tables in schema public, late to {};
    do $$ begin
        execute format('revoke temporary on database %I from public', current_database());
    end $$
    """
    roles = {"reader": filtered("region = :claims.region"), "other": filtered("f1(region)")}
    with serve_roles(roles) as owner:
        execute(owner, BODIES["SQL"][0])
        url = urlsplit(owner.database.url)._replace(query="").geturl()
        with postgresql_login(url, grants) as login:
            configuration = owner.path.read_text().replace(json.dumps(owner.database.url), json.dumps(login))
            owner.path.write_text(configuration)
            unfixed = run("check", str(owner.path))
            execute(owner, "alter function public.f1(varchar) set search_path = pg_catalog")
            fixed = run("check", str(owner.path))
            execute(owner, ATTACKS["= with a text"][2])
            replaced = run("check", str(owner.path))

    assert (unfixed.exit_code, fixed.exit_code, replaced.exit_code) == (1, 0, 1)
    assert "may be called here" in unfixed.stdout
    assert "= may be public.=" in replaced.stdout
