"""Checking free SQL does not delay other calls."""

import threading

import anyio
import pytest

from dbtools.backends.free import LONG, check


@pytest.mark.parametrize(
    ("sql", "beside"),
    [pytest.param("x" * LONG, False, id="short"), pytest.param("x" * (LONG + 1), True, id="long")],
)
async def test_long_statement_is_checked_in_a_thread(sql: str, beside: bool) -> None:
    checked_in = await check(sql, threading.get_ident, anyio.CapacityLimiter(1))

    assert (checked_in != threading.get_ident()) == beside
