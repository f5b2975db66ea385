"""A table whose changes a person must confirm: what a client asks, answers and gets, and what the log has."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LogSection, Settings
from dbtools.settings.sections import GrantSection, RoleSection
from tests.protocol.changing import Changing
from tests.protocol.client import Client, Message, Serving, connect
from tests.protocol.talking import ABLE

#: For tests of what depends on the database: where confirmations are kept, and which locks are held.
each_database = pytest.mark.parametrize("things", ["sqlite", "postgresql"], indirect=True)
DDL = """
create table things (id integer primary key, v text not null);
insert into things values (1, 'one'), (2, 'two'), (3, 'three');
"""
GRANT = GrantSection(insert=True, update=True, delete=True, confirm=True)
TOOL, ARGUMENTS = "update_things", {"id": 1, "set": {"v": "new"}}
PARAMS: Message = {"name": TOOL, "arguments": ARGUMENTS}
CALL: Message = {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": PARAMS}
QUESTION = 'Update 1 row of things?\nid 1: v "one" → "new"'
SCHEMA = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean", "title": "Make this change"}},
    "required": ["confirm"],
}
AGREED: Message = {"action": "accept", "content": {"confirm": True}}
ADA = Caller(identity="ada")
#: What a person does who does not want the change.
REFUSALS: Mapping[str, Message] = {
    "decline": {"action": "decline"},
    "cancel": {"action": "cancel"},
    "accept false": {"action": "accept", "content": {"confirm": False}},
}
#: What the message says of each of them.
SAID = {"decline": "declined", "cancel": "closed the question", "accept false": "declined"}
#: Answers that neither confirm nor decline.
NONSENSE: Mapping[str, Message] = {
    "nothing": {},
    "no content": {"action": "accept"},
    "empty": {"action": "accept", "content": {}},
    "text": {"action": "accept", "content": {"confirm": "true"}},
    "number": {"action": "accept", "content": {"confirm": 1}},
    "list": {"action": "accept", "content": [True]},
    "unknown action": {"action": "yes", "content": {"confirm": True}},
    "other key": {"action": "accept", "content": {"confirmed": True}},
}


def settings_of(url: str, log: Path, **grants: GrantSection) -> Settings:
    """Return settings that serve *url*, with *grants* to roles besides the default one."""
    roles = {"default": GRANT, **grants}
    return Settings(
        database=DatabaseSection(url=url),
        roles={name: RoleSection(tables={"things": grant}) for name, grant in roles.items()},
        log=LogSection(file=str(log), changes=True),
    )


def entries(log: Path) -> list[Message]:
    """Return what the closed *log* has of each call: how it ended, and what it changed."""
    keys = ("outcome", "code", "dry_run", "affected", "confirmed", "changes")
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [{key: each[key] for key in keys} for each in found]


CHANGE = {"key": {"id": 1}, "old": {"v": "one"}, "new": {"v": "new"}}
MADE = {
    "outcome": "ok",
    "code": None,
    "dry_run": False,
    "affected": 1,
    "confirmed": "elicitation",
    "changes": [CHANGE],
}
PREVIEWED = {**MADE, "dry_run": True, "confirmed": None}
UNCONFIRMED = {**PREVIEWED, "outcome": "error", "code": "not_confirmed"}


@asynccontextmanager
async def connected(
    serving: Serving, caller: Caller = ADA, able: Mapping[str, object] = ABLE
) -> AsyncIterator[Client]:
    """Yield a client of *caller* that is *able*."""
    async with connect(Serving(server=serving.server, caller=caller)) as client:
        client.able = able
        yield client


async def call(client: Client, **more: object) -> Any:
    """Return the result of the call, with *more* params."""
    return await client.result("tools/call", {**PARAMS, **more})


async def repeat(client: Client, state: object, answer: Message = AGREED, **more: object) -> Any:
    """Return the result of the call, repeated with *answer*."""
    return await call(client, requestState=state, inputResponses={"confirm": answer}, **more)


def refusal(result: Mapping[str, Any]) -> str:
    """Return the error in *result*, the answer of a tool."""
    assert result["isError"] is True, result
    [content] = result["content"]
    text: str = content["text"]
    return text


async def value_of(things: Changing) -> object:
    """Return what is stored in the row that calls change."""
    toolbox, database = open_toolbox(settings_of(things.url, Path("unused")))
    try:
        answer = await toolbox.call(Caller(), "list_things", {"columns": ["v"], "limit": 1})
    finally:
        await database.close()
    rows = answer.structured["rows"]
    assert isinstance(rows, list)
    return rows[0][0]
