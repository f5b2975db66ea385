"""A permitted query changes rows as its author wrote it, within its limit, and only for its roles."""

from collections.abc import Mapping

from dbtools.alembic import upgrade
from tests.database.helpdesk import CLOSE, DESK, NOTE, OpenDesk, answered, problems, stored

STATES = "select id, status, closed_by from tickets order by id"


def test_returned_rows_are_the_result(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        answer = answered(shop, "close_ticket", {"ids": [1, 3], "by": "ann"}, **DESK)
        found = stored(shop, STATES)

    assert answer == {
        "affected": 1,
        "dry_run": False,
        "columns": ["id", "title", "status"],
        "rows": [[1, "Printer", "closed"]],
    }
    assert found == [(1, "closed", "ann"), (2, "open", None), (3, "open", None)]


def test_optional_clause_is_left_out(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        shop.call("close_ticket", {"ids": [1]}, **DESK)
        found = stored(shop, STATES)

    assert found[0] == (1, "closed", None)


def test_query_without_returning_counts_its_rows(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        answer = answered(shop, "add_note", {"body": "it's; done -- really"}, **DESK)
        found = shop.rows("notes_kept", {}, **DESK)

    assert answer == {"affected": 1, "dry_run": False, "columns": [], "rows": []}
    assert found == [["it's; done -- really"]]


def test_more_rows_than_allowed_are_not_changed(desks: OpenDesk, dialect: str) -> None:
    every = "-- name: close_all\n-- description: d.\n-- writes: 2\nupdate tickets set status = 'closed'"
    with desks(dialect, f"{every};\n{every.replace('close_all', 'return_all')}\nreturning id") as shop:
        refusals = [shop.refusal(name, {}, **DESK) for name in ("close_all", "return_all")]
        found = stored(shop, STATES)

    assert (
        refusals
        == [
            "too_many_rows: The query would change more than 2 rows. Nothing was changed. "
            "Use arguments that select fewer rows."
        ]
        * 2
    )
    assert {status for _, status, _ in found} == {"open"}


def test_dry_run_changes_nothing_and_counts_rows_elsewhere(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        answer = answered(shop, "close_ticket", {"ids": [1, 2], "dry_run": True}, **DESK)
        found = stored(shop, STATES)

    assert (answer["affected"], answer["dry_run"], len(answer["rows"])) == (2, True, 2)
    assert "rows elsewhere" in str(answer["note"])
    assert {status for _, status, _ in found} == {"open"}


def test_change_is_made_once_it_is_confirmed(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        preview = answered(shop, "remove_ticket", {"id": 1}, **DESK)
        before = stored(shop, "select count(*) from tickets")
        token = preview["confirm"]
        made = answered(shop, "remove_ticket", {"id": 1, "confirm": token}, **DESK)
        again = shop.refusal("remove_ticket", {"id": 1, "confirm": token}, **DESK)
        after = stored(shop, "select count(*) from tickets")
        drafts = stored(shop, "select id from drafts")

    assert preview["affected"] == 0
    assert preview["preview"]["affected"] == 1
    assert "rows elsewhere" in preview["preview"]["note"]
    assert (before, after, drafts) == ([(3,)], [(2,)], [(3,)])
    assert made == {"affected": 1, "dry_run": False, "columns": ["id"], "rows": [[1]]}
    assert again.startswith("not_confirmed")


def test_question_shows_what_a_query_is_called_with(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        answer = shop.call("remove_ticket", {"id": 2}, **DESK)

    assert answer.pending is not None
    assert answer.pending.question.startswith("Run the query remove_ticket with id 2, which changes 1 row?")


def test_confirmation_by_one_tool_holds_for_the_other(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        token = answered(shop, "remove_ticket", {"id": 2}, **DESK)["confirm"]
        asked = {"query": "remove_ticket", "arguments": {"id": 2, "confirm": token}}
        made = answered(shop, "run_query", asked, **DESK)

    assert made["affected"] == 1


def test_confirmation_is_asked_again_if_the_change_differs(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        token = answered(shop, "remove_ticket", {"id": 1}, **DESK)["confirm"]
        shop.bare.execute("delete from drafts where id = 1")
        answer = answered(shop, "remove_ticket", {"id": 1, "confirm": token}, **DESK)
        found = stored(shop, "select count(*) from tickets")

    assert answer["affected"] == 0
    assert answer["confirm"] != token
    assert found == [(3,)]


def test_idempotency_key_makes_a_change_once(desks: OpenDesk, dialect: str) -> None:
    key = {"body": "once", "idempotency_key": "k"}
    with desks(dialect) as shop:
        without = [
            shop.refusal("add_note", key, **DESK),
            shop.refusal("run_query", {"query": "add_note", "arguments": key}, **DESK),
        ]
        upgrade(shop.bare_url)
        shop.refresh()
        first = answered(shop, "add_note", key, **DESK)
        again = answered(shop, "run_query", {"query": "add_note", "arguments": key}, **DESK)
        other = shop.refusal("add_note", {**key, "body": "twice"}, **DESK)
        found = shop.rows("notes_kept", {}, **DESK)

    unknown = "unknown_argument: There is no argument 'idempotency_key'. Arguments: body, dry_run."
    assert without == [unknown] * 2
    assert first["affected"] == again["affected"] == 1
    assert "rows are not shown" in str(again["note"])
    assert other.startswith("conflict")
    assert found == [["once"]]


def test_missing_claim_denies_the_call(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        refusal = shop.refusal("close_ticket", {"ids": [1]}, role="desk")

    assert refusal.startswith("denied")


def test_role_without_the_grant_has_no_tool(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        tools = set(shop.view("reader").tools)
        definition = shop.view("reader").tools["run_query"].definition

    assert tools == {"find_queries", "run_query", "notes_kept"}
    assert definition.annotations["readOnlyHint"] is True


def test_annotations_are_accurate(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        tools = shop.view("desk").tools
        names = ("close_ticket", "remove_ticket", "add_note", "notes_kept", "run_query", "find_queries")
        hints = {name: tools[name].definition.annotations for name in names}

    shown = {name: (each["readOnlyHint"], each.get("destructiveHint", False)) for name, each in hints.items()}
    assert shown == {
        "close_ticket": (False, True),
        "remove_ticket": (False, True),
        "add_note": (False, False),
        "notes_kept": (True, False),
        "run_query": (False, True),
        "find_queries": (True, False),
    }


def test_description_and_arguments_say_what_a_query_changes(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        tools = shop.view("desk").tools
        closing, removing = (tools[name].definition for name in ("close_ticket", "remove_ticket"))
        first, second = (each.input_schema["properties"] for each in (closing, removing))
        listed = answered(shop, "find_queries", {"search": "close"}, **DESK)["queries"]

    assert closing.description == (
        "Close open tickets of the caller's region. Changes at most 2 rows, all or none; "
        "returns id, title, status."
    )
    assert isinstance(first, Mapping)
    assert isinstance(second, Mapping)
    assert list(first) == ["ids", "by", "dry_run"]
    assert list(second) == ["id", "dry_run", "confirm"]
    assert listed[0]["writes"] == 2


def test_without_roles_a_query_writes_only_if_the_database_is_writable(desks: OpenDesk, dialect: str) -> None:
    shown = '[tables.tickets.columns]\nsecret = "of the desk"\n'
    with desks(dialect, NOTE, shown) as shop:
        tools, told = set(shop.view().tools), problems(shop, "default")

    assert "add_note" not in tools
    assert told == [
        "query add_note changes rows, which needs [database] writable = true (--write), "
        "or a role with this query."
    ]


def test_explain_shows_the_statement(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        found = shop.explain("close_ticket", {"ids": [1]}, **DESK)
        denied = shop.explain("close_ticket", {"ids": [1]}, role="desk")

    assert found.allowed
    assert "update tickets set status = 'closed'" in str(found.sql)
    assert not denied.allowed
    assert "requires the claim region" in denied.reason


def test_constraint_names_nothing_of_the_tables(desks: OpenDesk, dialect: str) -> None:
    sql = """
-- name: set_status
-- description: d.
-- writes: 1
-- param status: text  Which.
update tickets set status = :status where id = 1"""
    with desks(dialect, sql) as shop:
        refusal = shop.refusal("set_status", {"status": "lost"}, **DESK)

    assert refusal == (
        "constraint: A rule of the database does not allow this change. Nothing was changed. "
        "Arguments: status (text)."
    )


def test_query_is_withdrawn_while_its_table_is_missing(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect, NOTE) as shop:
        shop.view("desk")
        shop.bare.execute("alter table notes rename to other")
        shop.refresh()
        without = "add_note" in shop.view("desk").tools
        shop.bare.execute("alter table other rename to notes")
        shop.refresh()
        again = answered(shop, "add_note", {"body": "x"}, **DESK)

    assert not without
    assert again["affected"] == 1


def test_no_clause_may_select_too_much(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect, CLOSE.replace("closed_by = :by", "missing = :by")) as shop:
        told = problems(shop)

    assert len(told) == 1
    assert "close_ticket is withdrawn" in told[0]


def test_unknown_argument_is_refused_with_those_that_are_listed(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        reasons = [shop.refusal(name, {"idd": 1}, **DESK) for name in ("remove_ticket", "add_note")]

    assert [each.rpartition("Arguments: ")[2] for each in reasons] == [
        "id, dry_run, confirm.",
        "body, dry_run.",
    ]
