"""The golden cases: a file of `tests/cases` in, what its calls should answer and do answer out.

A file is about one subject. It has a `schema` that creates and fills the tables (`schema.sqlite` and
`schema.postgresql` where the databases need different SQL), the text of its permitted `queries`, `settings`
that differ from the default, the `claims` of callers without others, and `[[cases]]` with

    name, tool, arguments  the call, with null as JSON; with `page = 2`, the call for the second page
    role, claims           the caller's role, if it is not the default one, and claims
    only                   the dialect, if the case is for one of them
    sql                    the statement of each dialect, in some forty cases; white space does not count
    structured             the structured content, with "…" in place of a cursor
    text                   the text, if it is not the structured content as compact JSON
    error                  the code and the message of a call that is refused
    changed                the rows of all tables that the call removed (-) and added (+); they are put back

Where the databases rightly differ, `structured`, `text` and `error` are given for each. One command writes
these, and `sql` where a case has it (`sql = "?"` in a new case). Review every change that it makes:

    python -m tests.database.cases [aggregates buckets ...]
"""

import json
import re
import sqlite3
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel, BeforeValidator, ConfigDict

from dbtools.backends.port import Backend
from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import Settings
from tests.calls import statement_of
from tests.database.sharing import rows_in
from tests.database.shop import ROLE, Bare, open_bare
from tests.postgresql_server import PostgresqlServer, open_server

FOLDER = Path(__file__).parents[1] / "cases"
WIDTH = 106
GENERATED = ("sql", "structured", "text", "error", "changed")
#: Selects the names of all tables.
NAMES = {
    "sqlite": "select name from sqlite_schema where type = 'table' and name not like 'sqlite%'",
    "postgresql": "select oid::regclass::text from pg_class where relkind = 'r' and oid >= 16384",
}
CLAUSES = re.compile(r"\s(?=(?:FROM|LEFT OUTER JOIN|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT)\s)")

Dialect = Literal["sqlite", "postgresql"]
DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgresql")
Arguments = Annotated[dict[str, Any], BeforeValidator(lambda v: json.loads(v) if isinstance(v, str) else v)]
Texts = str | dict[Dialect, str]  #: the same for both dialects, or one for each


class Part(BaseModel):
    """A part of a file, which refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(Part):
    """A call and its outcome."""

    name: str
    only: Dialect | None = None
    tool: str
    arguments: Arguments = {}
    role: str = ROLE
    claims: dict[str, object] = {}
    page: int = 1
    sql: Texts = ""
    structured: Texts = ""
    text: Texts = ""
    error: Texts = ""
    changed: Texts = ""

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The dialects that the case is for."""
        return DIALECTS if self.only is None else (self.only,)


class CaseFile(Part):
    """Cases about one database."""

    schema_: Texts
    queries: Texts = ""
    settings: dict[str, dict[str, object]] = {}
    claims: dict[str, object] = {}
    cases: tuple[Case, ...]

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"))


def load(path: Path) -> CaseFile:
    """Return the cases in the file at *path*, or raise ValueError that names it."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise ValueError(f"{path.name}: {exc}") from exc


def parse(text: str) -> CaseFile:
    """Return the cases in the *text* of a file."""
    return CaseFile.model_validate(tomllib.loads(text))


def of_dialect(texts: Texts, dialect: Dialect) -> str:
    """Return which of *texts* is that of *dialect*."""
    return texts if isinstance(texts, str) else texts.get(dialect, "")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call answers, laid out in lines."""

    sql: str = ""
    structured: str = ""
    text: str = ""
    error: str = ""
    changed: str = ""

    def __str__(self) -> str:
        """Return all that there is, each part under its name."""
        parts = {name: getattr(self, name) for name in GENERATED}
        return "\n".join(f"{name}:\n{part}" for name, part in parts.items() if part)


def expected(case: Case, dialect: Dialect) -> Outcome:
    """Return the outcome that *case* states."""
    structured = of_dialect(case.structured, dialect)
    return Outcome(
        sql=sql_lines(of_dialect(case.sql, dialect)),
        structured=json_lines(json.loads(structured)) if structured else "",
        text=of_dialect(case.text, dialect).removesuffix("\n"),
        error=of_dialect(case.error, dialect),
        changed=of_dialect(case.changed, dialect).removesuffix("\n"),
    )


class Content:
    """The rows of all tables of a database, as they were at first."""

    def __init__(self, dialect: Dialect, bare: Bare) -> None:
        self._names, self._bare = NAMES[dialect], bare
        self._rows, self._first = rows_in(bare), self._lines()

    def changed(self) -> str:
        """Return the rows that are gone and those that are new, and put back the first ones."""
        now = self._lines()
        assert self._rows.restore()
        lines = [f"- {each}" for each in (self._first - now).elements()]
        return "\n".join([*lines, *(f"+ {each}" for each in (now - self._first).elements())])

    def _lines(self) -> Counter[str]:
        """Return each row after the name of its table."""
        return Counter(
            f"{name} {json.dumps(row, ensure_ascii=False, default=str)}"
            for (name,) in self._bare.rows(self._names)
            for row in sorted(self._bare.rows(f"select * from {name}"), key=repr)
        )


