"""Run a statement under limits. Statement in, ResultSet out; its failures in words that fit what it reads."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache

from opentelemetry.trace import Span

from dbtools import errors
from dbtools.backends.plans import Plan
from dbtools.backends.port import Backend, Label, Run, Runner, is_current
from dbtools.errors import listing
from dbtools.masks import masked_rows
from dbtools.policy import Limits
from dbtools.results import ResultSet
from dbtools.statement import QueryShape, Shape, Statement, argument
from dbtools.telemetry import NO_SPAN, Tells, is_told, request_comment, request_id, statement_span

BAD_CLAIM = "Or a claim of yours cannot be read."
NO_LABEL = Label()
PLANS = 1_000  #: compiled shapes that are kept


class Execution:
    """Runs statements on one database, which is told the id of the request by *tells*, if at all."""

    def __init__(self, backend: Backend, tells: Tells | None = None) -> None:
        self._backend = backend
        self._tells = tells
        self._is_told = is_told()
        self._compile: Callable[[Shape], Plan] | None = None

    async def execute(self, statement: Statement, limits: Limits) -> ResultSet:
        """Return the rows of *statement*, or raise a CallError; nothing runs on when this returns."""
        runner = await self._backend.runner()
        plan = self._plan(runner, statement.shape)
        run = Run(
            plan=plan,
            values=values_of(plan, statement),
            limit=statement.limit,
            timeout=limits.timeout,
            session=session_of(statement),
            stamp=statement.stamp,
            # Those of the plan may be older: a shape is the same with others.
            versions=statement.shape.versions,
            label=self._label(),
        )
        try:
            with self._span(plan) as span:
                fetched = await runner.run(run)
                span.set_attribute("db.response.returned_rows", len(fetched.rows))
        except errors.CallError as exc:
            raise _told(exc, statement, limits) from exc
        outputs = statement.shape.outputs
        rows = masked_rows([output.term.type for output in outputs], fetched.rows, statement.hash_key)
        return ResultSet(outputs=outputs, rows=rows, more=fetched.more)

    async def is_current(self, stamp: str) -> bool:
        """Return whether the schema is still as of *stamp*; also where nobody can tell."""
        return await is_current(await self._backend.runner(), stamp)

    async def confirm(self, stamp: str) -> None:
        """Raise SchemaChanged where the schema is not as of *stamp*, and each call looks at that."""
        runner = await self._backend.runner()
        if runner.confirms and not await self.is_current(stamp):
            raise errors.SchemaChanged

    def _span(self, plan: Plan) -> AbstractContextManager[Span]:
        read = plan.shape.name if isinstance(plan.shape, QueryShape) else plan.shape.table.name
        return statement_span(plan.sql, read) if self._is_told else NO_SPAN

    def _label(self) -> Label:
        match self._tells:
            case "comment":
                return Label(comment=request_comment())
            case "application_name":
                return Label(application=f"dbtools:{request_id()}")
            case None:
                return NO_LABEL

    def _plan(self, runner: Runner, shape: Shape) -> Plan:
        if self._compile is None:
            self._compile = lru_cache(maxsize=PLANS)(runner.compile)
        return self._compile(shape)


def _told(error: errors.CallError, statement: Statement, limits: Limits) -> errors.CallError:
    """Return *error* in words that fit what *statement* reads."""
    if isinstance(error, errors.TimedOut):
        return errors.TimedOut(
            f"The call reached its timeout of {limits.timeout:g} seconds and was stopped.",
            hint="Narrow it: conditions on key columns are quick, and so are fewer rows.",
        )
    if isinstance(statement.shape, QueryShape):
        return _of_query(error, statement, statement.shape)

    if isinstance(error, errors.OutOfRange) and not statement.shape.computes:
        error = errors.BadValue("A value is out of range, or a view fails on its rows.")
    if not isinstance(error, errors.BadValue):
        return error
    claimed, asked = statement.shape.claimed, listing(statement.shape.asked)
    if not statement.values:
        # A claim that is no value of the type that it is compared with lets nobody in.
        unreadable = errors.Unreadable("A row of this table or view cannot be computed.")
        return errors.Denied() if claimed else unreadable
    parts = [f"Values are given for {asked}."] if asked else []
    parts += [BAD_CLAIM] if claimed else []
    return errors.BadValue(error.message, hint=" ".join(parts))


def values_of(plan: Plan, statement: Statement) -> Mapping[str, object]:
    """Return the values of *statement* with the claims that the filters of *plan* ask for.

    Raise Denied where a claim is missing: a filter is never left out.
    """
    return {**statement.values, **{name: _claim(statement, claim) for name, claim in plan.claims.items()}}


def session_of(statement: Statement) -> Mapping[str, str]:
    """Return what the database is told of the caller of *statement*, by setting; or raise Denied."""
    told = {
        each.name: each.value if each.claim is None else _claim(statement, each.claim)
        for each in statement.session
    }
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in told.items()}


def _claim(statement: Statement, name: str) -> object:
    value = statement.claims.get(name)
    if value is None:
        raise errors.Denied
    return value


def _of_query(error: errors.CallError, statement: Statement, shape: QueryShape) -> errors.CallError:
    """Return *error* in words that fit a permitted query: whoever calls it knows of no table."""
    if isinstance(error, errors.SchemaChanged):
        return errors.SchemaChanged("What the query reads has changed or is gone. List the tools again.")
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
