"""A stream acknowledges what the server may send on it, and nothing else."""

from pathlib import Path

from dbtools.policy.roles import Caller
from dbtools.server.mcp.exchange import Notifications
from dbtools.service.serving import open_toolbox
from dbtools.settings import load
from tests.protocol.client import Message, build_server, connect

CONFIGURATION = """
[database]
url = "{}"
[roles.clerk]
tables.person = true
[roles.owner]
tables."*" = true
"""
SCHEMA, PERSON = "dbtools://schema", "dbtools://schema/person"
URIS = {
    "hidden table": "dbtools://schema/album",
    "absent table": "dbtools://schema/nothing",
    "hidden row": "dbtools://row/album/1",
    "absent row": "dbtools://row/nothing/1",
    "row, which sends no updates": "dbtools://row/person/1",
    "file": "file:///etc/passwd",
    "web page": "https://example.com/",
    "nothing": "",
    "another spelling": "dbtools://schema/PERSON",
    "long": "dbtools://" + "x" * 10_000,
}


async def acknowledged(path: Path, wanted: Message, role: str = "clerk") -> Message:
    """Return which notifications a caller of *role* gets of those *wanted*."""
    file = path.with_name("dbtools.toml")
    file.write_text(CONFIGURATION.format(path.name))
    toolbox, database = open_toolbox(load(file))
    serving = build_server(toolbox, Caller(role=role), "", notifications=Notifications())
    async with connect(serving) as client:
        await client.start("subscriptions/listen", {"notifications": wanted}, id="s")
        answer = await client.receive()
    await database.close()
    assert answer["method"] == "notifications/subscriptions/acknowledged"
    notifications: Message = answer["params"]["notifications"]
    return notifications


async def test_prompts_do_not_exist_and_are_left_out(path: Path) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": False}

    assert await acknowledged(path, wanted) == {"toolsListChanged": True}
    assert await acknowledged(path, {"promptsListChanged": True}) == {}


async def test_resource_that_is_hidden_or_absent_is_left_out(path: Path) -> None:
    alone = {name: await acknowledged(path, {"resourceSubscriptions": [uri]}) for name, uri in URIS.items()}
    wanted = {"resourceSubscriptions": [SCHEMA, *URIS.values(), PERSON, SCHEMA]}

    assert {name for name, told in alone.items() if told} == set()
    assert await acknowledged(path, wanted) == {"resourceSubscriptions": [SCHEMA, PERSON]}


async def test_resource_is_acknowledged_to_those_who_see_it(path: Path) -> None:
    wanted = {"resourceSubscriptions": [URIS["hidden table"]]}

    assert await acknowledged(path, wanted, "owner") == wanted
    assert await acknowledged(path, wanted, "clerk") == {}
