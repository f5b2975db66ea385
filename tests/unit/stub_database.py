"""A database that answers from a script."""

from dataclasses import dataclass

import anyio

from dbtools import errors
from dbtools.answers.results import Changed
from dbtools.backends.runs import JournalEntry
from dbtools.policy.roles import Caller, Limits, Role
from dbtools.schema.catalog import Catalog
from dbtools.service.execution import Agrees, Execution
from dbtools.service.snapshot import RoleSnapshot
from dbtools.statements.write import Transaction
from tests.unit.shop import ORDER_LINE, PRODUCT, SALE

LARGE = Catalog(tables=(SALE, ORDER_LINE, PRODUCT))
ROLES = (Role(limits=Limits(max_rows=5)), Role(name="other"))


@dataclass
class Database:
    """Stands in for introspection: gives one catalog after the other, or the error in its place."""

    catalogs: list[Catalog | errors.DbtoolsError]
    read: int = 0

    async def introspect(self) -> Catalog:
        """Return the next catalog, and at last the same again."""
        await anyio.lowlevel.checkpoint()
        found = self.catalogs[min(self.read, len(self.catalogs) - 1)]
        self.read += 1
        if isinstance(found, errors.DbtoolsError):
            raise found
        return found


class Unchanging(Execution):
    """An execution without a database, which no call asks to change anything."""

    def __init__(self) -> None:
        """Open nothing."""

    async def change(
        self,
        transaction: Transaction,
        view: RoleSnapshot,
        caller: Caller,
        entry: JournalEntry | None = None,
        agrees: Agrees | None = None,
    ) -> Changed:
        raise AssertionError(transaction)
