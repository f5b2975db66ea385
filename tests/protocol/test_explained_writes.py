"""`dbtools explain` of calls that change rows: their statements, their checks, and the rule that decides."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.command_line import run

DDL = """
create table ticket (
    id integer primary key, title text not null, status text not null, region text not null, cost integer,
    note text
);
insert into ticket values
    (1, 'Lamp', 'open', 'north', 11223344, null), (2, 'Rope', 'open', 'south', 55667788, null);
"""
ROLES = """
[policy]
claims = { region = "text", most = "integer" }
[roles.support]
tables."*" = false
[roles.support.tables.ticket]
exclude = ["cost"]
where = "region = :claims.region"
insert = ["id", "title", "status", "note"]
update = ["status"]
delete = true
check = "status <> 'gone' and id <= :claims.most"
preset = { region = ":claims.region" }
preset_update = { title = "Closed" }
"""
CLAIMS = ("--claim", "region=north", "--claim", "most=99")
ROLE, RULE = ({"file": "policy.toml", "line": line} for line in (6, 8))


@pytest.fixture
def path(url_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a configuration of a database of each dialect, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text(f'[database]\nurl = "{url_of(DDL)}"\n{ROLES}')
    return "policy.toml"


def _explained(
    path: str, tool: str, arguments: object, claims: tuple[str, ...] = CLAIMS
) -> Mapping[str, Any]:
    result = run("explain", path, "--role", "support", *claims, tool, json.dumps(arguments), "--json")
    assert result.exit_code == 0
    # Nothing is read: no value of a row can appear.
    assert not any(each in result.stdout for each in ("Lamp", "Rope", "11223344", "55667788", "cost"))
    found: Mapping[str, Any] = json.loads(result.stdout)
    return found


def _verbs(found: Mapping[str, Any]) -> list[str]:
    return [each.split()[0] for each in _statements(found)]


def _statements(found: Mapping[str, Any]) -> list[str]:
    statements: list[str] = found["sql"].split(";\n")
    return statements


@pytest.mark.parametrize(
    ("tool", "arguments", "verbs", "parameters", "reason"),
    [
        pytest.param(
            *("update_ticket", {"id": 1, "set": {"status": "done"}, "expected": {"status": "open"}}),
            ["SELECT", "UPDATE", "SELECT", "SELECT"],
            ["Closed", "done", 1, "open", "north"],
            "The role may update {}; rows must pass its check; title is preset.",
            id="update",
        ),
        pytest.param(
            *("insert_ticket", {"rows": [{"id": 3, "title": "Tent", "status": "new"}]}),
            ["INSERT", "SELECT", "SELECT"],
            ["Tent", "new", "north", 3],
            "The role may insert {}; rows must pass its check; region is preset.",
            id="insert",
        ),
        pytest.param(
            *("delete_rows", {"table": "ticket", "key": {"id": 1}, "dry_run": True}),
            ["SELECT", "DELETE"],
            ["north", 1],
            "The role may delete {}.",
            id="delete",
        ),
    ],
)
def test_allowed_change_is_explained_by_its_rule_and_all_its_statements(
    path: str, tool: str, arguments: object, verbs: list[str], parameters: list[object], reason: str
) -> None:
    found = _explained(path, tool, arguments)

    assert (found["allowed"], found["rule"]) == (True, RULE)
    assert found["reason"] == reason.format("rows of ticket and read the rows of ticket that pass its filter")
    assert _verbs(found) == verbs
    assert sorted(map(str, found["parameters"])) == sorted(map(str, parameters))
    checked = ["status <> 'gone'" in each for each in _statements(found)]
    assert checked == [False] * (len(verbs) - 1) + ["DELETE" not in verbs]
    filtered = ["region = " in each for each in _statements(found)]
    assert filtered == [verb != "INSERT" and not check for verb, check in zip(verbs, checked, strict=True)]


def test_upsert_is_explained_with_what_finds_the_row(path: str) -> None:
    row = {"id": 3, "title": "Tent", "status": "new"}
    found = _explained(path, "insert_ticket", {"rows": [row], "on_conflict": "ignore"})
    refused = _explained(path, "insert_ticket", {"rows": [row], "on_conflict": "update"})

    first, *others = _statements(found)
    assert first.startswith("SELECT")
    assert "region = " in first
    assert {"INSERT", "SELECT"} == {each.split()[0] for each in others}
    assert (refused["allowed"], refused["sql"]) == (False, None)


def test_rows_of_the_same_columns_share_one_statement(path: str) -> None:
    row = {"id": 3, "title": "Tent", "status": "new"}
    found = _explained(path, "insert_ticket", {"rows": [row, {**row, "id": 4}]})
    differing = _explained(path, "insert_ticket", {"rows": [row, {**row, "id": 4, "note": "x"}]})

    assert _verbs(found) == ["INSERT", "SELECT", "SELECT"]
    assert _verbs(differing) == ["INSERT", "SELECT", "SELECT", "INSERT"]
    assert sorted(map(str, found["parameters"])) == ["3", "Tent", "new", "north"]


UPDATE = ("update_ticket", {"id": 1, "set": {"status": "done"}})
INSERT = ("insert_ticket", {"rows": [{"id": 3, "title": "Tent", "status": "new"}]})
WITHOUT = "requires the claim most, which is missing."


@pytest.mark.parametrize(
    ("call", "claims", "reason"),
    [
        pytest.param(UPDATE, CLAIMS[:2], f"The check of ticket {WITHOUT}", id="claim of the check"),
        pytest.param(
            UPDATE,
            CLAIMS[2:],
            "The rows of ticket are filtered by the claim region, which is missing.",
            id="claim of the filter",
        ),
        pytest.param(
            INSERT,
            CLAIMS[2:],
            "region is preset to the claim region, which is missing.",
            id="claim of a preset",
        ),
        pytest.param(
            ("update_ticket", {"id": 1, "set": {"title": "x"}}),
            CLAIMS,
            "set takes no column 'title'. Columns: status.",
            id="column that is preset",
        ),
        pytest.param(
            ("delete_rows", {"table": "tickets", "key": {"id": 1}}),
            CLAIMS,
            "there is no table 'tickets'",
            id="no table",
        ),
    ],
)
def test_refused_change_is_explained_without_a_statement(
    path: str, call: tuple[str, object], claims: tuple[str, ...], reason: str
) -> None:
    found = _explained(path, *call, claims)

    assert (found["allowed"], found["sql"], found["parameters"]) == (False, None, [])
    assert reason in found["reason"]
    assert found["rule"] == (ROLE if "no table" in reason else RULE)


def test_delete_needs_no_claim_of_the_check(path: str) -> None:
    assert _explained(path, "delete_ticket", {"id": 1}, CLAIMS[:2])["allowed"] is True
