"""Permitted queries that change rows, from the shell: in a registry, in the audit log, and with --write."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.protocol.command_line import run

DDL = """
create table things (id integer primary key, name text);
insert into things values (1, 'one'), (2, 'two');
"""
RENAME = """-- name: rename_thing
-- description: Rename a thing.
-- writes: 1
-- param id: integer  Which.
-- param name: text  Its new name.
update things set name = :name where id = :id returning id, name
"""
ARGUMENTS = {"id": 1, "name": "uno"}


@pytest.fixture
def url(url_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a database on each dialect; the query is in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rename.sql").write_text(RENAME)
    return url_of(DDL)


def test_registry_query_writes_only_where_the_database_is_writable(url: str) -> None:
    assert run("registry", "upgrade", url).exit_code == 0
    added = run("query", "add", url, "rename.sql")
    without = run("call", url, "rename_thing", json.dumps(ARGUMENTS))
    made = run("call", url, "rename_thing", json.dumps(ARGUMENTS), "--write", "--json")

    assert (added.exit_code, added.stdout) == (0, "rename_thing: version 1\n")
    assert without.exit_code == 2
    assert "rename_thing changes rows, which needs [database] writable = true" in without.stderr
    assert json.loads(made.stdout)["rows"] == [[1, "uno"]]


def test_registry_that_roles_do_not_name_defines_no_change(url: str, tmp_path: Path) -> None:
    assert run("registry", "upgrade", url).exit_code == 0
    assert run("query", "add", url, "rename.sql").exit_code == 0
    path = tmp_path / "dbtools.toml"
    path.write_text(f"[database]\nurl = {json.dumps(url)}\n[roles.desk]\nqueries = ['*']\n")
    unnamed = run("tools", str(path), "--role", "desk", "--json")
    path.write_text(f"{path.read_text()}[registry]\nurl = {json.dumps(url)}\n")
    named = run("tools", str(path), "--role", "desk", "--json")

    listed = [{each["name"] for each in json.loads(result.stdout)} for result in (unnamed, named)]
    assert ["rename_thing" in names for names in listed] == [False, True]


def test_log_has_the_rows_that_a_query_changed(url: str, tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "rename.sql").write_text(RENAME)
    path = tmp_path / "dbtools.toml"
    path.write_text(
        f"[database]\nurl = {json.dumps(url)}\nwritable = true\n[queries]\ndirectory = 'queries'\n"
        "[log]\nfile = 'calls.jsonl'\nchanges = true\n"
    )
    nested = {"query": "rename_thing", "arguments": {**ARGUMENTS, "dry_run": True}}
    run("call", str(path), "rename_thing", json.dumps(ARGUMENTS))
    run("call", str(path), "run_query", json.dumps(nested))
    run("call", str(path), "run_query", json.dumps({**nested, "arguments": {"id": 1, "dry_run": True}}))
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    listed = run("log", str(path), "--writes", "--json").stdout

    shown = [(each["tool"], each["affected"], each["dry_run"], each["changes"]) for each in lines]
    assert shown == [
        ("rename_thing", 1, False, None),
        ("run_query", 1, True, None),
        ("run_query", None, True, None),
    ]
    assert '"rename_thing"' in listed
