"""Word what a database refused for the role that asked. An error and what was run in, an error out."""

from collections.abc import Mapping, Sequence

from dbtools import errors
from dbtools.errors import listing
from dbtools.policy.writes import violation_of
from dbtools.schema.catalog import Catalog, Column, Table
from dbtools.statements.select import QueryShape, Statement, argument
from dbtools.statements.write import Transaction, Write, assigned_parameter, running_call

BAD_CLAIM = "Or a claim of the caller is invalid."
UNCHANGED = "Nothing was changed."


def refused_read(
    error: errors.CallError, statement: Statement, timeout: float, catalog: Catalog
) -> errors.CallError:
    """Return *error* worded for *statement* of a role that sees *catalog*."""
    if isinstance(error, errors.TimedOut):
        return errors.TimedOut(
            f"The call reached its timeout of {timeout:g} seconds and was stopped.",
            hint="Use conditions on key columns, or ask for fewer rows.",
        )
    if isinstance(statement.shape, QueryShape):
        return _of_query(error, statement.values, statement.shape)
    if isinstance(error, errors.Unreadable) and (empty := _empty_views(statement.shape.tables, catalog)):
        message = f"{listing(empty)} was never refreshed, so it cannot be read."
        return errors.Unreadable(message, hint=f"An operator can run REFRESH MATERIALIZED VIEW {empty[0]}.")
    if isinstance(error, errors.OutOfRange) and not (statement.shape.computes or statement.shape.raises):
        error = errors.BadValue("A value is out of range, or a view cannot compute a row.")
    if not isinstance(error, errors.BadValue):
        return error
    claimed, asked = statement.shape.claims, listing(statement.shape.asked)
    if not statement.values:
        # A claim that is not a value of the type that it is compared with denies the call.
        unreadable = errors.Unreadable("A row of this table or view cannot be computed.")
        return errors.Denied() if claimed else unreadable
    parts = [f"Check the values for {asked}."] if asked else []
    parts += [BAD_CLAIM] if claimed else []
    return errors.BadValue(error.message, hint=" ".join(parts))


def _of_query(error: errors.CallError, values: Mapping[str, object], shape: QueryShape) -> errors.CallError:
    """Return *error* worded for a permitted query, whose callers do not know its tables."""
    if isinstance(error, errors.SchemaChanged):
        return errors.SchemaChanged(
            "What the query reads has changed or no longer exists. List the tools again."
        )
    if not isinstance(error, errors.BadValue | errors.Unreadable):
        return error
    bound = _arguments(values, shape)
    if isinstance(error, errors.Unreadable) or not (bound or shape.claims):
        return errors.Unreadable("The database cannot compute this query.")
    if not bound:
        # As for a table: a claim that cannot be read denies the call.
        return errors.Denied()
    parts = [f"Arguments: {bound}.", *([BAD_CLAIM] if shape.claims else [])]
    return errors.BadValue("The database cannot compute this query with these values.", hint=" ".join(parts))


def _arguments(values: Mapping[str, object], shape: QueryShape) -> str:
    """Return the arguments among *values*, with their types."""
    return listing(
        f"{name} ({type.name})"
        for name, type in shape.types.items()
        if values.get(argument(name)) is not None
    )


def _empty_views(tables: Sequence[Table], catalog: Catalog) -> Sequence[str]:
    """Return the labels of what *tables* read and *catalog* has, but cannot be read until it is refreshed."""
    read = (*tables, *(each for table in tables for each in catalog.underlying_tables(table)))
    return [catalog.label(each) for each in read if not each.populated]


def refused_write(error: errors.CallError, transaction: Transaction, catalog: Catalog) -> errors.CallError:
    """Return *error* worded for *transaction* of a role that sees *catalog*: it says what has happened."""
    worded = _reword_error(error, transaction, catalog)
    if isinstance(worded, errors.Busy) and transaction.idempotency_key:
        return running_call()
    if isinstance(worded, errors.NoRow | errors.Conflict | errors.NotConfirmed | errors.UnknownOutcome):
        return worded
    return type(worded)(f"{worded.message} {UNCHANGED}", hint=worded.hint)


def _reword_error(error: errors.CallError, transaction: Transaction, catalog: Catalog) -> errors.CallError:
    shape, values = transaction.writes[0]
    if isinstance(error, errors.TimedOut):
        return errors.TimedOut()
    if isinstance(shape, QueryShape):
        return _of_changing_query(error, values, shape)
    writes = [each for each, _ in transaction.writes if isinstance(each, Write)]
    if isinstance(error, errors.ConstraintViolated):
        return violation_of(
            error, shape.table, catalog, refers=shape.refers, written=_given_values(transaction)
        )
    if isinstance(error, errors.BadValue) and not error.hint:
        columns = (column for each in writes for column in (*each.columns, *each.compared))
        asked = dict.fromkeys(f"{each.name} ({each.type.name})" for each in columns)
        claimed = f" {BAD_CLAIM}" if shape.claims else ""
        return errors.BadValue(error.message, hint=f"Check the values for {listing(asked)}.{claimed}")
    if isinstance(error, errors.NoRow):
        return errors.NoRow(transaction.missing[error.step] if transaction.missing else "")
    if isinstance(error, errors.UnknownOutcome):
        return errors.UnknownOutcome(error.message, hint="Read the rows before you try again.")
    return error


def _of_changing_query(
    error: errors.CallError, values: Mapping[str, object], shape: QueryShape
) -> errors.CallError:
    """Return *error* worded for a permitted query that changes rows."""
    arguments = _arguments(values, shape)
    if isinstance(error, errors.ConstraintViolated):
        hint = f"Arguments: {arguments}." if arguments else ""
        return errors.ConstraintViolated("A rule of the database does not allow this change.", hint=hint)
    if isinstance(error, errors.UnknownOutcome):
        hint = "Find out whether the change was made before you try again."
        return errors.UnknownOutcome(error.message, hint=hint)
    return _of_query(error, values, shape)


def _given_values(transaction: Transaction) -> Mapping[Column, Sequence[object]]:
    """Return the values that *transaction* gives each column."""
    found: dict[Column, list[object]] = {}
    for shape, values in transaction.writes:
        for column in shape.columns if isinstance(shape, Write) else ():
            found.setdefault(column, []).append(values[assigned_parameter(column.name)])
    return found
