"""The fixtures of the tests on real databases: served ones, of either dialect."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dbtools.service import toolbox
from dbtools.settings import LimitsSection
from tests.conftest import OpenDatabase
from tests.database.query_shop import QueryShop, ServeQueries, open_query_shop
from tests.database.shop import Shop, open_shop

DIALECTS = ("sqlite", "postgresql")

#: A dialect, DDL and limits in; a served database out.
Serve = Callable[..., AbstractContextManager[Shop]]
#: A dialect in, its database out, the same for all tests of a module.
Shops = Callable[[str], Shop]


@pytest.fixture(scope="session", params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Give each dialect."""
    return str(request.param)


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """Return a loop in a separate thread, where toolboxes outlive a test."""
    with start_blocking_portal("asyncio") as portal:
        yield portal


@pytest.fixture(scope="session")
def serve(portal: BlockingPortal, open_database: OpenDatabase) -> Serve:
    """Give a factory: a dialect and DDL in, a served database of one's own out, for any scope."""

    @contextmanager
    def serve(dialect: str, ddl: str, *, limits: LimitsSection | None = None) -> Iterator[Shop]:
        with open_database(dialect, ddl) as url, open_shop(dialect, url, portal, limits) as shop:
            yield shop

    return serve


@pytest.fixture(scope="session")
def serve_queries(
    portal: BlockingPortal, open_database: OpenDatabase, tmp_path_factory: pytest.TempPathFactory
) -> ServeQueries:
    """Give a factory: a dialect, DDL, files of queries and the rest of a configuration in, a shop out."""

    @contextmanager
    def serve_queries(
        dialect: str, ddl: str, queries: Mapping[str, str | bytes], rest: str = ""
    ) -> Iterator[QueryShop]:
        folder = tmp_path_factory.mktemp("served")
        with open_database(dialect, ddl) as url, open_query_shop(url, folder, queries, rest, portal) as shop:
            yield shop

    return serve_queries


@contextmanager
def open_shops(serve: Serve, ddl: Mapping[str, str], **limits: LimitsSection) -> Iterator[Shops]:
    """Give the database of each dialect with its *ddl*, opened when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda dialect: stack.enter_context(serve(dialect, ddl[dialect], **limits)))


@pytest.fixture
def shop(dialect: str, shops: Shops) -> Shop:
    """Give the database of this dialect that the module's `shops` open."""
    return shops(dialect)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an empty answer be explained however busy the machine is."""
    monkeypatch.setattr(toolbox, "EXPLANATION_TIMEOUT", 30.0)
