"""What a database is asked to run, and the result of writes: the values that cross the port in a call."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.policy.roles import NO_RULES, FunctionRules
from dbtools.schema.catalog import Catalog, Location
from dbtools.statements.select import Shape
from dbtools.statements.write import EarlierCall

NO_SESSION: Mapping[str, str] = {}
Row = tuple[object, ...]


class RunContext(NamedTuple):
    """How something runs, whatever it is."""

    timeout: float  #: seconds, enforced in the database
    session: Mapping[str, str] = NO_SESSION  #: settings of the database for this transaction alone
    stamp: str = ""  #: of the schema that it was made for, if known
    comment: str = ""  #: SQL in front of each statement, with the ID of the request
    application: str = ""  #: the application name with that ID: letters, digits and `-_.:`


class Run(NamedTuple):
    """A statement to run."""

    plan: Compiled
    values: Mapping[str, object]  #: including the claims that row filters use
    limit: int  #: rows
    context: RunContext
    shape: Shape | None = None  #: for the schema with the stamp; that of the plan may have older versions

    @property
    def parameters(self) -> tuple[object, ...]:
        """The values in the order of their placeholders, as the driver takes them."""
        return self.plan.bind_values(self.values, self.limit)


class JournalEntry(NamedTuple):
    """What the table `dbtools_write` keeps of a call, so that its change is made once."""

    id: str  #: random, or that of the confirmation, which works once
    caller: str
    tool: str
    key: str | None  #: the idempotency key
    arguments: str  #: a digest


class WriteResult(NamedTuple):
    """The result of writes."""

    rows: Sequence[Row]  #: after the change; before it, of deleted rows
    before: Sequence[Row | None]  #: of updated rows; an upsert has None for each row that it inserts
    affected: int
    #: As they were, the rows that the role does not see after the change, and as they are; None: no such row.
    left: Sequence[Row | None] = ()
    left_after: Sequence[Row | None] = ()
    ignored: int = 0  #: rows that an upsert leaves as they are
    #: If asked for: the other tables in which rows were changed, and their number.
    elsewhere: Sequence[tuple[frozenset[Location], int]] = ()
    unchecked: bool = False  #: whether a dry run leaves out constraints that only COMMIT checks
    earlier: EarlierCall | None = None  #: nothing was done, because this call had done it
    is_kept: bool = False  #: whether it was committed


class WriteRun(NamedTuple):
    """Writes to run in one transaction."""

    #: Each with its values; none if only the entry is to be kept.
    steps: Sequence[tuple[CompiledWrite, Mapping[str, object]]]
    claims: Mapping[str, object]  #: of the caller
    #: Returns whether to commit what was done, instead of rolling it back; called before COMMIT.
    keeps: Callable[[WriteResult], bool]
    counts: bool  #: whether to count rows that are changed in other tables
    context: RunContext
    entry: JournalEntry | None = None  #: kept in the same transaction
    versions: Sequence[str] = ()


class SqlRun(NamedTuple):
    """A caller's ad-hoc SQL, to run under the lens of a role."""

    sql: str
    catalog: Catalog  #: what the role sees: tables with their row filters and masks
    whole: Catalog  #: what the login sees, to know which names are hidden
    claims: Mapping[str, object]  #: of the caller
    caller: str  #: tells callers apart, so that none takes all workers
    limit: int  #: rows; one more is read
    longest: int  #: characters of a cell
    most_bytes: int  #: of all cells
    context: RunContext
    functions: FunctionRules = NO_RULES
