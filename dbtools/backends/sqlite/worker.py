"""Run callers' SQL on one file, in a process that can be killed. Frames in, frames out.

The server starts this file as a script, without a secret and without packages, so that it starts fast. A
frame is the length of a JSON value, in four bytes, and the value.

The first safeguard is names: in a connection, the names of what the role sees stand for tables that it sees
whole, or for temporary views; all others for a table that does not exist. The second one is the authorizer
and an audit of the program that EXPLAIN shows: of the tables it opens, and of their pages.
"""

import hashlib
import json
import os
import re
import resource
import signal
import sqlite3
import struct
import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

HEAD = struct.Struct(">I")
MEMORY = 384 * 2**20  #: bytes of the address space
HEAP = 256 * 2**20  #: bytes that SQLite may allocate
RETIRES = 128 * 2**10  #: kilobytes after which the process is replaced, since it may not return them
CONNECTIONS = 8  #: with different roles or claims
LATE = 1.0  #: seconds after its deadline when the process ends, if the server is gone
PRAGMAS = "pragma trusted_schema = off; pragma temp_store = memory; pragma cell_size_check = on"
ENCODINGS = ("UTF-8", "UTF-16le", "UTF-16be")
JSON_TABLES = ("json_each", "json_tree")
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
FILE = 2  #: the number of the attached file, after main and temp


class Refusal(Exception):
    """The statement does not run; the arguments say why, as the content of a frame."""

    def __init__(self, kind: str, **content: object) -> None:
        super().__init__(kind)
        self.content = {"error": kind, **content}


class Step(NamedTuple):
    """The beginning of a row of EXPLAIN."""

    opcode: str
    p1: int
    p2: int
    p3: int
    p4: str | None


def fold(name: str) -> str:
    """Return *name* as SQLite compares names."""
    return "".join(each.lower() if each.isascii() else each for each in name)