@dataclass(frozen=True)
class Served:
    """A database that is served."""

    toolbox: Toolbox
    database: Backend
    portal: BlockingPortal
    dialect: Dialect
    bare: Bare
    claims: Mapping[str, object]

    @cached_property
    def content(self) -> Content:
        """The rows, as they are when they are first asked for."""
        return Content(self.dialect, self.bare)

    def outcome(self, case: Case) -> Outcome:
        """Return the actual outcome of *case*, and put back the rows that it changes."""
        tool = self.portal.call(self.toolbox.view, case.role).tools.get(case.tool)
        if tool is None or tool.definition.annotations["readOnlyHint"]:
            return self.portal.call(self._outcome, case)
        content = self.content
        outcome = self.portal.call(self._outcome, case)
        return replace(outcome, changed=content.changed())

    async def _outcome(self, case: Case) -> Outcome:
        caller, arguments = Caller(role=case.role, claims=case.claims or self.claims), dict(case.arguments)
        sql = ""
        try:
            for _ in range(case.page - 1):
                page = await self.toolbox.call(caller, case.tool, arguments)
                arguments["cursor"] = page.structured["next_cursor"]
            sql = await self._sql(case, arguments)
            answer = await self.toolbox.call(caller, case.tool, arguments)
        except DbtoolsError as exc:
            return Outcome(sql=sql, error=f"{exc.code}: {exc}")
        plain = answer.text == json.dumps(answer.structured, ensure_ascii=False, separators=(",", ":"))
        cursor = answer.structured.get("next_cursor")
        opaque = {"next_cursor": "…"} if cursor else {}
        return Outcome(
            sql=sql,
            structured=json_lines({**answer.structured, **opaque}),
            text="" if plain else answer.text.replace(str(cursor), "…") if cursor else answer.text,
        )

    async def _sql(self, case: Case, arguments: Mapping[str, object]) -> str:
        """Return the SQL of a call if *case* pins it."""
        if not case.sql:
            return ""
        statement = statement_of((await self.toolbox.view(case.role)).tools[case.tool].bind(arguments))
        runner = await self.database.runner()
        return sql_lines(runner.compile(statement.shape).sql)


@contextmanager
def serve(
    file: CaseFile, dialect: Dialect, server: Callable[[], PostgresqlServer], portal: BlockingPortal
) -> Iterator[Served]:
    """Serve the database that *file* describes."""
    with ExitStack() as stack:
        url = stack.enter_context(_database(of_dialect(file.schema_, dialect), dialect, server))
        sections = {**file.settings, "database": {**file.settings.get("database", {}), "url": url}}
        if queries := of_dialect(file.queries, dialect):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            (folder / "queries.sql").write_text(queries, encoding="utf-8")
            sections["queries"] = {"directory": str(folder)}
        toolbox, database = open_toolbox(Settings.model_validate(sections))
        stack.callback(portal.call, database.close)
        bare = stack.enter_context(closing(open_bare(dialect, url, portal)))
        yield Served(toolbox, database, portal, dialect, bare, file.claims)


@contextmanager
def _database(ddl: str, dialect: Dialect, server: Callable[[], PostgresqlServer]) -> Iterator[str]:
    if dialect == "postgresql":
        with server().database() as name:
            server().execute(ddl, url=server().url_of(name))
            yield server().url_of(name)
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cases.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(ddl)
        yield f"sqlite:///{path}"


def sql_lines(sql: str) -> str:
    """Return *sql* with one clause a line."""
    clauses = CLAUSES.split(" ".join(sql.split()))
    return "\n".join(map(_wrapped, clauses))


def _wrapped(clause: str) -> str:
    """Return *clause*, where it is long with one column a line."""
    if len(clause) <= WIDTH:
        return clause
    wrap = partial(textwrap.fill, width=WIDTH, break_long_words=False, break_on_hyphens=False)
    first, *rest = re.sub(r"( AS c\d+,) ", r"\1\n", clause).split("\n")
    columns = [wrap(first, subsequent_indent=" " * 8)]
    columns += [wrap(each, initial_indent=" " * 4, subsequent_indent=" " * 8) for each in rest]
    return "\n".join(columns)


def json_lines(value: Mapping[str, object]) -> str:
    """Return *value* as JSON, in one line if it fits, else in several; of several rows each has its own."""
    rows = value.get("rows")
    return _laid_out(value, "", apart=isinstance(rows, list) and len(rows) > 1)


