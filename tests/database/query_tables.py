"""The database whose queries the tests serve."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from tests.database.query_shop import FILES, QueryShop, ServeQueries
from tests.protocol.command_line import run

DDL = """
create table customers (
    id integer primary key, name text not null, email text, country text not null, tenant integer not null
);
create table secrets (id integer primary key, customer_id integer not null, price integer not null);
insert into customers values
    (1, 'Ada', 'ada@example.com', 'PT', 7), (2, 'Bo', 'bo@example.com', 'JP', 8),
    (3, 'Cy', 'cy@example.com', 'PT', 7);
insert into secrets values (1, 2, 100);
"""
QUERIES = {"shop.sql": (FILES / "shop.sql").read_text()}
ROLES = """
[roles.named]
tables.customers = true
queries = ["customers_of", "mine"]
[roles.patterned]
queries = ["*s"]
[roles.child]
inherits = ["named"]
queries = ["pe?k"]
[roles.none]
tables.customers = true
[roles.all]
tables."*" = true
queries = ["*"]
"""


@pytest.fixture(scope="module")
def shops(serve_queries: ServeQueries) -> Iterator[object]:
    """Yield the shop of each dialect with its roles."""
    with ExitStack() as stack:
        yield cache(lambda dialect: stack.enter_context(serve_queries(dialect, DDL, QUERIES, ROLES)))


def queries_of(shop: QueryShop, role: str) -> list[str]:
    return [each.name for each in shop.view(role).context.queries]


def known_of(shop: QueryShop) -> dict[str, Any]:
    """Return what `dbtools check` says about queries, and the views that patterns do not grant."""
    found = json.loads(run("check", str(shop.path), "--json").stdout)
    return {"views": found.get("views", {}), **found.get("queries", {})}


def findings_of(shop: QueryShop) -> list[dict[str, object]]:
    """Return what `dbtools check` finds, in files by their names in the folder of queries.

    Of the login, which may do everything, it is nothing.
    """
    told = run("check", str(shop.path), "--json").stdout.replace(f"{shop.path.parent / 'queries'}/", "")
    found = json.loads(told)["findings"]
    return [each for each in found if each["code"] not in ("posture", "no_sql")]
