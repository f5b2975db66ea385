"""Messages show names and values with invisible characters as escapes, whatever the request was."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.values.cells import INVISIBLE
from tests.protocol.client import VERSIONS, Serving, build_server, connect
from tests.protocol.conftest import settings_for

ODD = "a\u202eb\ufe0f\u3164\U0001d173\U0001bca0\U000e0041"
TABLE, COLUMN, KEY = f"pets{ODD}", f"name{ODD}", f"k{ODD}"
ROW = {"table": TABLE, "key": {"id": KEY}}
CALLS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "unknown tool": (f"list_{ODD}", {}),
    "unknown table": ("list_rows", {"table": f"pet{ODD}"}),
    "unknown column": ("list_rows", {"table": TABLE, "columns": [f"nam{ODD}"]}),
    "unknown relation": ("list_rows", {"table": TABLE, "where": [{"some": ODD}]}),
    "unknown argument": ("list_rows", {"table": TABLE, ODD: 1}),
    "unknown operator": ("list_rows", {"table": TABLE, "where": [{"column": COLUMN, "op": ODD}]}),
    "nothing found": ("list_rows", {"table": TABLE, "where": [{"column": COLUMN, "value": f"x{ODD}"}]}),
    "no row": ("get_row", {**ROW, "key": {"id": ODD}}),
    "row": ("get_row", ROW),
    "rows": ("list_rows", {"table": TABLE}),
    "groups": (
        "aggregate_rows",
        {"table": TABLE, "group_by": [f'"{COLUMN}"'], "measures": [{"function": "count"}]},
    ),
    "description": ("describe_tables", {"detail": "full"}),
    "SQL": ("run_sql", {"sql": f"select '{ODD}' as \"{ODD}\", {ODD}"}),
    "answer of SQL": ("run_sql", {"sql": f"select '{ODD}' as \"{ODD}\""}),
}
COMPLETED = {"type": "ref/resource", "uri": "dbtools://row/{table}/{key}"}
REQUESTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    **{name: ("tools/call", {"name": tool, "arguments": given}) for name, (tool, given) in CALLS.items()},
    "unknown resource": ("resources/read", {"uri": f"dbtools://schema/{ODD}"}),
    "resource": ("resources/read", {"uri": "dbtools://schema"}),
    "unknown template": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": ODD}, "argument": {"name": ODD, "value": ""}},
    ),
    "unknown method": (ODD, {}),
    "unknown cursor": ("tools/list", {"cursor": ODD}),
}


@pytest.fixture(scope="module")
async def odd(sqlite_database: Callable[[str], Path]) -> AsyncIterator[Serving]:
    """Yield a server of a database with odd names and cells."""
    path = sqlite_database(f'create table "{TABLE}" (id text primary key, "{COLUMN}" text)')
    with closing(sqlite3.connect(path)) as bare, bare:
        bare.execute(f'insert into "{TABLE}" values (?, ?)', (KEY, f"v{ODD}"))
    toolbox, database = open_toolbox(settings_for(path))
    yield build_server(toolbox, Caller(), "")
    await database.close()


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """Return what *message* shows as text: messages and content, but no data."""
    if "error" in message:
        return [message["error"]["message"]]
    result = message["result"]
    contents = [*result.get("content", []), *result.get("contents", [])]
    return [each["text"] for each in contents]


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
async def test_text_of_an_answer_shows_nothing_unseen(odd: Serving, version: str) -> None:
    async with connect(odd, version=version) as client:
        await client.open()
        texts = {name: texts_of(await client.request(*asked)) for name, asked in REQUESTS.items()}

    assert all(texts.values())
    assert [name for name, told in texts.items() if INVISIBLE.search("".join(told))] == []


async def test_data_stays_as_it_is(odd: Serving) -> None:
    argument, context = {"name": "key", "value": ""}, {"arguments": {"table": TABLE}}
    async with connect(odd) as client:
        answer = await client.call("get_row", ROW)
        completed = await client.result(
            "completion/complete", {"ref": COMPLETED, "argument": argument, "context": context}
        )

    assert answer["structuredContent"]["row"] == {"id": KEY, COLUMN: f"v{ODD}"}
    assert completed["completion"]["values"] == [KEY]
