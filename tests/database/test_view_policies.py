"""A view shows no role what the role may not read in the tables beneath it."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.role_callers import NORTH, UNCHECKED, Caller, Grants, calling, calling_as
from tests.database.shop import Shop
from tests.postgresql_server import PostgresqlServer

TABLES = """
    create table regions (region text primary key, title text);
    insert into regions values ('north', 'North'), ('south', 'South');
    create table customers (id integer primary key, name text, email text, region text);
    insert into customers values
        (1, 'Ann', 'ann@example.org', 'north'), (2, 'Bob', 'bob@example.org', 'south');
    create table orders (id integer primary key, customer_id integer, total integer);
    insert into orders values (1, 1, 10), (2, 2, 20);
"""
#: By name: views that read rows or columns of customers.
VIEWS: Mapping[str, str] = {
    "plain": "select id, name, email from customers",
    "counted": "select count(*) as n from customers",
    "nested": "select name from plain",
    "nested_deeply": "select name from nested",
    "joined": "select o.id, c.name from orders o left join customers c on c.id = o.customer_id",
    "joined_using": "select g.title, c.id from regions g join customers c using (region)",
    "joined_naturally": "select title from regions natural join customers",
    "within": "select id from orders where customer_id in (select c.id from customers c)",
    "existing": "select id from orders o where exists (select 1 from customers c where c.id = o.customer_id)",
    "in_the_list": "select id, (select max(email) from customers) as best from orders",
    "united": "select title from regions union all select name from customers",
    "common": "with regions as (select name from customers) select name from regions",
    "named_alike": "with orders as (select email as total from customers) select total from orders",
    "recursively": (
        "with recursive n (i, e) as (select 1, 'a' union all select i + 1, c.email from n join customers c "
        "on c.id = i) select count(*) as total from n"
    ),
    "windowed": "select id, row_number() over (order by email) as place from customers",
}
#: Views that read nothing of customers.
SAFE: Mapping[str, str] = {
    "totals": "select sum(total) as total from orders",
    "titles": "select region, title from regions",
    "own_name": "with customers as (select id from orders) select id from customers",
    "alone": "select 1 as one",
    "nested_totals": "select total from totals",
    "common_count": "with n as (select id from orders) select count(*) as total from n",
    "recursive": (
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 9) "
        "select count(*) as total from n"
    ),
}
OF_SQLITE: Mapping[str, str] = {
    "by_rowid": "select rowid as number from customers",
    "of_the_schema": "select sql from sqlite_schema",
    "of_a_pragma": "select name from pragma_table_info('customers')",
    "found_text": "select name from found where found match 'ann'",
}
OF_POSTGRESQL: Mapping[str, str] = {
    "whole_row": "select c from customers as c",
    "by_system_column": "select ctid::text as place from customers",
    "of_any_sql": "select query_to_xml('select email from customers', true, false, '')::text as answer",
    "by_a_function": "select email_of(1) as email",
    "by_an_operator": "select id from orders where id ==> 1",
    "by_a_domain": "select id::text::guarded as id from orders",
    "of_the_catalog": "select relname::text from pg_catalog.pg_class",
    "of_a_size": "select pg_total_relation_size('customers') as size",
    "of_statistics": "select pg_stat_get_live_tuples('customers'::regclass) as rows",
    "of_a_name": "select to_regclass('customers')::text as name",
    "of_a_constant": "select 'customers'::regclass as name",
    "of_an_array": "select ('{customers}'::regclass[])::text as names",
    "of_a_populated_row": "select json_populate_record(null::customers, '{}')::text as row",
    "of_statements": "select statement from pg_prepared_statement()",
}
VIRTUAL = """
    create virtual table found using fts5(name, email, content='customers', content_rowid='id');
    insert into found(found) values ('rebuild');
    create virtual table found_words using fts5vocab('found', 'row');
    create virtual table found_older using fts4(name, content="customers");
    create virtual table found_short using fts5(name, con=customers, content_r=id);
    create virtual table found_quoted using "fts5"(name, c = "customers");
    create virtual table notes using fts5(body);
    create virtual table "using" using fts5(body);
