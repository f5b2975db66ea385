"""Permitted queries through a real server, on both databases: listed, called, refused, and logged."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema

from tests.protocol.client import spawn

DDL = """
create table note (id integer primary key, author text not null, body text not null);
insert into note values (1, 'ann', 'one'), (2, 'bob', 'two'), (3, 'ann', 'three');
"""

SECRET = "tell-nobody"
QUERIES = """
-- name: notes_by
-- title: Notes of somebody
-- description: Notes by an author.
-- param author: text  Who wrote them.
-- param ids: integer[]?
select id, body from note where author = :author /*? and id in (:ids) ?*/ order by id

-- name: my_notes
-- description: The caller's own notes.
-- param limit_to: integer? max 9
select id from note where author = :claims.author /*? and id <= :limit_to ?*/ order by id

-- name: broken
-- description: Of a table that is not there.
select id from nothing_at_all

-- name: hidden
-- description: What the role has not.
select id from note
"""
ROLES = """
[roles.reader]
tables.note = true
queries = ["notes_by", "my_*", "broken"]
"""


async def test_queries_are_listed_called_refused_and_logged_without_values(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "notes.sql").write_text(QUERIES)
    path = tmp_path / "dbtools.toml"
    sections = '[queries]\ndirectory = "queries"\n[log]\nfile = "calls.jsonl"\n'
    path.write_text(f'[database]\nurl = "{sqlite_database(DDL)}"\n{sections}{ROLES}')
    options = ("--role", "reader", "--claim", "author=ann")
    async with spawn(path, tmp_path, options=options) as client:
        tools = {each["name"]: each for each in await client.list_all("tools/list", "tools")}
        found = await client.call("notes_by", {"author": "ann", "ids": [1, 2]})
        nested = {"query": "notes_by", "arguments": {"author": "ann", "ids": "[1,2]"}}
        by_name = await client.call("run_query", nested)
        mine = await client.call("my_notes")
        wrong = await client.call("my_notes", {"limit_to": 4711})
        gone, never, broken = [
            await client.error("tools/call", {"name": name, "arguments": {}})
            for name in ("hidden", "hiding", "broken")
        ]
        await client.call("run_query", {"query": SECRET, "arguments": {"author": "ann", SECRET: SECRET}})
        client.hang_up()
        assert await client.status() == 0
    text = (tmp_path / "calls.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]

    assert [name for name in tools if name in ("my_notes", "notes_by")] == ["my_notes", "notes_by"]
    assert not {"broken", "hidden", "find_queries", "run_query"} & set(tools)
    assert tools["notes_by"]["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert found["structuredContent"]["rows"] == [[1, "one"]]
    jsonschema.Draft202012Validator(tools["notes_by"]["outputSchema"]).validate(found["structuredContent"])
    assert found["structuredContent"] == by_name["structuredContent"]
    assert mine["structuredContent"]["rows"] == [[1], [3]]
    assert wrong["isError"] is True
    assert gone["code"] == never["code"] == broken["code"] == -32602
    assert gone["message"].replace("hidden", "…") == never["message"].replace("hiding", "…")
    assert "nothing_at_all" not in str(broken)
    assert "query broken is withdrawn" in client.log.read_text()
    assert [(each["tool"], each["outcome"], each["rows"], each["arguments"]) for each in entries] == [
        ("notes_by", "ok", 1, {"author": "…", "ids": ["…", "…"]}),
        ("run_query", "ok", 1, {"query": "notes_by", "arguments": {"author": "…", "ids": "…"}}),
        ("my_notes", "ok", 2, {}),
        ("my_notes", "error", None, {"limit_to": "…"}),
        *((name, "error", None, {}) for name in ("hidden", "hiding", "broken")),
        ("run_query", "error", None, {"query": "…", "arguments": {"author": "…", "…": "…"}}),
    ]
    assert SECRET not in text