def quote(name: str) -> str:
    """Return *name* as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


class Sandbox:
    """A connection in which the statements of one role and its claims run."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._path, self._schema = spec["path"], spec["schema"]
        self._head, _, digest = spec["stamp"].partition(" ")
        self._direct = {fold(name) for name in spec["tables"]}
        self._views = {name for public, inner, _ in spec["views"] for name in (public, inner)}
        self._inner = {inner for _, inner, _ in spec["views"]}
        self._functions = frozenset(spec["functions"])
        self._reads: set[tuple[str | None, ...]] = set()
        self._pages: set[int] = set()
        self._virtual: dict[str | None, bool] = {}  #: by address, whether its module runs statements
        self._authorize: Callable[..., int] = self._note
        self._denied: tuple[int, str | None, str | None] | None = None
        self._driver = self._open(spec["uri"])
        self._seen = self._version()
        self._schema_rows = self._read_schema()
        # As in `stamp_of`: a program may have overwritten the file with one of the same version.
        rows = [(kind, name, sql) for kind, name, _, _, sql in self._schema_rows]
        if hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12] != digest:
            raise Refusal("changed")
        self._prepare(spec)

    def _open(self, uri: str) -> sqlite3.Connection:
        """Return a connection to an empty database, to which the file is attached."""
        for encoding in ENCODINGS:
            driver = sqlite3.connect(
                "file::memory:", uri=True, isolation_level=None, cached_statements=0, timeout=2.0
            )
            driver.text_factory = lambda text: text.decode(errors="surrogateescape")
            driver.execute(f"pragma encoding = '{encoding}'")
            try:
                driver.execute(f"attach ? as {self._schema}", (uri,))
                driver.execute(f"select 1 from {self._schema}.sqlite_schema").fetchall()
                self._encoding = encoding
                return driver
            except sqlite3.Error as exc:
                driver.close()
                if "encoding" not in str(exc):
                    raise Refusal("open") from exc
        raise Refusal("open")

    def _read_schema(self) -> list[tuple[str, str, str, int, bytes]]:
        columns = "type, name, tbl_name, rootpage, cast(sql as blob)"
        return self._driver.execute(f"select {columns} from {self._schema}.sqlite_schema").fetchall()

    def _version(self) -> int:
        """Return a number that changes when another connection has written to the file."""
        return int(self._driver.execute(f"pragma {self._schema}.data_version").fetchone()[0])

    def _prepare(self, spec: Mapping[str, Any]) -> None:
        """Build both safeguards."""
        driver = self._driver
        driver.executescript(PRAGMAS)
        driver.create_function(
            spec["mask"], 2, self._masking(spec["address"], spec["longest"]), deterministic=True
        )
        for public, inner, sql in spec["views"]:
            driver.execute(f"create temp view {inner} as {sql}")
            driver.execute(f"create temp view {quote(public)} as select * from {inner}")
        self._shadow()
        driver.set_authorizer(lambda *event: self._authorize(*event))
        self._record(spec)
        driver.execute("pragma query_only = on")
        for limit, most in LIMITS.items():
            driver.setlimit(limit, most)
        if sys.version_info >= (3, 12):
            driver.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            driver.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)

    def _masking(self, address: str, longest: int) -> Any:
        """Return the function of the mask `partial`: of the bytes of a cell, and its class."""
        pattern = re.compile(address)

        def masked(cell: bytes | None, kind: str) -> str | None:
            if cell is None:
                return None
            if kind == "blob":
                return "{…"
            text = cell.decode(self._encoding, "replace")
            found = pattern.fullmatch(text) if kind == "text" and len(text) <= longest else None
            return f"{text[:1]}…" + (f"@{found[1]}" if found else "")

        return masked

    def _shadow(self) -> None:
        """Let the name of everything hidden stand for a table that does not exist, and ends in this name."""
        known = self._direct | {fold(name) for name in self._views}
        names = (name for kind, name, *_ in self._schema_rows if kind in ("table", "view"))
        for name in names:
            if fold(name) not in known and name[:7].lower() != "sqlite_":
                missing = f"{self._schema}.{quote(f'{self._schema} {name}')}"
                self._driver.execute(f"create temp view {quote(name)} as select * from {missing}")

    def _record(self, spec: Mapping[str, Any]) -> None:
        """Note what permitted names read: pages, columns beneath views, and virtual tables."""
        for name in JSON_TABLES:
            self._open_in(f"select 1 from {name}('[]')", runs=False)
        kinds = {fold(name): (kind, page) for kind, name, _, page, _ in self._schema_rows if kind != "index"}
        for name in spec["tables"]:
            kind, page = kinds.get(fold(name), ("", 0))
            if kind == "view" or page == 0:
                # One that cannot be read stays unreadable: nothing beneath it is permitted.
                self._open_in(f"select * from {quote(name)}", runs=kind == "table")
        for public, inner, _ in spec["views"]:
            before = set(self._reads)
            self._open_in(f"select * from {quote(public)}", runs=True)
            beneath = {read for read in self._reads - before if read[2] == "temp"}
            if any(name not in (public, inner) for name, *_ in beneath):
                raise Refusal("filter", table=public)
        # What a module reads while it connects has no context, and a caller may not read it.
        self._reads = {read for read in self._reads if read[3] is not None or read[1] == ""}
        roots: dict[str, set[int]] = {}
        for _, _, table, page, _ in self._schema_rows:
            roots.setdefault(fold(table), set()).add(page)
        tables = {table for table, pages in roots.items() if table in self._direct or pages & self._pages}
        self._pages = {page for table in tables for page in roots[table] if page > 1}
        self._authorize = _allow

    def _open_in(self, sql: str, *, runs: bool) -> None:
        """Permit what *sql* opens; *runs*: whether virtual tables in it run statements."""
        try:
            steps = self._steps(sql)
        except sqlite3.Error:
            return
        for step in steps:
            if step.opcode in OPENING and step.p3 == FILE:
                self._pages.add(step.p2)
            if step.opcode == "VOpen":
                self._virtual.setdefault(step.p4, runs)

    def _steps(self, sql: str) -> list[Step]:
        return [Step(*row[1:6]) for row in self._driver.execute(f"explain {sql}")]

    def _note(self, action: int, *event: str | None) -> int:
        """Allow everything, and note what is read."""
        if action == sqlite3.SQLITE_READ:
            self._reads.add(event)
        return sqlite3.SQLITE_OK

    def _strict(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        """Allow what a statement of a caller may do."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and self._may_read(str(first), second, *rest):
            return sqlite3.SQLITE_OK
        known = rest[1] in self._inner or str(second).lower() in self._functions
        if action == sqlite3.SQLITE_FUNCTION and known:
            return sqlite3.SQLITE_OK
        self._denied = self._denied or (action, first, second)
        return sqlite3.SQLITE_DENY

    def _may_read(self, table: str, column: str | None, *rest: str | None) -> bool:
        schema, context = rest
        if schema == self._schema:
            # Rows without columns have the schema as it is written, and only the views can write it.
            known = (table, column, schema, context) in self._reads or not column
            return known or fold(table) in self._direct
        if schema == "temp":
            return table in self._views
        if schema == "main":
            return table in JSON_TABLES
        # Only the rows of a name after FROM, which may be a common table expression.
        return column == "" and not fold(table).startswith("sqlite_")

    def _running(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        """Allow what a virtual table does as well; the caller's own statement has passed `_strict`."""
        own = action == sqlite3.SQLITE_READ and rest[0] == self._schema
        own = own or (action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None)
        return sqlite3.SQLITE_OK if own else self._strict(action, first, second, *rest)

    def run(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the result of *request*, or raise Refusal or sqlite3.Error."""
        self._authorize, self._denied = _allow, None
        self._driver.execute("begin")
        try:
            self._check_schema()
            self._authorize = self._strict
            runs = self._audit(request["sql"])
            if request["explains"]:
                return {}
            self._authorize = self._running if runs else self._strict
            return self._fetch(request)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as exc:
            if self._denied:
                raise Refusal("denied", event=self._denied) from exc
            text = str(exc).replace(f"{self._schema}.{self._schema} ", "")[:500]
            raise Refusal("sql", name=getattr(exc, "sqlite_errorname", ""), text=text) from exc
        finally:
            self._authorize = _allow
            self._driver.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._driver.close()

    def _check_schema(self) -> None:
        """Refuse to read a file whose schema is not that of the connection."""
        (version,) = self._driver.execute(f"pragma {self._schema}.schema_version").fetchone()
        # While the file is being replaced, its path may be empty.
        found = os.stat(self._path) if os.path.exists(self._path) else None
        identity = f"{found.st_dev}.{found.st_ino}" if found else self._head.rpartition(".")[0]
        if f"{identity}.{version}" != self._head:
            raise Refusal("changed")
        if self._version() != self._seen and self._read_schema() != self._schema_rows:
            raise Refusal("changed")
        self._seen = self._version()

    def _audit(self, sql: str) -> bool:
        """Refuse *sql* if it opens what is not permitted; return whether virtual tables run statements."""
        runs = False
        for step in self._steps(sql):
            opens = step.opcode in OPENING and not (step.p3 == FILE and step.p2 in self._pages)
            connects = step.opcode == "VOpen" and step.p4 not in self._virtual
            writes = step.opcode in CHANGING or (step.opcode == "Transaction" and step.p2)
            if opens or connects or writes:
                raise Refusal("audit", table=self._name_of(step) if opens else "")
            runs = runs or (step.opcode == "VOpen" and self._virtual[step.p4])
        return runs

    def _name_of(self, step: Step) -> str:
        """Return the name of the table that *step* opens."""
        known = {page: table for _, _, table, page, _ in self._schema_rows if page and step.p3 == FILE}
        return known.get(step.p2, "sqlite_schema")

    def _fetch(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        cursor = self._driver.execute(request["sql"])
        try:
            names = [each[0] for each in cursor.description or ()]
            rows: list[list[object]] = []
            left, more = request["bytes"], False
            if sum(map(len, names)) > left:
                raise Refusal("wide")
            for row in cursor:
                if more := len(rows) == request["limit"] or left < 0:
                    break
                shown, taken = _shown(row, request["longest"], request["bytes"])
                rows.append(shown)
                left -= taken
        finally:
            cursor.close()
        return {"names": names, "rows": rows, "more": more}


def _allow(*_: object) -> int:
    """Allow a statement that this module has written."""
    return sqlite3.SQLITE_OK


def _shown(row: tuple[object, ...], longest: int, most: int) -> tuple[list[object], int]:
    """Return *row* with cells of at most *longest*, and together at most *most*, and how long they are."""
    lengths = [len(cell) if isinstance(cell, str | bytes) else 0 for cell in row]

    def taken(longest: int) -> int:
        return sum(min(length, longest) + 2 for length in lengths)

    if taken(longest) > most:
        longest = max(0, bisect_right(range(longest), most, key=taken) - 1)
    return [_cell(cell, longest) for cell in row], taken(longest)


def _cell(cell: object, longest: int) -> object:
    """Return *cell* as JSON: an object for bytes, and for the beginning of a long text."""
    if isinstance(cell, bytes):
        return {"hex": cell[:longest].hex(), "length": len(cell)}
    if isinstance(cell, str) and len(cell) > longest:
        return {"text": cell[:longest], "length": len(cell)}
    return cell


def main() -> None:
    """Answer requests until the server closes the pipe."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sqlite3.connect(":memory:").execute(f"pragma hard_heap_limit = {HEAP}")
    os.nice(5)  # callers of other tools go first
    # Linux counts the memory of the server as the process's own, up to here.
    most = max(RETIRES, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    sandboxes: OrderedDict[str, Sandbox] = OrderedDict()
    with open(0, "rb") as source, open(1, "wb") as sink:
        while head := source.read(HEAD.size):
            request = json.loads(source.read(*HEAD.unpack(head)))
            # Ends the process, even inside of one step of SQLite, if the server does not.
            signal.setitimer(signal.ITIMER_REAL, request["timeout"] + LATE)
            answer = dict(_answer(request, sandboxes))
            signal.setitimer(signal.ITIMER_REAL, 0)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > most:
                answer["last"] = True
            content = json.dumps(answer).encode()
            sink.write(HEAD.pack(len(content)) + content)
            sink.flush()
            if "last" in answer:
                return


def _answer(request: Mapping[str, Any], sandboxes: "OrderedDict[str, Sandbox]") -> Mapping[str, object]:
    key = request["key"]
    try:
        if key not in sandboxes:
            if "spec" not in request:
                return {"needs": "spec"}
            sandboxes[key] = Sandbox(request["spec"])
            if len(sandboxes) > CONNECTIONS:
                sandboxes.popitem(last=False)[1].close()
        sandboxes.move_to_end(key)
        return sandboxes[key].run(request)
    except Refusal as exc:
        if exc.content["error"] == "changed" and key in sandboxes:
            sandboxes.pop(key).close()
        return exc.content
    except MemoryError:
        return {"error": "memory", "last": True}
    except (sqlite3.Error, ValueError):
        return {"error": "open"}


if __name__ == "__main__":
    main()
