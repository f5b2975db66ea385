"""A bug is logged and answered in general words: no exception reaches a client."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from dbtools.catalog import Catalog, Column, Key, Table
from dbtools.errors import Busy, DatabaseUnavailable, TimedOut
from dbtools.policy import Caller, Role
from dbtools.results import ResultSet
from dbtools.service.execution import Execution
from dbtools.service.snapshot import View
from dbtools.service.toolbox import Toolbox
from dbtools.statement import Statement
from dbtools.types import ColumnType, Family
from tests.protocol.client import VERSIONS, Client, Message, build_server, connect
from tests.unit.shop import resolving
from tests.unit.stub_database import Unchanging

SECRET = "postgres://u:p@h"
INTERNAL_ERROR = -32603
COLUMNS = (
    Column(name="id", type=ColumnType(name="integer", family=Family.INTEGER)),
    Column(name="name", type=ColumnType(name="text", family=Family.TEXT)),
)
PERSON = Table(schema="", name="person", columns=COLUMNS, keys=(Key(columns=("id",), primary=True),))
CATALOG = Catalog(tables=(PERSON,))
CALL: Message = {"name": "list_person", "arguments": {}}
READ: Message = {"uri": "dbtools://row/person/1"}


class Steady(Unchanging):
    """The schema is always the same."""

    async def is_current(self, stamp: str) -> bool:
        """Take each schema for the current one."""
        return True


class Raises(Steady):
    """Runs no statement."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def execute(self, statement: Statement, view: View, caller: Caller, timeout: float) -> ResultSet:
        """Raise the error."""
        raise self._error


class AnswersNonsense(Steady):
    """Answers every statement with what no tool can render."""

    async def execute(self, statement: Statement, view: View, caller: Caller, timeout: float) -> ResultSet:
        """Return a row that is none."""
        row = cast("tuple[object, ...]", None)
        return ResultSet(outputs=statement.shape.outputs, rows=(row,))


def _toolbox(execution: Execution, catalog: Catalog | BaseException = CATALOG) -> Toolbox:
    async def introspect() -> Catalog:
        if isinstance(catalog, BaseException):
            raise catalog
        return catalog

    return Toolbox(resolving(introspect, (Role(),)), execution)


async def _ask(client: Client, method: str, params: Mapping[str, object]) -> str:
    """Return everything that the client gets to see, as text."""
    await client.open()
    await client.request(method, params)
    return str(client.received)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("tools/call", CALL, id="call"),
        pytest.param("resources/read", READ, id="read"),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"secret dsn {SECRET}"),
        ValueError(SECRET),
        KeyError(SECRET),
        RecursionError(SECRET),
        OSError(5, SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_answer_shows_nothing_of_an_exception_in_execution(
    version: str, method: str, params: Message, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server = build_server(_toolbox(Raises(error)), Caller(), "")
    async with connect(server, version=version) as client:
        seen = await _ask(client, method, params)

    assert SECRET not in seen
    assert "Internal error" in seen
    assert SECRET in caplog.text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("tools/list", {}, id="list"),
        pytest.param("tools/call", CALL, id="call"),
        pytest.param("resources/read", READ, id="read"),
    ],
)
async def test_answer_shows_nothing_of_an_exception_in_introspection(
    version: str, method: str, params: Message
) -> None:
    server = build_server(_toolbox(AnswersNonsense(), RuntimeError(SECRET)), Caller(), "")
    async with connect(server, version=version) as client:
        seen = await _ask(client, method, params)

    assert SECRET not in seen
    assert "Internal error" in seen


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "params"),
    [pytest.param("tools/call", CALL, id="call"), pytest.param("resources/read", READ, id="read")],
)
async def test_failure_to_render_is_an_internal_error(version: str, method: str, params: Message) -> None:
    server = build_server(_toolbox(AnswersNonsense()), Caller(), "")
    async with connect(server, version=version) as client:
        seen = await _ask(client, method, params)

    assert "Internal error" in seen
    assert "NoneType" not in seen


async def test_internal_error_of_a_call_is_a_result_and_of_a_list_is_an_error() -> None:
    server = build_server(_toolbox(Raises(RuntimeError(SECRET))), Caller(), "")
    broken = build_server(_toolbox(AnswersNonsense(), RuntimeError(SECRET)), Caller(), "")
    async with connect(server) as client, connect(broken) as other:
        called = await client.result("tools/call", CALL)
        read = await client.error("resources/read", READ)
        listed = await other.error("tools/list")

    assert called["isError"] is True
    assert read["code"] == listed["code"] == INTERNAL_ERROR


async def test_mark_of_an_internal_error_is_found_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = build_server(_toolbox(Raises(RuntimeError(SECRET))), Caller(), "")
    async with connect(server) as client:
        result = await client.result("tools/call", CALL)

    mark = result["content"][0]["text"].partition("Internal error ")[2].partition(".")[0]
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert mark in record.getMessage()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("error", [Busy(), TimedOut(), DatabaseUnavailable()], ids=lambda error: error.code)
async def test_what_the_model_can_fix_is_explained(version: str, error: Exception) -> None:
    server = build_server(_toolbox(Raises(error)), Caller(), "")
    async with connect(server, version=version) as client:
        await client.open()
        called = await client.result("tools/call", CALL)
        read = await client.error("resources/read", READ)

    assert called["isError"] is True
    assert called["content"] == [{"type": "text", "text": str(error)}]
    assert read["message"] == str(error)


async def test_reason_of_a_lost_database_reaches_no_client() -> None:
    reason = DatabaseUnavailable("The database refused the login: user or password is wrong.")
    server = build_server(_toolbox(Raises(reason)), Caller(), "")
    async with connect(server) as client:
        called = await client.result("tools/call", CALL)
        read = await client.error("resources/read", READ)

    assert called["content"] == [{"type": "text", "text": str(DatabaseUnavailable())}]
    assert read["message"] == str(DatabaseUnavailable())


async def test_server_goes_on_after_an_internal_error() -> None:
    server = build_server(_toolbox(Raises(RuntimeError(SECRET))), Caller(), "")
    async with connect(server) as client:
        await client.result("tools/call", CALL)
        listed = await client.result("tools/list")

    assert [tool["name"] for tool in listed["tools"]] == [
        "describe_tables",
        "aggregate_rows",
        "list_person",
        "get_person",
    ]


async def test_catalog_is_read_again_after_a_failure() -> None:
    """The database may have come up since."""
    answers: list[Catalog | Exception] = [DatabaseUnavailable(), CATALOG]

    async def introspect() -> Catalog:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    toolbox = Toolbox(resolving(introspect, (Role(),)), AnswersNonsense())
    async with connect(build_server(toolbox, Caller(), "")) as client:
        error = await client.error("tools/list")
        listed = await client.result("tools/list")

    assert error["code"] == INTERNAL_ERROR
    assert error["message"] == str(DatabaseUnavailable())
    assert listed["tools"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_columns_of_every_family_are_listed_in_every_version(version: str) -> None:
    """One schema that a version does not accept would fail its whole list (mcp.md, pitfall 4)."""
    every = tuple(Column(name=family, type=ColumnType(name=family, family=family)) for family in Family)
    table = replace(PERSON, columns=(*COLUMNS, *every))
    toolbox = _toolbox(AnswersNonsense(), Catalog(tables=(table,)))
    async with connect(build_server(toolbox, Caller(), ""), version=version) as client:
        await client.open()
        listed = await client.result("tools/list")

    assert len(listed["tools"]) == 4
