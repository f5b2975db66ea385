"""`check` says what permitted queries change, and withdraws those that are not one change."""

from collections.abc import Mapping, Sequence

from tests.database.helpdesk import CLOSE, DESK, NOTE, REMOVE, OpenDesk, answered, problems, stored
from tests.database.query_tables import findings_of, known_of

NOT_CHANGING = "A query with -- writes is a single INSERT, UPDATE or DELETE, with or without a WITH."


def test_check_tells_what_queries_change(desks: OpenDesk, dialect: str) -> None:
    beyond = {
        "sqlite": "inserts into history",
        "postgresql": "calls the function public.keep, which may change more",
    }
    with desks(dialect, CLOSE + NOTE + REMOVE) as shop:
        told = known_of(shop)

    assert {name: facts["changes"] for name, facts in told.items() if name != "views"} == {
        "add_note": ["inserts into notes"],
        "close_ticket": ["updates tickets (closed_by, status)", beyond[dialect]],
        "remove_ticket": ["deletes from tickets", "deletes from drafts"],
    }


def test_what_a_changing_query_reads_is_told_as_for_other_queries(desks: OpenDesk, dialect: str) -> None:
    sql = "-- name: peek\n-- description: d.\n-- writes: 1\nupdate tickets set title = 'x' returning secret"
    roles = '[roles.desk]\ntables.tickets = { exclude = ["secret"] }\nqueries = ["peek"]\n'
    with desks(dialect, sql, roles) as shop:
        told = known_of(shop)["peek"]

    assert told["unseen"] == {"desk": ["secret of tickets, which the role does not see"]}


HEADER = "-- name: smuggle\n-- description: d.\n-- writes: 1\n"
REFUSED: Mapping[str, Sequence[str]] = {
    "both": [
        "select 1 as one",
        "with x as (select 1 as a) select a from x",
        "create table t (id integer)",
        "drop table tickets",
        "/* insert */ select 1 as one",
        "insert into missing values (1)",
        "begin",
        "vacuum",
        "explain delete from tickets",
        "update tickets set missing = 1",
    ],
    "sqlite": [
        "pragma user_version = 3",
        "attach 'x.db' as x",
        "replace into notes values ('x')",
        "insert or replace into notes values ('x')",
        "update or replace notes set body = 'x'",
        "insert into labels values ('x')",
        "delete from sqlite_master",
        "update sqlite_schema set sql = ''",
        "insert into notes select load_extension('x')",
    ],
    "postgresql": [
        "copy notes from program 'id'",
        "copy tickets to '/tmp/x'",
        "with x as (delete from notes returning body) select body from x",
        "select id from tickets for update",
        "merge into notes using tickets on true when matched then delete",
        "do $$ begin end $$",
        "truncate notes",
        "notify x",
        "call f()",
        "lock table tickets",
        "set role postgres",
        "execute __asyncpg_stmt_1__",
        "insert into notes select set_config('role', 'none', false)",
        "insert into notes select pg_notify('x', 'y')::text",
        "insert into notes select lo_create(1)::text",
        "insert into notes select query_to_xml('select 1', true, true, '')::text",
        "insert into notes select pg_read_file('/etc/passwd')",
    ],
}


def test_anything_but_one_change_is_withdrawn(desks: OpenDesk, dialect: str) -> None:
    written = {f"smuggle_{at}": sql for at, sql in enumerate([*REFUSED["both"], *REFUSED[dialect]])}
    queries = "\n".join(HEADER.replace("smuggle", name) + sql for name, sql in written.items())
    with desks(dialect, queries) as shop:
        told, tools = problems(shop), shop.view("desk").tools
        found = stored(shop, "select count(*) from tickets")

    withdrawn = [each.partition(" is withdrawn: ")[0].removeprefix("query ") for each in told]
    assert sorted(withdrawn) == sorted(written)
    assert not {*written} & {*tools}
    assert found == [(3,)]


SEVERAL = (
    "delete from notes; delete from tickets",
    "delete from notes;\n-- \ndelete from tickets",
    "delete from notes /* ; */; drop table tickets",
)


def test_several_statements_are_a_mistake_in_the_file(desks: OpenDesk, dialect: str) -> None:
    queries = [HEADER.replace("smuggle", f"smuggle_{at}") + sql for at, sql in enumerate(SEVERAL)]
    with desks(dialect, "\n".join(queries)) as shop:
        told = findings_of(shop)

    assert [each["code"] for each in told if "smuggle" in str(each["message"])] == ["bad_query"] * len(
        SEVERAL
    )


def test_query_that_writes_without_saying_so_is_withdrawn(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect, NOTE.replace("-- writes: 1\n", "")) as shop:
        told = problems(shop)

    assert len(told) == 1
    assert told[0].endswith("To change rows, declare how many at most: -- writes: N.")


def test_check_does_not_run_a_query(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect, "-- name: clear\n-- description: d.\n-- writes: 9\ndelete from tickets") as shop:
        tools = shop.view("desk").tools
        found = stored(shop, "select count(*) from tickets")
        shop.refresh()
        left = stored(shop, "select count(*) from drafts")

    assert "clear" in tools
    assert (found, left) == ([(3,)], [(3,)])


def test_variants_must_return_the_same_columns(desks: OpenDesk, dialect: str) -> None:
    sql = (
        f"{HEADER}-- param by: text?  Who.\nupdate tickets set title = 'x' where id = 1\n"
        "returning id /*? , :by as name ?*/"
    )
    with desks(dialect, sql) as shop:
        told = problems(shop)

    assert told == ["query smuggle is withdrawn: Its columns must not depend on its optional clauses."]


def test_change_after_a_with_returns_its_rows(desks: OpenDesk, dialect: str) -> None:
    sql = """
-- name: close_oldest
-- description: d.
-- writes: 1
-- param region: text  Of which region.
with oldest as (select min(id) as id from tickets where region = :region)
update tickets set status = 'closed' where id = (select id from oldest)
returning tickets.id, upper(title) as title, (select count(*) from drafts) as drafts
"""
    with desks(dialect, sql) as shop:
        answer = answered(shop, "close_oldest", {"region": "south"}, **DESK)

    assert answer["columns"] == ["id", "title", "drafts"]
    assert answer["rows"] == [[3, "SCREEN", 3]]


def test_upsert_is_a_change(desks: OpenDesk, dialect: str) -> None:
    sql = """
-- name: keep_draft
-- description: d.
-- writes: 1
-- param id: integer  Which.
-- param body: text  What.
insert into drafts (id, ticket_id, body) values (:id, 2, :body)
on conflict (id) do update set body = excluded.body
returning *
"""
    with desks(dialect, sql) as shop:
        first = shop.rows("keep_draft", {"id": 9, "body": "a"}, **DESK)
        second = shop.rows("keep_draft", {"id": 9, "body": "b"}, **DESK)
        told = known_of(shop)["keep_draft"]["changes"]

    assert (first, second) == ([[9, 2, "a"]], [[9, 2, "b"]])
    assert told == ["inserts into drafts", "updates drafts (body)"]
