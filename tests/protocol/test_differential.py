"""The same exchanges with the official SDK and with dbtools have the same statuses, codes and results."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from starlette.types import ASGIApp

from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from tests.oracle import ours, strategies
from tests.oracle.exchanges import HttpAnswer, HttpRequest, Message, play_http, play_lines
from tests.oracle.messages import initialize, lines, request
from tests.oracle.recorded import http_scripts, line_scripts
from tests.oracle.sdk_server import sdk_app, sdk_server, serve_sdk_lines
from tests.protocol.conftest import settings_for

INSTRUCTIONS = "A small world."
UNSUPPORTED_VERSION = -32022
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOTIFIED = b'"notifications/initialized"'
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An exchange of which the sides make something else."""

    sent: bytes | HttpRequest | None  #: None: the end of the input
    sdk: list[Message] | HttpAnswer
    ours: list[Message] | HttpAnswer
    before: Sequence[Any] = ()  #: what was sent before

    @property
    def before_as_lines(self) -> bytes:
        """What was sent before, where that is lines."""
        return b"".join(each for each in self.before if isinstance(each, bytes))

    def __str__(self) -> str:
        """Return all of it, a line each."""
        return f"\nsent: {self.sent!r}\nsdk:  {self.sdk}\nours: {self.ours}"


@dataclass(frozen=True, kw_only=True)
class Intended:
    """A difference that is meant to be."""

    reason: str
    applies: Callable[[Difference], bool]


Apps = dict[bool, tuple[ASGIApp, ASGIApp]]  #: the SDK's application and ours, by whether they are stateless


def _code(outcome: list[Message] | HttpAnswer) -> object:
    """Return the code of the only message of *outcome*, where that is an error."""
    match outcome.messages if isinstance(outcome, HttpAnswer) else outcome:
        case [{"error": {"code": code}}]:
            return code
        case _:
            return None


def _over_http(difference: Difference, sdk: int, ours: int) -> bool:
    """Return whether both sides have answered over HTTP, with these statuses."""
    one, other = difference.sdk, difference.ours
    return (
        isinstance(one, HttpAnswer)
        and isinstance(other, HttpAnswer)
        and (one.status, other.status) == (sdk, ours)
    )


def _body(difference: Difference) -> bytes:
    sent = difference.sent
    return sent.body if isinstance(sent, HttpRequest) else sent or b""


def _params(difference: Difference) -> Message:
    """Return the parameters of what was sent."""
    try:
        message = json.loads(_body(difference))
    except ValueError:
        return {}
    params = message.get("params") if isinstance(message, dict) else None
    return params if isinstance(params, dict) else {}


def _type(difference: Difference) -> str:
    """Return the type of content of what was sent."""
    sent = difference.sent
    return dict(sent.headers).get("content-type", "").lower() if isinstance(sent, HttpRequest) else ""


def _token(difference: Difference) -> object:
    meta = _params(difference).get("_meta")
    return meta.get("progressToken") if isinstance(meta, dict) else None


def _describes_client_badly(difference: Difference) -> bool:
    meta = _params(difference).get("_meta")
    odd = {"clientInfo", "logLevel", "clientCapabilities"}
    named = meta if isinstance(meta, dict) else _params(difference)
    return any(str(name).rpartition("/")[2] in odd or name == "capabilities" for name in named)


INTENDED: tuple[Intended, ...] = (
    Intended(
        reason="Half a surrogate pair is read over HTTP as on stdio, so that the answer names the argument.",
        applies=lambda it: _code(it.sdk) == PARSE_ERROR and SURROGATE.search(_body(it)) is not None,
    ),
    Intended(
        reason="What is no message is an invalid request (JSON-RPC 2.0, 5.1), with its ID where it has one.",
        applies=lambda it: (
            _code(it.ours) == INVALID_REQUEST
            and _code(it.sdk) in (INVALID_REQUEST, INVALID_PARAMS)
            and _over_http(it, 400, 400)
        ),
    ),
    Intended(
        reason="A handshake begins with initialize: the notification that follows it opens nothing alone.",
        applies=lambda it: (
            _code(it.ours) == INVALID_PARAMS
            and NOTIFIED in it.before_as_lines
            and b'"initialize"' not in it.before_as_lines
        ),
    ),
    Intended(
        reason="A progress token is a string or an integer, and one that is null is none.",
        applies=lambda it: (
            INVALID_PARAMS in (_code(it.sdk), _code(it.ours)) and b'"progressToken": ' in _body(it)
        ),
    ),
    Intended(
        reason="A progress token is a string or an integer: true is not taken for 1.",
        applies=lambda it: _code(it.ours) == INVALID_PARAMS and isinstance(_token(it), bool | float),
    ),
    Intended(
        reason="What the server never sends is not acknowledged (SubscriptionsAcknowledgedNotification).",
        applies=lambda it: (
            b"subscriptions/listen" in _body(it)
            and re.search(rb"promptsListChanged|resourceSubscriptions", _body(it)) is not None
        ),
    ),
    Intended(
        reason="A handshake that fails opens no session.",
        applies=lambda it: (
            _code(it.ours) == INVALID_PARAMS
            and _over_http(it, 200, 200)
            and isinstance(it.sdk, HttpAnswer)
            and replace(it.sdk, headers={}) == it.ours
        ),
    ),
    Intended(
        reason="Where both Accept and Content-Type are wrong, the first that is read is refused.",
        applies=lambda it: _over_http(it, 400, 406) and "json" not in _type(it),
    ),
    Intended(
        reason="The case of a type of content does not matter (RFC 9110, 8.3.1).",
        applies=lambda it: isinstance(it.sdk, HttpAnswer) and it.sdk.status == 415,
    ),
    Intended(
        reason="A version that nobody knows is an unsupported one, whatever else is wrong.",
        applies=lambda it: (_code(it.sdk), _code(it.ours)) == (INVALID_PARAMS, UNSUPPORTED_VERSION),
    ),
    Intended(
        reason="A refusal says why.", applies=lambda it: _over_http(it, 405, 405) or _over_http(it, 406, 406)
    ),
    Intended(
        reason="Another type of content is 415 (RFC 9110, 15.5.16).",
        applies=lambda it: _over_http(it, 400, 415),
    ),
    Intended(
        reason="A method that is not served is unknown, whatever its parameters.",
        applies=lambda it: (_code(it.sdk), _code(it.ours)) == (INVALID_PARAMS, METHOD_NOT_FOUND),
    ),
    Intended(
        reason="A request with an ID of another type is no notification: its client waits for an answer.",
        applies=lambda it: _code(it.ours) == INVALID_REQUEST and _over_http(it, 202, 400),
    ),
    Intended(
        reason="What the server makes no use of is not checked: how the client describes itself.",
        applies=lambda it: _code(it.sdk) == INVALID_PARAMS and _describes_client_badly(it),
    ),
)


