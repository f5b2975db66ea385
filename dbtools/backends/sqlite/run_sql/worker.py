"""Run callers' SQL on one file, in a process that can be killed. A request in, an answer out.

The process imports no package and nothing else of dbtools, so that it starts fast.

The first safeguard is names: in a connection, the names of what the role sees stand for tables that it sees
whole, or for temporary views; all others for a table that does not exist. The second one is the authorizer
and an audit of the program that EXPLAIN shows: of the tables it opens, and of their pages.
"""

import hashlib
import os
import re
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

HEAP = 256 * 2**20  #: bytes that SQLite may allocate
CONNECTIONS = 8  #: with different roles or claims
LOCK_TIMEOUT = 2.0  #: seconds
PRAGMAS = "pragma trusted_schema = off; pragma temp_store = memory; pragma cell_size_check = on"
JSON_TABLES = frozenset(("json_each", "json_tree"))
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 16 * 2**20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 1,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
}
#: Steps of a program that change something, or run another program. No SELECT has them.
CHANGING = frozenset(
    """
    AutoCommit Checkpoint Clear CreateBtree Destroy DropIndex DropTable DropTrigger Expire IncrVacuum
    IntegrityCk JournalMode LoadAnalysis MaxPgcnt OpenWrite Pagecount ParseSchema Program ReadCookie Savepoint
    SetCookie SqlExec TableLock VBegin VCreate VDestroy VRename VUpdate Vacuum
    """.split()  # noqa: SIM905
)
OPENING = ("OpenRead", "ReopenIdx")
ATTACHED_FILE = 2  #: the number of the attached file, after main and temp
Event = tuple[str | None, ...]
#: By the key of a request, the least recently used one first.
SANDBOXES: "OrderedDict[str, Sandbox]" = OrderedDict()


class Refusal(Exception):
    """The statement does not run; the arguments say why, as the content of an answer."""

    def __init__(self, kind: str, **content: object) -> None:
        super().__init__(kind)
        self.content = {"error": kind, **content}


def fold(name: str) -> str:
    """Return *name* as SQLite compares names."""
    if name.isascii():
        return name.lower()
    return "".join(each.lower() if each.isascii() else each for each in name)


