"""What a server records of each call: no values unless they are configured."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.client import CLIENT, HANDSHAKES, MODERN, VERSIONS, Message, spawn
from tests.protocol.command_line import run

KEYS = [
    *("time", "identity", "role", "tool", "arguments", "rows", "bytes", "truncated"),
    *("affected", "dry_run", "changes", "confirmed"),
    *("duration", "outcome", "code", "protocol", "client"),
]
SECRET = "tell-nobody"
DDL = """
create table note (id integer primary key, author text, body text);
insert into note values (1, 'ann', 'one'), (2, 'bob', 'two'), (3, 'ann', 'three');
"""
#: with what a call that takes too long does, on each dialect
ENDLESS = {
    "sqlite": """
    create view endless as
    with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
    """,
    "postgresql": "create view endless as select count(*) as total from generate_series(1, 1000000000000);",
}
ROLES = """
[limits]
timeout = "3s"
[roles.reader]
tables."*" = true
tables.note = { where = "author = :claims.author" }
"""


@pytest.fixture
def url(url_of: Callable[[Mapping[str, str]], str]) -> str:
    """Give the URL of a database with an endless view, on each dialect."""
    return url_of({dialect: DDL + endless for dialect, endless in ENDLESS.items()})


def _configured(folder: Path, url: str, log: str, roles: str = ROLES) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[log]\n{log}\n{roles}')
    return path


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


async def _serve_and_call(path: Path, folder: Path, version: str, claims: tuple[str, ...]) -> None:
    options = ("--role", "reader", *claims)
    async with spawn(path, folder, version=version, options=options) as client:
        await client.open()
        for tool, arguments in CALLS:
            await client.request("tools/call", {"name": tool, "arguments": arguments})
        client.hang_up()
        assert await client.status() == 0


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
async def test_each_call_is_written_down_with_what_became_of_it(
    url: str, version: str, tmp_path: Path
) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    await _serve_and_call(path, tmp_path, version, ("--claim", "author=ann"))

    found = _entries(tmp_path / "calls.jsonl")
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
    assert found[4]["duration"] >= 3
    assert [each["time"] for each in found] == sorted(each["time"] for each in found)
    assert found[0]["arguments"] == {"id": "…"}
    assert found[1]["arguments"] == {
        "where": [{"column": "body", "op": "contains", "value": "…"}],
        "limit": 1,
    }
    assert SECRET not in (tmp_path / "calls.jsonl").read_text()


async def test_bytes_of_a_picture_are_counted(
    url_of: Callable[[Mapping[str, str]], str], tmp_path: Path
) -> None:
    picture = b"\x89PNG\r\n\x1a\n".hex() + "00" * 5_000
    ddl = {
        "sqlite": f"""
        create table album (id int primary key, p blob);
        insert into album values (1, x'{picture}');
        """,
        "postgresql": f"""
        create table album (id int primary key, p bytea);
        insert into album values (1, '\\x{picture}');
        """,
    }
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url_of(ddl)}"\n[log]\nfile = "calls.jsonl"\n')

    async with spawn(path, tmp_path, version=MODERN) as client:
        await client.open()
        result = await client.call("get_album", {"id": 1})
        client.hang_up()
        assert await client.status() == 0

    text, image, *_ = result["content"]
    (entry,) = _entries(tmp_path / "calls.jsonl")
    assert entry["bytes"] == len(text["text"]) + len(image["data"])


async def test_denied_call_is_written_down_as_denied(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    await _serve_and_call(path, tmp_path, MODERN, ())

    found = _entries(tmp_path / "calls.jsonl")
    assert [(each["outcome"], each["code"]) for each in found[:2]] == [("denied", "denied")] * 2


async def test_values_are_written_down_where_that_is_wanted(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"\narguments = true')
    await _serve_and_call(path, tmp_path, MODERN, ("--claim", "author=ann"))

    assert [each["arguments"] for each in _entries(tmp_path / "calls.jsonl")] == [
        arguments for _, arguments in CALLS
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_log_goes_to_stderr_where_no_file_is_named(url: str, version: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, "")
    await _serve_and_call(path, tmp_path, version, ("--claim", "author=ann"))

    found = _entries(tmp_path / "stderr.txt")
    assert [each["tool"] for each in found] == [tool for tool, _ in CALLS]
    assert {each["protocol"] for each in found} == {version}


async def test_cancelled_call_is_written_down(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"', ROLES.replace("3s", "1h"))
    async with spawn(path, tmp_path, options=("--role", "reader")) as client:
        await client.open()
        await client.call("describe_tables")
        id = await client.start_call("list_endless", token="t")
        await client.progress("t")
        await client.cancel(id)
        await client.call("describe_tables")
        client.hang_up()
        assert await client.status() == 0

    found = sorted(_entries(tmp_path / "calls.jsonl"), key=lambda each: str(each["time"]))
    assert [(each["tool"], each["outcome"]) for each in found] == [
        ("describe_tables", "ok"),
        ("list_endless", "cancelled"),
        ("describe_tables", "ok"),
    ]


async def test_call_that_is_cancelled_at_once_is_written_down(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    call = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "describe_tables"}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    async with spawn(path, tmp_path, version=HANDSHAKES[0], options=("--role", "reader")) as client:
        await client.open()
        await client.send_line(json.dumps(call).encode() + b"\n" + json.dumps(cancel).encode())
        client.hang_up()
        assert await client.status() == 0

    (found,) = _entries(tmp_path / "calls.jsonl")
    assert (found["tool"], found["outcome"]) == ("describe_tables", "cancelled")


async def test_call_that_a_signal_ends_is_written_down(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"', ROLES.replace("3s", "1h"))
    async with spawn(path, tmp_path, options=("--role", "reader")) as client:
        await client.open()
        await client.start_call("list_endless", token="t")
        await client.progress("t")
        os.kill(client.process.pid, signal.SIGTERM)
        assert await client.status() == 0

    (found,) = _entries(tmp_path / "calls.jsonl")
    assert (found["outcome"], found["code"], found["rows"]) == ("cancelled", "cancelled", None)


async def test_resources_and_completion_are_written_down_without_keys(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    async with spawn(path, tmp_path, options=("--role", "reader", "--claim", "author=ann")) as client:
        await client.open()
        await client.result("resources/read", {"uri": "dbtools://row/note/1"})
        await client.error("resources/read", {"uri": f"dbtools://row/{SECRET}/1"})
        reference = {"type": "ref/resource", "uri": "dbtools://row/{table}/{key}"}
        given = {"arguments": {"table": "note"}}
        argument = {"name": "key", "value": "1"}
        await client.result("completion/complete", {"ref": reference, "argument": argument, "context": given})
        client.hang_up()
        assert await client.status() == 0

    found = _entries(tmp_path / "calls.jsonl")
    assert [(each["tool"], each["outcome"], each["rows"]) for each in found] == [
        ("resources/read", "ok", 1),
        ("resources/read", "error", None),
        ("completion/complete", "ok", 1),
    ]
    assert SECRET not in json.dumps(found)
    assert "note/1" not in json.dumps(found)


async def test_log_that_cannot_be_written_ends_the_server_at_its_start(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "missing/calls.jsonl"')
    async with spawn(path, tmp_path, options=("--role", "reader")) as client:
        assert await client.status() == 2

    assert len(client.log.read_text().splitlines()) == 1
    assert "calls.jsonl" in client.log.read_text()


def test_call_of_the_command_line_is_written_down_where_there_is_a_file(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    words = ("call", str(path), "--role", "reader", "--claim", "author=ann")
    run(*words, "get_note", "id=1")
    run(*words, "get_note", "id=2")
    shown = run("log", str(path), "--json")

    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(each["tool"], each["outcome"], each["client"]) for each in found] == [
        ("get_note", "ok", "dbtools call"),
        ("get_note", "error", "dbtools call"),
    ]


def test_call_of_the_command_line_writes_nothing_to_stderr_otherwise(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, "")
    result = run("call", str(path), "--role", "reader", "--claim", "author=ann", "get_note", "id=1")

    assert (result.exit_code, result.stderr) == (0, "")


MALFORMED: list[dict[str, Any]] = [
    {"name": "get_note", "arguments": [SECRET]},
    {"arguments": {}},
    {"name": f"{SECRET} x", "arguments": 5},
]


@pytest.mark.parametrize("version", [HANDSHAKES[0], HANDSHAKES[-1], MODERN])
async def test_call_that_is_no_request_is_written_down_without_what_it_says(
    url: str, version: str, tmp_path: Path
) -> None:
    path = _configured(tmp_path, url, 'file = "calls.jsonl"')
    async with spawn(path, tmp_path, version=version, options=("--role", "reader")) as client:
        await client.open()
        for params in MALFORMED:
            await client.error("tools/call", params)
        client.hang_up()
        assert await client.status() == 0

    found = _entries(tmp_path / "calls.jsonl")
    assert [(each["tool"], each["outcome"], each["code"]) for each in found] == [
        ("get_note", "error", "malformed"),
        ("…", "error", "malformed"),
        ("…", "error", "malformed"),
    ]
    assert SECRET not in json.dumps(found)