"""
OTHERS = """
    create function email_of(integer) returns text language sql stable
        as 'select email from customers where id = $1';
    create function sees(integer, integer) returns boolean language sql stable
        as 'select exists (select from customers where id = $1)';
    create operator ==> (leftarg = integer, rightarg = integer, function = sees);
    create function is_mail(text) returns boolean language sql stable
        as 'select not exists (select from customers where email = $1)';
    create domain guarded as text check (is_mail(value));
    create materialized view copied as select name from customers;
    create materialized view copied_totals as select total from orders;
    create table parts (region text, value integer) partition by list (region);
    create table parts_north partition of parts for values in ('north');
    insert into parts values ('north', 1);
"""
#: Relations that show customers, beside the views.
ALSO: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("found", "found_words", "found_older", "found_short", "found_quoted"),
    "postgresql": ("copied",),
}
ALSO_SAFE: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("notes", "using"),
    "postgresql": ("copied_totals", "of_a_partition"),
}
OWN: Mapping[str, Mapping[str, str]] = {
    "sqlite": OF_SQLITE,
    "postgresql": OF_POSTGRESQL,
}
FILTERED = GrantSection(where="region = :claims.region")
MASKED = GrantSection(mask={"email": Mask.PARTIAL})
EXCLUDED = GrantSection(exclude=("email",))


def _ddl(dialect: str) -> str:
    views = "".join(
        f"create view {name} as {sql};" for name, sql in {**VIEWS, **SAFE, **OWN[dialect]}.items()
    )
    if dialect == "sqlite":
        return f"{TABLES}{VIRTUAL}{views}"
    return f"{TABLES}{OTHERS}{views}create view of_a_partition as select value from parts_north;"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give databases with views of every sort."""
    with open_shops(serve, {dialect: _ddl(dialect) for dialect in UNCHECKED}) as shops:
        yield shops


def seen_by(caller: Caller) -> set[str]:
    """Return the names of all that *caller* sees."""
    found = caller.call("describe_tables", detail="names")["tables"]
    assert isinstance(found, list)
    return {each["name"] for each in found}


def _revealing(dialect: str) -> set[str]:
    return {*VIEWS, *OWN[dialect], *ALSO[dialect]}


#: What no column beneath is needed for: they show rows, or other columns.
WITHOUT_EMAIL = {
    *(
        "counted",
        "joined",
        "joined_using",
        "within",
        "existing",
        "nested",
        "nested_deeply",
        "united",
        "common",
    ),
    *("by_rowid", "by_system_column", "copied", "found_older", "found_short"),
    "found_quoted",
}


@pytest.mark.parametrize(
    ("grant", "spared"),
    [
        pytest.param(FILTERED, set(), id="filtered"),
        pytest.param(False, set(), id="denied"),
        pytest.param(MASKED, WITHOUT_EMAIL - {"nested", "nested_deeply"}, id="masked"),
        pytest.param(EXCLUDED, WITHOUT_EMAIL - {"nested", "nested_deeply"}, id="excluded"),
    ],
)
def test_view_is_withheld_unless_all_that_it_reads_is_seen(
    grant: bool | GrantSection, spared: set[str], dialect: str, shop: Shop
) -> None:
    with calling_as(shop, {"*": True, "customers": grant}, NORTH) as caller:
        seen, problems = seen_by(caller), caller.problems()

    # SQLite does not tell which columns a natural join compares.
    spared = spared | {"joined_naturally"} if spared and dialect == "postgresql" else spared
    withheld = _revealing(dialect) - spared
    assert seen & withheld == set()
    assert seen >= {"orders", "regions", *SAFE, *ALSO_SAFE[dialect], *(_revealing(dialect) & spared)}
    told = {each.split(": ")[2].split(" is withheld")[0] for each in problems if " is withheld" in each}
    assert told == withheld


def test_view_aggregates_no_table_that_the_role_may_not_aggregate(dialect: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "customers": GrantSection(aggregate=False)}) as caller:
        seen = seen_by(caller)

    assert "customers" in seen
    assert seen & _revealing(dialect) == set()


