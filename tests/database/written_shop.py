"""A database that a role may change: orders of customers in regions, with constraints of every kind."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection, RoleSection
from tests.database.role_callers import Caller, Grants, calling_as
from tests.database.shop import Serve, Shop

DDL = """
    create table regions (name text primary key);
    insert into regions values ('north'), ('south');
    create table customers (
        id integer primary key, name text not null, region text not null references regions (name)
    );
    insert into customers values (1, 'Ann', 'north'), (2, 'Bob', 'south'), (3, 'Cid', 'north');
    create table orders (
        id integer primary key,
        customer_id integer not null references customers (id),
        number text not null unique,
        status text not null default 'new' check (status in ('new', 'paid', 'sent')),
        note text,
        quantity integer not null default 1 check (quantity > 0),
        region text not null,
        created_by text,
        margin integer
    );
    insert into orders values
        (1, 1, 'A-1', 'new', 'call', 2, 'north', 'eve', 40),
        (2, 2, 'B-1', 'paid', null, 1, 'south', 'mallory', 50),
        (3, 3, 'C-1', 'sent', null, 5, 'north', 'eve', 60);
    create table order_lines (
        id integer primary key,
        order_id integer not null references orders (id) on delete cascade,
        product text not null
    );
    insert into order_lines values (1, 1, 'tent'), (2, 1, 'rope'), (3, 2, 'lamp');
    create table secrets (id integer primary key, order_id integer references orders (id));
    insert into secrets values (1, 3);
"""
REGION = "region = :claims.region"
NORTH = {"region": "north", "sub": "ann"}
ORDERS = GrantSection(
    exclude=("margin",),
    where=REGION,
    insert=("customer_id", "number", "status", "note", "quantity", "id"),
    update=("status", "note", "quantity", "number", "customer_id"),
    delete=True,
    check="status in ('new', 'paid')",
    preset={"region": ":claims.region", "created_by": ":claims.sub"},
)
GRANTS: Grants = {"customers": True, "regions": True, "orders": ORDERS, "order_lines": True}
#: A dialect, and perhaps other grants and claims, in; a caller with them, and the database, out.
Opens = Callable[..., AbstractContextManager[tuple[Caller, Shop]]]


def opening(serve: Serve) -> Opens:
    """Return what opens a database that its caller may change."""

    @contextmanager
    def opened(
        dialect: str,
        grants: Grants = GRANTS,
        *,
        ddl: str = DDL,
        roles: Mapping[str, RoleSection] | None = None,
        fresh: bool = False,
        **claims: object,
    ) -> Iterator[tuple[Caller, Shop]]:
        claimed = claims or NORTH
        with (
            serve(dialect, ddl, fresh=fresh) as shop,
            calling_as(shop, grants, claimed, roles=roles) as caller,
        ):
            yield caller, shop

    return opened


def stored(shop: Shop, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of *sql* as they are in the database."""
    return [tuple(row) for row in shop.bare.rows(sql)]


def refused(caller: Caller, tool: str, **arguments: object) -> errors.CallError:
    """Return the error with which *tool* refuses."""
    with pytest.raises(errors.CallError) as caught:
        caller.call(tool, **arguments)
    return caught.value
