"""Callers' SQL that compares a masked column gets a note, which says nothing of what is stored."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.port import Backend
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import load

DDL = """
create table users (id integer primary key, email text, due text, password text);
insert into users values
    (1, 'a@example.com', '2025-03-01', 'hunter2'), (2, 'b@example.com', '2025-04-01', 'x');
"""
ROLE = '[roles.clerk]\nsql = true\ntables.users = { mask = { email = "partial", due = "null" } }\n'
AS_SHOWN = "is masked: conditions and functions use what is shown, not what is stored."
ALL_AS_SHOWN = f"email, due, password {AS_SHOWN.replace('is', 'are', 1)}"
SHOWN = [[1, "a…@example.com"], [2, "b…@example.com"]]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def toolbox(
    request: pytest.FixtureRequest, portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Toolbox]:
    folder = tmp_path_factory.mktemp("masks")

    async def opened() -> tuple[Toolbox, Backend]:
        return open_toolbox(load(folder / "dbtools.toml"))

    with ExitStack() as stack:
        url = _open_postgresql(request, stack) if request.param == "postgresql" else _sqlite(folder)
        (folder / "dbtools.toml").write_text(f'[database]\nurl = "{url}"\n{ROLE}')
        toolbox, backend = portal.call(opened)
        yield toolbox
        portal.call(backend.close)


def _sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "users.db")) as connection:
        connection.executescript(DDL)
    return "users.db"


def _open_postgresql(request: pytest.FixtureRequest, stack: ExitStack) -> str:
    database: Callable[[str], AbstractContextManager[str]] = request.getfixturevalue("postgresql_database")
    login: Callable[[str, str], AbstractContextManager[str]] = request.getfixturevalue("postgresql_login")
    owner = stack.enter_context(database(DDL))
    return stack.enter_context(login(owner, "grant select on users to {}"))


@pytest.mark.parametrize(
    ("sql", "rows", "note"),
    [
        ("select id, email from users where email = 'a@example.com'", [], f"email {AS_SHOWN}"),
        ("select id, email from users where email = 'z@example.com'", [], f"email {AS_SHOWN}"),
        ("select count(*) from users where due > '2025-03-01'", [[0]], f"due {AS_SHOWN}"),
        ("select length(password), id from users where id = 1", [[3, 1]], f"password {AS_SHOWN}"),
        ("select id, email from users order by 2 desc", SHOWN[::-1], f"email {AS_SHOWN}"),
        ("select email = 'a…@example.com' from users where id = 2", [[False]], f"email {AS_SHOWN}"),
        ("select u.id, email from users u join users v using (id, email)", SHOWN, f"email {AS_SHOWN}"),
        ("select count(*) from users natural join users as v", [[0]], ALL_AS_SHOWN),
        (
            "with u (a, b, c, d) as (select * from users) select a from u where b like 'a…%'",
            [[1]],
            ALL_AS_SHOWN,
        ),
        ("select id, email from users where id = 1", [[1, "a…@example.com"]], None),
    ],
)
def test_note_says_that_a_condition_sees_what_a_mask_shows(
    sql: str, rows: list[object], note: str | None, toolbox: Toolbox, portal: BlockingPortal
) -> None:
    answer = portal.call(toolbox.call, Caller(role="clerk"), "run_sql", {"sql": sql}).structured

    assert (answer["rows"], answer.get("note")) == (rows, note)
