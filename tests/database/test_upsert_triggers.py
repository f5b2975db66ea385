"""Upserts of a table with triggers: the answer is what is stored, or nothing is changed."""

from typing import Any

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.role_callers import Caller
from tests.database.written_journal import writing

TABLE = """
create table things (id integer primary key, v text, w text not null default 'kept');
insert into things values (1, 'one', 'kept'), (2, 'two', 'kept');
"""
STORED = [(1, "one", "kept"), (2, "two", "kept")]
GRANT = GrantSection(insert=True, update=("v",), where="w <> 'hidden'")
EXISTING, NEW = {"id": 1, "v": "new"}, {"id": 9, "v": "new"}


def _function(body: str, when: str) -> str:
    return f"""
    create function act() returns trigger language plpgsql as $$ begin {body} return new; end $$;
    create trigger acting {when} on things for each row execute function act();
    """


def _trigger(body: str, when: str) -> str:
    return f"create trigger acting {when} on things begin {body}; end;"


#: DDL by dialect, a row, and the row in the answer, which is then stored; or the code of the error.
CASES: dict[str, tuple[dict[str, str], dict[str, Any], list[object] | str]] = {
    "insert is suppressed": (
        {
            "postgresql": _function("return null;", "before insert"),
            "sqlite": _trigger("select raise(ignore)", "before insert"),
        },
        NEW,
        "constraint",
    ),
    "update is suppressed": (
        {
            "postgresql": _function("return null;", "before update"),
            "sqlite": _trigger("select raise(ignore)", "before update"),
        },
        EXISTING,
        "constraint",
    ),
    "update hides the row": (
        {
            "postgresql": _function("new.w = 'hidden';", "before update"),
            "sqlite": _trigger("update things set w = 'hidden' where id = new.id", "after update of v"),
        },
        EXISTING,
        "denied",
    ),
    "insert gets another key": ({"postgresql": _function("new.id = 1;", "before insert")}, NEW, "constraint"),
    "insert would change another column": (
        {
            "postgresql": _function("new.w = 'changed';", "before insert"),
            "sqlite": _trigger("update things set w = 'changed' where id = new.id", "after insert"),
        },
        EXISTING,
        [1, "new", "kept"],
    ),
    "update changes another column": (
        {
            "postgresql": _function("new.w = 'changed';", "before update"),
            "sqlite": _trigger("update things set w = 'changed' where id = new.id", "after update of v"),
        },
        EXISTING,
        [1, "new", "changed"],
    ),
    "rule beside the insert": (
        {"postgresql": "create rule also as on insert to things do also select 1"},
        NEW,
        "refused",
    ),
}


@pytest.mark.parametrize(
    ("case", "dialect"),
    [
        pytest.param(name, dialect, id=f"{name}-{dialect}")
        for name, case in CASES.items()
        for dialect in case[0]
    ],
)
def test_answer_is_what_is_stored_or_nothing_is_changed(case: str, dialect: str, serve: Serve) -> None:
    ddl, row, expected = CASES[case]
    with serve(dialect, TABLE + ddl[dialect]) as shop, writing(shop, GRANT) as caller:
        found = _answer(caller, row)
        stored = shop.bare.rows("select * from things order by id")

    assert found == expected
    if isinstance(expected, str):
        assert stored == STORED
    else:
        assert tuple(expected) in stored


def _answer(caller: Caller, row: dict[str, Any]) -> object:
    """Return the row in the answer, or the code of the error."""
    try:
        answer: Any = caller.call("insert_things", rows=[row], on_conflict="update")
    except errors.CallError as exc:
        return exc.code if "Nothing was changed." in str(exc) else str(exc)
    (found,) = answer["rows"]
    return found
