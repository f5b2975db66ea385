"""Every error that a caller can meet: a stable code, a message and a hint.

DbtoolsError
├── CallError                 the model can mend it: a result with isError
│   ├── BadArgument           bad_argument
│   ├── UnknownArgument       unknown_argument
│   ├── UnknownTable          unknown_table
│   ├── UnknownColumn         unknown_column
│   ├── BadOperator           bad_operator
│   ├── BadValue              bad_value
│   ├── BadCursor             bad_cursor
│   ├── Denied                denied
│   ├── NoRow                 no_row
│   ├── TimedOut              timeout
│   ├── Busy                  busy
│   ├── TooManyCalls          too_many_calls
│   ├── Unreadable            unreadable
│   ├── SchemaChanged         schema_changed
│   ├── OutOfRange            out_of_range
│   ├── Refused               refused
│   └── DatabaseUnavailable   database_unavailable
├── UnknownTool               unknown_tool: a protocol error
├── UnknownResource           unknown_resource: a protocol error
└── ConfigurationError        configuration: exit status 2
"""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

MOST_NAMES = 60  #: names that one hint lists at the most


class DbtoolsError(Exception):
    """Something went wrong."""

    code = "error"

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or str(self.__doc__)
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message and, after a space, the hint."""
        return f"{self.message} {self.hint}".rstrip()


class CallError(DbtoolsError):
    """The call was refused."""

    code = "call_error"


class BadArgument(CallError):
    """An argument cannot be read."""

    code = "bad_argument"
    limit: str = ""  #: the limit of the role that does not allow it, if one does not


class UnknownArgument(CallError):
    """There is no such argument."""

    code = "unknown_argument"


class UnknownTable(CallError):
    """There is no such table."""

    code = "unknown_table"


class UnknownColumn(CallError):
    """There is no such column."""

    code = "unknown_column"


class BadOperator(CallError):
    """The column cannot be compared in this way."""

    code = "bad_operator"


class BadValue(CallError):
    """The value is not one that the column can hold."""

    code = "bad_value"


class BadCursor(CallError):
    """The cursor is not one that this tool gave for these arguments."""

    code = "bad_cursor"


class Denied(CallError):
    """The caller may not read this."""

    code = "denied"


class NoRow(CallError):
    """There is no row with this key."""

    code = "no_row"


class TimedOut(CallError):
    """The call reached its timeout and was stopped."""

    code = "timeout"


class Busy(CallError):
    """The database is busy. Try again in a moment."""

    code = "busy"


class TooManyCalls(CallError):
    """The caller makes more calls than it may."""

    code = "too_many_calls"


class Unreadable(CallError):
    """The database could not read this table or view."""

    code = "unreadable"


class SchemaChanged(CallError):
    """The table or view, or one that it reads, has changed or is gone. List the tools again."""

    code = "schema_changed"


class OutOfRange(CallError):
    """A number that the call computes, such as a sum, is beyond what its type can hold."""

    code = "out_of_range"


class Refused(CallError):
    """The database refused the statement."""

    code = "refused"
    offset: int | None = None  #: characters of an operator's SQL before what is wrong, where that is known
    passes: bool = False  #: whether it may well be otherwise in a moment, with nothing changed


class DatabaseUnavailable(CallError):
    """The database cannot be reached."""

    code = "database_unavailable"


class UnknownTool(DbtoolsError):
    """There is no such tool."""

    code = "unknown_tool"


class UnknownResource(DbtoolsError):
    """There is no such resource."""

    code = "unknown_resource"


class ConfigurationError(DbtoolsError):
    """The configuration cannot be used."""

    code = "configuration"

    def __init__(self, message: str = "", *, hint: str = "", place: object = None) -> None:
        super().__init__(message, hint=hint)
        self.place = place  #: in a file, if it is written there; its text stands before the message

    def __str__(self) -> str:
        """Return the place, the message and the hint."""
        return f"{self.place or ''}{super().__str__()}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …? " for the *known* names most like *name*, or nothing."""
    folded = {each.lower(): each for each in known}
    low = name.lower()
    like = get_close_matches(low, folded, n=3, cutoff=0.6)
    inside = [each for each in folded if len(low) > 2 and low in each]
    # A name that ends in this one, such as a path, is nearer than one that only looks like it.
    ends = sorted((each for each in inside if each.endswith((f".{low}", f":{low}"))), key=len)
    matches = list(dict.fromkeys([*ends, *like, *sorted(inside, key=len)]))[:3]
    return f"Did you mean {' or '.join(folded[match] for match in matches)}? " if matches else ""


def nearest_path(path: Path) -> str:
    """Return a hint for the first part of *path* that does not exist: the name there that is most like it."""
    missing = next((each for each in (*reversed(path.parents), path) if not os.path.exists(each)), path)
    folder = "" if missing == path else f"There is no folder {missing}. "
    try:
        return f"{folder}{nearest(missing.name, os.listdir(missing.parent))}"
    except OSError:
        return folder


def listing(names: Iterable[str]) -> str:
    """Return the *names* with commas between, the first sixty of them."""
    names = list(names)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
