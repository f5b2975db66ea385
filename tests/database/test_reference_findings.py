"""Declared foreign keys that are wrong or broken, or refer to no key, are rejected and reported."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbtools.errors import UnknownColumn
from dbtools.settings.sections import TableSection
from tests.conftest import OpenDatabase
from tests.database.query_shop import ServeQueries
from tests.database.referring_tables import CONFIGURED, DDL, problems_of, sections
from tests.database.role_callers import calling_as
from tests.database.shop import Serve
from tests.protocol.command_line import run

WRONG = """
[tables.customers.references]
regionid = "regions.id"
region_code = "region.id"
name = "regions.ident"
region_id = "regions.name"
id = "regions.code"
[tables.orders]
references = { customer_id = "customers", total = "customers.id" }
[tables.order]
references = { id = "regions.id" }
"""


def test_wrong_reference_is_reported_with_its_line(
    open_database: OpenDatabase, dialect: str, tmp_path: Path
) -> None:
    with open_database(dialect, DDL) as url:
        (tmp_path / "dbtools.toml").write_text(f'[database]\nurl = "{url}"{WRONG}')
        checked = run("check", str(tmp_path / "dbtools.toml"), "--json")

    findings = json.loads(checked.stdout)["findings"]
    found = [
        (each["line"], each["code"], each["message"])
        for each in findings
        if each["code"] not in ("posture", "no_sql")
    ]
    assert checked.exit_code == 1
    assert [(line, code) for line, code, _ in found] == [
        (4, "unknown_column"),
        (5, "unknown_table"),
        (6, "unknown_column"),
        (7, "bad_reference"),
        (8, "bad_reference"),
        (10, "bad_reference"),
        (11, "unknown_table"),
    ]
    assert "Did you mean region_id" in found[0][2]
    assert "Did you mean regions?" in found[1][2]
    assert "not a primary or unique key" in found[3][2]
    assert "differ in type" in found[4][2]
    assert '"table.column"' in found[5][2]


#: Without the key, there may be two regions of one id.
MIGRATED = {
    "sqlite": """
        create table new (id integer, name text, code text unique, area integer);
        insert into new select * from regions; insert into new select id, 'Twin', null, 0 from regions;
        drop table regions; alter table new rename to regions
    """,
    "postgresql": """
        alter table regions drop constraint regions_pkey;
        insert into regions select id, 'Twin', null, 0 from regions
    """,
}
RESTORED = {
    "sqlite": "delete from regions where name = 'Twin'; create unique index restored on regions (id)",
    "postgresql": "delete from regions where name = 'Twin'; create unique index restored on regions (id)",
}


def test_reference_that_a_migration_breaks_is_dropped_until_it_is_valid_again(
    serve_queries: ServeQueries, dialect: str
) -> None:
    asked = {"columns": ["region_code.area", "region.name"], "order_by": ["id"]}
    with serve_queries(dialect, DDL, {}, CONFIGURED) as shop:
        before = problems_of(shop), shop.rows("list_customers", asked)
        shop.bare.execute(MIGRATED[dialect])
        (finding,) = problems_of(shop)
        refused = shop.refusal("list_customers", asked)
        kept = shop.rows("list_customers", {**asked, "columns": ["region_code.area"]})
        shop.bare.execute(RESTORED[dialect])
        after = problems_of(shop), shop.rows("list_customers", asked)

    assert before == after == ([], [[10, "North"], [None, "South"], [30, None]])
    assert (finding.code, finding.source.line) == ("bad_reference", 7)
    assert refused.startswith("unknown_column")
    assert kept == [[10], [None], [30]]


def test_check_against_a_migrated_database_reports_a_reference(
    open_database: OpenDatabase, dialect: str, tmp_path: Path
) -> None:
    with open_database(dialect, DDL) as url, open_database(dialect, DDL + MIGRATED[dialect]) as migrated:
        path = tmp_path / "dbtools.toml"
        path.write_text(f'[database]\nurl = "{url}"{CONFIGURED}[tools]\nstyle = "typed"\n')
        now = json.loads(run("check", str(path), "--json").stdout)["findings"]
        then = json.loads(run("check", str(path), "--against", migrated, "--json").stdout)

    assert [each["code"] for each in now if each["code"] not in ("posture", "no_sql")] == []
    assert [
        (each["code"], each["line"]) for each in then["findings"] if each["code"] not in ("posture", "no_sql")
    ] == [("bad_reference", 4)]
    assert "list_customers" in then["changes"]["default"]["changed"]


SCHEMAS = """
create schema sales; create schema hr;
create table sales.regions (id integer primary key); create table hr.regions (id integer primary key);
create table hr.people (id integer primary key, region_id integer);
create table sales.notes (id integer primary key, word text collate "C", "odd.name" integer unique);
create table words (word text primary key, number integer);
insert into hr.regions values (1); insert into hr.people values (1, 1), (2, 2);
"""


def _of_people(text: str) -> Mapping[str, TableSection]:
    return sections({"hr.people": {"region_id": text}})


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        pytest.param(_of_people("regions.id"), "matches several tables", id="namesakes"),
        pytest.param(
            sections({"notes": {"word": "words.word"}}), "differ in type or collation", id="collation"
        ),
    ],
)
def test_reference_that_means_nothing_certain_is_refused(
    tables: Mapping[str, TableSection], problem: str, serve: Serve
) -> None:
    with serve("postgresql", SCHEMAS) as shop, calling_as(shop, {"*": True}, tables=tables) as caller:
        (found,) = caller.problems()

        assert problem in found


def test_reference_names_a_schema_and_a_quoted_column(serve: Serve) -> None:
    tables = {**_of_people("hr.regions.id"), **sections({"words": {"number": 'sales.notes."odd.name"'}})}
    with serve("postgresql", SCHEMAS) as shop, calling_as(shop, {"*": True}, tables=tables) as caller:
        assert caller.problems() == ()
        assert caller.rows("list_people", columns=["id", "region.id"]) == [[1, 1], [2, None]]
        assert caller.rows("list_words", columns=["number.id"]) == []


TYPES = ("integer", "bigint", "numeric", "real", "text", "varchar(9)", "boolean", "date")
KINDS = {"integer": "number", "bigint": "number", "numeric": "number", "real": "number", "varchar(9)": "text"}


def test_reference_joins_columns_of_one_kind_of_type_only(serve: Serve, dialect: str) -> None:
    keys = "".join(f"create table k{n} (id {type} primary key);" for n, type in enumerate(TYPES))
    columns = "".join(f", c{n} {type}" for n, type in enumerate(TYPES))
    served = {}
    with serve(dialect, f"{keys} create table t (id integer primary key{columns})") as shop:
        for number, target in enumerate(TYPES):
            tables = sections({"t": {f"c{n}": f"k{number}.id" for n in range(len(TYPES))}})
            with calling_as(shop, {"*": True}, tables=tables) as caller:
                problems = " ".join(caller.problems())
                found = {type for n, type in enumerate(TYPES) if f"references] c{n}:" not in problems}
                served[target] = {KINDS.get(type, type) for type in found}

    assert served == {type: {KINDS.get(type, type)} for type in TYPES}


@contextmanager
def _inherited(serve: Serve) -> Iterator[Any]:
    ddl = """
    create table parents (id integer primary key); create table children () inherits (parents);
    create table notes (id integer primary key, parent_id integer);
    insert into parents values (1); insert into children values (1); insert into notes values (1, 1);
    """
    with serve("postgresql", ddl) as shop:
        yield shop


def test_table_that_others_inherit_has_no_key_to_refer_to(serve: Serve) -> None:
    with (
        _inherited(serve) as shop,
        calling_as(shop, {"*": True}, tables=sections({"notes": {"parent_id": "parents.id"}})) as caller,
    ):
        (problem,) = caller.problems()

    assert "not a primary or unique key" in problem


PARTITIONED = """
create table regions (id integer primary key, name text);
create table sales (id integer, day integer, region_id integer, other_id integer) partition by range (day);
create table low partition of sales for values from (0) to (10);
alter table low add foreign key (region_id) references regions, add foreign key (other_id) references regions;
create table high (other_id integer, region_id integer references regions, day integer not null, id integer);
alter table sales attach partition high for values from (10) to (20);
create table top partition of sales for values from (20) to (30) partition by list (id);
create table top_one partition of top for values in (3);
alter table top_one add foreign key (region_id) references regions;
insert into regions values (1, 'North'), (2, 'South');
insert into sales values (1, 5, 1, 1), (2, 15, 2, 1), (3, 25, 1, 2);
"""


def test_partitioned_table_has_the_keys_that_all_its_partitions_share(serve: Serve) -> None:
    asked = {"columns": ["region.name"], "order_by": ["id"]}
    with serve("postgresql", PARTITIONED) as shop:
        rows = shop.rows("sales", **asked)
        related = shop.rows("regions", columns=["count(sales)"], order_by=["id"])
        with pytest.raises(UnknownColumn):
            shop.rows("sales", columns=["other.name"])
        with calling_as(shop, {"*": True}, tables=sections({"sales": {"other_id": "regions.id"}})) as caller:
            others = caller.rows("list_sales", columns=["other.name", "region.name"], order_by=["id"])

    assert rows == [["North"], ["South"], ["North"]]
    assert related == [[2], [1]]
    assert others == [["North", "North"], ["North", "South"], ["South", "North"]]
