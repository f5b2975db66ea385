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

    def __init_subclass__(cls, code: str) -> None:
        cls.code = code

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or str(self.__doc__)
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message and, after a space, the hint."""
        return f"{self.message} {self.hint}".rstrip()


class CallError(DbtoolsError, code="call_error"):
    """The call was refused."""


class BadArgument(CallError, code="bad_argument"):
    """An argument cannot be read."""

    limit: str = ""  #: the limit of the role that does not allow it, if one does not


class UnknownArgument(CallError, code="unknown_argument"):
    """There is no such argument."""


class UnknownTable(CallError, code="unknown_table"):
    """There is no such table."""


class UnknownColumn(CallError, code="unknown_column"):
    """There is no such column."""


class BadOperator(CallError, code="bad_operator"):
    """The column cannot be compared in this way."""


class BadValue(CallError, code="bad_value"):
    """The value is not one that the column can hold."""


class BadCursor(CallError, code="bad_cursor"):
    """The cursor is not one that this tool gave for these arguments."""


class Denied(CallError, code="denied"):
    """The caller may not read this."""


class NoRow(CallError, code="no_row"):
    """There is no row with this key."""


class TimedOut(CallError, code="timeout"):
    """The call reached its timeout and was stopped."""


class Busy(CallError, code="busy"):
    """The database is busy. Try again in a moment."""


class TooManyCalls(CallError, code="too_many_calls"):
    """The caller makes more calls than it may."""


class Unreadable(CallError, code="unreadable"):
    """The database could not read this table or view."""


class SchemaChanged(CallError, code="schema_changed"):
    """The table or view, or one that it reads, has changed or is gone. List the tools again."""


class OutOfRange(CallError, code="out_of_range"):
    """A number that the call computes, such as a sum, is beyond what its type can hold."""


class Refused(CallError, code="refused"):
    """The database refused the statement."""

    offset: int | None = None  #: characters of an operator's SQL before what is wrong, where that is known
    passes: bool = False  #: whether it may well be otherwise in a moment, with nothing changed


class DatabaseUnavailable(CallError, code="database_unavailable"):
    """The database cannot be reached."""


class UnknownTool(DbtoolsError, code="unknown_tool"):
    """There is no such tool."""


class UnknownResource(DbtoolsError, code="unknown_resource"):
    """There is no such resource."""


class ConfigurationError(DbtoolsError, code="configuration"):
    """The configuration cannot be used."""

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
