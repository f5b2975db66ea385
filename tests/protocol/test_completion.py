"""`completion/complete`: values for the variables of the resource templates, in every version."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from tests.protocol.client import MODERN, Client, Serving, build_server, connect
from tests.protocol.conftest import settings_for

INVALID_PARAMS = -32602
ROW, CELL = "dbtools://row/{table}/{key}", "dbtools://cell/{table}/{key}/{column}"
DDL = """
create table word (word text primary key, meaning text);
insert into word values ('100%', ''), ('100 percent', ''), ('a_b', ''), ('axb', ''), ('Apple', '');
insert into word values ('\\', '');
create table line (sale integer, position integer, product text, primary key (sale, position));
insert into line values (1, 1, 'nut'), (1, 2, 'bolt'), (12, 1, 'nut'), (2, 1, 'nut');
create table number (id integer primary key);
with recursive n (i) as (select 1 union all select i + 1 from n where i < 150)
insert into number select i from n;
create table log (line text);
"""


@pytest.fixture(scope="module")
def completed_path(sqlite_database: Callable[[str], Path]) -> Path:
    """Return the path of a database whose keys are texts, numbers and pairs."""
    return sqlite_database(DDL)


@pytest.fixture(scope="module")
async def completing(completed_path: Path) -> AsyncIterator[Serving]:
    toolbox, database = open_toolbox(settings_for(completed_path))
    yield build_server(toolbox, Caller(), "")
    await database.close()


@pytest.fixture
async def client(completing: Serving, version: str) -> AsyncIterator[Client]:
    """Yield a raw client of each version, its connection open."""
    async with connect(completing, version=version) as client:
        await client.open()
        yield client


def _params(template: str, name: str, value: str, **given: str) -> dict[str, object]:
    ref = {"type": "ref/resource", "uri": template}
    return {"ref": ref, "argument": {"name": name, "value": value}, "context": {"arguments": given}}


async def _complete(client: Client, name: str, value: str, **given: str) -> Mapping[str, Any]:
    """Return what completes *value*, without what only says that nothing is missing."""
    result = await client.result("completion/complete", _params(CELL, name, value, **given))
    completion: Mapping[str, Any] = result["completion"]
    return completion


async def _values(client: Client, name: str, value: str, **given: str) -> list[str]:
    completion = await _complete(client, name, value, **given)
    assert completion["hasMore"] is False
    values: list[str] = completion["values"]
    return values


async def test_table_and_column_are_completed(client: Client) -> None:
    rows = await client.result("completion/complete", _params(ROW, "table", "n"))
    cells = await client.result("completion/complete", _params(CELL, "table", "n"))

    assert rows["completion"] == cells["completion"] == {"values": ["number", "line"], "hasMore": False}
    assert await _values(client, "column", "", table="word", key="Apple") == ["word", "meaning"]
    assert await _values(client, "column", "m", table="word") == ["meaning"]


#: Beginnings of a key of `word`, and what completes them.
BEGINNINGS = {
    "A": ["Apple", "a_b", "axb"],
    "100%": ["100%"],
    "a_": ["a_b"],
    "%": [],
    "\\": ["\\"],
    "'": [],
    "zzz": [],
}


async def test_key_is_completed_by_its_beginning(client: Client) -> None:
    found = {each: await _values(client, "key", each, table="word") for each in BEGINNINGS}
    params = _params(ROW, "key", "")
    del params["context"]
    without = await client.result("completion/complete", params)

    assert found == BEGINNINGS
    assert without["completion"] == {"values": [], "hasMore": False}
    assert await _values(client, "key", "1", table="line") == []  # its key has two columns
    for table in ("", "nothing", "log"):
        assert await _values(client, "key", "", table=table) == []
        assert await _values(client, "column", "", table=table) == []


async def test_no_more_than_a_hundred_values_are_sent(client: Client) -> None:
    everything = await _complete(client, "key", "", table="number")
    beginning = await _complete(client, "key", "14", table="number")

    assert everything == {"values": [str(each) for each in range(1, 101)], "hasMore": True}
    assert beginning == {"values": ["14", *(str(each) for each in range(140, 150))], "hasMore": False}


MISTAKEN: list[Mapping[str, object]] = [
    _params(ROW, "tabel", ""),
    _params(ROW, "column", "", table="word"),  # a variable of the other template
    _params("dbtools://row/{table}", "table", ""),
    _params("dbtools://row/word/Apple", "table", ""),
    _params("", "table", ""),
    {**_params(ROW, "table", ""), "ref": {"type": "ref/prompt", "name": "x"}},
    {**_params(ROW, "table", ""), "ref": {"type": "ref/else"}},
    {"ref": {"type": "ref/resource", "uri": ROW}},
    {**_params(ROW, "table", ""), "argument": {"name": "table", "value": 5}},
    {},
]


async def test_what_cannot_be_completed_is_a_protocol_error(client: Client) -> None:
    errors = [await client.error("completion/complete", each) for each in MISTAKEN]

    assert [each["code"] for each in errors] == [INVALID_PARAMS] * len(MISTAKEN)
    assert "Traceback" not in json.dumps(errors)


async def test_row_is_read_at_an_address_that_was_completed(client: Client) -> None:
    """Clients fill in a template by RFC 6570, which encodes commas and all else that is reserved."""
    addresses = [
        f"dbtools://row/{quote(table, safe='')}/{quote(key, safe='')}"
        for table in await _values(client, "table", "")
        if table != "number"
        for key in await _values(client, "key", "", table=table)
    ]

    assert len(addresses) == 6
    for address in addresses:
        result = await client.result("resources/read", {"uri": address})
        assert json.loads(result["contents"][0]["text"])["row"]


async def test_completion_that_takes_too_long_has_no_values(completed_path: Path) -> None:
    toolbox, database = open_toolbox(settings_for(completed_path, timeout=1e-9))
    async with connect(build_server(toolbox, Caller(), ""), version=MODERN) as client:
        await client.open()
        values = await _values(client, "key", "", table="number")
        tables = await _values(client, "table", "wo")
    await database.close()

    assert (values, tables) == ([], ["word"])
