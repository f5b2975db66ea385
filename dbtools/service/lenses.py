"""Try what roles see of tables as ad-hoc SQL reads it. A role and its database in, findings out."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import zip_longest

from dbtools import errors
from dbtools.backends.compiled import identifier
from dbtools.backends.port import Backend
from dbtools.backends.run_sql import SqlRunner
from dbtools.backends.runs import RunContext, SqlRun
from dbtools.configured.resolved import ResolvedRole
from dbtools.findings import Finding, Kind, finding
from dbtools.schema.catalog import Table
from dbtools.schema.sql import Parameter
from dbtools.settings.sections import Settings
from dbtools.values.types import Family

#: A value of a claim, by the family of the columns with which it is compared; of all others "1".
SAMPLES: Mapping[Family, str] = {
    Family.DATE: "2000-01-01",
    Family.TIME: "00:00",
    Family.TIMESTAMP: "2000-01-01",
    Family.TIMESTAMPTZ: "2000-01-01",
    Family.INTERVAL: "P1D",
    Family.UUID: "00000000-0000-0000-0000-000000000000",
}
SAMPLE_CLAIM = "1"
AT_ONCE = 40  #: tables in one statement
TIMEOUT = 30.0  #: seconds for one statement


async def unread_findings(
    settings: Settings, resolved: ResolvedRole, backend: Backend
) -> AsyncIterator[Finding]:
    """Yield findings about the tables that a role sees, but that run_sql cannot read for it."""
    if not resolved.server:
        return
    runner = await backend.sql_runner()
    tables = [table for table in resolved.catalog.tables if table.aggregated]
    for at in range(0, len(tables), AT_ONCE):
        async for found in _lens_findings(settings, runner, resolved, tables[at : at + AT_ONCE]):
            yield found


async def _lens_findings(
    settings: Settings, runner: SqlRunner, resolved: ResolvedRole, tables: Sequence[Table]
) -> AsyncIterator[Finding]:
    """Yield findings about those of *tables* that cannot be read."""
    try:
        await runner.explain(_lens_statement(resolved, tables))
    except errors.CallError as exc:
        if len(tables) == 1:
            yield _finding(settings, resolved, tables[0], exc)
            return
        # Tables may also compare one claim with columns of several types.
        half = len(tables) // 2
        for part in (tables[:half], tables[half:]):
            async for found in _lens_findings(settings, runner, resolved, part):
                yield found


def _lens_statement(resolved: ResolvedRole, tables: Sequence[Table]) -> SqlRun:
    """Return a statement for the role that counts the rows of *tables*."""
    claims = {claim: sample for table in tables for claim, sample in _samples(resolved, table)}
    names = (".".join(identifier(part) for part in table.location if part) for table in tables)
    return SqlRun(
        sql=f"select {', '.join(f'(select count(*) from {name})' for name in names)}",
        catalog=resolved.catalog,
        whole=resolved.whole,
        claims=claims,
        caller=resolved.served.name,
        limit=1,
        longest=1,
        most_bytes=1_000,
        context=RunContext(timeout=TIMEOUT, stamp=resolved.whole.stamp),
        functions=resolved.served.functions,
    )


def _samples(resolved: ResolvedRole, table: Table) -> Iterator[tuple[str, str]]:
    """Yield each claim in the filter of *table*, and a value of the type that it is compared with."""
    if table.filter is None:
        return
    columns = (column for each in resolved.whole.tables for column in each.columns)
    types = {_without_quotes(column.type.cast): column.type for column in columns}
    claims = (piece.claim for piece in table.filter.condition.pieces if isinstance(piece, Parameter))
    for claim, cast in zip_longest(claims, table.filter.casts, fillvalue=""):
        type = types.get(_without_quotes(cast))
        if claim and type is not None:
            yield claim, next(iter(type.labels), SAMPLES.get(type.family, SAMPLE_CLAIM))
        elif claim:
            yield claim, SAMPLE_CLAIM


def _without_quotes(name: str) -> str:
    """Return the SQL *name* without quotes, which the types of filters have and those of columns may not."""
    return name.replace('"', "")


def _finding(settings: Settings, resolved: ResolvedRole, table: Table, problem: errors.CallError) -> Finding:
    rule = resolved.written.rule_of(resolved.whole, table)
    where = f"role {resolved.written.name}" + (f", tables.{rule.pattern}" if rule else "")
    source = rule.source if rule else settings.source("tools", "sql")
    # A sample that is not of the type of the claim says nothing about the table.
    kind = Kind.UNTRIED_BY_SQL if isinstance(problem, errors.Denied) else Kind.UNREAD_BY_SQL
    places = {"role": resolved.served.name, "where": where, "table": resolved.catalog.label(table)}
    return finding(kind, source, problem=problem.message, **places)
