"""Ad-hoc SQL on files that change, are replaced, locked or encoded differently; and under many roles."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from dbtools import errors
from dbtools.backends import processes
from dbtools.policy.roles import Caller
from dbtools.service.explanation import explain
from dbtools.settings.sections import FunctionsSection, GrantSection, RoleSection
from dbtools.values.types import Mask
from tests.database.free_serving import DDL, path as path, serving

TABLES_OF_FILTERS = """
    create table tag (item integer, name text);
    insert into tag values (1, 'a'), (2, 'b');
    create table hidden (item integer, name text);
    insert into hidden values (2, 'b');
    create table names (name text);
    insert into names values ('one'), ('two');
    create table excluded (item integer);
    insert into excluded values (3);
    create table "filtered item" (id integer, item integer);
    insert into "filtered item" values (9, 2);
    create view shown_tags as select * from tag where name = 'a';
    create virtual table texts using fts5(body);
    insert into texts values ('one'), ('two');
"""


async def test_schema_change_is_seen_by_the_next_statement(path: Path) -> None:
    async with serving(path) as shop:
        assert await shop.ask("select * from item where id = 1") == [[1, "one", "north"]]
        shop.change("alter table item add column price real default 2.5; create table secret (v text)")

        assert await shop.ask("select * from item where id = 1") == [[1, "one", "north", 2.5]]
        shop.change("drop table secret")
        with pytest.raises(errors.SqlRefused, match="no table 'secret'"):
            await shop.ask("select * from secret")


async def test_table_that_is_made_later_is_hidden_from_a_role(path: Path) -> None:
    async with serving(path, roles={"reader": RoleSection(tables={"item": True}, sql=True)}) as shop:
        assert await shop.ask("select count(*) from item", "reader") == [[3]]
        shop.change("create table secret (v text); insert into secret values ('x')")

        for sql in ("select * from secret", "select count(*) from (select 'x' as v) join secret using (v)"):
            with pytest.raises(errors.SqlRefused, match="no table 'secret'"):
                await shop.ask(sql, "reader")


async def test_replaced_or_changed_file_is_read_again(path: Path) -> None:
    async with serving(path) as shop:
        await shop.ask("select 1 from item")
        new = path.with_suffix(".new")
        with closing(sqlite3.connect(new)) as connection:
            connection.executescript(DDL + "delete from item where id > 1")
        os.replace(new, path)

        assert await shop.ask("select count(*) from item") == [[1]]
        shop.change("delete from item")
        assert await shop.ask("select count(*) from item") == [[0]]


async def test_column_of_a_file_that_overwrites_one_of_the_same_version_stays_hidden(path: Path) -> None:
    other = path.with_suffix(".other")
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(
            "create table item (id integer primary key, name text, region text, secret text);"
            "insert into item values (1, 'one', 'north', 'x');"
        )
    role = RoleSection(tables={"item": GrantSection(columns=("id", "name", "region"))}, sql=True)
    async with serving(path, roles={"reader": role}) as shop:
        await shop.toolbox.snapshot()
        shutil.copyfile(other, path)

        assert await shop.ask("select * from item", "reader") == [[1, "one", "north"]]


async def test_functions_that_the_operator_excludes_are_unknown(path: Path) -> None:
    async with serving(path, functions=FunctionsSection(exclude=("up*", "json_each"))) as shop:
        assert await shop.ask("select lower('X'), (select count(*) from json_tree('[1]'))") == [["x", 2]]
        for sql in ("select upper('x')", "select * from json_each('[1]')"):
            with pytest.raises(errors.SqlRefused):
                await shop.ask(sql)


async def test_each_claim_has_its_own_rows_among_many_and_a_missing_one_has_none(path: Path) -> None:
    item = GrantSection(where="region = :claims.region")
    role = RoleSection(tables={"item": item, "tag": GrantSection()}, sql=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("create table tag (item integer); insert into tag values (1);")
    async with serving(path, roles={"reader": role}) as shop:
        for _ in range(2):
            for number in range(20):
                assert await shop.ask("select name from item", "reader", region=f"r{number}") == []
            for region, names in (("north", [["one"]]), ("south", [["two"]]), ("north' or '1'='1", [])):
                assert await shop.ask("select name from item", "reader", region=region) == names
        with pytest.raises(errors.Denied):
            await shop.ask("select * from tag join item on tag.item = item.id", "reader")
        assert await shop.ask("select * from tag", "reader") == [[1]]

        sql, reader = {"sql": "select name from item"}, Caller(role="reader", claims={})
        found = await explain(shop.toolbox, shop.backend, reader, "run_sql", sql)
        assert not found.allowed
        assert found.reason == "The rows of item are filtered by the claim region, which is missing."


async def test_table_that_may_not_be_aggregated_is_neither_read_nor_suggested(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("create table tag (item integer);")
    role = RoleSection(tables={"item": GrantSection(aggregate=False), "tag": GrantSection()}, sql=True)
    async with serving(path, roles={"reader": role}) as shop:
        for sql, says in {
            "select count(*) from item": "run_sql cannot read 'item'. Use the tools that list its rows.",
            "select * from itm": "There is no table 'itm' (position 15). Tables: tag.",
        }.items():
            with pytest.raises(errors.SqlRefused) as refused:
                await shop.ask(sql, "reader")
            assert str(refused.value) == says


#: Filters that read other tables, and whether callers' SQL can read their table.
FILTERS = (
    ("exists (select 1 from item i, 'tag', [hidden] h where i.id = item.id and i.id = h.item)", True),
    ("id in (select item from tag where name in (select name from hidden h))", True),
    ("id in (with tag as (select 2 as item union select item from hidden) select item from tag)", True),
    ("name in names and id not in (select item from tag natural join hidden)", True),
    ("(select count(*) from item) = 3 and id < (select max(item) from (select item from tag))", True),
    ("region = 'north' or exists (select 1 from excluded where excluded.item = item.id)", True),
    ('id in (select item from "filtered item")', True),
    ("exists (select 1 from shown_tags s where s.item = item.id)", True),
    ("id in (select rowid from tag)", False),
    ("exists (select 1 from main.tag where item = item.id)", False),
    ("id in (select rowid from texts where texts match 'two')", False),
)


async def test_filter_reads_the_tables_of_the_file_or_says_that_it_cannot(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES_OF_FILTERS)
    roles = {
        f"r{at}": RoleSection(tables={"item": GrantSection(where=where), "tag": not reads}, sql=True)
        for at, (where, reads) in enumerate(FILTERS)
    }
    async with serving(path, roles=roles, exclude=("excluded",)) as shop:
        for role, (where, reads) in zip(roles, FILTERS, strict=True):
            listed = await shop.toolbox.call(Caller(role=role), "list_item", {"columns": ["id"]})
            assert 0 < listed.rows < 3, where
            if reads:
                found = await shop.ask("select id from item order by id", role)
                assert found == listed.structured["rows"], where
                with pytest.raises(errors.SqlRefused, match="no table"):
                    await shop.ask("select * from hidden", role)
            else:
                with pytest.raises(errors.SqlRefused, match=r"cannot read 'item'\. Use"):
                    await shop.ask("select * from item", role)
                assert await shop.ask("select count(*) from tag", role) == [[2]]


#: Entries of the schema that cannot be read, and what is reported.
UNREADABLE = (
    (
        "create view odd_main as select * from main.item",
        "run_sql cannot read the view 'odd_main': it writes main. before a name.",
    ),
    (
        "create view deep as select id from [main].item; create view odd_deep as select id from deep",
        "run_sql cannot read the view 'odd_deep': it reads 'deep'.",
    ),
    (
        """
        create trigger t after insert on item begin delete from item where id in main.item; end;
        create view odd_absent as select * from item, absent
        """,
        "view 'odd_absent' is left out: no such table: main.absent.",
    ),
    (
        "create view odd_function as select absent(id) from item",
        "view 'odd_function' is left out: no such function: absent.",
    ),
    (
        """
        pragma writable_schema = on;
        insert into sqlite_schema
        values ('table', 'odd_module', 'odd_module', 0, 'create virtual table odd_module using absent(a)')
        """,
        "virtual table 'odd_module' is left out: no such module: absent.",
    ),
)


async def test_unreadable_entries_of_the_schema_are_reported_and_leave_the_rest_readable(path: Path) -> None:
    entries = ";".join(entry for entry, _ in UNREADABLE)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"create view plain as select id from item; {entries}")
    async with serving(path) as shop:
        before = await shop.ask("select count(*) from plain natural join item")
        # Another program makes the workers read the schema again.
        shop.change("create index later on item(name); analyze")
        shop.change("analyze")
        snapshot = await shop.toolbox.snapshot()

        assert {finding for _, finding in UNREADABLE} <= set(snapshot.catalog.warnings)
        assert before == await shop.ask("select count(*) from plain natural join item") == [[3]]
        for name in ("main", "deep", "absent", "function", "module"):
            with pytest.raises(errors.SqlRefused, match=f"'odd_{name}'"):
                await shop.ask(f"select * from odd_{name}")


async def test_many_roles_share_the_workers(path: Path) -> None:
    roles = {
        f"r{n}": RoleSection(tables={"item": GrantSection(where=f"id = {n}")}, sql=True) for n in range(12)
    }
    async with serving(path, roles=roles) as shop:
        found = [await shop.ask("select id from item", f"r{n % 12}") for n in range(24)]
        workers = len(shop.processes())

    assert found == [[[n % 12]] if n % 12 in (1, 2, 3) else [] for n in range(24)]
    assert 0 < workers <= processes.WORKERS


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
async def test_every_encoding_can_be_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "encoded.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"pragma encoding = '{encoding}'; {DDL} insert into item values (4, 'ä€😀', 'x@y.z')"
        )
    role = RoleSection(tables={"item": GrantSection(mask={"region": Mask.PARTIAL})}, sql=True)
    async with serving(path, roles={"reader": role}) as shop:
        rows = await shop.ask("select name, length(name), region from item where name like '%€%'", "reader")

    assert rows == [["ä€😀", 3, "x…@y.z"]]


async def test_texts_that_are_not_valid_are_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("insert into item values (4, cast(x'61ff' as text), cast(x'ff' as text))")
        connection.commit()
    role = RoleSection(tables={"item": GrantSection(mask={"region": Mask.PARTIAL})}, sql=True)
    async with serving(path, roles={"reader": role}) as shop:
        rows = await shop.ask("select name, region from item where id = 4", "reader")

    assert rows == [["a\\xff", "\ufffd…"]]


async def test_writer_in_wal_mode_is_seen(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("pragma journal_mode = wal")
        async with serving(path) as shop:
            assert await shop.ask("select count(*) from item") == [[3]]
            writer.execute("insert into item values (9, 'nine', null)")

            assert await shop.ask("select count(*) from item") == [[4]]


async def test_immutable_file_is_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
    async with serving(path, options="?immutable=1") as shop:
        assert await shop.ask("select count(*) from item") == [[3]]
        assert sorted(each.name for each in path.parent.iterdir()) == ["shop.db"]


async def test_locked_file_is_busy(path: Path) -> None:
    async with serving(path) as shop:
        await shop.ask("select 1 from item")
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("begin exclusive")
            with pytest.raises(errors.Busy):
                await shop.ask("select 1 from item")
            writer.execute("rollback")

        assert await shop.ask("select count(*) from item") == [[3]]


async def test_missing_file_says_so(path: Path) -> None:
    async with serving(path) as shop:
        await shop.toolbox.snapshot()
        await anyio.Path(path).unlink()
        with pytest.raises(errors.DatabaseUnavailable, match="does not exist"):
            await shop.ask("select 1")