def _laid_out(value: object, indent: str, *, apart: bool = False) -> str:
    line = json.dumps(value, ensure_ascii=False)
    fits = not apart and len(indent + line) <= WIDTH
    if fits or not value or not isinstance(value, list | Mapping):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        start, end, lines = "[", "]", [_laid_out(each, inner) for each in value]
    else:
        pairs = [_pair(name, each, inner, apart=apart and name == "rows") for name, each in value.items()]
        start, end, lines = "{", "}", _packed(pairs, WIDTH - len(inner))
    return f"{start}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{end}"


def _pair(name: str, value: object, indent: str, *, apart: bool) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {_laid_out(value, indent, apart=apart)}"


def _packed(parts: Iterable[str], width: int) -> list[str]:
    """Return *parts* in lines of which each holds as many as fit."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines else "\n"
        if "\n" in longer or len(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


def rewritten(text: str, outcomes: Iterable[Mapping[Dialect, Outcome]]) -> str:
    """Return the *text* of a file with *outcomes* in place of what is generated in its cases."""
    head, *blocks = re.split(r"^(?=\[\[cases\]\]$)", text, flags=re.MULTILINE)
    pairs = zip(blocks, outcomes, strict=True)
    return head + "".join(_rewritten_block(block, each) for block, each in pairs)


def _rewritten_block(block: str, outcomes: Mapping[Dialect, Outcome]) -> str:
    """Return the *block* of a case with *outcomes* behind what is asked, and before what follows it."""
    lines = list(_asked(block.splitlines()))
    end = max(at for at, line in enumerate(lines, 1) if line and not line.startswith("#"))
    generated = [line for name in GENERATED for line in _generated(name, outcomes)]
    return "\n".join([*lines[:end], *generated, *lines[end:]]) + "\n"


def _asked(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* without what is generated, whose texts may take many."""
    ending = ""
    for line in lines:
        if ending:
            ending = "" if ending in line else ending
            continue
        if not re.match(rf"({'|'.join(GENERATED)})(\.\w+)? = ", line):
            yield line
            continue
        opening = re.search("'''|\"\"\"", line)
        if opening and line.count(opening[0]) == 1:
            ending = opening[0]


def _generated(name: str, outcomes: Mapping[Dialect, Outcome]) -> Iterator[str]:
    parts: dict[str, str] = {dialect: getattr(each, name) for dialect, each in outcomes.items()}
    given = {dialect: part for dialect, part in parts.items() if part}
    if name != "sql" and len(given) == len(parts) and len(set(given.values())) == 1:
        yield f"{name} = {_toml(next(iter(given.values())))}"
        return
    for dialect, part in given.items():
        yield f"{name}.{dialect} = {_toml(part)}"


def _toml(text: str) -> str:
    """Return *text* as a string in TOML."""
    if "\n" in text and "'''" not in text:
        return f"'''\n{text}\n'''"
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    plain = text.isprintable() and "\\" in quoted
    if len(text) > WIDTH:
        return _folded(quoted[1:-1] if "\\" in text else text.replace('"""', '""\\"'))
    if plain and "'" not in text:
        return f"'{text}'"
    return f"'''{text}'''" if plain and not re.search("'''|'$", text) else quoted


def _folded(body: str) -> str:
    """Return *body* in lines that a backslash at the end of each joins."""
    body = re.sub(r'(?<!\\)"$', r'\\"', body)
    lines = re.findall(rf".{{1,{WIDTH - 2}}}(?:\s|$)|\S+\s?", body)
    return '"""\\\n' + "\\\n".join(lines) + '"""'


def rewrite(path: Path, server: PostgresqlServer, portal: BlockingPortal) -> None:
    """Write the actual outcomes of its cases into the file at *path*."""
    file = load(path)
    found: list[dict[Dialect, Outcome]] = [{} for _ in file.cases]
    for dialect in DIALECTS:
        with serve(file, dialect, lambda: server, portal) as served:
            for outcomes, case in zip(found, file.cases, strict=True):
                if dialect in case.dialects:
                    outcomes[dialect] = served.outcome(case)
    text = rewritten(path.read_text(encoding="utf-8"), found)
    for case, outcomes in zip(parse(text).cases, found, strict=True):
        assert {dialect: expected(case, dialect) for dialect in outcomes} == outcomes, case.name
    path.write_text(text, encoding="utf-8")


def main(names: Iterable[str]) -> None:
    """Rewrite the files of these *names*, or all."""
    wanted = [FOLDER / f"{name}.toml" for name in names] or sorted(FOLDER.glob("*.toml"))
    with start_blocking_portal("asyncio") as portal, open_server(portal) as server:
        for path in wanted:
            rewrite(path, server, portal)


if __name__ == "__main__":
    main(sys.argv[1:])