def test_withheld_view_is_as_one_that_is_not_there(dialect: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "customers": FILTERED}, NORTH) as caller:
        answers = {
            name: caller.outcome(calling("list_rows", table=name))[0]
            for name in [*_revealing(dialect), "none"]
        }
        tools = caller.tools()

    assert set(answers.values()) == {answers["none"]}
    assert not {f"{verb}_{name}" for name in _revealing(dialect) for verb in ("list", "get")} & set(tools)


def test_view_whose_rule_accepts_its_reads_is_served(shop: Shop) -> None:
    grants: Grants = {
        "*": False,
        "plain": GrantSection(accept_reads=True, where="id > 1"),
        "counted": True,
        "orders": True,
    }
    with calling_as(shop, grants, NORTH) as caller:
        seen, rows, problems = seen_by(caller), caller.rows("list_plain"), caller.problems()

    assert (seen, rows) == ({"plain", "orders"}, [[2, "Bob", "bob@example.org"]])
    assert problems == (
        "error: role reader, tables.counted: counted is withheld, since it reads customers, which the role "
        "does not see. If that is intended: tables.counted = { accept_reads = true }.",
    )


def test_view_is_accepted_by_a_rule_of_its_own_alone(shop: Shop) -> None:
    """A pattern would accept views that nobody has thought of yet."""
    grants: Grants = {"*": GrantSection(accept_reads=True), "customers": False}
    with calling_as(shop, grants) as caller:
        seen, problems = seen_by(caller), caller.problems()

    assert "plain" not in seen
    assert "orders" in seen
    assert problems[0] == (
        "warning: role reader, tables.*: accept_reads counts in the rule of one view only."
    )


def test_role_that_sees_all_sees_all_views_but_those_of_which_nobody_knows_what_they_read(
    dialect: str, shop: Shop
) -> None:
    unknown = {
        "sqlite": {"of_the_schema", "of_a_pragma"},
        "postgresql": {
            *("of_any_sql", "by_a_function", "by_an_operator", "by_a_domain", "of_the_catalog"),
            *("of_a_size", "of_statistics", "of_a_name", "of_a_constant", "of_an_array"),
            *("of_a_populated_row", "of_statements"),
        },
    }
    with calling_as(shop, {"*": True}) as caller:
        seen = seen_by(caller)

    assert seen >= _revealing(dialect) - unknown[dialect]
    assert seen & unknown[dialect] == set()


def test_without_roles_every_view_is_served(dialect: str, shop: Shop) -> None:
    found = shop.call("describe_tables", {"detail": "names"}).structured["tables"]
    assert isinstance(found, list)
    assert {each["name"] for each in found} >= {*_revealing(dialect), *SAFE, *ALSO_SAFE[dialect]}


INHERITING = """
    create table notes (id integer primary key, body text, region text);
    create table northern (place text) inherits (notes);
    create table southern (place text) inherits (notes);
    insert into notes values (1, 'general', 'west');
    insert into northern values (2, 'cold', 'north', 'a');
    insert into southern values (3, 'warm', 'south', 'b');
    create view all_notes as select id from notes;
"""


@pytest.mark.parametrize(
    ("grants", "seen"),
    [
        pytest.param({"*": True}, {"notes", "northern", "southern", "all_notes"}, id="all"),
        pytest.param({"*": True, "notes": FILTERED}, {"notes"}, id="filtered parent"),
        pytest.param({"*": True, "notes": False}, set(), id="denied parent"),
        pytest.param({"*": True, "northern": False}, {"southern"}, id="denied child"),
        pytest.param({"*": True, "northern": FILTERED}, {"northern", "southern"}, id="filtered child"),
        pytest.param(
            {"*": True, "northern": GrantSection(exclude=("place",))},
            {"notes", "northern", "southern", "all_notes"},
            id="column that only the child has",
        ),
    ],
)
def test_rows_that_tables_inherit_are_read_under_no_other_name(
    grants: Grants, seen: set[str], serve: Serve
) -> None:
    with (
        serve("postgresql", INHERITING) as shop,
        calling_as(shop, grants, NORTH) as caller,
    ):
        assert seen_by(caller) == seen


GENERATED = """
    create table people (
        id integer primary key, first text, last text, email text,
        folded text generated always as (lower(email)) stored,
        full_name text generated always as (first || ' ' || last) stored
    );
    insert into people (id, first, last, email) values (1, 'Ann', 'Lee', 'Ann@example.org');
"""


