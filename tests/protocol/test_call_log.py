"""What a server records of each call: no values unless they are configured."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.client import CLIENT, HANDSHAKES, MODERN, Message, ProcessClient, spawn
from tests.protocol.command_line import assert_one_complaint, run

KEYS = [
    *("time", "identity", "role", "tool", "arguments", "rows", "bytes", "truncated"),
    *("affected", "dry_run", "changes", "confirmed"),
    *("duration", "outcome", "code", "protocol", "client"),
]
SECRET = "tell-nobody"
DDL = """
create table note (id integer primary key, author text, body text);
insert into note values (1, 'ann', 'one'), (2, 'bob', 'two'), (3, 'ann', 'three');
create view endless as
with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
"""
CALLER = ("--role", "reader", "--claim", "author=ann")
ROLES = """
[limits]
timeout = "1s"
[roles.reader]
tables."*" = true
tables.endless = true
tables.note = { where = "author = :claims.author" }
"""


@pytest.fixture
def configured(sqlite_database: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a configuration with a section of the log."""
    database = sqlite_database(DDL)

    def write(log: str = 'file = "calls.jsonl"', roles: str = ROLES) -> Path:
        path = tmp_path / "dbtools.toml"
        path.write_text(f'[database]\nurl = "{database}"\n[log]\n{log}\n{roles}')
        return path

    return write


@asynccontextmanager
async def _serving(path: Path, version: str = MODERN, *claims: str) -> AsyncIterator[ProcessClient]:
    """Yield a client of a server that ends by itself when the client has hung up."""
    options = ("--role", "reader", *claims)
    async with spawn(path, path.parent, version=version, options=options) as client:
        await client.open()
        yield client
        client.hang_up()
        assert await client.status() == 0


def _entries(path: Path) -> list[Message]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_note", {"id": 1}),
    ("list_note", {"where": [{"column": "body", "op": "contains", "value": "e"}], "limit": 1}),
    ("list_note", {"where": [{"column": SECRET, "value": SECRET}]}),
    ("list_nothing", {"x": SECRET}),
    ("list_endless", {}),
    ("get_note", {"id": 2}),
]


@pytest.mark.parametrize(
    ("log", "file", "version"),
    [
        ('file = "calls.jsonl"', "calls.jsonl", HANDSHAKES[-1]),
        ('file = "calls.jsonl"\narguments = true', "calls.jsonl", MODERN),
        ("", "stderr.txt", HANDSHAKES[0]),
    ],
    ids=["file", "values", "stderr"],
)
async def test_each_call_is_written_down_with_what_became_of_it(
    configured: Callable[..., Path], log: str, file: str, version: str, tmp_path: Path
) -> None:
    async with _serving(configured(log), version, *CALLER[2:]) as client:
        for tool, arguments in CALLS:
            await client.request("tools/call", {"name": tool, "arguments": arguments})

    found = _entries(tmp_path / file)
    assert [list(each) for each in found] == [KEYS] * len(CALLS)
    assert [(each["tool"], each["outcome"], each["code"], each["rows"]) for each in found] == [
        ("get_note", "ok", None, 1),
        ("list_note", "ok", None, 1),
        ("list_note", "error", "unknown_column", None),
        ("list_nothing", "error", "unknown_tool", None),
        ("list_endless", "timeout", "timeout", None),
        ("get_note", "error", "no_row", None),
    ]
    assert {(each["role"], each["identity"], each["protocol"], each["client"]) for each in found} == {
        ("reader", None, version, CLIENT["name"])
    }
    assert (found[1]["truncated"], found[0]["truncated"]) == (True, False)
    assert found[1]["bytes"] > 50
    assert found[4]["duration"] >= 1
    assert [each["time"] for each in found] == sorted(each["time"] for each in found)
    if "arguments" in log:
        assert [each["arguments"] for each in found] == [arguments for _, arguments in CALLS]
    else:
        where = [{"column": "body", "op": "contains", "value": "…"}]
        assert [each["arguments"] for each in found[:2]] == [{"id": "…"}, {"where": where, "limit": 1}]
        assert SECRET not in (tmp_path / file).read_text()


