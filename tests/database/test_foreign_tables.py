"""Foreign tables: one without a server is reported, and no condition is applied to a hidden row."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings
from tests.database.shop import Serve, catalog_of, open_bare, rows_of
from tests.postgresql_server import LOGIN
from tests.secure_server import SecureServer

NOWHERE = """
create foreign data wrapper nothing;
create server nowhere foreign data wrapper nothing;
create foreign table away (id integer, v text) server nowhere;
create view above as select * from away;
create table parted (id integer, v text) partition by list (id);
create table near partition of parted for values in (1);
create foreign table far partition of parted for values in (2) server nowhere;
create table parent (id integer, v text);
create foreign table child () inherits (parent) server nowhere;
create table whole (id integer, v text); create table part () inherits (whole);
create table plain (id integer primary key, v text);
insert into plain values (1, 'one');
"""


@pytest.mark.parametrize("table", ["away", "above", "parted", "parent"])
def test_foreign_table_without_a_server_is_a_clean_error(table: str, serve: Serve) -> None:
    with serve("postgresql", NOWHERE) as shop:
        before = shop.rows("plain")
        refused = []
        for tool, arguments in (
            (f"list_{table}", {}),
            ("aggregate_rows", {"table": table, "group_by": ["v"]}),
        ):
            with pytest.raises(DbtoolsError) as caught:
                shop.call(tool, arguments)
            refused.append((caught.value.code, caught.value.message))

        assert (
            refused == [("unreadable", "A view was never refreshed, or a foreign table has no server.")] * 2
        )
        assert (before, shop.rows("plain")) == ([[1, "one"]], [[1, "one"]])


async def test_table_with_a_foreign_part_may_raise_an_error(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(NOWHERE) as url:
        catalog = await catalog_of(url)

    assert {each.name for each in catalog.tables if each.computed} == {
        *("above", "away", "child", "parent", "parted", "whole")
    }
    assert {"away", "far", "parent", "parted"} <= catalog.raising


#: A server that reads itself: the rows far away raise an error where they are hidden.
LOOP = """
create schema far; create schema here;
create view far.things as
select id, region, 10 / (id - 2) as share
from (values (1, 'north'), (2, 'south'), (3, 'north')) as v (id, region);
create extension postgres_fdw;
create server far foreign data wrapper postgres_fdw
options (host '127.0.0.1', port '{port}', dbname 'postgres');
create user mapping for {login} server far options (user '{login}');
create table here.things (id integer, region text, share integer) partition by list (region);
create foreign table here.far partition of here.things for values in ('north', 'south')
server far options (schema_name 'far', table_name 'things');
"""
UNLOOP = "drop extension if exists postgres_fdw cascade; drop schema if exists far, here cascade"


@pytest.fixture
def loop(secure: SecureServer, portal: BlockingPortal) -> Iterator[str]:
    """Yield the URL of a server that reads itself."""
    url = f"postgresql://{LOGIN}@127.0.0.1:{secure.port}/postgres"
    bare = open_bare("postgresql", url, portal)
    bare.execute(UNLOOP)
    bare.execute(LOOP.format(port=secure.port, login=LOGIN))
    yield url
    bare.execute(UNLOOP)
    bare.close()


async def test_condition_meets_no_hidden_row_of_a_foreign_partition(loop: str) -> None:
    grant = {"where": "upper(lower(upper(lower(region)))) = 'NORTH'"}
    settings = {
        "database": {"url": loop, "schemas": ["here"]},
        "roles": {"some": {"tables": {"things": grant}}},
    }
    toolbox, database = open_toolbox(Settings.model_validate(settings))
    try:
        where = [{"column": "share", "op": "gte", "value": "-50"}]
        answer = await toolbox.call(Caller(role="some"), "list_things", {"where": where})
    finally:
        await database.close()

    assert rows_of(answer.structured) == [[1, "north", -10], [3, "north", 10]]
