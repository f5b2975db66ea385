"""The fixtures of the tests on real databases: served ones, of either dialect."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dbtools.service import toolbox
from dbtools.settings import LimitsSection
from tests.conftest import OpenDatabase
from tests.database.helpdesk import OpenDesk, opening as open_desks
from tests.database.query_shop import QueryShop, ServeQueries, open_query_shop
from tests.database.sharing import Shelf
from tests.database.shop import DIALECTS, Serve, Shop, Shops, open_shop, open_shops
from tests.database.written_shop import Opens, opening


@pytest.fixture(scope="session", params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """Return a loop in a separate thread, where toolboxes outlive a test."""
    with start_blocking_portal("asyncio") as portal:
        yield portal


@pytest.fixture(scope="session")
def shelf() -> Shelf:
    """Return the served databases of the module that is tested."""
    return Shelf()


@pytest.fixture(scope="module", autouse=True)
def _cleared(shelf: Shelf) -> Iterator[None]:
    yield
    shelf.clear()


@pytest.fixture(scope="session")
def serve(portal: BlockingPortal, open_database: OpenDatabase, shelf: Shelf) -> Serve:
    """Return a factory: a dialect and DDL in, a served database out, with the rows of the DDL, for any scope.

    Tests of a module share it, unless they want a *fresh* one.
    """

    @contextmanager
    def make(dialect: str, ddl: str, limits: LimitsSection | None) -> Iterator[Shop]:
        with open_database(dialect, ddl) as url, open_shop(dialect, url, portal, limits) as shop:
            yield shop

    @contextmanager
    def serve(
        dialect: str, ddl: str, *, limits: LimitsSection | None = None, fresh: bool = False
    ) -> Iterator[Shop]:
        opening = make(dialect, ddl, limits)
        with opening if fresh else shelf.lend((dialect, ddl, repr(limits)), opening) as shop:
            yield shop

    return serve


@pytest.fixture(scope="session")
def serve_queries(
    portal: BlockingPortal, open_database: OpenDatabase, tmp_path_factory: pytest.TempPathFactory
) -> ServeQueries:
    """Return a factory: a dialect, DDL, files of queries and the rest of a configuration in, a shop out."""

    @contextmanager
    def serve_queries(
        dialect: str, ddl: str, queries: Mapping[str, str | bytes], rest: str = ""
    ) -> Iterator[QueryShop]:
        folder = tmp_path_factory.mktemp("served")
        with open_database(dialect, ddl) as url, open_query_shop(url, folder, queries, rest, portal) as shop:
            yield shop

    return serve_queries


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Shops]:
    """Yield the databases of the module's DDL, which is the same for all dialects or a mapping."""
    ddl = request.module.DDL
    by_dialect = ddl if isinstance(ddl, Mapping) else dict.fromkeys(DIALECTS, ddl)
    with open_shops(serve, by_dialect) as shops:
        yield shops


@pytest.fixture
def shop(dialect: str, shops: Shops) -> Shop:
    """Return the database of this dialect that the module's `shops` open."""
    return shops(dialect)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an empty answer be explained however busy the machine is."""
    monkeypatch.setattr(toolbox, "EXPLANATION_TIMEOUT", 30.0)


@pytest.fixture(scope="session")
def opened(serve: Serve) -> Opens:
    """Return what opens a database of orders that its caller may change."""
    return opening(serve)


@pytest.fixture(scope="session")
def desks(serve_queries: ServeQueries) -> OpenDesk:
    """Return what serves a help desk with queries that change its rows."""
    return open_desks(serve_queries)
