"""Data for tests of the audit log."""

from datetime import datetime, timedelta, timezone

from dbtools.records import AuditEntry, Outcome

PATIENCE = 60  #: seconds for a process, which a busy machine may need
NAMES = frozenset({"id", "customers", "country", "customer", "total", "ordered_on", "Order Details", 'a"b'})
ENTRY = AuditEntry(
    time=datetime(2026, 3, 1, 13, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=1))),
    identity=None,
    role="default",
    tool="list_customers",
    arguments={"where": [{"column": "country", "op": "eq", "value": "Norway"}], "limit": 5},
    vocabulary=lambda: NAMES,
    rows=5,
    bytes=300,
    truncated=True,
    duration=0.00123456789,
    outcome=Outcome.OK,
    code=None,
    protocol="2025-11-25",
    client="raw/1",
)