def identifier(name: str) -> str:
    """Return *name* as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


class Sandbox:
    """A connection in which the statements of one role and its claims run.

    The file is attached under a name that no caller can guess, and with which all other names of the sandbox
    begin.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._path, self._file = spec["path"], spec["schema"]
        self._direct = {fold(name) for name in spec["tables"]}
        self._public = {public for public, _, _ in spec["views"]}
        self._absent = f"{self._file}_absent.no "
        self._functions = frozenset(spec["functions"])
        self._reads: set[Event] = set()
        self._pages: set[int] = set()
        self._virtual: set[str] = set()  #: addresses
        self._denied: tuple[int, str | None, str | None] | None = None
        self._authorize: Callable[..., int] = self._note
        self._identity = _identity(self._path)
        self._driver = self._open(spec["uri"])
        self._seen = self._read("data_version")
        self._schema = self._read_schema()
        if self._stamp() != spec["stamp"]:
            raise Refusal("changed")
        self._prepare(spec)

    def _open(self, uri: str) -> sqlite3.Connection:
        """Return a connection to an empty database, to which the file is attached."""
        with closing(sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT)) as file:
            (encoding,) = file.execute("pragma encoding").fetchone()
        driver = sqlite3.connect(
            "file::memory:", uri=True, isolation_level=None, cached_statements=0, timeout=LOCK_TIMEOUT
        )
        driver.text_factory = lambda text: text.decode(errors="surrogateescape")
        driver.execute(f"pragma encoding = '{encoding}'")
        # Under its other name, SQLite would refuse the whole file for one view or trigger that names main.t;
        # now it leaves them out. The file is opened for reading only, and the authorizer denies writes.
        driver.execute("pragma writable_schema = on")
        driver.execute(f"attach ? as {self._file}", (uri,))
        self._encoding = encoding
        return driver

    def _read(self, pragma: str) -> int:
        (value,) = self._driver.execute(f"pragma {self._file}.{pragma}").fetchone()
        return int(value)

    def _read_schema(self) -> list[tuple[str, str, str, int, bytes]]:
        columns = "type, name, tbl_name, rootpage, cast(sql as blob)"
        return self._driver.execute(f"select {columns} from {self._file}.sqlite_schema").fetchall()

    def _stamp(self) -> str:
        """Return the stamp of the schema, as `stamp_of` does."""
        rows = [(kind, name, sql) for kind, name, _, _, sql in self._schema]
        digest = hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]
        return f"{self._identity}.{self._read('schema_version')} {digest}"

    def _prepare(self, spec: Mapping[str, Any]) -> None:
        """Build both safeguards."""
        self._driver.executescript(PRAGMAS)
        mask = self._partial_mask_function(spec["address"], spec["longest"])
        self._driver.create_function(f"{self._file}_mask", 2, mask, deterministic=True)
        tables = [name for kind, name, *_ in self._schema if kind in ("table", "view")]
        for public, sql, named in spec["views"]:
            self._create_views(public, sql, [name for name in tables if fold(name) in named])
        known = self._direct | set(map(fold, self._public))
        hidden = (name for name in tables if not fold(name).startswith("sqlite_"))
        self._hidden = {fold(name): name for name in hidden if fold(name) not in known}
        self._driver.set_authorizer(lambda *event: self._authorize(*event))
        self._record(spec["tables"])
        self._driver.execute("pragma query_only = on")
        for limit, most in LIMITS.items():
            self._driver.setlimit(limit, most)
        if sys.version_info >= (3, 12):
            self._driver.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            self._driver.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)

    def _create_views(self, public: str, sql: str, named: list[str]) -> None:
        """Create the view *public* of *sql*, whose row filter names the tables *named* of the file."""
        for name in named:
            self.create_view(self._inner_name("all", name), f"select * from {self._file}.{identifier(name)}")
        reads = (
            f"{identifier(name)} as not materialized (select * from {self._inner_name('all', name)})"
            for name in named
        )
        inner = self._inner_name("seen", public)
        self.create_view(inner, f"with {', '.join(reads)} {sql}" if named else sql)
        self.create_view(identifier(public), f"select * from {inner}")

    def create_view(self, name: str, sql: str) -> None:
        """Create the view *name*, which is quoted, unless it exists."""
        self._driver.execute(f"create temp view if not exists {name} as {sql}")

    def _inner_name(self, what: str, name: str) -> str:
        return identifier(f"{self._file}_{what}_{name}")

    def _partial_mask_function(self, address: str, longest: int) -> Any:
        """Return the function of the mask `partial`: of the bytes of a cell, and its class."""
        pattern = re.compile(address)

        def mask_bytes(cell: bytes | None, kind: str) -> str | None:
            if cell is None:
                return None
            if kind == "blob":
                return "{…"
            text = cell.decode(self._encoding, "replace")
            found = pattern.fullmatch(text) if kind == "text" and len(text) <= longest else None
            return f"{text[:1]}…" + (f"@{found[1]}" if found else "")

        return mask_bytes

    def shadow(self, names: Iterable[str]) -> None:
        """Let the hidden ones of the folded *names* stand for a table that does not exist."""
        hidden = [self._hidden.pop(name) for name in names if name in self._hidden]
        if not hidden:
            return
        schema, _, prefix = self._absent.partition(".")
        self._driver.execute("pragma query_only = off")
        for name in hidden:
            self.create_view(identifier(name), f"select * from {schema}.{identifier(prefix + name)}")
        self._driver.execute("pragma query_only = on")

    def _record(self, tables: list[str]) -> None:
        """Note what permitted names read: pages, columns beneath views, and virtual tables."""
        for name in JSON_TABLES & self._functions:
            self._permit(f"select 1 from {name}('[]')")
        pages: dict[str, set[int]] = {}
        for _, _, table, page, _ in self._schema:
            pages.setdefault(fold(table), set()).add(page)
        for name in (*tables, *self._public):
            # Views and virtual tables have no page.
            if name in self._public or not any(pages.get(fold(name), ())):
                self._permit(f"select * from {identifier(name)}")
        # What a module reads while it connects has no context, and a caller may not read it.
        self._reads = {read for read in self._reads if read[3] is not None or read[1] == ""}
        read = (found for table, found in pages.items() if table in self._direct or found & self._pages)
        # The first page is that of the schema.
        self._pages = set().union(*read) - {0, 1}
        self._authorize = _allow

    def _permit(self, sql: str) -> None:
        """Permit what *sql* opens. What cannot be read stays unreadable: nothing beneath it is permitted."""
        try:
            steps = list(self._steps(sql))
        except sqlite3.Error:
            return
        self._pages |= {
            page for opcode, page, file, _ in steps if opcode in OPENING and file == ATTACHED_FILE
        }
        self._virtual |= {address for opcode, _, _, address in steps if opcode == "VOpen"}

    def _steps(self, sql: str) -> Iterator[tuple[str, int, int, str]]:
        """Yield the name and the operands 2 to 4 of each step of *sql*."""
        for _, opcode, _, second, third, fourth, *_ in self._driver.execute(f"explain {sql}"):
            yield opcode, second, third, fourth

    def _note(self, action: int, *event: str | None) -> int:
        """Allow everything, and note what is read."""
        if action == sqlite3.SQLITE_READ:
            self._reads.add(event)
        return sqlite3.SQLITE_OK

    def allow_statement(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        """Allow what a caller's statement may do."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and self._may_read(str(first), second, *rest):
            return sqlite3.SQLITE_OK
        within = str(rest[1]).startswith(f"{self._file}_")
        if action == sqlite3.SQLITE_FUNCTION and (within or str(second).lower() in self._functions):
            return sqlite3.SQLITE_OK
        self._denied = self._denied or (action, first, second)
        return sqlite3.SQLITE_DENY

    def _may_read(self, table: str, column: str | None, *rest: str | None) -> bool:
        schema, context = rest
        if schema == self._file:
            if (table, column, schema, context) in self._reads or fold(table) in self._direct:
                return True
            # Rows without columns have the schema as it is written, and only the views can write it.
            return not column and not fold(table).startswith("sqlite_")
        if schema == "temp":
            return table in self._public or table.startswith(f"{self._file}_")
        if schema == "main":
            return table in JSON_TABLES & self._functions
        # Only the rows of a name after FROM, which may be a common table expression.
        return column == "" and not fold(table).startswith("sqlite_")

    def run(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the result of *request*, or raise Refusal or sqlite3.Error."""
        self._denied = None
        self.shadow(request["names"])
        self._driver.execute("begin")
        try:
            self._check_schema()
            self._authorize = self.allow_statement
            if self.audit(request["sql"]):
                # A virtual table runs other statements; the statement of the caller has passed.
                self._authorize = _allow
            return {} if request["explains"] else self._fetch(request)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as exc:
            if self._denied:
                raise Refusal("denied", event=self._denied) from exc
            # As if the hidden tables did not exist.
            text = str(exc).replace(self._absent, "")[:500]
            raise Refusal("sql", name=getattr(exc, "sqlite_errorname", ""), text=text) from exc
        finally:
            self._authorize = _allow
            self._driver.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._driver.close()

    def _check_schema(self) -> None:
        """Refuse to read a file that has been replaced, or has another schema than the connection."""
        # While the file is being replaced, its path may be empty.
        replaced = _identity(self._path) not in ("", self._identity)
        before, self._seen = self._seen, self._read("data_version")
        # The version changes when another program has written to the file.
        if replaced or (self._seen != before and self._read_schema() != self._schema):
            raise Refusal("changed")

    def audit(self, sql: str) -> bool:
        """Refuse *sql* if it opens what is not permitted; return whether it opens virtual tables."""
        opened = False
        for opcode, second, third, address in self._steps(sql):
            opens = opcode in OPENING and not (third == ATTACHED_FILE and second in self._pages)
            connects = opcode == "VOpen" and address not in self._virtual
            writes = opcode in CHANGING or (opcode == "Transaction" and second)
            if opens or connects or writes:
                raise Refusal("audit")
            opened = opened or opcode == "VOpen"
        return opened

    def _fetch(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        with closing(self._driver.execute(request["sql"])) as cursor:
            names = [each[0] for each in cursor.description or ()]
            rows: list[list[object]] = []
            left = request["bytes"]
            if sum(map(len, names)) > left:
                raise Refusal("wide")
            for row in cursor:
                if len(rows) == request["limit"] or left < 0:
                    return {"names": names, "rows": rows, "more": True}
                shown, taken = _cut_row(row, request["longest"], request["bytes"])
                rows.append(shown)
                left -= taken
        return {"names": names, "rows": rows, "more": False}


def _allow(*_: object) -> int:
    """Allow a statement that this module has written."""
    return sqlite3.SQLITE_OK


def _identity(path: str) -> str:
    """Return the identity of the file at *path*, empty if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}"


def _cut_row(row: tuple[object, ...], longest: int, most: int) -> tuple[list[object], int]:
    """Return *row* with cells of at most *longest*, and how long they are.

    If they are longer than *most* together, each is at most an equal share of it.
    """
    lengths = (len(cell) if isinstance(cell, str | bytes) else 0 for cell in row)
    taken = sum(min(length, longest) + 2 for length in lengths)
    if taken > most:
        longest = min(longest, most // len(row))
    return [_cell(cell, longest) for cell in row], taken


def _cell(cell: object, longest: int) -> object:
    """Return *cell* as JSON: an object for bytes, and for the beginning of a long text."""
    if isinstance(cell, bytes):
        return {"hex": cell[:longest].hex(), "length": len(cell)}
    if isinstance(cell, str) and len(cell) > longest:
        return {"text": cell[:longest], "length": len(cell)}
    return cell


def start() -> None:
    """Limit the memory of SQLite in this process."""
    sqlite3.connect(":memory:").execute(f"pragma hard_heap_limit = {HEAP}")


def answer(request: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the answer to *request*, in the sandbox of its key."""
    key = request["key"]
    try:
        if key not in SANDBOXES:
            if "spec" not in request:
                return {"needs": "spec"}
            SANDBOXES[key] = Sandbox(request["spec"])
            if len(SANDBOXES) > CONNECTIONS:
                SANDBOXES.popitem(last=False)[1].close()
        SANDBOXES.move_to_end(key)
        return SANDBOXES[key].run(request)
    except Refusal as exc:
        if exc.content["error"] == "changed":
            SANDBOXES.pop(key, None)
        return exc.content
    except (sqlite3.Error, ValueError):
        return {"error": "open"}
