"""Check ad-hoc SQL in processes that can be killed. A caller's SQL in; what may run, or a refusal, out.

For some texts, sqlglot takes time that grows exponentially. So the server itself does not parse callers' SQL.
"""

import asyncio
import base64
import pickle
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from dbtools import errors
from dbtools.backends.postgresql.run_sql.guarded import Guarded, Scope, guarded_of
from dbtools.backends.postgresql.run_sql.lens import is_whole
from dbtools.backends.postgresql.schema.vocabulary import Vocabulary
from dbtools.backends.processes import LOST, WorkerPool
from dbtools.backends.refusals import Cause
from dbtools.backends.run_sql import SIMPLER, sql_refusal
from dbtools.backends.runs import SqlRun
from dbtools.schema.catalog import Catalog, Column, Table

GUARD = "dbtools.backends.postgresql.run_sql.guard"  #: the module that answers in a process
PACKAGES = ("sqlglot", "orjson")  #: that it imports
ATTEMPTS = 2  #: at a statement, if its process ends
MOST_SCOPES = 64  #: of scopes that are kept
TOO_LARGE = "The statement needs too much memory to check"


class Guards:
    """Runs the guard in worker processes."""

    def __init__(self) -> None:
        self.workers = WorkerPool(GUARD, _folders(PACKAGES))
        self._numbers = count()
        #: By catalog and vocabulary; each with both, so that no others get the same identities.
        self._keys: dict[object, tuple[str, Catalog, Vocabulary]] = {}

    async def check(self, run: SqlRun, vocabulary: Vocabulary, ends: float) -> Guarded:
        """Return the statement of *run* as it may run, or raise a CallError.

        The check is stopped when the time of the loop is *ends*.
        """
        request = {"key": self._key(run.catalog, vocabulary), "sql": run.sql}

        async def specify() -> str:
            return await asyncio.to_thread(specification, run.catalog, run.whole, vocabulary)

        answer = LOST
        for _ in range(ATTEMPTS):
            try:
                answer = await self.workers.ask(request, specify, caller=run.caller, ends=ends)
            except errors.TimedOut as exc:
                raise Cause.SLOW_CHECK.error() from exc
            if answer.get("error") != "lost":
                break
        match answer.get("error"):
            case None:
                return guarded_of(answer, run.catalog)
            case "refused":
                raise errors.SqlRefused(answer["message"], hint=answer["hint"])
            case _:
                raise sql_refusal(TOO_LARGE, SIMPLER)

    async def close(self) -> None:
        """End the processes."""
        await self.workers.close()

    def _key(self, catalog: Catalog, vocabulary: Vocabulary) -> str:
        """Return the key by which processes know the scope of *catalog* and *vocabulary*."""
        identities = id(catalog), id(vocabulary)
        found = self._keys.pop(identities, None) or (str(next(self._numbers)), catalog, vocabulary)
        # The last one is that which was used last.
        self._keys[identities] = found
        if len(self._keys) > MOST_SCOPES:
            del self._keys[next(iter(self._keys))]
        return found[0]


def scope_of(catalog: Catalog, whole: Catalog, vocabulary: Vocabulary) -> Scope:
    """Return what ad-hoc SQL may name, without the row filters and whatever else only the server needs."""
    tables = tuple(
        Table(
            schema=table.schema,
            name=table.name,
            columns=tuple(Column(name=each.name, type=each.type) for each in table.columns),
            aggregated=table.aggregated,
        )
        for table in catalog.tables
    )
    return Scope(
        catalog=Catalog(
            tables=tables, default_schema=catalog.default_schema, search_path=catalog.search_path
        ),
        whole=frozenset(table.location for table in catalog.tables if is_whole(table, whole)),
        vocabulary=vocabulary,
    )


def specification(catalog: Catalog, whole: Catalog, vocabulary: Vocabulary) -> str:
    """Return the scope as a text for a process."""
    return base64.b64encode(pickle.dumps(scope_of(catalog, whole, vocabulary))).decode()


def _folders(packages: Iterable[str]) -> list[str]:
    """Return the folders in which *packages* are."""
    origins = (found.origin for name in packages if (found := find_spec(name)) and found.origin)
    return sorted({str(Path(origin).parents[1]) for origin in origins})
