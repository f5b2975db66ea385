"""Long interactions are the same with the official SDK: streams, cancellation, progress, shutdown."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from tests.oracle.exchanges import Message
from tests.oracle.live import http_client, line_client
from tests.oracle.messages import notification, request
from tests.oracle.worlds import Opened, Outcome, Scenario, World, changing, play, waiting
from tests.protocol.client import HANDSHAKES, MODERN
from tests.protocol.test_internal_errors import CALL

HANDSHAKE = HANDSHAKES[-1]
NOTICED = 0.2  #: seconds in which a server notifications that a client has left
ERAS = (HANDSHAKE, MODERN)
LISTEN = "subscriptions/listen"
ALL: Message = {
    "toolsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["dbtools://schema/person"],
}
TOOLS, RESOURCES = "notifications/tools/list_changed", "notifications/resources/list_changed"
UPDATED, ACKNOWLEDGED = "notifications/resources/updated", "notifications/subscriptions/acknowledged"
QUICK = "resources/templates/list"
TOLD = {  #: by a change of all, on a stream for some
    "all": (ALL, [TOOLS, RESOURCES, UPDATED]),
    "tools": ({"toolsListChanged": True}, [TOOLS]),
    "resources": ({"resourcesListChanged": True, "toolsListChanged": False}, [RESOURCES]),
    "uris": ({"resourceSubscriptions": ["dbtools://schema"]}, [UPDATED]),
    "nothing": ({"resourceSubscriptions": []}, []),
}
Play = Callable[[Opened, Scenario], Awaitable[Outcome]]


@pytest.fixture
def both(tmp_path: Path) -> Play:
    """Return what plays a scenario, and returns what comes of it with the SDK and with us."""
    return lambda opened, scenario: play(opened, scenario, tmp_path)


@pytest.fixture
def alike(both: Play) -> Play:
    """Return what plays a scenario on both sides, and returns what is the same on both."""

    async def play(opened: Opened, scenario: Scenario) -> Outcome:
        outcomes = await both(opened, scenario)
        sdk, ours = [json.dumps(each, sort_keys=True, indent=1) for each in outcomes]
        assert ours == sdk
        return list(outcomes[1])

    return play


def kinds(messages: list[Message]) -> list[object]:
    """Return the method of each message, and of an answer its ID."""
    return [each.get("method", each.get("id")) for each in messages]


def stream_of(message: Message) -> str:
    """Return the stream that *message* belongs to."""
    members = message.get("params") or message["result"]
    return str(members["_meta"]["io.modelcontextprotocol/subscriptionId"])


@pytest.mark.parametrize(("wanted", "told"), TOLD.values(), ids=TOLD)
async def test_stream_of_lines_tells_what_is_wanted_until_the_input_ends(
    wanted: Message, told: list[str], alike: Play
) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, MODERN) as client:
            await client.start(LISTEN, {"notifications": wanted}, id="s")
            acknowledged = await client.receive()
            await world.change()
            return [acknowledged, *[await client.receive() for _ in told], *await client.rest()]

    heard = await alike(changing, scenario)

    assert kinds(heard) == [ACKNOWLEDGED, *told, "s"]
    assert {stream_of(each) for each in heard} == {"s"}


async def test_stream_over_http_tells_what_is_wanted_until_the_server_ends(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, MODERN) as client:
            stream = client.ask(LISTEN, {"notifications": ALL}, "s")
            heard = [await stream.next()]
            await world.change()
            heard += [await stream.next() for _ in range(3)]
            world.side.end()
            return [heard + await stream.rest(), stream.status, stream.is_whole]

    heard, *rest = await alike(changing, scenario)

    assert kinds(heard) == [ACKNOWLEDGED, TOOLS, RESOURCES, UPDATED, "s"]
    assert rest == [200, True]


@pytest.mark.parametrize("id", [2**70, "\ud800", -1, ""])
async def test_stream_ends_with_its_result_whatever_its_id(id: object, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, MODERN) as client:
            await client.start(LISTEN, {"notifications": ALL}, id=id)
            return [await client.receive(), *await client.rest()]

    acknowledged, ended = await alike(changing, scenario)

    assert [stream_of(each) for each in (acknowledged, ended)] == [str(id)] * 2
    assert ended["id"] == id


async def test_two_streams_of_lines_are_distinct_and_one_is_cancelled(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, MODERN) as client:
            for id, wanted in ((7, {"toolsListChanged": True}), ("7", ALL)):
                await client.start(LISTEN, {"notifications": wanted}, id=id)
                await client.receive()
            await world.change()
            heard = [await client.receive() for _ in range(4)]
            await client.cancel("7")
            await world.change("drop table pet")
            # Streams are independent: only the order within each is fixed.
            return [*sorted(heard, key=repr), *await client.rest()]

    heard = await alike(changing, scenario)

    assert kinds(heard[:4]) == [RESOURCES, UPDATED, TOOLS, TOOLS]
    assert kinds(heard[4:]) == [TOOLS, 7]


async def test_two_streams_over_http_are_distinct_and_one_is_left(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, MODERN) as client:
            left, kept = [client.ask(LISTEN, {"notifications": ALL}, id) for id in ("a", "b")]
            heard = [await left.next(), await kept.next()]
            left.leave()
            heard += await left.rest()
            await world.change()
            heard += [await kept.next() for _ in range(3)]
            world.side.end()
            return heard + await kept.rest()

    heard = await alike(changing, scenario)

    assert kinds(heard) == [ACKNOWLEDGED, ACKNOWLEDGED, TOOLS, RESOURCES, UPDATED, "b"]
    assert [stream_of(each) for each in heard] == ["a", *"bbbbb"]


async def test_stream_of_a_session_tells_until_the_session_ends(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, HANDSHAKE) as client:
            stream = client.send("GET")
            statuses = [await stream.begun()]
            second = client.send("GET")
            refused = await second.rest()
            await world.change()
            heard = [await stream.next(), await stream.next()]
            deleted = client.send("DELETE")
            heard += [*await deleted.rest(), *await stream.rest()]
            late = [client.ask(QUICK, {}), client.send("GET"), client.send("DELETE")]
            refused += [message for each in late for message in await each.rest()]
            statuses += [each.status for each in (second, deleted, *late)]
            return [heard, statuses, refused, stream.is_whole]

    heard, statuses, refused, is_whole = await alike(changing, scenario)

    assert kinds(heard) == [TOOLS, RESOURCES]
    assert statuses == [200, 409, 200, 404, 404, 404]
    assert [each["error"]["code"] for each in refused] == [-32600] * 4
    assert is_whole


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_change_is_notified_on_the_connection_of_the_handshake(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, version) as client:
            await world.change()
            return [await client.receive(), await client.receive(), *await client.rest()]

    assert kinds(await alike(changing, scenario)) == [TOOLS, RESOURCES]


@pytest.mark.parametrize("version", ERAS)
async def test_cancelled_call_of_lines_stops_and_gets_no_answer(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, version) as client:
            await client.start("tools/call", CALL, id="c")
            await world.began()
            await client.cancel("c")
            fate = await world.fate()
            await client.request(QUICK)
            return [fate, *await client.rest()]

    fate, *heard = await alike(waiting, scenario)

    assert fate == "cancelled"
    assert len(heard) == 1
    assert "resourceTemplates" in heard[0]["result"]


@pytest.mark.parametrize("version", ERAS)
async def test_cancelling_what_is_unknown_or_finished_does_nothing(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, version) as client:
            await client.start(QUICK, id="finished")
            await client.answer("finished")
            await client.start("tools/call", CALL, id=1)
            await world.began()
            for id in ("finished", "unknown", 99, True, 1.5, None):
                await client.cancel(id)
            await client.start(QUICK, id="last")
            await client.answer("last")
            world.execution.released.set()
            return [await world.fate(), *await client.rest()]

    fate, *heard = await alike(waiting, scenario)

    assert (fate, kinds(heard)) == ("finished", ["finished", "last", 1])


async def test_id_of_another_type_names_another_request(both: Play) -> None:
    """JSON-RPC tells 1 from "1"; the SDK does not where clients cancel."""

    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, HANDSHAKE) as client:
            await client.start("tools/call", CALL, id=1)
            await world.began()
            await client.cancel("1")
            await client.start(QUICK, id="q")
            await client.answer("q")
            world.execution.released.set()
            return [await world.fate(), kinds(await client.rest())]

    assert await both(waiting, scenario) == [["cancelled", ["q"]], ["finished", ["q", 1]]]


async def test_cancelled_call_of_a_session_ends_with_an_error(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, HANDSHAKE) as client:
            call = client.ask("tools/call", CALL, 1)
            await world.began()
            outcome: Outcome = []
            for id in (True, "unknown", 1):
                cancelling = client.post(notification("notifications/cancelled", {"requestId": id}))
                outcome += await cancelling.rest()
                await anyio.wait_all_tasks_blocked()
                outcome.append((cancelling.status, world.execution.ended.is_set()))
            return [await world.fate(), outcome, *await call.rest(), call.status]

    fate, outcome, *answer = await alike(waiting, scenario)

    assert (fate, outcome) == ("cancelled", [(202, False), (202, False), (202, True)])
    assert answer == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32800}}, 200]


@pytest.mark.parametrize(("version", "fate"), [(HANDSHAKE, "finished"), (MODERN, "cancelled")])
async def test_client_over_http_that_leaves_cancels_what_stands_alone(
    version: str, fate: str, alike: Play
) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, version) as client:
            call = client.ask("tools/call", CALL)
            await world.began()
            call.leave()
            if version == HANDSHAKE:
                with anyio.move_on_after(NOTICED):
                    await world.execution.ended.wait()
                world.execution.released.set()
            return [await world.fate()]

    assert await alike(waiting, scenario) == [fate]


async def test_notification_cancels_nothing_that_stands_alone_over_http(alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, MODERN) as client:
            call = client.ask("tools/call", CALL, "c")
            await world.began()
            cancelling = client.post(notification("notifications/cancelled", {"requestId": "c"}))
            await cancelling.rest()
            world.execution.released.set()
            return [cancelling.status, await world.fate(), *await call.rest()]

    status, fate, *heard = await alike(waiting, scenario)

    assert (status, fate, kinds(heard)) == (202, "finished", ["c"])


@pytest.mark.parametrize("version", ERAS)
async def test_long_call_of_lines_reports_before_it_is_answered(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, version) as client:
            await client.start("tools/call", CALL, token="t", id="c")
            heard = [await client.receive(), await client.receive()]
            world.execution.released.set()
            return [*heard, *await client.rest()]

    _assert_reported(await alike(waiting, scenario))


@pytest.mark.parametrize("version", ERAS)
async def test_long_call_over_http_reports_before_it_is_answered(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        asked = request("tools/call", CALL, version, "c")
        asked["params"].setdefault("_meta", {})["progressToken"] = "t"
        async with http_client(world.side, version) as client:
            call = client.post(asked)
            heard = [await call.next(), await call.next()]
            world.execution.released.set()
            heard += await call.rest()
            return [*heard, call.status, call.headers["content-type"], call.is_whole]

    *heard, status, kind, is_whole = await alike(waiting, scenario)

    _assert_reported(heard)
    assert (status, kind, is_whole) == (200, "text/event-stream", True)


def _assert_reported(heard: Outcome) -> None:
    *reports, answer = heard
    assert [(each["params"]["progressToken"], each["params"]["progress"]) for each in reports] == [
        ("t", 1.0),
        ("t", 2.0),
    ]
    assert answer["result"]["structuredContent"]["row_count"] == 1


@pytest.mark.parametrize("version", ERAS)
async def test_running_call_is_answered_after_the_end_of_the_input(version: str, alike: Play) -> None:
    async def scenario(world: World) -> Outcome:
        async with line_client(world.side, version) as client:
            await client.start("tools/call", CALL, id="c")
            await world.began()
            client.hang_up()
            await anyio.wait_all_tasks_blocked()
            world.execution.released.set()
            answer = await client.answer("c")
            return [await world.fate(), answer]

    fate, answer = await alike(waiting, scenario)

    assert (fate, answer["result"]["isError"]) == ("finished", False)


async def test_everything_that_lasts_ends_when_the_server_does(alike: Play) -> None:
    """A call of a session is no part of this: the SDK stops it at once, we give it time."""

    async def scenario(world: World) -> Outcome:
        async with http_client(world.side, MODERN) as client, http_client(world.side, HANDSHAKE) as other:
            streams = [client.ask(LISTEN, {"notifications": ALL}, id) for id in (1, "1")]
            acknowledged = [await each.next() for each in streams]
            stream = other.send("GET")
            await stream.begun()
            call = client.ask("tools/call", CALL, "c")
            await world.began()
            world.side.end()
            ends = [await each.rest() for each in (*streams, stream)]
            world.execution.released.set()
            called = await call.rest()
            return [acknowledged, ends, called, [each.is_whole for each in (*streams, stream, call)]]

    acknowledged, ends, called, whole = await alike(waiting, scenario)

    assert kinds(acknowledged) == [ACKNOWLEDGED, ACKNOWLEDGED]
    assert [kinds(each) for each in ends] == [[1], ["1"], []]
    assert (kinds(called), whole) == (["c"], [True] * 4)
