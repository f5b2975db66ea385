"""What the shop asks every day: files of SQL in, rows of the registry out."""

from datetime import UTC, datetime
from pathlib import Path

from migrations.sample.shop.rows import Rows
from migrations.sample.shop.tables import RegisteredQuery

FOLDER = Path(__file__).parent.parent / "queries"
REGISTERED_AT = datetime(2026, 1, 2, 9, tzinfo=UTC)


def queries() -> Rows:
    """Return the permitted queries of the sample, as the registry keeps them."""
    return {"dbtools_query": [_registered(path) for path in sorted(FOLDER.glob("*.sql"))]}


def _registered(path: Path) -> RegisteredQuery:
    return RegisteredQuery(
        name=path.stem,
        version=1,
        text=path.read_text(encoding="utf-8"),
        enabled=True,
        changed_at=REGISTERED_AT,
    )
