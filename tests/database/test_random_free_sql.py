"""For random policies and statements, the answer is that of a database that holds only what the role sees."""

import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

from hypothesis import Phase, given, settings, strategies as st

from dbtools.backends.sqlite.run_sql.worker import Refusal, Sandbox
from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.free_clinic import open_sandbox, run_in

TABLES = ("t", "u", "v", "w")
COLUMNS = {"a": "integer", "b": "text", "c": "real", "d": "text collate nocase"}
FILTERS = (
    "a > 1",
    "b = 'x' or c is null",
    "a in (select a from w)",
    "exists (select 1 from v, w where v.a = w.a and v.b = {table}.b)",
    "not exists (select 1 from u natural join w where u.a = {table}.a)",
    "(select count(*) from t) > 2 and d <> 'Y'",
    "a between 0 and 2 and abs(a) >= 0",
)
BLANKS = {Mask.NULL: "null", Mask.REDACT: "'***'"}
STATEMENTS = 12


def some_cell(random: Random, type: str) -> str:
    texts = ("'x'", "'y'", "'X'", "'1'", "null", "''")
    return random.choice(texts if "text" in type else ("0", "1", "2", "3", "-1", "null", "1.5"))


def some_tables(random: Random) -> str:
    """Return the SQL of the tables and their rows."""
    columns = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    parts = []
    for table in TABLES:
        rows = [
            ", ".join(some_cell(random, type) for type in COLUMNS.values())
            for _ in range(random.randint(0, 6))
        ]
        parts.append(f"create table {table} (id integer primary key, {columns});")
        parts += [f"insert into {table} ({', '.join(COLUMNS)}) values ({row});" for row in rows]
        if random.random() < 0.4:
            parts.append(f"create index {table}_{random.choice('abcd')} on {table}({random.choice('abcd')});")
    return "\n".join(parts)


def some_grants(random: Random) -> Mapping[str, GrantSection]:
    """Return what a role sees: absent tables are hidden."""
    grants = {}
    for table in TABLES:
        if random.random() < 0.25:
            continue
        shown = [name for name in COLUMNS if random.random() < 0.8] or ["a"]
        masks = {name: random.choice(list(BLANKS)) for name in shown if random.random() < 0.15}
        where = random.choice(FILTERS).format(table=table) if random.random() < 0.5 else None
        whole = random.random() < 0.3
        grants[table] = (
            GrantSection() if whole else GrantSection(columns=("id", *shown), mask=masks, where=where)
        )
    return grants


def seen_tables(grants: Mapping[str, GrantSection]) -> str:
    """Return SQL that leaves only what *grants* show in a copy of the database."""
    parts = []
    for table, grant in grants.items():
        names = grant.columns or ("id", *COLUMNS)
        types = {"id": "integer primary key", **COLUMNS}
        defined = ", ".join(name if name in grant.mask else f"{name} {types[name]}" for name in names)
        cells = ", ".join(BLANKS[grant.mask[name]] if name in grant.mask else name for name in names)
        parts.append(f"create table seen_{table} ({defined});")
        parts.append(f"insert into seen_{table} select {cells} from {table} where {grant.where or 1};")
    parts += [f"drop table {table};" for table in TABLES]
    parts += [f"alter table seen_{table} rename to {table};" for table in grants]
    return "\n".join(parts)


