"""One call as an entry: a line of the log, in which values are written only where the operator wants them.

Else names of arguments, tables and columns are what is kept. Total and bounded, whatever a caller sends.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from itertools import islice
from urllib.parse import unquote

from dbtools.aggregates import Bucket, Function
from dbtools.backends.records import rfc3339
from dbtools.cells import plain
from dbtools.statement import Direction, Match
from dbtools.tools.describe_tables import Detail
from dbtools.types import Operator

CUT = "…"
LONGEST_TEXT = 500  #: characters of a value
LONGEST_NAME = 200  #: characters of a name, and of what is said of the caller
TOOL = re.compile(r"[a-z0-9_]{1,64}|[a-z]+/[a-z]+")  #: what may be a tool, or the method of a request
MOST = 100_000  #: as a limit; a number beyond may be a value
MOST_ITEMS = 50  #: of one array or object
MOST_PARTS = 1_000  #: of all arguments, more or less
DEEPEST = 8  #: levels of arguments
SCALARS = {str, int, float, bool, type(None)}
CONTAINERS = (dict, list, tuple, Mapping)
CLAUSES = {"where", "having", "measures"}  #: arguments whose objects hold names and values
NAMING = {"table", "tables", "columns", "order_by", "group_by", "match", "detail", "query"}
NAMING_IN_CLAUSES = {"column", "op", "function", "name"}
ARGUMENTS = {*CLAUSES, *NAMING, *NAMING_IN_CLAUSES} | {
    *("key", "limit", "cursor", "search", "arguments", "value", "values", "uri")
}
DIRECTIONS, FUNCTIONS = {str(each) for each in Direction}, {str(each) for each in Function}
WORDS = {str(word) for words in (Operator, Function, Bucket, Match, Direction, Detail) for word in words}
#: A name as callers write it: in double quotes anything, else up to a dot, a colon or a quote.
ADDRESS = re.compile(r"dbtools://(?:row|cell)/(?P<table>[^/]{1,200})/")  #: of a row, up to its key
NAME = re.compile(r'"((?:[^"]|"")+)"|([^.:"]+)')


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class AuditEntry:
    """One call of a tool, as far as it has come."""

    time: datetime  #: when it came, UTC
    identity: str | None
    role: str
    tool: str
    arguments: Mapping[str, object]  #: as given
    vocabulary: Callable[[], Collection[str]] = tuple  #: gives names of tables and columns that the role sees
    rows: int | None = None
    bytes: int | None = None
    truncated: bool | None = None
    duration: float = 0.0  #: seconds
    outcome: Outcome = Outcome.OK
    code: str | None = None
    protocol: str | None
    client: str | None
    request: str | None = None  #: its id, where the database is told it as well

    def content(self, *, arguments: bool) -> dict[str, object]:
        """Return what is written of it; *arguments* tells whether with the values of the arguments."""
        vocabulary = None if arguments else self.vocabulary()
        # A caller may have put something else in the place of a tool.
        tool = self.tool if arguments or TOOL.fullmatch(self.tool) else CUT
        told = {} if self.request is None else {"request": self.request}
        return {
            "time": rfc3339(self.time),
            "identity": _shortened(self.identity, LONGEST_NAME),
            "role": _shortened(self.role, LONGEST_NAME),
            "tool": _shortened(tool, LONGEST_NAME),
            "arguments": _Copy(vocabulary).of(self.arguments, _Place.TOP),
            "rows": self.rows,
            "bytes": self.bytes,
            "truncated": self.truncated,
            "duration": round(self.duration, 6),
            "outcome": str(self.outcome),
            "code": self.code,
            "protocol": self.protocol,
            "client": _shortened(self.client, LONGEST_NAME),
            **told,
        }


def _shortened(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else text[:most] + CUT


class _Place(Enum):
    """What may stand at a place of the arguments."""

    TOP = auto()
    CLAUSE = auto()
    NAME = auto()
    LIMIT = auto()
    ADDRESS = auto()
    VALUE = auto()


IN_CLAUSES: Mapping[object, _Place] = dict.fromkeys(NAMING_IN_CLAUSES, _Place.NAME)
#: What may stand in the arguments or keys of an object, where that is no value.
PLACES: Mapping[_Place, Mapping[object, _Place]] = {
    _Place.TOP: {
        **dict.fromkeys(CLAUSES, _Place.CLAUSE),
        **dict.fromkeys(NAMING, _Place.NAME),
        "limit": _Place.LIMIT,
        "uri": _Place.ADDRESS,
    },
    **dict.fromkeys((_Place.CLAUSE, _Place.NAME, _Place.ADDRESS), IN_CLAUSES),
    _Place.LIMIT: {},
    _Place.VALUE: {},
}


class _Copy:
    """Copies arguments within bounds: with a vocabulary without values, else with them.

    Names that are in the vocabulary stay, and so do the words that tools know, such as operators, and the
    number of `limit`.
    """

    def __init__(self, vocabulary: Collection[str] | None) -> None:
        self._vocabulary = vocabulary
        self._room = MOST_PARTS

    def of(self, value: object, place: _Place, depth: int = 1) -> object:
        """Return the copy of *value*, which stands at *place*."""
        self._room -= 1
        if value.__class__ in SCALARS or not isinstance(value, CONTAINERS):
            return self._scalar(value, place)
        if depth > DEEPEST or self._room <= 0:
            return CUT
        more = len(value) > MOST_ITEMS
        if not isinstance(value, list | tuple):
            places = PLACES[place]
            copy = {
                self._key(name): self.of(each, places.get(name, _Place.VALUE), depth + 1)
                for name, each in islice(value.items(), MOST_ITEMS)
            }
            return copy | {CUT: CUT} if more else copy
        items = [self.of(each, place, depth + 1) for each in islice(value, MOST_ITEMS)]
        return [*items, CUT] if more else items

    def _key(self, name: object) -> str:
        if not isinstance(name, str):
            return CUT
        if self._vocabulary is None:
            return _shortened(name, LONGEST_TEXT) or ""
        # A name is looked up only when it is short: to hash a text takes time, however it ends.
        is_known = len(name) <= LONGEST_NAME and (name in ARGUMENTS or name in self._vocabulary)
        return name if is_known else CUT

    def _scalar(self, value: object, place: _Place) -> object:
        if place is _Place.VALUE and self._vocabulary is not None:
            return CUT
        match value:
            case str() if self._vocabulary is None:
                return _shortened(value, LONGEST_TEXT)
            case None | bool() | float() if self._vocabulary is None:
                return plain(value)
            case int() if self._vocabulary is None and value.bit_length() < LONGEST_TEXT:
                return plain(value)
            case str() if place is _Place.NAME and len(value) <= LONGEST_TEXT and self._is_name(value):
                return value
            case str() if place is _Place.ADDRESS and (match := ADDRESS.match(value)):
                return match[0] + CUT if unquote(match["table"]) in (self._vocabulary or ()) else CUT
            case int() if place is _Place.LIMIT and not isinstance(value, bool):
                return value if abs(value) <= MOST else CUT
            case _:
                return CUT

    def _is_name(self, text: str) -> bool:
        if self._knows(text):
            return True
        parts = NAME.findall(text)
        return bool(parts) and all(
            self._knows_part(quoted.replace('""', '"'), bare) for quoted, bare in parts
        )

    def _knows_part(self, quoted: str, bare: str) -> bool:
        if quoted or self._knows(bare.strip()):
            return self._knows(quoted or bare.strip())
        column, _, direction = bare.strip().rpartition(" ")
        words = bare.split(" ")
        return (direction.lower() in DIRECTIONS and self._knows(column.strip())) or (
            bool(bare.strip()) and all(self._knows(word) for word in words if word)
        )

    def _knows(self, name: str) -> bool:
        vocabulary = self._vocabulary or ()
        if name in vocabulary or name.lower() in WORDS:
            return True
        # A measure that is given no name is called by both, such as sum_total.
        function, _, column = name.partition("_")
        return function in FUNCTIONS and column.removeprefix("distinct_") in vocabulary
