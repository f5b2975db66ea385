"""During migrations, no call fails and none mixes two schemas."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools.policy.roles import Caller
from dbtools.server.mcp.exchange import Notifications
from dbtools.service.serving import Served, Watch, open_served
from dbtools.settings import Settings, load
from tests.protocol.changed_schemas import changing as changing, columns_in, dialect as dialect
from tests.protocol.changing import ERAS, HANDSHAKE, Changing, Hearing
from tests.protocol.client import Message, build_server, connect

MIGRATIONS = 40
CLIENTS = 8
VERSIONED = """
create table things (id integer primary key, v0 integer not null);
insert into things values (1, 0), (2, 0), (3, 0);
"""


@pytest.fixture
async def served(changing: Changing, tmp_path: Path) -> AsyncIterator[Served]:
    """Yield what serves the database and follows it, in this process."""
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n[limits]\ntimeout = "60s"\n')
    served = open_served(load(path))
    async with anyio.create_task_group() as group:
        group.start_soon(Watch(served.toolbox, served.observed, warn=print, resolved=print).run)
        yield served
        group.cancel_scope.cancel()
    await served.backend.close()


async def test_calls_that_are_out_of_date_say_what_there_is_now(changing: Changing, served: Served) -> None:
    listed = {"columns": ["id", "mood"], "limit": 1, "order_by": ["mood"]}
    where = [{"column": "mood", "value": "calm"}]
    async with connect(build_server(served.toolbox, Caller(), ""), version=HANDSHAKE) as client:
        await client.open()
        first = await client.call("list_customers", listed)
        cursor = first["structuredContent"]["next_cursor"]
        await changing.change("alter table customers drop column mood")
        answers = [
            await client.call("list_customers", listed),
            await client.call("list_rows", {"table": "customers", "where": where}),
            await client.call("list_customers", {**listed, "order_by": ["id"], "cursor": cursor}),
        ]
        go_on = await client.call("list_customers", {"limit": 1, "cursor": cursor})
        whole = await client.call("list_customers", {})
        await changing.change("alter table customers rename to clients")
        unknown = await client.error("tools/call", {"name": "list_customers", "arguments": {}})

    for answer in answers:
        told = answer["content"][0]["text"]
        assert (answer["isError"], "mood" in told, "id, name" in told) == (True, True, True)
    assert (go_on["isError"], "cursor" in go_on["content"][0]["text"]) == (True, True)
    assert whole["structuredContent"]["columns"] == ["id", "name"]
    assert (unknown["code"], "There is no tool 'list_customers'." in unknown["message"]) == (-32602, True)


async def test_no_call_fails_and_none_mixes_two_schemas_while_migrations_run(
    changing: Changing, served: Served
) -> None:
    await changing.change(VERSIONED)
    await served.toolbox.refresh()
    notifications = Notifications()
    served.toolbox.subscribe(notifications.publish)
    done, answered = anyio.Event(), anyio.Condition()
    answers: list[Message] = []

    async def call(client: Hearing) -> None:
        while not done.is_set():
            answer = await client.client.request("tools/call", {"name": "list_things", "arguments": {}})
            async with answered:
                answers.append(answer)
                answered.notify_all()

    async with AsyncExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            server = build_server(served.toolbox, Caller(), "", notifications=notifications)
            raw = await stack.enter_async_context(connect(server, version=ERAS[number % 2]))
            clients.append(Hearing(raw))
            await clients[-1].open()
        async with anyio.create_task_group() as callers:
            for client in clients:
                callers.start_soon(call, client)
            for number in range(MIGRATIONS):
                await changing.change(_migration(number))
                async with answered:
                    # Some come in a row, and calls come between others.
                    while len(answers) < number:
                        await answered.wait()
            done.set()
        current = {each.name: each for each in await _fresh(changing)}
        await served.toolbox.call(Caller(), "describe_tables", {})
        listed = [await client.tools() for client in clients]

    assert len(answers) > MIGRATIONS
    assert [each for each in map(_mistake, answers) if each] == []
    for tools in listed:
        assert columns_in(tools, "list_things") == ["id", f"v{MIGRATIONS}"]
        assert {name: each["description"] for name, each in tools.items()} == {
            name: each.description for name, each in current.items()
        }


def _migration(number: int) -> str:
    """Return what makes version *number* the next: another name, and at times another table and type."""
    after = number + 1
    if _is_text(after) == _is_text(number):
        return f"""
            begin;
            alter table things rename column v{number} to v{after};
            update things set v{after} = '{after}';
            commit
        """
    return f"""
        begin;
        create table next (id integer primary key, v{after} {"text" if _is_text(after) else "integer"});
        insert into next select id, '{after}' from things;
        drop table things;
        alter table next rename to things;
        commit
    """


def _is_text(version: int) -> bool:
    return version // 4 % 2 == 1


def _mistake(answer: Message) -> Any:
    """Return what is wrong with *answer*: it failed, or names one version and holds another."""
    structured = answer.get("result", {}).get("structuredContent")
    if structured is None:
        return answer
    version = int(structured["columns"][1].removeprefix("v"))
    cell = str(version) if _is_text(version) else version
    return structured if {row[1] for row in structured["rows"]} != {cell} else None


async def _fresh(changing: Changing) -> tuple[Any, ...]:
    """Return what a server that has just been started lists."""
    served = open_served(Settings.model_validate({"database": {"url": changing.url}}))
    try:
        return await served.toolbox.list("default")
    finally:
        await served.backend.close()
