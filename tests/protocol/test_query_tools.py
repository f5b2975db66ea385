"""Permitted queries through a real server, on both databases: listed, called, refused, and logged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.protocol.client import HANDSHAKES, MODERN, spawn

SECRET = "tell-nobody"
DDL = """
create table note (id integer primary key, author text not null, body text not null);
insert into note values (1, 'ann', 'one'), (2, 'bob', 'two'), (3, 'ann', 'three');
"""
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


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Give the URL of a database of notes, on each dialect."""
    return url_of(DDL)


def _configured(folder: Path, url: str, more: str = "") -> Path:
    (folder / "queries").mkdir()
    (folder / "queries" / "notes.sql").write_text(QUERIES)
    path = folder / "dbtools.toml"
    log = '[log]\nfile = "calls.jsonl"\n'
    path.write_text(f'[database]\nurl = "{url}"\n[queries]\ndirectory = "queries"\n{log}{more}{ROLES}')
    return path


OPTIONS = ("--role", "reader", "--claim", "author=ann")
eras = pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])


def _text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@eras
async def test_queries_are_listed_and_called(url: str, version: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url)
    async with spawn(path, tmp_path, version=version, options=OPTIONS) as client:
        await client.open()
        tools = {each["name"]: each for each in await client.list_all("tools/list", "tools")}
        found = await client.call("notes_by", {"author": "ann", "ids": [1, 2]})
        by_name = await client.call(
            "run_query", {"query": "notes_by", "arguments": {"author": "ann", "ids": "[1,2]"}}
        )
        mine = await client.call("my_notes")
        searched = await client.call("find_queries", {"search": "author"})
        wrong = await client.call("notes_by", {"author": "ann", "ids": ["one"]})
        missing = await client.call("notes_by")
        unknown = await client.call("notes_by", {"auhtor": "ann"})
        over = await client.call("my_notes", {"limit_to": 10})
        gone = await client.request("tools/call", {"name": "hidden", "arguments": {}})
        never = await client.request("tools/call", {"name": "hiding", "arguments": {}})
        broken = await client.request("tools/call", {"name": "broken", "arguments": {}})

    tool = tools["notes_by"]
    assert [name for name in tools if name in ("my_notes", "notes_by")] == ["my_notes", "notes_by"]
    assert not {"broken", "hidden", "find_queries", "run_query"} & set(tools)
    assert (tool["title"], tool["annotations"]) == (
        "Notes of somebody",
        {"readOnlyHint": True, "openWorldHint": False},
    )
    assert tool["description"] == "Notes by an author. Rows of: id, body."
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "author": {"type": "string", "description": "Who wrote them."},
            "ids": {"type": "array", "items": {"type": "integer"}},
        },
        "additionalProperties": False,
        "required": ["author"],
    }
    assert found["structuredContent"] == {
        "row_count": 1,
        "truncated": False,
        "columns": ["id", "body"],
        "rows": [[1, "one"]],
    }
    jsonschema.Draft202012Validator(tool["outputSchema"]).validate(found["structuredContent"])
    assert json.loads(_text(found)) == found["structuredContent"] == by_name["structuredContent"]
    assert mine["structuredContent"]["rows"] == [[1], [3]]
    assert [each["query"] for each in searched["structuredContent"]["queries"]] == ["notes_by"]
    assert [(each["isError"], _text(each)) for each in (wrong, missing, unknown, over)] == [
        (True, "ids[0]: 'one' is not an integer such as 42."),
        (True, "author is missing. Expected: text. Who wrote them."),
        (True, "There is no argument 'auhtor'. Did you mean author? Arguments: author, ids."),
        (True, "limit_to cannot be '10'. Expected: integer, at most 9."),
    ]
    assert gone["error"]["code"] == never["error"]["code"] == broken["error"]["code"] == -32602
    assert gone["error"]["message"].replace("hidden", "…") == never["error"]["message"].replace("hiding", "…")
    assert "nothing_at_all" not in json.dumps(broken)
    assert "query broken is withdrawn" in client.log.read_text()


async def test_missing_claim_denies(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url)
    async with spawn(path, tmp_path, options=("--role", "reader")) as client:
        await client.open()
        denied = await client.call("my_notes")
        allowed = await client.call("notes_by", {"author": "bob"})

    assert (denied["isError"], _text(denied)) == (True, "The caller may not read this.")
    assert allowed["structuredContent"]["rows"] == [[2, "two"]]


async def test_queries_beyond_the_budget_are_found_and_run(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, '[tools]\nstyle = "typed"\nbudget = 10\n')
    async with spawn(path, tmp_path, options=OPTIONS) as client:
        await client.open()
        tools = [each["name"] for each in await client.list_all("tools/list", "tools")]
        own = await client.call("notes_by", {"author": "ann"})
        by_name = await client.call("run_query", {"query": "notes_by", "arguments": {"author": "ann"}})

    assert tools[:2] == ["find_queries", "run_query"]
    assert not {"notes_by", "my_notes"} & set(tools)
    assert own["structuredContent"] == by_name["structuredContent"]


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("notes_by", {"author": SECRET, "ids": [4711]}),
    ("run_query", {"query": "notes_by", "arguments": {"author": SECRET, SECRET: SECRET}}),
    ("run_query", {"query": SECRET, "arguments": {"author": "ann"}}),
    ("notes_by", {SECRET: SECRET}),
    ("find_queries", {"search": SECRET}),
    ("my_notes", {"limit_to": 4711}),
    ("my_notes", {}),
]


@eras
async def test_log_keeps_names_of_arguments_and_no_values(url: str, version: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url)
    async with spawn(path, tmp_path, version=version, options=OPTIONS) as client:
        await client.open()
        for tool, arguments in CALLS:
            await client.request("tools/call", {"name": tool, "arguments": arguments})
        client.hang_up()
        assert await client.status() == 0

    text = (tmp_path / "calls.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    assert [(each["tool"], each["outcome"], each["rows"], each["arguments"]) for each in entries] == [
        ("notes_by", "ok", 0, {"author": "…", "ids": ["…"]}),
        ("run_query", "error", None, {"query": "notes_by", "arguments": {"author": "…", "…": "…"}}),
        ("run_query", "error", None, {"query": "…", "arguments": {"author": "…"}}),
        ("notes_by", "error", None, {"…": "…"}),
        ("find_queries", "ok", 0, {"search": "…"}),
        ("my_notes", "error", None, {"limit_to": "…"}),
        ("my_notes", "ok", 2, {}),
    ]
    assert SECRET not in text
    assert "4711" not in text
