"""Run a statement under limits. Statement in, ResultSet out; the drivers' errors stop here."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import anyio
from opentelemetry.trace import Span

from dbtools import errors
from dbtools.backends.database import Database
from dbtools.backends.driver import Label
from dbtools.errors import listing
from dbtools.masks import masked_rows
from dbtools.policy import Limits, SessionSetting
from dbtools.results import ResultSet
from dbtools.statement import QueryShape, Shape, Statement, argument
from dbtools.telemetry import NO_SPAN, WAIT, Tells, is_told, request_comment, request_id, statement_span

if TYPE_CHECKING:
    from dbtools.backends.driver import Driver, Fetched, Plan

PATIENCE = 5.0  #: seconds in which a database says whether its schema is the same
GRACE = 1.0  #: seconds in which the database itself is expected to have stopped a statement
BAD_CLAIM = "Or a claim of yours cannot be read."
VICTIMS = 5  #: times that a statement is run again which had to make way for others
NO_LABEL = Label()
PLANS = 1_000  #: compiled shapes that are kept


class Run(NamedTuple):
    """A statement that is about to run."""

    driver: "Driver"
    statement: Statement
    plan: "Plan"
    values: Mapping[str, object]  #: the claims of filters among them
    session: Mapping[str, str]  #: settings of the database for this statement alone
    timeout: float  #: seconds


class Execution:
    """Runs statements on one database, which is told the id of the request by *tells*, if at all."""

    def __init__(self, database: Database, tells: Tells | None = None) -> None:
        self._database = database
        self._tells = tells
        self._is_told = is_told()
        self._compile: Callable[[Shape], Plan] | None = None

    async def execute(self, statement: Statement, limits: Limits) -> ResultSet:
        """Return the rows of *statement*, or raise a CallError; nothing runs on when this returns."""
        driver = await self._database.driver()
        plan = self._plan(driver, statement.shape)
        run = Run(
            driver=driver,
            statement=statement,
            plan=plan,
            values=values_of(plan, statement),
            session=session_of(statement),
            timeout=limits.timeout,
        )
        try:
            with self._span(plan) as span:
                fetched = self._look_up(run) if plan.is_lookup else None
                if fetched is None:
                    with anyio.fail_after(limits.timeout + GRACE):
                        fetched = await self._attempt(run, span)
                span.set_attribute("db.response.returned_rows", len(fetched.rows))
        except (TimeoutError, errors.TimedOut) as exc:
            raise _timed_out(limits) from exc
        except errors.SchemaChanged as exc:
            raise _changed(statement) from exc
        outputs = statement.shape.outputs
        rows = masked_rows([output.term.type for output in outputs], fetched.rows, statement.hash_key)
        return ResultSet(outputs=outputs, rows=rows, more=fetched.more)

    async def is_current(self, stamp: str) -> bool:
        """Return whether the schema is still as of *stamp*; also where nobody can tell."""
        driver = await self._database.driver()
        try:
            with anyio.fail_after(PATIENCE):
                return await self._stamp(driver) == stamp
        except (TimeoutError, errors.CallError):
            return True
        except driver.errors:
            return True

    async def _stamp(self, driver: "Driver") -> str:
        try:
            async with self._database.connection() as connection:
                return await driver.stamp(connection)
        except driver.errors as exc:
            if not driver.is_lost(exc):
                raise
        await self._database.reopen()
        async with self._database.connection() as connection:
            return await driver.stamp(connection)

    async def confirm(self, stamp: str) -> None:
        """Raise SchemaChanged where the schema is not as of *stamp*, and each call looks at that."""
        driver = await self._database.driver()
        if driver.confirms and not await self.is_current(stamp):
            raise errors.SchemaChanged

    def _look_up(self, run: Run) -> "Fetched | None":
        """Return the row that is read by its key, where the database is so near that it is there at once."""
        limit, stamp = run.statement.limit, run.statement.stamp
        parameters = run.driver.bound(run.plan, run.values, limit)
        return self._database.look_up(run.plan, parameters, limit=limit, stamp=stamp, label=self._label())

    async def _attempt(self, run: Run, span: Span) -> "Fetched":
        """Run a statement, and once more where the connection or what was prepared was out of date."""
        driver, statement = run.driver, run.statement
        try:
            return await self._fetch_again(run, span)
        except driver.errors as exc:
            if not (driver.is_lost(exc) or driver.is_stale(exc)):
                raise self._translated(driver, exc, statement) from exc
            if driver.is_stale(exc) and statement.stamp and not await self.is_current(statement.stamp):
                # Its columns are of other types by now.
                raise errors.SchemaChanged from exc
        # The other connections that wait are out of date as well.
        await self._database.reopen()
        try:
            return await self._fetch_again(run, span)
        except driver.errors as exc:
            raise self._translated(driver, exc, statement) from exc

    async def _fetch_again(self, run: Run, span: Span) -> "Fetched":
        """Run a statement, and again where the database has stopped it in favour of a migration."""
        for _ in range(VICTIMS):
            try:
                return await self._fetch(run, span)
            except run.driver.errors as exc:
                if not run.driver.is_victim(exc):
                    raise
        return await self._fetch(run, span)

    def _translated(self, driver: "Driver", error: Exception, statement: Statement) -> errors.CallError:
        translated = driver.translate(error)
        if isinstance(statement.shape, QueryShape):
            return _of_query(translated, statement, statement.shape)
        if isinstance(translated, errors.OutOfRange) and not statement.shape.computes:
            translated = errors.BadValue("A value is out of range, or a view fails on its rows.")
        if not isinstance(translated, errors.BadValue):
            return translated
        claimed, asked = statement.shape.claimed, listing(statement.shape.asked)
        if not statement.values:
            # A claim that is no value of the type that it is compared with lets nobody in.
            unreadable = errors.Unreadable("A row of this table or view cannot be computed.")
            return errors.Denied() if claimed else unreadable
        parts = [f"Values are given for {asked}."] if asked else []
        parts += [BAD_CLAIM] if claimed else []
        return errors.BadValue(translated.message, hint=" ".join(parts))

    async def _fetch(self, run: Run, span: Span) -> "Fetched":
        statement = run.statement
        began = time.monotonic()
        async with self._database.connection() as connection:
            waited = time.monotonic() - began
            span.set_attribute("dbtools.pool.wait", waited)
            WAIT.record(waited)
            return await run.driver.fetch(
                connection,
                run.plan,
                run.values,
                limit=statement.limit,
                timeout=run.timeout,
                session=run.session,
                stamp=statement.stamp,
                versions=statement.shape.versions,
                label=self._label(),
            )

    def _span(self, plan: "Plan") -> AbstractContextManager[Span]:
        return statement_span(plan.sql, _named(plan.shape)) if self._is_told else NO_SPAN

    def _label(self) -> Label:
        match self._tells:
            case "comment":
                return Label(comment=request_comment())
            case "application_name":
                return Label(application=f"dbtools:{request_id()}")
            case None:
                return NO_LABEL

    def _plan(self, driver: "Driver", shape: Shape) -> "Plan":
        if self._compile is None:
            self._compile = lru_cache(maxsize=PLANS)(driver.compile)
        return self._compile(shape)


def _named(shape: Shape) -> str:
    """Return what is read: the query or the table."""
    return shape.name if isinstance(shape, QueryShape) else shape.table.name


def values_of(plan: "Plan", statement: Statement) -> Mapping[str, object]:
    """Return the values of *statement* with the claims that the filters of *plan* ask for.

    Raise Denied where a claim is missing: a filter is never left out.
    """
    missing = [claim for claim in plan.claims.values() if statement.claims.get(claim) is None]
    if missing:
        raise errors.Denied
    return {**statement.values, **{name: statement.claims[claim] for name, claim in plan.claims.items()}}


def session_of(statement: Statement) -> Mapping[str, str]:
    """Return what the database is told of the caller of *statement*, by setting; or raise Denied."""
    return {each.name: _told(each, statement.claims) for each in statement.session}


def _told(setting: SessionSetting, claims: Mapping[str, object]) -> str:
    if setting.claim is None:
        return setting.value
    value = claims.get(setting.claim)
    if value is None:
        raise errors.Denied
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(statement: Statement) -> errors.SchemaChanged:
    told = "What the query reads has changed or is gone. List the tools again."
    return errors.SchemaChanged(told if isinstance(statement.shape, QueryShape) else "")


def _of_query(error: errors.CallError, statement: Statement, shape: QueryShape) -> errors.CallError:
    """Return *error* in words that fit a permitted query: whoever calls it knows of no table."""
    if not isinstance(error, errors.BadValue | errors.Unreadable):
        return error
    bound = [
        f"{name} ({type.name})"
        for name, type in shape.types.items()
        if statement.values.get(argument(name)) is not None
    ]
    if isinstance(error, errors.Unreadable) or not (bound or shape.claimed):
        return errors.Unreadable("The database cannot compute this query.")
    if not bound:
        # As of a table: a claim that cannot be read lets nobody in.
        return errors.Denied()
    parts = [f"Arguments: {listing(bound)}.", *([BAD_CLAIM] if shape.claimed else [])]
    return errors.BadValue("The database cannot compute this query with these values.", hint=" ".join(parts))


def _timed_out(limits: Limits) -> errors.TimedOut:
    return errors.TimedOut(
        f"The call reached its timeout of {limits.timeout:g} seconds and was stopped.",
        hint="Narrow it: conditions on key columns are quick, and so are fewer rows.",
    )
