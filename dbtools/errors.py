"""Every error that a caller can get: a stable code, a message and a hint.

DbtoolsError
├── CallError                 the model can fix it: a result with isError
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
│   ├── ConstraintViolated    constraint
│   ├── Conflict              conflict
│   ├── TooManyRows           too_many_rows
│   ├── NotConfirmed          not_confirmed
│   ├── UnknownOutcome        unknown_outcome
│   ├── SqlRefused            sql_refused
│   └── DatabaseUnavailable   database_unavailable
├── UnknownTool               unknown_tool: a protocol error
├── UnknownResource           unknown_resource: a protocol error
└── ConfigurationError        configuration: exit status 2
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from copy import copy
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Self

LONGEST_SIMILAR = 400  #: characters of a name for which similar ones are searched
MISSPELLED = 0.75  #: how similar a name is to the one that is meant, where most are similar to some other
MOST_NAMES = 60  #: names that one hint lists at most


class DbtoolsError(Exception):
    """Something went wrong."""

    code = "error"

    def __init_subclass__(cls, code: str) -> None:
        cls.code = code

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or str(self.__doc__)
        self.hint = hint
        super().__init__(self.message)

    def with_hint(self, hint: str) -> Self:
        """Return the same error with another *hint*."""
        error = copy(self)
        error.hint = hint
        return error

    def __str__(self) -> str:
        """Return the message and, after a space, the hint."""
        return f"{self.message} {self.hint}".rstrip()


class CallError(DbtoolsError, code="call_error"):
    """The call was refused."""


class BadArgument(CallError, code="bad_argument"):
    """An argument is invalid."""

    def __init__(self, message: str = "", *, hint: str = "", limit: str = "") -> None:
        super().__init__(message, hint=hint)
        self.limit = limit  #: the limit of the role that rejects it, if one does


class UnknownArgument(CallError, code="unknown_argument"):
    """Unknown argument."""


class UnknownTable(CallError, code="unknown_table"):
    """Unknown table."""


class UnknownColumn(CallError, code="unknown_column"):
    """Unknown column."""


class BadOperator(CallError, code="bad_operator"):
    """The column does not support this operator."""


class BadValue(CallError, code="bad_value"):
    """The column cannot hold this value."""


class BadCursor(CallError, code="bad_cursor"):
    """The cursor does not belong to this tool and these arguments."""


class Denied(CallError, code="denied"):
    """The caller may not read this."""


class NoRow(CallError, code="no_row"):
    """No row has this key."""

    def __init__(self, message: str = "", *, hint: str = "", step: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.step = step  #: which of the changes of a call concerns it


class TimedOut(CallError, code="timeout"):
    """The call reached its timeout and was stopped."""


class Busy(CallError, code="busy"):
    """The database is busy. Try again in a moment."""


class TooManyCalls(CallError, code="too_many_calls"):
    """The caller has exceeded its rate limit."""


class Unreadable(CallError, code="unreadable"):
    """The database could not read this table or view."""


class SchemaChanged(CallError, code="schema_changed"):
    """The table or view, or one that it reads, has changed or no longer exists. List the tools again."""


class OutOfRange(CallError, code="out_of_range"):
    """A computed number, such as a sum, exceeds the range of its type."""


class Refused(CallError, code="refused"):
    """The database refused the statement."""

    def __init__(
        self, message: str = "", *, hint: str = "", offset: int | None = None, temporary: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset  #: where an operator's SQL is wrong, in characters, if known
        self.temporary = temporary  #: whether the same statement may succeed later


class Broken(StrEnum):
    """The kind of a constraint that a change violates."""

    UNIQUE = "unique"
    FOREIGN_KEY = "foreign key"  #: the row that is referred to does not exist
    REFERENCED = "referenced"  #: other rows refer to the row
    NOT_NULL = "not null"
    CHECK = "check"
    EXCLUSION = "exclusion"
    TRIGGER = "trigger"  #: code in the database raised an error
    POLICY = "policy"  #: of row-level security, for the new row
    KEPT = "kept"  #: the database left the row as it is, without an error
    UNKNOWN = "unknown"


class ConstraintViolated(CallError, code="constraint"):
    """The change violates a constraint; nothing was changed."""

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        kind: Broken = Broken.UNKNOWN,
        table: tuple[str, str] | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.table = table  #: its schema and name, if known
        self.columns = columns  #: of that table, if known


class Conflict(CallError, code="conflict"):
    """The row has changed: its values differ from the expected ones."""


class TooManyRows(CallError, code="too_many_rows"):
    """The change affects more rows than one call may."""


class NotConfirmed(CallError, code="not_confirmed"):
    """The change was not confirmed; nothing was changed."""

    def __init__(self, message: str = "", *, hint: str = "", declined: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.declined = declined  #: whether a person has declined it


class UnknownOutcome(CallError, code="unknown_outcome"):
    """COMMIT was interrupted, and the database does not say whether the change happened."""


class SqlRefused(CallError, code="sql_refused"):
    """run_sql does not run this statement."""


class DatabaseUnavailable(CallError, code="database_unavailable"):
    """The database cannot be reached. Try again in a minute."""

    def __init__(self, message: str = "", *, hint: str = "", temporary: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.temporary = temporary  #: whether it may help to try again later


class UnknownTool(DbtoolsError, code="unknown_tool"):
    """Unknown tool."""


class UnknownResource(DbtoolsError, code="unknown_resource"):
    """Unknown resource."""


class ConfigurationError(DbtoolsError, code="configuration"):
    """The configuration cannot be used."""

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        place: object = None,
        others: "Sequence[ConfigurationError]" = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.place = place  #: where in a file the mistake is, if known; begins the message
        self.others = others  #: the other mistakes in the same file

    @property
    def mistakes(self) -> "tuple[ConfigurationError, ...]":
        """All mistakes in the file."""
        return (self, *self.others)

    @property
    def line(self) -> str:
        """The place, the message and the hint of this mistake."""
        return f"{self.place or ''}{super().__str__()}"

    def __str__(self) -> str:
        """Return one line for each mistake."""
        return "\n".join(each.line for each in self.mistakes)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …? " for the *known* names most like *name*, or nothing."""
    if len(name) > LONGEST_SIMILAR:
        return ""
    folded = {each.lower(): each for each in known}
    low = name.lower()
    like = get_close_matches(low, folded, n=3, cutoff=0.6)
    inside = [each for each in folded if len(low) > 2 and low in each]
    # A name that ends in this one, such as a path, is nearer than one that is only similar.
    ends = sorted((each for each in inside if each.endswith((f".{low}", f":{low}"))), key=len)
    matches = list(dict.fromkeys([*ends, *like, *sorted(inside, key=len)]))[:3]
    return _suggestion([folded[match] for match in matches])


def correction_of(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …? " for those of very many *known* names that *name* misspells, or nothing."""
    return _suggestion(get_close_matches(name[:LONGEST_SIMILAR].lower(), known, n=3, cutoff=MISSPELLED))


def _suggestion(names: Sequence[str]) -> str:
    return f"Did you mean {alternatives(names)}? " if names else ""


def without_accents(text: str) -> str:
    """Return *text* without accents, so that texts which differ only in these are similar."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(each for each in letters if not unicodedata.combining(each))


def alternatives(names: Iterable[str]) -> str:
    """Return *names* as alternatives: `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def nearest_path(path: Path) -> str:
    """Return a hint about the first part of *path* that does not exist, with the most similar name there."""
    missing = next((each for each in (*reversed(path.parents), path) if not os.path.exists(each)), path)
    folder = "" if missing == path else f"There is no folder {missing}. "
    try:
        return f"{folder}{did_you_mean(missing.name, os.listdir(missing.parent))}"
    except OSError:
        return folder


def listing(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return at most *most* of *names*, separated by commas."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def series(parts: Sequence[str]) -> str:
    """Join *parts*, which contain commas, with semicolons."""
    *first, last = parts
    return f"{'; '.join(first)}; and {last}" if first else last
