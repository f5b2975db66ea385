"""Servers that all kinds of clients visit, each started once."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from tests.clients.places import DDL, KINDS, Place, open_place
from tests.protocol.changing import Changing, open_changing
from tests.protocol.confirmed_things import DDL as THINGS


@pytest.fixture(scope="session")
async def places(
    request: pytest.FixtureRequest,
    postgresql_database: object,  # what is asked for here ends after the places
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Callable[[str], Awaitable[Place]]]:
    """Yield a factory: the name of a kind in, a place of that kind out, made once a session."""
    opened: dict[str, Place] = {}
    async with AsyncExitStack() as stack:

        async def place(name: str) -> Place:
            if name not in opened:
                kind = KINDS[name]
                changing = open_changing(kind.dialect, DDL[kind.dialect], request)
                open = open_place(kind, stack.enter_context(changing), tmp_path_factory.mktemp(name))
                opened[name] = await stack.enter_async_context(open)
            return opened[name]

        yield place


@pytest.fixture
async def place(
    request: pytest.FixtureRequest, places: Callable[[str], Awaitable[Place]]
) -> AsyncIterator[Place]:
    """Yield the place that the test names, and leave it as it was."""
    place = await places(request.param)
    yield place
    await place.lend_a_hand("drop it")  # a tour that failed has not


@pytest.fixture
def things(request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Yield a database with things that may be changed."""
    with open_changing("sqlite", THINGS, request) as changing:
        yield changing
