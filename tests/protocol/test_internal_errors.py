"""A bug is logged and answered in general words: no exception reaches a client."""

import logging
from dataclasses import replace
from typing import cast

import pytest

from dbtools.answers.results import ResultSet
from dbtools.errors import Busy, DatabaseUnavailable, TimedOut
from dbtools.policy.roles import Caller, Role
from dbtools.schema.catalog import Catalog, Column, Key, Table
from dbtools.service.execution import Execution
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.statements.select import Statement
from dbtools.values.types import ColumnType, Family
from tests.protocol.client import VERSIONS, Message, build_server, connect
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

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        """Raise the error."""
        raise self._error


class AnswersNonsense(Steady):
    """Answers every statement with what no tool can render."""

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        """Return a row that is none."""
        row = cast("tuple[object, ...]", None)
        return ResultSet(outputs=statement.shape.outputs, rows=(row,))


def _toolbox(execution: Execution, catalog: Catalog | BaseException = CATALOG) -> Toolbox:
    async def introspect() -> Catalog:
        if isinstance(catalog, BaseException):
            raise catalog
        return catalog

    return Toolbox(resolving(introspect, (Role(),)), execution)


ERRORS = [
    RuntimeError(f"secret dsn {SECRET}"),
    ValueError(SECRET),
    KeyError(SECRET),
    RecursionError(SECRET),
    OSError(5, SECRET),
    ExceptionGroup(SECRET, [ValueError(SECRET)]),
]
#: Executions that fail, and what of them is written down and never answered.
FAILURES: list[tuple[Execution, str]] = [(Raises(each), SECRET) for each in ERRORS]
FAILURES.append((AnswersNonsense(), "NoneType"))


@pytest.mark.parametrize("version", VERSIONS)
async def test_answer_shows_nothing_of_an_exception_but_its_mark_in_the_log(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    for execution, secret in FAILURES:
        caplog.clear()
        async with connect(build_server(_toolbox(execution), Caller(), ""), version=version) as client:
            await client.open()
            called = await client.result("tools/call", CALL)
            read = await client.error("resources/read", READ)
            listed = await client.result("tools/list")  # it goes on

        text = called["content"][0]["text"]
        messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert (called["isError"], read["code"], len(listed["tools"])) == (True, INTERNAL_ERROR, 4)
        for told, message in zip((text, read["message"]), messages, strict=True):
            assert told.partition("Internal error ")[2].partition(".")[0] in message
        assert secret not in str(client.received)
        assert secret in caplog.text


@pytest.mark.parametrize("version", VERSIONS)
async def test_answer_shows_nothing_of_an_exception_in_introspection(version: str) -> None:
    server = build_server(_toolbox(AnswersNonsense(), RuntimeError(SECRET)), Caller(), "")
    async with connect(server, version=version) as client:
        await client.open()
        listed = await client.error("tools/list")
        called = await client.result("tools/call", CALL)
        read = await client.error("resources/read", READ)

    told = [listed["message"], called["content"][0]["text"], read["message"]]
    assert ["Internal error" in each for each in told] == [True] * 3
    assert listed["code"] == INTERNAL_ERROR
    assert SECRET not in str(client.received)


LOST = DatabaseUnavailable("The database refused the login: user or password is wrong.")


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_the_model_can_fix_is_explained(version: str) -> None:
    """The reason for which a database is lost reaches no client."""
    for error in (Busy(), TimedOut(), DatabaseUnavailable(), LOST):
        async with connect(build_server(_toolbox(Raises(error)), Caller(), ""), version=version) as client:
            await client.open()
            called = await client.result("tools/call", CALL)
            read = await client.error("resources/read", READ)

        message = str(DatabaseUnavailable() if error is LOST else error)
        assert called["isError"] is True
        assert called["content"] == [{"type": "text", "text": message}]
        assert read["message"] == message


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
