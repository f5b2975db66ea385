"""What a caller gets when a database does not run a statement. A cause and facts in; an error out.

A backend finds the cause of an error of its driver. The text of that error reaches no caller, since it may
quote hidden data.
"""

from collections.abc import Iterable
from enum import Enum, unique

from dbtools import errors
from dbtools.errors import listing
from dbtools.policy.writes import named_in
from dbtools.schema.catalog import RowFilter
from dbtools.statements.write import Write, WriteKind

CANNOT_CHANGE = "The database cannot make this change."
OTHERS = "Use the other tools, or try again in a moment."
#: Why a role may not make a change.
UNSEEN = "After the change, the row would not be among those that you may change."
UNFIT = "The changed row would break the rules of your role."


@unique
class Cause(Enum):
    """Why a statement was not run: the error, its message unless that is the usual one, and its hint."""

    # Of any statement.
    TIMED_OUT = (errors.TimedOut,)
    BUSY = (errors.Busy,)
    NO_CONNECTION = (errors.Busy, "All connections to the database are busy.", "Try again.")
    SCHEMA_CHANGED = (errors.SchemaChanged,)
    OUT_OF_RANGE = (errors.OutOfRange,)
    UNAVAILABLE = (errors.DatabaseUnavailable,)
    UNFINISHED = (
        errors.DatabaseUnavailable,
        "The database file must be recovered: a program stopped while writing to it.",
        "Open it once with a program that may write to it, such as `sqlite3 FILE .tables`.",
    )
    NO_RESOURCES = (errors.Refused, "The database lacks the resources for this call.", "Ask for less.")
    SESSION_REFUSED = (errors.Refused, "The database does not accept the settings of this role.")

    # Of a read.
    UNREADABLE = (errors.Unreadable,)
    NO_PRIVILEGE = (errors.Unreadable, "The login may not read this table or view, or one that it reads.")
    NEVER_REFRESHED = (errors.Unreadable, "A view was never refreshed, or a foreign table has no server.")
    LARGE_CELL = (
        errors.Unreadable,
        "A cell is larger than 16 MiB and cannot be read here.",
        "Name columns without it.",
    )
    WIDE_ROW = (errors.Refused, "A row of all these columns is too wide.", "Ask for fewer columns.")
    BAD_VALUE = (
        errors.BadValue,
        "The database cannot read one of the values, or a view cannot compute a row.",
    )
    READ_WRITES = (errors.Refused, "The statement tries to write, but may only read.")

    # Of callers' SQL.
    NO_PROCESS = (errors.Busy, "run_sql could not start a process for the statement.", OTHERS)
    OVERLOADED = (errors.Busy, "Too many statements are running.", "Try again in a moment.")
    NAMES_UNREAD = (
        errors.TimedOut,
        "The timeout was reached while the names in the database were read.",
        "Try again in a moment.",
    )
    SLOW_CHECK = (
        errors.TimedOut,
        "Checking the statement takes too long.",
        "Write it with fewer joins and with fewer brackets within each other; join with on or using.",
    )
    LARGE_ANSWER = (
        errors.Refused,
        "The server sends too much for one call.",
        "Ask for fewer and shorter values.",
    )

    # Of a change.
    FAILED = (errors.Refused, CANNOT_CHANGE)
    INCOMPLETE_SCHEMA = (
        errors.Refused,
        CANNOT_CHANGE,
        "A trigger or a check needs what is missing in this SQLite: dbtools check names it.",
    )
    LONG_VALUE = (errors.BadValue, "A value is too long for its column.")
    LARGE_NUMBER = (errors.BadValue, "A number is out of the range of its column.")
    ROW_LOCKED = (errors.Busy, "Another transaction locks the row.", "Try again in a moment.")
    FILE_LOCKED = (errors.Busy, "Another program locks the database file.")
    READ_ONLY = (errors.Refused, "The database accepts no changes: it is read-only, or a standby.")
    CHANGE_DENIED = (errors.Refused, "The database does not let this login make the change.")
    DISK_FULL = (errors.Refused, "The database's disk is full.")
    FILE_FULL = (errors.Refused, "The disk or a quota is full.")
    FILE_UNWRITABLE = (errors.DatabaseUnavailable, "The database file cannot be written.")
    PREPARES_STATEMENT = (errors.Refused, "A trigger prepares a statement, which other callers could use.")
    UNDECODABLE_KEY = (
        errors.Refused,
        "The row is found by its key, which is not valid UTF-8, because its table has no rowid.",
    )
    MOVED = (errors.Refused, "A row is not found after the change: a trigger may have moved it.")
    CHANGED_CONCURRENTLY = (
        errors.Busy,
        "Another transaction has changed some of the rows, or a trigger or row-level security keeps them as "
        "they are.",
        "Try again.",
    )
    OTHER_VALUES = (errors.Conflict, "", "Read it again, and pass its values as expected.")
    LOST_BEFORE_COMMIT = (errors.DatabaseUnavailable, "The connection was lost before COMMIT.")

    def __init__(self, kind: type[errors.CallError], message: str = "", hint: str = "") -> None:
        self.kind = kind
        self.message = message
        self.hint = hint

    def error(self) -> errors.CallError:
        """Return the error that a caller gets."""
        return self.kind(self.message, hint=self.hint)


def kept_row() -> errors.ConstraintViolated:
    """Return the error of a change that the database has not made, without saying why."""
    return errors.ConstraintViolated(kind=errors.Broken.KEPT)


def unseen_row(shape: Write) -> errors.Denied:
    """Return the error of a row that the change *shape* would move out of the row filter of the role."""
    return _denial(UNSEEN, shape, [shape.table.filter])


def unfit_row(shape: Write) -> errors.Denied:
    """Return the error of a row that would not satisfy a check of the role after the change *shape*."""
    return _denial(UNFIT, shape, shape.checks)


def _denial(message: str, shape: Write, conditions: Iterable[RowFilter | None]) -> errors.Denied:
    """Return the error with the columns that *conditions* are about and that the role may set."""
    settable = shape.writes.update if shape.kind is WriteKind.UPDATE else shape.writes.insert or ()
    named = dict.fromkeys(name for each in conditions for name in named_in(each, settable))
    return errors.Denied(message, hint=f"Check {listing(named)}." if named else "")


def many_matches(most: int) -> errors.TooManyRows:
    """Return the error of conditions that more than *most* rows meet."""
    found = f"where matches more than {_rows(most)}"
    return errors.TooManyRows(f"{found}, the most that one call may change.", hint="Narrow where.")


def many_by_query(most: int) -> errors.TooManyRows:
    """Return the error of a permitted query that would change more than *most* rows."""
    message = f"The query would change more than {_rows(most)}."
    return errors.TooManyRows(message, hint="Use arguments that select fewer rows.")


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number > 1)}"