async def test_bytes_of_a_picture_are_counted_and_calls_without_a_claim_denied(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    picture = b"\x89PNG\r\n\x1a\n".hex() + "00" * 5_000
    ddl = (
        f"{DDL} create table album (id int primary key, p blob); insert into album values (1, x'{picture}');"
    )
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{sqlite_database(ddl)}"\n[log]\nfile = "calls.jsonl"\n{ROLES}')
    async with _serving(path) as client:
        result = await client.call("get_album", {"id": 1})
        await client.call("get_note", {"id": 1})

    text, image, *_ = result["content"]
    entry, denied = _entries(tmp_path / "calls.jsonl")
    assert entry["bytes"] == len(text["text"]) + len(image["data"])
    assert (denied["outcome"], denied["code"]) == ("denied", "denied")


async def test_cancelled_call_is_written_down(configured: Callable[..., Path], tmp_path: Path) -> None:
    async with _serving(configured(roles=ROLES.replace("1s", "1h"))) as client:
        await client.call("describe_tables")
        id = await client.start_call("list_endless", token="t")
        await client.progress("t")
        await client.cancel(id)
        await client.call("describe_tables")

    found = sorted(_entries(tmp_path / "calls.jsonl"), key=lambda each: str(each["time"]))
    assert [(each["tool"], each["outcome"]) for each in found] == [
        ("describe_tables", "ok"),
        ("list_endless", "cancelled"),
        ("describe_tables", "ok"),
    ]


async def test_call_that_is_cancelled_at_once_is_written_down(
    configured: Callable[..., Path], tmp_path: Path
) -> None:
    call = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "list_endless"}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    async with _serving(configured(roles=ROLES.replace("1s", "1h")), HANDSHAKES[0]) as client:
        await client.send_line(json.dumps(call).encode() + b"\n" + json.dumps(cancel).encode())

    (found,) = _entries(tmp_path / "calls.jsonl")
    assert (found["tool"], found["outcome"]) == ("list_endless", "cancelled")


async def test_call_that_a_signal_ends_is_written_down(
    configured: Callable[..., Path], tmp_path: Path
) -> None:
    async with _serving(configured(roles=ROLES.replace("1s", "1h"))) as client:
        await client.start_call("list_endless", token="t")
        await client.progress("t")
        os.kill(client.process.pid, signal.SIGTERM)
        assert await client.status() == 0

    (found,) = _entries(tmp_path / "calls.jsonl")
    assert (found["outcome"], found["code"], found["rows"]) == ("cancelled", "cancelled", None)


async def test_resources_and_completion_are_written_down_without_keys(
    configured: Callable[..., Path], tmp_path: Path
) -> None:
    reference = {"type": "ref/resource", "uri": "dbtools://row/{table}/{key}"}
    argument, given = {"name": "key", "value": "1"}, {"arguments": {"table": "note"}}
    async with _serving(configured(), MODERN, *CALLER[2:]) as client:
        await client.result("resources/read", {"uri": "dbtools://row/note/1"})
        await client.error("resources/read", {"uri": f"dbtools://row/{SECRET}/1"})
        await client.result("completion/complete", {"ref": reference, "argument": argument, "context": given})

    found = _entries(tmp_path / "calls.jsonl")
    assert [(each["tool"], each["outcome"], each["rows"]) for each in found] == [
        ("resources/read", "ok", 1),
        ("resources/read", "error", None),
        ("completion/complete", "ok", 1),
    ]
    assert SECRET not in json.dumps(found)
    assert "note/1" not in json.dumps(found)


def test_log_that_cannot_be_written_ends_the_server_at_its_start(configured: Callable[..., Path]) -> None:
    result = run("serve", str(configured('file = "missing/calls.jsonl"')), "--role", "reader")

    assert (result.exit_code, result.stdout) == (2, "")
    assert_one_complaint(result.stderr, "calls.jsonl")


def test_call_of_the_command_line_is_written_down_where_there_is_a_file(
    configured: Callable[..., Path],
) -> None:
    nowhere = run("call", str(configured("")), *CALLER, "get_note", "id=1")
    path = str(configured())
    run("call", path, *CALLER, "get_note", "id=1")
    run("call", path, *CALLER, "get_note", "id=2")
    shown = run("log", path, "--json")

    assert (nowhere.exit_code, nowhere.stderr) == (0, "")
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(each["tool"], each["outcome"], each["client"]) for each in found] == [
        ("get_note", "ok", "dbtools call"),
        ("get_note", "error", "dbtools call"),
    ]


MALFORMED: list[dict[str, Any]] = [
    {"name": "get_note", "arguments": [SECRET]},
    {"arguments": {}},
    {"name": f"{SECRET} x", "arguments": 5},
]


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
async def test_call_that_is_no_request_is_written_down_without_what_it_says(
    configured: Callable[..., Path], version: str, tmp_path: Path
) -> None:
    async with _serving(configured(), version) as client:
        for params in MALFORMED:
            await client.error("tools/call", params)

    found = _entries(tmp_path / "calls.jsonl")
    assert [(each["tool"], each["outcome"], each["code"]) for each in found] == [
        ("get_note", "error", "malformed"),
        ("…", "error", "malformed"),
        ("…", "error", "malformed"),
    ]
    assert SECRET not in json.dumps(found)
