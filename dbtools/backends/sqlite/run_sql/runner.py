"""Run callers' SQL in worker processes. A SqlRun in; rows out, or a refusal in dbtools' own words."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.backends.compiled import identifier
from dbtools.backends.processes import LOST, WorkerPool
from dbtools.backends.run_sql import SqlExplanation, check
from dbtools.backends.runs import SqlRun
from dbtools.backends.sqlite.connection.files import FileLocation, connect
from dbtools.backends.sqlite.run_sql.lens import FILE_OF, claims_of, lens_of, random_name, specification
from dbtools.backends.sqlite.run_sql.refusals import checked_sql, error_of_answer
from dbtools.backends.sqlite.schema.syntax import fold, names_in
from dbtools.schema.catalog import Catalog, Column
from dbtools.statements.select import Output
from dbtools.values.cells import Cut
from dbtools.values.types import ColumnType, Family

ATTEMPTS = 2  #: at a statement, if its worker ends or the file cannot be opened
LENSES = 64  #: that are kept, one for each role and its claims
ANY = ColumnType(family=Family.ANY, name="any")
WORKER = "dbtools.backends.sqlite.run_sql.worker"  #: the module that answers in the process


class SqliteSqlRunner:
    """The SqlRunner of SQLite."""

    def __init__(self, location: FileLocation) -> None:
        self._location = location
        self.workers = WorkerPool(WORKER)
        self._checking = anyio.CapacityLimiter(1)
        #: By catalog and claims; each with its catalog, so that no other gets the same identity.
        self._lenses: dict[object, tuple[Catalog, Mapping[str, Any], frozenset[str]]] = {}

    async def run(self, run: SqlRun) -> ResultSet:
        """Return the rows of *run*."""
        answer = await self._answer(run, *await self._checked_sql(run), explains=False)
        rows = tuple(tuple(map(_cell, row)) for row in answer["rows"])
        outputs = tuple(Output(term=Column(name=name, type=ANY)) for name in answer["names"])
        return ResultSet(outputs=outputs, rows=rows, more=answer["more"])

    async def explain(self, run: SqlRun) -> SqlExplanation:
        """Return the views that *run* reads, and what both safeguards say."""
        sql, names = await self._checked_sql(run)
        await self._answer(run, sql, names, explains=True)
        lens = lens_of(run, FILE_OF)
        read = {name: view for name, view in lens.views.items() if fold(name) in names}
        views = [f"create temp view {identifier(name)} as {view};\n" for name, view in read.items()]
        seen = errors.listing(read)
        named = f", and reads {seen} as the role sees them" if read else ""
        return SqlExplanation(
            sql="".join(views) + sql,
            parameters=(),
            verdicts=(
                f"It can name {len(lens.direct) + len(lens.views)} tables{named}.",
                "The program that SQLite compiles opens only these, and changes nothing.",
            ),
        )

    async def close(self) -> None:
        """End the processes."""
        await self.workers.close()

    async def _checked_sql(self, run: SqlRun) -> tuple[str, frozenset[str]]:
        """Return the SQL of *run* as SQLite gets it, and the names in it; or raise SqlRefused."""
        return await check(run.sql, partial(_with_names, run.sql), self._checking)

    async def _answer(
        self, run: SqlRun, sql: str, names: frozenset[str], *, explains: bool
    ) -> Mapping[str, Any]:
        ends = asyncio.get_running_loop().time() + run.context.timeout
        spec, denied = self._lens(run)
        if not denied.isdisjoint(names):
            raise errors.Denied
        request = {
            "key": spec["schema"],
            "sql": sql,
            # Before a word, SQLite takes a byte order mark for white space.
            "names": [name.lstrip("\ufeff") for name in names],
            "limit": run.limit,
            "longest": run.longest,
            "bytes": run.most_bytes,
            "explains": explains,
        }

        async def specify() -> Mapping[str, Any]:
            return spec

        answer = LOST
        for _ in range(ATTEMPTS):
            answer = await self.workers.ask(request, specify, caller=run.caller, ends=ends)
            if answer.get("error") == "open":
                # Explains why.
                (await asyncio.to_thread(connect, self._location)).close()
            elif answer.get("error") != "lost":
                break
        if "error" in answer:
            raise await check(run.sql, partial(error_of_answer, answer, run), self._checking)
        return answer

    def _lens(self, run: SqlRun) -> tuple[Mapping[str, Any], frozenset[str]]:
        """Return the specification of the lens of *run*, and the tables that lack a claim."""
        claims = repr([run.claims.get(name) for name in claims_of(run.catalog)])
        key = (id(run.catalog), run.context.stamp, claims)
        found = self._lenses.pop(key, None)
        if found is None:
            schema = random_name()
            lens = lens_of(run, schema)
            found = (
                run.catalog,
                specification(lens, self._location, run.context.stamp, schema, run.functions),
                lens.denied,
            )
        # The last one is that which was used last.
        self._lenses[key] = found
        if len(self._lenses) > LENSES:
            del self._lenses[next(iter(self._lenses))]
        return found[1:]


def _with_names(sql: str) -> tuple[str, frozenset[str]]:
    written = checked_sql(sql)
    return written, names_in(written)


def _cell(cell: object) -> object:
    """Return *cell* of an answer as the driver would."""
    if not isinstance(cell, dict):
        return cell
    start = bytes.fromhex(cell["hex"]) if "hex" in cell else cell["text"]
    return start if len(start) == cell["length"] else Cut(start=start, length=cell["length"])
