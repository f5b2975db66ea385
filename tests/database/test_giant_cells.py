"""A call needs little memory, however long a cell is: a server cuts it, and SQLite does not load it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbtools.errors import UnknownResource, Unreadable
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import calling_as
from tests.database.shop import Serve, Shop, rows_of

STATUS = Path("/proc/self/status")
ROOT = Path(__file__).parents[2]
MEGABYTE = 10**6
LENGTH = 50 * MEGABYTE
MOST_MEGABYTES = 24  #: that two calls may take beside what a first one took

DDL = {
    "sqlite": f"""
    create table t (id integer primary key, v text, b blob, n any);
    insert into t values (1, 'small', x'00ff', 1.5);
    insert into t values
        (2, 'é' || replace(hex(zeroblob({LENGTH // 2})), '00', '🦉a'), zeroblob({LENGTH}), null);
    insert into t values (3, 'after', zeroblob(65), zeroblob(17000000));
    create table rowless (id int not null primary key, v text) without rowid;
    insert into rowless values (1, hex(zeroblob(10000000)));
    alter table t add column late text default 'default';
    create table m (id integer primary key, v text, b text, n text);
    with recursive n (id) as (select 1 union all select id + 1 from n where id < 8)
        insert into m select id, hex(zeroblob(2500000)), hex(zeroblob(2500000)), null from n;
    """,
    "postgresql": f"""
    create table t (id int primary key, v text, b bytea, n text, late text);
    insert into t values (1, 'small', '\\x00ff', '1.5', 'default');
    insert into t values
        (2, 'é' || repeat('🦉a', {LENGTH // 2}), decode(repeat('00', {LENGTH}), 'hex'), null, 'default');
    insert into t values (3, 'after', decode(repeat('00', 65), 'hex'), repeat('n', 17000000), 'default');
    create table m (id int primary key, v text, b text, n text);
    insert into m
        select id, repeat('0', 5000000), repeat('0', 5000000), null from generate_series(1, 8) as id;
    """,
}
#: Lists a table, under masks, after a warm-up, and prints the megabytes that the second list took besides.
MEASURE = r"""
import anyio, json, re, sys
from contextlib import suppress
from pathlib import Path
from dbtools.errors import Unreadable
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings
from dbtools.policy.roles import Caller

def most_kilobytes():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

async def main(url, table, mask):
    settings = {
        "database": {"url": url},
        "policy": {"hash_key": "a key"},
        "roles": {"default": {"tables": {"*": {"mask": json.loads(mask)}}}},
    }
    toolbox, database = open_toolbox(Settings.model_validate(settings))
    try:
        await toolbox.call(Caller(), "list_rows", {"table": table, "where": [{"column": "id", "value": 1}]})
        await toolbox.call(Caller(), "get_row", {"table": table, "key": {"id": 1}})
        before = most_kilobytes()
        rows = 0
        for tool, arguments in (
            ("list_rows", {"table": table, "columns": ["id", "v", "b", "n"]}),
            ("get_row", {"table": table, "key": {"id": 2}}),
        ):
            with suppress(Unreadable):
                rows += (await toolbox.call(Caller(), tool, arguments)).rows
        after = most_kilobytes()
        print(json.dumps({"megabytes": (after - before) / 1000, "rows": rows}))
    finally:
        await database.close()

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_giant_cells_are_cut_in_a_list_with_their_length(shop: Shop) -> None:
    text = f"é{'🦉a' * 999}🦉… [{LENGTH + 1:,} characters]"

    rows = shop.rows("t", columns=["id", "v", "b"])

    assert rows[0] == [1, "small", "AP8="]
    assert rows[1] == [2, text, f"[{LENGTH:,} bytes, application/octet-stream]"]
    assert rows[2][:2] == [3, "after"]


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_giant_cells_are_cut_in_a_row_with_their_length(shop: Shop) -> None:
    row = shop.get("t", id=2)

    assert str(row["v"]).startswith("é🦉a🦉a")
    assert f"… [{LENGTH + 1:,} characters]" in str(row["v"])
    assert str(row["b"]).startswith(f"[{LENGTH:,} bytes, application/octet-stream] dbtools://cell/t/2/b")
    assert (row["n"], row["late"]) == (None, "default")


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize(
    ("table", "arguments"),
    [
        pytest.param("t", {}, id="all columns"),
        pytest.param("t", {"columns": ["b"], "where": [{"column": "id", "value": 2}]}, id="one column"),
        pytest.param(
            "t", {"columns": ["id"], "where": [{"column": "v", "op": "ne", "value": "a"}]}, id="where"
        ),
        pytest.param("t", {"columns": ["id"], "order_by": ["v"]}, id="order"),
        pytest.param("rowless", {}, id="without rowid"),
    ],
)
def test_giant_cell_is_unreadable_on_sqlite(table: str, arguments: dict[str, object], shop: Shop) -> None:
    with pytest.raises(Unreadable) as raised:
        shop.page(table, **arguments)

    assert raised.value.hint == "Name columns without it."


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_row_with_a_giant_cell_is_read_without_it(shop: Shop) -> None:
    with pytest.raises(Unreadable):
        shop.get("t", id=2)

    assert shop.rows("t", columns=["id", "late"]) == [[each, "default"] for each in (1, 2, 3)]
    assert shop.rows("t", columns=["v"], where=[{"column": "id", "op": "ne", "value": 2}]) == [
        ["small"],
        ["after"],
    ]
    assert shop.rows("rowless", columns=["id"]) == [[1]]


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_conditions_order_and_pages_hold_beside_giant_cells(shop: Shop) -> None:
    arguments = {"columns": ["v", "late"], "order_by": ["id desc"]}
    where = [{"column": "id", "op": "ne", "value": 1}]

    pages = list(shop.pages("list_t", [1], {**arguments, "where": where}))

    assert [[str(cell)[:5] for cell in row] for page in pages for row in rows_of(page)] == [
        ["after", "defau"],
        ["é🦉a🦉a", "defau"],
    ]


def test_giant_cell_of_a_hidden_row_changes_no_page_before_a_visible_one(serve: Serve, dialect: str) -> None:
    giant = "hex(zeroblob(9000000))" if dialect == "sqlite" else "repeat('0', 18000000)"
    ddl = f"""
    create table regions (name text primary key, open integer);
    create table posts (id integer primary key, region text, word text, body text);
    insert into regions values ('north', 1), ('south', 0);
    insert into posts values (1, 'north', 'a', 'b'), (2, 'south', 'hidden', {giant}), (3, 'north', 'c', 'd'),
        (4, 'north', 'e', {giant});
    """
    grant = GrantSection(where="exists (select 1 from regions r where r.name = region and r.open = 1)")
    only_of_hidden = [{"column": "word", "op": "ne", "value": "hidden"}, {"column": "body", "value": "b"}]
    with serve(dialect, ddl) as shop, calling_as(shop, {"posts": grant}) as caller:
        asked = {"columns": ["id", "body"], "where": [{"any": only_of_hidden}]}
        rows = caller.rows("list_posts", limit=1, **asked)

    assert rows == [[1, "b"]]


def test_giant_cell_is_no_resource(shop: Shop, dialect: str) -> None:
    kind, why = (Unreadable, "16 MiB") if dialect == "sqlite" else (UnknownResource, "too large")

    with pytest.raises(kind, match=why):
        shop.read("dbtools://cell/t/2/v")


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not tell how much memory a process took")
@pytest.mark.parametrize(
    ("table", "mask", "rows"),
    [
        pytest.param("t", {}, {"sqlite": 0, "postgresql": 4}, id="not masked"),
        pytest.param("m", {"v": "partial", "b": "hash"}, {"sqlite": 9, "postgresql": 9}, id="masked"),
    ],
)
def test_giant_cells_take_little_memory(
    table: str, mask: Mapping[str, str], rows: Mapping[str, int], shop: Shop, dialect: str
) -> None:
    command = (sys.executable, "-c", MEASURE, shop.url, table, json.dumps(mask))

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    measured = json.loads(answer.stdout)
    assert measured["rows"] == rows[dialect]
    assert measured["megabytes"] < MOST_MEGABYTES
