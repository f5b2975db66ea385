"""A login that `dbtools grants` creates can evaluate every condition that its role may use in `where`."""

import json

import asyncpg
import pytest

from tests.database.granted_login import Shop, shop as shop
from tests.database.test_write_logins import (
    allowed_statements,
    call,
    configured,
    desk as desk,
    drop,
    problems,
    script,
    writer_url,
)

CHOOSING = """
[roles.support]
tables.regions = true
tables.orders = { exclude = ["margin"], where = "total < 30", delete = true, max_affected = 3 }
[roles.support.tables.customers]
columns = ["id", "name", "region_id"]
where = "tenant = 'a'"
update = ["name"]
max_affected = 3
"""


def test_second_login_reads_what_conditions_read(desk: Shop) -> None:
    north = [{"column": "customer.region.name", "value": "north"}]
    big = [{"some": "orders", "where": [{"column": "total", "op": "lt", "value": 20}]}]
    desk.execute(script(desk, writer_url(desk), CHOOSING))
    try:
        path = configured(desk, desk.own_url, writer_url(desk), CHOOSING)
        found = problems(path)
        updated = call(path, "update_rows", {"table": "customers", "where": big, "set": {"name": "x"}})
        # This login may not lock a row of the table, since it only deletes.
        deleted = call(path, "delete_rows", {"table": "orders", "where": north})
        allowed = desk.server.portal.call(allowed_statements, writer_url(desk))
        for hidden in (
            "margin from app.orders",
            "ssn from customers",
            "ctid from customers",
            "1 from tickets",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                desk.execute(f"set role {desk.login}_writer; select {hidden}")
    finally:
        drop(desk)

    assert (found, allowed) == ([], [])
    assert json.loads(updated.stdout)["rows"] == [[1, "x", 1]]
    assert json.loads(deleted.stdout)["rows"] == [[1, 1, 10]]