@pytest.fixture(scope="module")
async def toolbox(path: Path) -> AsyncIterator[Toolbox]:
    toolbox, database = open_toolbox(settings_for(path))
    yield toolbox
    await database.close()


@pytest.fixture(scope="module")
async def apps(toolbox: Toolbox) -> AsyncIterator[Apps]:
    """Yield the SDK's application and ours, by whether they are stateless."""
    async with AsyncExitStack() as stack:
        found: Apps = {}
        for stateless in (False, True):
            server = sdk_server(toolbox, INSTRUCTIONS, stateless=stateless)
            theirs = await stack.enter_async_context(sdk_app(server, stateless=stateless))
            own = ours.http_app(toolbox, INSTRUCTIONS, stateless=stateless)
            found[stateless] = (theirs, await stack.enter_async_context(own))
        yield found


async def line_differences(script: Sequence[bytes], toolbox: Toolbox) -> list[Difference]:
    """Return where the sides answer the lines of *script* differently without being meant to."""
    server = sdk_server(toolbox, INSTRUCTIONS)
    expected = await play_lines(partial(serve_sdk_lines, server), script)
    actual = await play_lines(partial(ours.serve_lines, toolbox, INSTRUCTIONS), script)
    return _differences([*script, None], expected, actual)


async def http_differences(script: Sequence[HttpRequest], apps: tuple[ASGIApp, ASGIApp]) -> list[Difference]:
    """Return where the sides answer the requests of *script* differently without being meant to."""
    expected, actual = [await play_http(app, script) for app in apps]
    return _differences(script, expected, actual)


def _differences(
    sent: Sequence[Any],
    expected: Sequence[Any],
    actual: Sequence[Any],
    intended: Sequence[Intended] = INTENDED,
) -> list[Difference]:
    found: list[Difference] = []
    for at, (each, sdk, own) in enumerate(zip(sent, expected, actual, strict=True)):
        if _exact(sdk) == _exact(own):
            continue
        difference = Difference(sent=each, sdk=sdk, ours=own, before=sent[:at])
        if any(meant.applies(difference) for meant in intended):
            break  # the sides are in different states now
        found.append(difference)
    return found


def _exact(outcome: object) -> str:
    """Return *outcome* as JSON, where 1 is not 1.0 and 0 is not false."""
    return json.dumps(outcome, sort_keys=True, default=asdict)


def _assert_none(found: Sequence[Difference]) -> None:
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("script", [pytest.param(script, id=name) for name, script in line_scripts()])
async def test_recorded_lines_are_answered_alike(script: list[bytes], toolbox: Toolbox) -> None:
    _assert_none(await line_differences(script, toolbox))


@pytest.mark.parametrize("script", [pytest.param(script, id=name) for name, script in http_scripts()])
async def test_recorded_requests_are_answered_alike(script: list[HttpRequest], apps: Apps) -> None:
    _assert_none(await http_differences(script, apps[False]))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(script=strategies.line_scripts())
async def test_generated_lines_are_answered_alike(script: list[bytes], toolbox: Toolbox) -> None:
    _assert_none(await line_differences(script, toolbox))


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.booleans().flatmap(strategies.in_mode))
async def test_generated_requests_are_answered_alike(
    sent: tuple[bool, list[HttpRequest]], apps: Apps
) -> None:
    stateless, script = sent
    _assert_none(await http_differences(script, apps[stateless]))


async def test_difference_is_noticed(toolbox: Toolbox) -> None:
    script = lines(initialize("2025-11-25"), request("tools/list", {}, "2025-11-25"))
    expected = await play_lines(partial(serve_sdk_lines, sdk_server(toolbox, INSTRUCTIONS)), script)
    actual = await play_lines(partial(ours.serve_lines, toolbox, "Another world."), script)

    assert [each.sent for each in _differences([*script, None], expected, actual)] == script[:1]
    assert len(_differences([b"", b""], [{"x": 1}, {"x": 1}], [{"x": 1.0}, {"x": True}])) == 2


async def test_intended_difference_is_none() -> None:
    meant = Intended(reason="The second is another.", applies=lambda difference: difference.sent == b"2")

    found = _differences([b"1", b"2", b"3"], [[], [], []], [[{}], [{}], [{}]], (meant,))

    assert [each.sent for each in found] == [b"1"]