@pytest.mark.parametrize(
    ("grant", "columns"),
    [
        pytest.param(GrantSection(exclude=("email",)), ["id", "first", "last", "full_name"], id="excluded"),
        pytest.param(
            GrantSection(mask={"email": Mask.NULL, "last": Mask.NULL}),
            ["id", "first", "last", "email"],
            id="masked",
        ),
        pytest.param(GrantSection(columns=("id", "folded")), ["id", "folded"], id="named"),
        pytest.param(
            GrantSection(exclude=("email",), accept_reads=True),
            ["id", "first", "last", "folded", "full_name"],
            id="accepted",
        ),
        pytest.param(
            GrantSection(exclude=("email",), mask={"folded": Mask.PARTIAL}),
            ["id", "first", "last", "folded", "full_name"],
            id="masked itself",
        ),
    ],
)
def test_generated_column_shows_no_column_that_is_hidden(
    grant: GrantSection, columns: list[str], dialect: str, serve: Serve
) -> None:
    with serve(dialect, GENERATED) as shop, calling_as(shop, {"people": grant}) as caller:
        found = caller.call("list_people")

    assert found["columns"] == columns


def test_view_that_is_replaced_shows_nothing_before_its_new_reads_are_known(
    dialect: str, serve: Serve
) -> None:
    """The server looks for changes, and yet no call between two looks is answered by the old rules."""
    old = """
        create table titles (id integer, title text);
        insert into titles values (1, 'one');
        create view shown as select id, title as name from titles;
        create view over_it as select name from shown;
    """
    replaced = {
        "sqlite": "drop view shown; create view shown as select id, name from customers",
        "postgresql": "create or replace view shown as select id, name from customers",
    }
    with (
        serve(dialect, TABLES + old) as shop,
        calling_as(shop, {"*": True, "customers": FILTERED}, NORTH) as caller,
    ):
        before = caller.rows("list_over_it"), caller.rows("list_shown")
        shop.bare.execute(replaced[dialect])
        after = [caller.outcome(calling(f"list_{each}")) for each in ("over_it", "shown")]

    assert before == ([["one"]], [[1, "one"]])
    assert ["Bob" in str(each) or "Ann" in str(each) for each in after] == [False, False]


COLUMNS = "id integer primary key, name text, region text"
PERMITS = "create table permits (region text); insert into permits values ('north');"
#: A filter that a planner puts behind a caller's conditions, since it costs more.
PERMITTED = "exists (select 1 from permits p where p.region = region_of)"
#: By sort: what makes readings, of which reading some cells raises an error.
RAISING: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        "view": f"""
            create table raws ({COLUMNS}, raw text);
            insert into raws values {{rows}};
            create view readings as
                select id, name, region as region_of, json_extract(raw, '$.a') as level from raws;
        """,
        "generated column": f"""
            create table readings ({COLUMNS.replace("region", "region_of")}, raw text);
            insert into readings values {{rows}};
            alter table readings add column level as (json_extract(raw, '$.a'));
        """,
    },
    "postgresql": {
        "view": f"""
            create table raws ({COLUMNS}, raw text);
            insert into raws values {{rows}};
            create view readings as select id, name, region as region_of, raw::int as level from raws;
        """,
        "generated column": f"""
            create table readings ({COLUMNS.replace("region", "region_of")}, raw text);
            insert into readings values {{rows}};
            alter table readings add column level integer generated always as (raw::int) virtual;
        """,
    },
}
#: A cell that raises no error, and one that does.
CELLS = {"sqlite": ("'{\"a\": 1}'", "'odd'"), "postgresql": ("'1'", "'odd'")}
SORTS = [(dialect, sort) for dialect, sorts in RAISING.items() for sort in sorts]
COUNT = [{"function": "count", "name": "n"}]


