"""Databases for ad-hoc SQL on PostgreSQL: a shop with hidden rows, columns and tables, and one without."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql import Backend
from dbtools.backends.postgresql.run_sql.runner import PostgresqlSqlRunner
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.backends.runs import RunContext, SqlRun
from dbtools.errors import CallError
from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.schema.catalog import Catalog, RowFilter, Selection
from dbtools.schema.sql import scan
from dbtools.values.types import Mask
from tests.postgresql_server import PostgresqlServer

FOLDER = Path(__file__).parent
SEEN, HIDDEN = ((FOLDER / f"postgresql_free_{name}.sql").read_text() for name in ("seen", "hidden"))
CLAIMS = {"region": "north"}


@dataclass(frozen=True)
class SqlShop:
    """A database, and what a role sees of it."""

    url: str
    catalog: Catalog
    whole: Catalog
    runner: Any
    portal: BlockingPortal
    claims: Mapping[str, object]

    def request(self, sql: str, **other: Any) -> SqlRun:
        """Return the run of *sql*."""
        of_context = {name: other.pop(name) for name in RunContext._fields if name in other}
        run = SqlRun(
            sql=sql,
            catalog=self.catalog,
            whole=self.whole,
            claims=self.claims,
            caller="tests",
            limit=200,
            longest=500,
            most_bytes=200_000,
            context=RunContext(timeout=10.0, stamp=self.whole.stamp)._replace(**of_context),
        )
        return run._replace(**other)

    def run(self, sql: str, **other: Any) -> Any:
        """Return the result of *sql*."""
        return self.portal.call(self.runner.run, self.request(sql, **other))

    def rows(self, sql: str, **other: Any) -> list[tuple[object, ...]]:
        """Return the rows of *sql*."""
        return list(self.run(sql, **other).rows)

    def answer(self, sql: str, **other: Any) -> tuple[object, ...]:
        """Return the columns, types and rows of *sql*, or the code and text of its error."""
        try:
            found = self.run(sql, **other)
        except CallError as exc:
            return (exc.code, str(exc))
        columns = tuple((each.term.name, each.term.type.name) for each in found.outputs)
        return (columns, found.rows, found.more)


def role() -> Role:
    """Return the role that all ad-hoc SQL of the tests has."""
    condition = scan("region = :claims.region and (select count(*) from regions) > 0", lexis)
    filtered = RowFilter(condition=condition, casts=('"pg_catalog"."text"',), total=False)
    masks = {"email": Mask.PARTIAL, "phone": Mask.REDACT}
    return Role(
        rules=(
            Rule(pattern="public.customers", grant=Grant(exclude=("ssn",), filter=filtered, masks=masks)),
            Rule(pattern="public.orders", grant=Grant(exclude=("margin",))),
            Rule(pattern="public.regions", grant=Grant(exclude=("budget",))),
            *(Rule(pattern=name, grant=Grant()) for name in ("logs", "Odd Name")),
            Rule(pattern="public.paid", grant=Grant()),
        )
    )


@contextmanager
def open_free_shop(
    server: PostgresqlServer, portal: BlockingPortal, *, hidden: bool, more: str = ""
) -> Iterator[SqlShop]:
    """Yield a new database, with what the role does not see if *hidden*."""
    with server.database() as name:
        url = server.url_of(name)
        server.execute(SEEN + (HIDDEN if hidden else "") + more, url=url)
        shop = portal.call(read_shop, url, portal)
        try:
            yield shop
        finally:
            portal.call(shop.runner.close)


@pytest.fixture(scope="module")
def shop(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[SqlShop]:
    """Yield the shop with hidden rows, under a login that may do anything."""
    with open_free_shop(postgresql_server, portal, hidden=True) as shop:
        yield shop


@pytest.fixture(scope="module")
def twin(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[SqlShop]:
    with open_free_shop(postgresql_server, portal, hidden=False) as shop:
        yield shop


async def read_shop(url: str, portal: BlockingPortal) -> SqlShop:
    """Return the database at *url* as the role sees it."""
    backend = Backend(url)
    try:
        whole = await backend.introspect(Selection())
    finally:
        await backend.close()
    return SqlShop(
        url=url,
        catalog=restrict(whole, role()),
        whole=whole,
        runner=PostgresqlSqlRunner(url),
        portal=portal,
        claims=CLAIMS,
    )
