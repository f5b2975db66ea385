"""The audit log of rows that leave the rows that the role sees: what the call has set, and nothing hidden."""

from collections.abc import Mapping, Sequence

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.logged_calls import Logged
from tests.database.written_shop import Opens

DDL = """
    create table notes (
        id integer primary key, org integer, body text unique, secret_note text default 'hidden', gone text
    );
    insert into notes (id, org, body) values (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c');
"""
NOTES = GrantSection(
    exclude=("secret_note",),
    where="org = 1 and gone is null",
    after="org in (1, 9)",
    insert=("id", "org", "body", "gone"),
    update=("body", "gone", "org"),
    delete=True,
    max_affected=10,
)
SOME = [{"column": "id", "op": "lt", "value": 3}]
KEYED = [{"id": 1, "gone": "x"}, {"id": 2, "body": "n"}]
UPSERT = [
    {"id": 1, "org": 1, "body": "a", "gone": "x"},
    {"id": 2, "org": 1, "body": "n", "gone": None},
    {"id": 8, "org": 9, "body": "h", "gone": None},
]
Change = Mapping[str, object]


def change(id: int, old: Change | None, new: Change | None) -> Change:
    return {"key": {"id": id}, "old": old, "new": new}


@pytest.mark.parametrize(
    ("tool", "arguments", "changes"),
    [
        pytest.param(
            "update_notes",
            {"id": 1, "set": {"gone": "x", "body": "a"}},
            [change(1, {"gone": None}, {"gone": "x"})],
            id="one row leaves",
        ),
        pytest.param(
            "update_rows",
            {"table": "notes", "where": SOME, "set": {"gone": "x"}},
            [change(id, {"gone": None}, {"gone": "x"}) for id in (1, 2)],
            id="chosen rows leave",
        ),
        pytest.param(
            "update_rows",
            {"table": "notes", "rows": KEYED},
            [change(2, {"body": "b"}, {"body": "n"}), change(1, {"gone": None}, {"gone": "x"})],
            id="one of several leaves",
        ),
        pytest.param(
            "insert_notes",
            {"rows": [{"id": 8, "org": 9, "body": "h"}]},
            [change(8, None, {"id": 8, "org": 9, "body": "h"})],
            id="inserted row leaves",
        ),
        pytest.param(
            "insert_notes",
            {"rows": UPSERT, "on_conflict": "update", "conflict_key": ["id"]},
            [
                change(2, {"body": "b"}, {"body": "n"}),
                change(1, {"gone": None}, {"gone": "x"}),
                change(8, None, {"id": 8, "org": 9, "body": "h", "gone": None}),
            ],
            id="upsert",
        ),
        pytest.param(
            "delete_notes",
            {"id": 1},
            [change(1, {"id": 1, "org": 1, "body": "a", "gone": None}, None)],
            id="deletion",
        ),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_row_that_leaves_is_logged_with_what_the_call_has_set(
    tool: str,
    arguments: Mapping[str, object],
    changes: Sequence[Change],
    dry_run: bool,
    opened: Opens,
    dialect: str,
) -> None:
    with opened(dialect, {"notes": NOTES}, ddl=DDL) as (caller, _):
        line = Logged(caller=caller).call(tool, **arguments, dry_run=dry_run)

    assert (line["outcome"], line["changes"]) == ("ok", changes)
    assert line["affected"] == len(changes)


def test_row_that_leaves_is_logged_under_the_masks(opened: Opens, dialect: str) -> None:
    masked = NOTES.model_copy(update={"mask": {"body": Mask.HASH, "gone": Mask.PARTIAL, "org": Mask.NULL}})
    with opened(dialect, {"notes": masked}, ddl=DDL) as (caller, _):
        logged = Logged(caller=caller)
        updated = logged.call("update_notes", id=1, set={"gone": "sekret", "body": "sekret"})
        inserted = logged.call("insert_notes", rows=[{"id": 8, "org": 9, "body": "other"}])

    hidden = {"body": "***", "gone": "***"}
    assert updated["changes"] == [change(1, hidden, hidden)]
    assert inserted["changes"] == [change(8, None, {"id": 8, "org": None, "body": "***"})]


#: A trigger copies a hidden column into columns that the role sees.
COPIES = {
    "sqlite": """
    create trigger t after insert on notes begin
        update notes set gone = secret_note where id = new.id;
    end;
    """,
    "postgresql": """
    create function f() returns trigger language plpgsql as $$
    begin new.gone := new.secret_note; return new; end $$;
    create trigger t before insert on notes for each row execute function f();
    """,
}


def test_what_a_hidden_row_gets_besides_reaches_neither_log_nor_caller(opened: Opens, dialect: str) -> None:
    row = {"id": 8, "org": 1, "body": "h"}
    with opened(dialect, {"notes": NOTES}, ddl=DDL + COPIES[dialect]) as (caller, _):
        answer = caller.call("insert_notes", rows=[row], dry_run=True)
        line = Logged(caller=caller).call("insert_notes", rows=[row])

    assert line["changes"] == [change(8, None, row)]
    assert (answer["affected"], answer["rows"]) == (1, [])
    assert "hidden" not in str([line, answer])