class Grammar:
    """Writes random statements, with names that may be hidden."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = 12  #: subqueries
        self._aliases = 0

    def statement(self) -> str:
        """Return a statement."""
        kind = self._random.random()
        if kind < 0.15:
            return f"with q as ({self.select(2)}) select count(*) from q"
        if kind < 0.3:
            operator = self._random.choice(("union", "union all", "except", "intersect"))
            return f"{self.select(1)} {operator} {self.select(1)}"
        if kind < 0.4:
            return f"with {self._random.choice(TABLES)} as ({self.select(2)}) {self.select(1)}"
        return self.select(self._random.randint(1, 3))

    def select(self, width: int) -> str:
        """Return a SELECT of *width* columns."""
        sources = self.sources()
        where = f" where {self.predicate()}" if self._random.random() < 0.6 else ""
        if self._random.random() < 0.25:
            group = self.column()
            having = f" having count(*) > {self._random.randint(0, 2)}" if self._random.random() < 0.4 else ""
            cells = [group, "count(*)", f"sum({self.column()})"][:width]
            return f"select {', '.join(cells)} from {sources}{where} group by {group}{having}"
        if width == 3 and self._random.random() < 0.3:
            return f"select * from {sources}{where}"
        return f"select {', '.join(self.expression() for _ in range(width))} from {sources}{where}"

    def sources(self) -> str:
        """Return what follows FROM."""
        found = self.source()
        while self._random.random() < 0.4:
            join = self._random.choice(
                (
                    ", {}",
                    " join {} using (id)",
                    " natural join {}",
                    " left join {} using (a)",
                    " cross join {}",
                    " natural left join {}",
                    " full join {} using (id)",
                )
            )
            found += join.format(self.source())
        return found

    def source(self) -> str:
        """Return a table or a subquery."""
        table = self._random.choice(TABLES)
        if self._left > 0 and self._random.random() < 0.15:
            self._left -= 1
            return f"(select {self.column()} as a, 1 as id from {table})"
        shown = self._random.choice((table, table, table.upper(), f'"{table}"', f"[{table}]"))
        return shown if self._random.random() < 0.7 else f"{shown} as {self._alias()}"

    def _alias(self) -> str:
        self._aliases += 1
        return f"x{self._aliases}"

    def column(self) -> str:
        """Return the name of a column."""
        name = self._random.choice(("id", *COLUMNS))
        return name if self._random.random() < 0.8 else f"{self._random.choice((*TABLES, 'x1'))}.{name}"

    def expression(self) -> str:
        """Return a value."""
        column, other = self.column(), self.column()
        forms = (
            column,
            column,
            column,
            f"{column} || ''",
            f"coalesce({column}, {other})",
            f"abs({column})",
            f"typeof({column})",
            f"{column} + 1",
            f"iif({column} is null, 1, {other})",
            f"lower({column})",
            f"(select max(id) from {self._random.choice(TABLES)})",
            f"{column} = {other}",
        )
        return self._random.choice(forms)

    def predicate(self) -> str:
        """Return a condition."""
        column, table = self.column(), self._random.choice(TABLES)
        forms = [
            f"{column} > 0",
            f"{column} is null",
            f"{column} = {self.column()}",
            f"{column} like 'x%'",
            f"{column} in (1, 'x', null)",
            f"abs({column}) >= 0",
            f"{column} <> 'Y'",
        ]
        if self._left > 0:
            self._left -= 1
            inner = self.column()
            forms += [
                f"{column} in (select {inner} from {table})",
                f"id in {table}",
                f"exists (select 1 from {table})",
                f"not exists (select {inner} from {table} where {self.predicate()})",
                f"{column} = (select max(id) from {table})",
            ]
        first = self._random.choice(forms)
        joint = self._random.choice((" and ", " or "))
        return first if self._random.random() < 0.7 else f"({first}{joint}not ({self.predicate()}))"


@contextmanager
def opened(tables: str, grants: Mapping[str, GrantSection]) -> Iterator[tuple[Sandbox, sqlite3.Connection]]:
    """Yield the role's connection, and one to what it sees."""
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(":memory:")) as plain:
        path = Path(folder) / "all.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(tables)
        plain.executescript(tables + seen_tables(grants))
        with open_sandbox(path, grants) as sandbox:
            yield sandbox, plain


def kind_of(message: str) -> str:
    """Return *message* without schemas, and without the column if it is ambiguous: several may be."""
    bare = re.sub(r"\b(?:main|temp|xfile)\.", "", message.lower())
    return "ambiguous" if "ambiguous" in bare else bare


def answer_of(sandbox: Sandbox, sql: str) -> object:
    found = run_in(sandbox, sql)
    if isinstance(found, Refusal):
        return kind_of(str(found.content.get("text", found.content)))
    rows = found["rows"]
    assert isinstance(rows, list)
    return found["names"], Counter(map(str, rows))


def plain_answer(plain: sqlite3.Connection, sql: str) -> object:
    try:
        cursor = plain.execute(sql)
        return [each[0] for each in cursor.description], Counter(str(list(row)) for row in cursor)
    except sqlite3.Error as exc:
        return kind_of(str(exc))


def test_answer_is_that_of_a_database_with_only_what_the_role_sees() -> None:
    answered: Counter[bool] = Counter()

    # Nothing shrinks a statement that was made at random.
    @settings(phases=[Phase.explicit, Phase.generate])
    @given(st.integers(0, 2**64))
    def compare(seed: int) -> None:
        random = Random(seed)
        tables, grants = some_tables(random), some_grants(random)
        if not grants:
            return
        with opened(tables, grants) as (sandbox, plain):
            for _ in range(STATEMENTS):
                sql = Grammar(random).statement()
                expected = plain_answer(plain, sql)
                answered[isinstance(expected, tuple)] += 1

                assert answer_of(sandbox, sql) == expected, f"{tables}\n{grants}\n{sql}"

    compare()

    assert answered[True] > STATEMENTS
    assert answered[False] > 0
