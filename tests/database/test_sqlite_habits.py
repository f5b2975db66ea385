"""SQLite databases as found in practice: JSON in indexes, timestamps as text, columns without types."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.backends import url_of_file
from dbtools.backends.sqlite.connection.files import connect, location_of
from dbtools.errors import TimedOut, UnknownTool
from dbtools.settings import LimitsSection
from tests.database.shop import Serve, rows_of

JSON_EVERYWHERE = """
create table event (id integer primary key, body json, kind as (json_extract(body, '$.kind')));
create index by_name on event (json_extract(body, '$.name'));
insert into event (body) values ('{"kind": "a", "name": "x", "tags": ["red"]}');
create view tag as select event.id, value from event, json_each(body, '$.tags');
"""


@pytest.mark.parametrize(("tool", "row"), [("list_event", [1, "a"]), ("list_tag", [1, "red"])])
def test_json_in_indexes_generated_columns_and_views_is_read(
    tool: str, row: list[object], serve: Serve
) -> None:
    with serve("sqlite", JSON_EVERYWHERE) as shop:
        found = rows_of(shop.call(tool, {}).structured)

    assert [each[0] for each in found] == [1]
    assert row[1] in found[0]


MOMENTS = """
create table event (at timestamp, name text);
insert into event values
    ('2024-03-04 23:59:59', 'day before'), ('2024-03-05 09:00:00', 'blank'),
    ('2024-03-05T10:00:00', 't'), ('2024-03-05T11:00:00Z', 'zone'), ('2024-03-06 00:00:00', 'day after'),
    (1709640000, 'epoch'), ('no moment', 'odd'), (null, 'null');
"""


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        pytest.param({"op": "eq", "value": "2024-03-05T09:00:00"}, ["blank"], id="T finds blank"),
        pytest.param({"op": "eq", "value": "2024-03-05 10:00:00Z"}, ["t"], id="blank and Z find T"),
        pytest.param({"op": "in", "values": ["2024-03-05 11:00:00"]}, ["zone"], id="in"),
        pytest.param(
            {"op": "between", "values": ["2024-03-05T00:00:00Z", "2024-03-05T23:59:59Z"]},
            ["blank", "t", "zone"],
            id="a day",
        ),
        pytest.param({"op": "eq", "value": "1709640000"}, ["epoch"], id="epoch"),
    ],
)
def test_moments_are_found_however_they_are_written(
    condition: dict[str, object], names: list[str], serve: Serve
) -> None:
    with serve("sqlite", MOMENTS) as shop:
        found = rows_of(shop.call("list_event", {"where": [{"column": "at", **condition}]}).structured)

    assert sorted(str(row[1]) for row in found) == sorted(names)


UNTYPED = """
create table sale (at text);
insert into sale values ('2023-05-01'), ('2024-05-01'), ('2025-05-01');
create view year as select strftime('%Y', at) as y from sale;
create table mixed (v);
insert into mixed values (1), (2.5), ('1'), ('10'), ('9'), ('word'), (null);
"""


@pytest.mark.parametrize(
    ("tool", "column", "condition", "values"),
    [
        ("list_year", "y", {"op": "gte", "value": "2024"}, ["2024", "2025"]),
        ("list_year", "y", {"op": "lt", "value": 2024}, ["2023"]),
        ("list_mixed", "v", {"op": "between", "values": ["1", "9"]}, [1, 2.5, "1", "10", "9"]),
        ("list_mixed", "v", {"op": "gt", "value": "w"}, ["word"]),
    ],
)
def test_column_without_a_type_compares_numbers_as_numbers_and_texts_as_texts(
    tool: str, column: str, condition: dict[str, object], values: list[object], serve: Serve
) -> None:
    with serve("sqlite", UNTYPED) as shop:
        found = rows_of(shop.call(tool, {"where": [{"column": column, **condition}]}).structured)

    assert sorted(map(str, (row[0] for row in found))) == sorted(map(str, values))


FINER_KEY = """
create table t (a text collate nocase not null, primary key (a collate binary)) without rowid;
insert into t values ('b'), ('B'), ('a'), ('A');
"""


def test_primary_key_that_tells_more_apart_than_its_column_is_no_key(serve: Serve) -> None:
    with serve("sqlite", FINER_KEY) as shop:
        pages = list(shop.pages("list_t", [1], {}))
        with pytest.raises(UnknownTool):
            shop.call("get_t", {"a": "a"})

    assert sorted(str(row[0]) for page in pages for row in rows_of(page)) == ["A", "B", "a", "b"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_call_after_a_column_has_gone_answers_with_those_that_are_left(dialect: str, serve: Serve) -> None:
    with serve(dialect, "create table t (id integer primary key, a text, b text);") as shop:
        shop.call("list_t", {})
        shop.bare.execute("alter table t drop column b")

        assert shop.call("list_t", {}).structured["columns"] == ["id", "a"]


def test_file_with_a_question_mark_in_its_name_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a?b%3f#c.db"
    path.touch()

    assert location_of(url_of_file(path)).path == path


#: instr() takes the product of both lengths, and nothing stops it meanwhile.
UNSTOPPABLE = """
create table t (id integer primary key, v text);
create table other (id integer primary key);
insert into t (v) values (replace(hex(zeroblob(500000)), '0', 'a'));
insert into other values (1);
create view slow as select instr(v, substr(v, 1, 500000) || 'b') as found from t;
"""


def test_statement_that_cannot_be_stopped_at_once_holds_up_no_other_call(serve: Serve) -> None:
    with serve("sqlite", UNSTOPPABLE, limits=LimitsSection(timeout=2)) as shop:
        shop.call("list_other", {})
        with pytest.raises(TimedOut):
            shop.call("list_slow", {})

        assert shop.rows("other") == [[1]]


#: What a program does to lock the file for itself.
LOCK = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin exclusive')"


def test_opening_a_connection_releases_no_lock_of_another(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("create table things (id integer)")
        reader.execute("begin")
        reader.execute("select * from things").fetchall()

        connect(location_of(url_of_file(path))).close()
        locking = subprocess.run((sys.executable, "-c", LOCK, str(path)), capture_output=True, text=True)

    assert "database is locked" in locking.stderr
