"""One line of the audit log. A call in; its JSON values out, with or without the values of arguments.

Redacted arguments keep the names of arguments, tables and columns. The size of an entry is bounded.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice, zip_longest
from urllib.parse import unquote

from dbtools.answers.results import Changed, Record
from dbtools.backends.records import rfc3339
from dbtools.expressions.operations import OPERATION_RULES
from dbtools.expressions.terms import Bucket, Function
from dbtools.statements.select import Direction, Match
from dbtools.statements.write import Write, WriteKind, without_none
from dbtools.tools.describe_tables import Detail
from dbtools.tools.writes.insert_rows import OnConflict
from dbtools.values.cells import Cut, json_value
from dbtools.values.types import Operator

CUT = "…"
LONGEST_TEXT = 500  #: characters of a value
LONGEST_SQL = 20_000  #: characters of a statement
LONGEST_NAME = 200  #: characters of a name
TOOL = re.compile(r"[a-z0-9_]{1,64}|[a-z]+/[a-z]+")  #: a tool, or the method of a request
MOST_LIMIT = 100_000  #: a larger number may be a value
MOST_ITEMS = 50  #: of one array or object
MOST_PARTS = 1_000  #: of all arguments
DEEPEST_ARGUMENTS = 8  #: levels of arguments
SCALARS = {str, int, float, bool, type(None)}
#: Arguments, and keys in the objects of `where`, `having` and `measures`, that hold names.
NAMING = frozenset(
    {
        *("table", "tables", "columns", "order_by", "group_by", "match", "detail", "query"),
        *("where", "having", "measures", "column", "value_column", "op", "function", "name"),
        *("any", "some", "none", "on_conflict", "conflict_key"),
    }
)
ARGUMENTS = NAMING | {
    *("key", "limit", "offset", "cursor", "search", "arguments", "value", "values", "uri"),
    *("rows", "set", "expected", "dry_run", "confirm", "idempotency_key", "sql"),
}
FUNCTION_NAMES = {str(each) for each in Function}
KNOWN_WORDS = {
    str(word)
    for words in (Operator, Function, Bucket, Match, Direction, Detail, OnConflict, OPERATION_RULES)
    for word in words
}
ADDRESS = re.compile(r"dbtools://(?:row|cell)/([^/]{1,200})/")  #: of a row, up to its key
DIRECTION = re.compile(r"\s+(?:asc|desc)\s*$", re.IGNORECASE)
NAME_TOKEN = re.compile(r'"((?:[^"]|"")+)"|(\w+)')


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class AuditEntry:
    """One call of a tool; its result is added when it ends."""

    time: datetime  #: of its arrival, UTC
    identity: str | None
    role: str
    tool: str
    arguments: Mapping[str, object]  #: as given
    vocabulary: Callable[[], Collection[str]] = tuple  #: returns the names that the role sees
    rows: int | None = None
    bytes: int | None = None
    truncated: bool | None = None
    dry_run: bool | None = None  #: None if the tool changes no rows
    changed: Changed | None = None
    confirmed: str | None = None
    duration: float = 0.0  #: seconds
    outcome: Outcome = Outcome.OK
    code: str | None = None
    protocol: str | None
    client: str | None
    request: str | None = None  #: its ID, if the database gets it too

    def content(self, *, arguments: bool, changes: bool = False) -> dict[str, object]:
        """Return the entry as JSON values, with the values of the *arguments* and *changes* or without."""
        # A caller may have sent a value as the name of the tool.
        tool = self.tool if arguments or TOOL.fullmatch(self.tool) else CUT
        content = {
            "time": rfc3339(self.time),
            "identity": _shorten(self.identity, LONGEST_NAME),
            "role": _shorten(self.role, LONGEST_NAME),
            "tool": _shorten(tool, LONGEST_NAME),
            "arguments": _Values().copy(self.arguments)
            if arguments
            else _Names(self.vocabulary()).redacted_arguments(self.arguments),
            "rows": self.rows,
            "bytes": self.bytes,
            "truncated": self.truncated,
            "affected": self.changed and (0 if self.changed.earlier else self.changed.affected),
            "dry_run": self.dry_run,
            "changes": _Values().copy(_changes(self.changed)) if changes and self.changed else None,
            "confirmed": self.confirmed,
            "duration": round(self.duration, 6),
            "outcome": str(self.outcome),
            "code": self.code,
            "protocol": self.protocol,
            "client": _shorten(self.client, LONGEST_NAME),
        }
        return content if self.request is None else {**content, "request": self.request}


def _shorten(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else text[:most] + CUT


def _changes(changed: Changed) -> Sequence[Mapping[str, object]] | None:
    """Return the key of each row of *changed*, and its changed columns before and after, as the role sees it.

    A column whose cells are masked or cut may have changed although they look the same: it is included if the
    call has set it.
    """
    if changed.earlier is not None:
        return None
    shape = changed.shape
    if not isinstance(shape, Write):
        return None  # for a query, neither the keys nor the old values of the rows are known
    after: Sequence[Record | None]
    after, before = changed.records(MOST_ITEMS + 1)
    if shape.kind is WriteKind.DELETE:
        before, after = after, []
    rows = (*changed.rows, *without_none(changed.left_after))
    cut = {at for row in rows for at, cell in enumerate(row) if isinstance(cell, Cut)}
    terms = [each.term for each in changed.outputs]
    unclear = {term.name for at, term in enumerate(terms) if term.type.mask is not None or at in cut}
    written = {each.name for each in shape.written}
    pairs = [*zip_longest(before, after), *_left_rows(changed, {*shape.writes.key, *written})]
    return [_change(shape.writes.key, old, new, unclear & written) for old, new in pairs]


def _left_rows(changed: Changed, names: Collection[str]) -> Iterator[tuple[Record | None, Record | None]]:
    """Yield the rows of *changed* that the role does not see any more, before and after it.

    Of a row that the role does not see, the log has only the columns *names*: those that the call has set.
    """
    for old, new in changed.left_changes(MOST_ITEMS + 1):
        if old is not None or new is not None:
            yield old, new and {name: new[name] for name in new if name in names}


def _change(
    key: Collection[str], old: Record | None, new: Record | None, unclear: Collection[str]
) -> Mapping[str, object]:
    whole, shown = old or new or {}, new or old or {}
    names = [name for name in shown if not (old and new) or name in unclear or old[name] != new[name]]
    return {
        "key": {name: whole[name] for name in key if name in whole} or None,
        "old": old and {name: old[name] for name in names},
        "new": new and {name: new[name] for name in names},
    }


class _Values:
    """Copies arguments with their values, cutting long or deep values."""

    def __init__(self) -> None:
        self._room = MOST_PARTS

    def copy(self, value: object, *, naming: bool = True, depth: int = 1) -> object:
        """Return the copy of *value*; *naming* says whether names may stand in its place."""
        self._room -= 1
        if value.__class__ in SCALARS or not isinstance(value, list | tuple | Mapping):
            return self._scalar(value, naming)
        if depth > DEEPEST_ARGUMENTS or self._room <= 0:
            return CUT
        more = len(value) > MOST_ITEMS
        if isinstance(value, list | tuple):
            copies = [self.copy(each, naming=naming, depth=depth + 1) for each in value[:MOST_ITEMS]]
            return [*copies, CUT] if more else copies
        copy = {
            self._key(name): self.copy(each, naming=naming and name in NAMING, depth=depth + 1)
            for name, each in islice(value.items(), MOST_ITEMS)
        }
        if depth == 1 and isinstance(sql := value.get("sql"), str):
            copy["sql"] = _shorten(sql, LONGEST_SQL)
        return {**copy, CUT: CUT} if more else copy

    def _key(self, name: object) -> str:
        return _shorten(str(name), LONGEST_TEXT) or ""

    def _scalar(self, value: object, naming: bool) -> object:
        if isinstance(value, str):
            return _shorten(value, LONGEST_TEXT)
        is_long = isinstance(value, int) and value.bit_length() > LONGEST_TEXT
        return CUT if is_long else json_value(value)


class _Names(_Values):
    """Copies arguments without their values: keeps known names, the words of tools, and the limit."""

    def __init__(self, vocabulary: Collection[str]) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def redacted_arguments(self, arguments: Mapping[str, object]) -> object:
        """Return the copy of *arguments*."""
        copy = self.copy(arguments)
        assert isinstance(copy, dict)
        limit, uri = arguments.get("limit"), arguments.get("uri")
        if isinstance(arguments.get("dry_run"), bool):
            copy["dry_run"] = arguments["dry_run"]
        if type(limit) is int and abs(limit) <= MOST_LIMIT:
            copy["limit"] = limit
        if isinstance(sql := arguments.get("sql"), str):
            # The same statement has the same digest.
            copy["sql"] = f"sha256:{hashlib.sha256(sql.encode(errors='replace')).hexdigest()[:16]}"
        found = ADDRESS.match(uri) if isinstance(uri, str) else None
        if found and unquote(found[1]) in self._vocabulary:
            copy["uri"] = found[0] + CUT
        return copy

    def _key(self, name: object) -> str:
        # Hashing a long text takes time.
        is_short = isinstance(name, str) and len(name) <= LONGEST_NAME
        return str(name) if is_short and (name in ARGUMENTS or name in self._vocabulary) else CUT

    def _scalar(self, value: object, naming: bool) -> object:
        is_name = naming and isinstance(value, str) and len(value) <= LONGEST_TEXT and self._is_name(value)
        return value if is_name else CUT

    def _is_name(self, text: str) -> bool:
        """Return whether *text* consists of known names, as do paths, buckets, orders and expressions."""
        if self._knows(text) or self._knows(DIRECTION.sub("", text)):
            return True
        tokens = NAME_TOKEN.findall(text)
        if not tokens or NAME_TOKEN.sub("", text).strip(" .:,()+-*/"):
            return False
        return all(self._knows(quoted.replace('""', '"') or bare) for quoted, bare in tokens)

    def _knows(self, name: str) -> bool:
        if name in self._vocabulary or name.lower() in KNOWN_WORDS:
            return True
        # The default name of a measure, such as sum_total.
        function, _, column = name.partition("_")
        return function in FUNCTION_NAMES and column.removeprefix("distinct_") in self._vocabulary
