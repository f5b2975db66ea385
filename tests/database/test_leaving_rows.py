"""`after` in a grant: a row may leave the rows that the role sees, as in a soft delete."""

import json
from pathlib import Path

import pytest

from tests.database.shop import Serve
from tests.protocol.command_line import run

DDL = """
    create table notes (id integer primary key, org integer, body text unique, deleted_at timestamp);
    insert into notes values
        (1, 1, 'a', null), (2, 1, 'b', null), (3, 2, 'c', null), (4, 1, 'd', '2026-01-01 00:00:00');
"""
NOW = "2026-02-03T00:00:00"


CONFIGURATION = """
[database]
url = "{url}"
[policy.claims]
org = "integer"
[roles.u.tables]
notes = {{ {rest} }}
"""


def test_log_and_question_have_the_row_that_leaves(serve: Serve, tmp_path: Path) -> None:
    path, log = tmp_path / "dbtools.toml", tmp_path / "calls.jsonl"
    rest = 'where = "org = :claims.org and deleted_at is null", after = "org = :claims.org", '
    rest += 'update = ["deleted_at"], confirm = true'
    logged = f'[log]\nfile = "{log}"\nchanges = true\n'
    with serve("sqlite", DDL) as shop:
        path.write_text(CONFIGURATION.format(url=shop.url, rest=rest) + logged)
        checked = run("check", str(path))
        call = ["call", str(path), "--role", "u", "--claim", "org=1", "update_notes", "id=1", "--json"]
        preview = run(*call, f'set={{"deleted_at": "{NOW}"}}')
        explained = run("explain", str(path), "--role", "u", *call[6:8], f'set={{"deleted_at": "{NOW}"}}')

    [entry] = [json.loads(line) for line in log.read_text().splitlines()]
    assert checked.exit_code == 0
    assert json.loads(preview.stdout)["preview"]["affected"] == 1
    assert entry["changes"] == [
        {"key": {"id": 1}, "old": {"deleted_at": None}, "new": {"deleted_at": "2026-02-03 00:00:00"}}
    ]
    assert "the claim org, which is missing" in explained.stdout


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ('after = "true", update = true', "after: it replaces where after a change, and there is no where"),
        ('where = "id > 0", after = "true"', "after: nothing may be changed"),
        ('where = "id > 0", after = "nothing > 0", update = true', "after"),
        ('columns = [], insert = ["id"]', "the role sees no column of it"),
    ],
)
def test_check_reports_what_has_no_effect(serve: Serve, tmp_path: Path, rest: str, says: str) -> None:
    path = tmp_path / "dbtools.toml"
    with serve("sqlite", DDL) as shop:
        path.write_text(CONFIGURATION.format(url=shop.url, rest=rest))
        checked = run("check", str(path))

    assert checked.exit_code == 1
    assert any(says in line and f"{path}:7: error" in line for line in checked.stdout.splitlines()), (
        checked.stdout
    )