def _questions(path: str = "") -> Iterator[Mapping[str, object]]:
    """Yield conditions that only the hidden row may meet."""
    level = f"{path}level"
    for where in (
        [{"column": level, "op": "is_null", "value": "false"}],
        [{"column": level, "value": "1"}],
        [{"column": level, "op": "ne", "value": "7"}],
        [{"column": f"{path}name", "value": "hidden"}, {"column": level, "op": "ne", "value": "7"}],
        [{"column": f"{path}id", "value": "2"}, {"column": level, "op": "gt", "value": "0"}],
    ):
        yield {"where": where}
        yield {"where": where, "match": "any"}


@pytest.mark.parametrize(("dialect", "sort"), SORTS)
def test_error_of_a_hidden_row_tells_nothing_of_it(
    dialect: str, sort: str, serve: Serve, postgresql_server: PostgresqlServer
) -> None:
    if (dialect, sort) == ("postgresql", "generated column") and postgresql_server.version < 18:
        pytest.skip("virtual columns came with version 18")
    ordinary, odd = CELLS[dialect]
    owners = "create table owners (id integer primary key, reading_id integer"
    owners += ");" if sort == "view" else " references readings);"
    found: list[list[object]] = []
    for cell in (ordinary, odd):
        rows = f"(1, 'seen', 'north', {ordinary}), (2, 'hidden', 'south', {cell})"
        ddl = f"{PERMITS} {RAISING[dialect][sort].format(rows=rows)} {owners}"
        grants: Grants = {
            "readings": GrantSection(
                where=PERMITTED, accept_reads=True, columns=("id", "name", "region_of", "level")
            ),
            "owners": True,
        }
        with (
            serve(dialect, f"{ddl} insert into owners values (1, 1), (2, 2);") as shop,
            calling_as(shop, grants, NORTH) as caller,
        ):
            tables = [("readings", "")] + ([("owners", "reading.")] if sort != "view" else [])
            asked = [
                ask
                for table, path in tables
                for each in _questions(path)
                for ask in (
                    calling("list_rows", table=table, **each),
                    calling("aggregate_rows", table=table, measures=COUNT, **each),
                )
            ]
            asked.append(calling("list_rows", table="readings", order_by=["level"]))
            found.append([caller.outcome(each) for each in asked])

    assert found[0] == found[1]
    assert "answer" in str(found[0][0])


#: Filters that fail for the row that is hidden, by dialect.
FAILING = [
    ("sqlite", "json_extract(level, '$.a') > 0"),
    ("postgresql", "level::int > 0"),
    ("postgresql", "coalesce(region, (select number::text from numbers)) is null or level::int > 0"),
    ("postgresql", "region = 'north' or exact < binary"),
    (
        "postgresql",
        "region = 'north' or region in ('west', (select n.region from numbers n where n.id = readings.id))",
    ),
]


@pytest.mark.parametrize(("dialect", "where"), FAILING)
def test_error_of_a_filter_does_not_depend_on_a_callers_conditions(
    dialect: str, where: str, serve: Serve
) -> None:
    ordinary, odd = CELLS[dialect]
    ddl = f"""
        create table readings ({COLUMNS}, level text, exact numeric, binary float);
        insert into readings values
            (1, 'seen', 'north', {ordinary}, 1, 2), (2, 'hidden', 'south', {odd}, 1e308, 2);
        create table numbers (id integer, number integer, region text);
        insert into numbers values (2, 1, 'south'), (2, 2, 'south');
        create table owners (id integer primary key, reading_id integer references readings);
        insert into owners values (1, 1), (2, 2);
    """
    ddl = ddl.replace("1e308", "1e400").replace(" binary", ' "binary"') if dialect == "postgresql" else ddl
    grants: Grants = {"readings": GrantSection(where=where.replace(" binary", ' "binary"')), "owners": True}
    with serve(dialect, ddl) as shop, calling_as(shop, grants) as caller:
        for table, path in (("readings", ""), ("owners", "reading.")):
            found = {
                caller.outcome(
                    calling("list_rows", table=table, where=[{"column": f"{path}name", "value": name}])
                )
                for name in ("hidden", "nobody")
            }

            assert len(found) == 1
            assert {code for code, _ in found} != {"answer"}


