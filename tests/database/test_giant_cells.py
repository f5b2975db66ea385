"""A cell of any length is cut where it is read, so that a call needs little memory."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dbtools.errors import UnknownResource, Unreadable
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.shop import Shop, rows_of

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
from pathlib import Path
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings
from dbtools.policy import Caller

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
        listed = await toolbox.call(Caller(), "list_rows", {"table": table, "columns": ["id", "v", "b", "n"]})
        got = await toolbox.call(Caller(), "get_row", {"table": table, "key": {"id": 2}})
        after = most_kilobytes()
        print(json.dumps({"megabytes": (after - before) / 1000, "rows": listed.rows + got.rows}))
    finally:
        await database.close()

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give databases with cells of fifty megabytes."""
    with open_shops(serve, DDL) as shops:
        yield shops


def test_giant_cells_are_cut_in_a_list_with_their_length(shop: Shop) -> None:
    text = f"é{'🦉a' * 999}🦉… [{LENGTH + 1:,} characters]"

    rows = shop.rows("t", columns=["id", "v", "b"])

    assert rows[0] == [1, "small", "AP8="]
    assert rows[1] == [2, text, f"[{LENGTH:,} bytes, application/octet-stream]"]
    assert rows[2][:2] == [3, "after"]


def test_giant_cells_are_cut_in_a_row_with_their_length(shop: Shop) -> None:
    row = shop.get("t", id=2)

    assert str(row["v"]).startswith("é🦉a🦉a")
    assert f"… [{LENGTH + 1:,} characters]" in str(row["v"])
    assert str(row["b"]).startswith(f"[{LENGTH:,} bytes, application/octet-stream] dbtools://cell/t/2/b")
    assert (row["n"], row["late"]) == (None, "default")


def test_conditions_order_and_pages_hold_beside_giant_cells(shop: Shop) -> None:
    arguments = {"columns": ["v", "late"], "order_by": ["id desc"]}
    where = [{"column": "id", "op": "ne", "value": 1}]

    pages = list(shop.pages("list_t", [1], {**arguments, "where": where}))

    assert [[str(cell)[:5] for cell in row] for page in pages for row in rows_of(page)] == [
        ["after", "defau"],
        ["é🦉a🦉a", "defau"],
    ]


def test_giant_cell_is_too_large_for_a_resource(shop: Shop) -> None:
    with pytest.raises(UnknownResource, match="too large"):
        shop.read("dbtools://cell/t/2/v")


POSTS = "create table posts (id integer primary key, title text, body text);"
#: Posts that are found by their titles, one of which has a giant body.
FOUND = {
    "sqlite": f"""{POSTS}
    insert into posts values (1, 'red', 'a'), (2, 'red red', hex(zeroblob(9000000))), (3, 'blue', 'c');
    create virtual table found using fts5(title, content = 'posts', content_rowid = 'id');
    insert into found (found) values ('rebuild');
    """,
    "postgresql": f"""{POSTS}
    insert into posts values (1, 'red', 'a'), (2, 'red red', repeat('0', 18000000)), (3, 'blue', 'c');
    create index on posts using gin (to_tsvector('simple', title));
    """,
}


def test_giant_cell_is_listed_by_rank(serve: Serve, dialect: str) -> None:
    where = [{"column": "title", "op": "matches", "value": "red"}]
    arguments = {"columns": ["id", "body"], "where": where, "order_by": ["rank(title)"]}

    with serve(dialect, FOUND[dialect]) as shop:
        pages = list(shop.pages("list_posts", [1, 1], arguments))

    cells = [row for page in pages for row in rows_of(page)]
    assert [cell[0] for cell in cells] == [2, 1]
    assert str(cells[0][1]).endswith("… [18,000,000 characters]")


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_giant_cell_without_a_number_of_its_row_is_a_clean_error(shop: Shop) -> None:
    with pytest.raises(Unreadable):
        shop.page("rowless")

    assert shop.rows("rowless", columns=["id"]) == [[1]]


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not tell how much memory a process took")
@pytest.mark.parametrize(
    ("table", "mask", "rows"),
    [
        pytest.param("t", {}, 4, id="not masked"),
        pytest.param("m", {"v": "partial", "b": "hash"}, 9, id="masked"),
    ],
)
def test_giant_cells_take_little_memory(table: str, mask: Mapping[str, str], rows: int, shop: Shop) -> None:
    command = (sys.executable, "-c", MEASURE, shop.url, table, json.dumps(mask))

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    measured = json.loads(answer.stdout)
    assert measured["rows"] == rows
    assert measured["megabytes"] < MOST_MEGABYTES