@pytest.mark.parametrize(
    ("where", "guarded"),
    [("region = :claims.region", False), ("lower(region) = :claims.region", False), ("abs(id) > 0", True)],
)
def test_only_what_may_raise_an_error_is_read_behind_a_barrier(
    where: str, guarded: bool, dialect: str, shop: Shop
) -> None:
    grants = {
        "customers": GrantSection(where=where),
        "plain": GrantSection(where="id > 0", accept_reads=True),
    }
    with calling_as(shop, grants, NORTH) as caller:
        view = shop.portal.call(caller.toolbox.view, caller.role)
        seen = {table.name: table.guarded for table in view.catalog.tables}

    assert seen == {"customers": guarded, "plain": True}


def test_filter_over_a_view_that_is_not_served_is_guarded(dialect: str, serve: Serve) -> None:
    ordinary, odd = CELLS[dialect]
    level = {"sqlite": "json_extract(raw, '$.a')", "postgresql": "raw::int"}[dialect]
    ddl = f"""
        create table readings ({COLUMNS}, raw text);
        insert into readings values (1, 'seen', 'north', {ordinary}), (2, 'hidden', 'south', {odd});
        create view levels as select id as number, {level} as level from readings;
    """
    where = "region = 'north' or exists (select 1 from levels where number = id and level > 0)"
    with (
        serve(dialect, ddl) as shop,
        calling_as(shop, {"readings": GrantSection(where=where)}, excluded=("levels",)) as caller,
    ):
        found = {
            caller.outcome(calling("list_rows", table="readings", where=[{"column": "name", "value": name}]))
            for name in ("hidden", "seen", "nobody")
        }

    assert len(found) == 1
    assert {code for code, _ in found} != {"answer"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("alter table hidden_notes inherit notes", id="child"),
        pytest.param(
            "alter table parts attach partition hidden_part for values in ('south')", id="partition"
        ),
        pytest.param("alter table parts_west attach partition hidden_part for values in (2)", id="deeper"),
    ],
)
def test_table_that_is_joined_to_another_is_not_shown_before_that_is_known(change: str, serve: Serve) -> None:
    ddl = """
        create table notes (id integer, body text);
        create table hidden_notes (id integer, body text);
        insert into hidden_notes values (1, 'CANARY');
        create table parts (region text, value integer) partition by list (region);
        create table parts_west partition of parts for values in ('west') partition by list (value);
        create table hidden_part (region text, value integer);
    """
    region = "west" if "west" in change else "south"
    rows = f"insert into hidden_part values ('{region}', 2);"
    with (
        serve("postgresql", ddl + rows) as shop,
        calling_as(shop, {"*": True, "hidden_notes": False, "hidden_part": False}) as caller,
    ):
        assert (caller.rows("list_notes"), caller.rows("list_parts")) == ([], [])
        shop.bare.execute(change)
        found = [str(caller.outcome(calling(f"list_{each}"))) for each in ("notes", "parts")]

    assert not [each for each in found if "CANARY" in each or f"'{region}'" in each]


@pytest.mark.parametrize("name", ["€uro", "nom\u0301", "😀", "＄"])
def test_generated_column_is_computed_from_a_column_of_any_name(name: str, serve: Serve) -> None:
    ddl = f"create table people (id integer primary key, {name} text, shown text as ({name} || 'x'));"
    with serve("sqlite", ddl) as shop, calling_as(shop, {"people": GrantSection(exclude=(name,))}) as caller:
        found = caller.call("list_people")

    assert found["columns"] == ["id"]


NAMESAKE = """
    create schema hr;
    create table hr.salaries (id integer primary key, amount integer);
    insert into hr.salaries values (1, 424242);
"""


@pytest.mark.parametrize("name", ["salaries", "hr.salaries"])
@pytest.mark.parametrize("grant", [False, GrantSection(exclude=("amount",)), GrantSection(where="id > 1")])
def test_new_table_takes_over_no_rule(name: str, grant: bool | GrantSection, serve: Serve) -> None:
    with (
        serve("postgresql", NAMESAKE) as shop,
        calling_as(shop, {"*": True, name: grant}) as caller,
    ):
        shop.bare.execute(f'create table public."{name}" (id integer primary key)')
        shop.portal.call(caller.toolbox.refresh)
        problems, seen = caller.problems(), seen_by(caller)

    assert ["more than one table has this name" in each for each in problems] == [True]
    assert seen == set()
