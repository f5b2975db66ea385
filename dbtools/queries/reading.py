"""Read files of permitted queries, each with a header and SQL. Text in, Queries and findings out."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from dbtools.errors import did_you_mean
from dbtools.findings import Finding, Kind, Source, finding
from dbtools.queries.bodies import OPTIONAL_MARKS, Body, read_body
from dbtools.queries.headers import (
    LIKE_HEADER,
    NAME_WANTED,
    QUERY_NAME,
    Header,
    QueryParameter,
    Returns,
    mistakes_of,
    near_miss,
    read_header,
)
from dbtools.schema.catalog import Column
from dbtools.schema.sql import CLAIMS, Lexis, Parameter, SqlError, code_of
from dbtools.values.types import ColumnType, quote

BEGINNING = re.compile(r"^-- name:(?P<name>.*)", re.MULTILINE)
#: Comments and strings. The group is a block comment, which may hide queries up to the end of the file.
COMMENT = re.compile(r"--[^\n]*+|'[^']*+'|(/\*(?!\?).*?(?:\*/|\Z))", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Query:
    """SQL that an operator permits, as its file declares it."""

    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[QueryParameter, ...] = ()
    returns: Returns = Returns.MANY
    max_rows: int | None = None  #: None: the role's limit
    timeout: float | None = None  #: seconds; None: the role's
    writes: int | None = None  #: the most rows that it may change; None: it only reads
    confirm: bool = False  #: whether a person, or else a token, must confirm what it changes
    body: Body
    source: Source = field(default_factory=Source)  #: of its name
    sql_source: Source = field(default_factory=Source)  #: of the first line of its SQL

    def source_of(self, present: Collection[str], offset: int | None) -> Source:
        """Return the place of *offset* in the variant for *present*; without an offset, that of the query."""
        if offset is None:
            return self.source
        lines = self.body.variant(present).text.count("\n", 0, offset)
        return replace(self.sql_source, line=(self.sql_source.line or 1) + lines)


class Effect(NamedTuple):
    """A change that a query may make to a table."""

    kind: str  #: insert, update or delete
    schema: str
    table: str
    column: str = ""  #: empty: all, or unknown
    named: bool = True  #: by the query; otherwise a view, a foreign key or a trigger makes the change


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What a query may change, as the database reports it."""

    target: tuple[str, str] = ("", "")  #: the table whose rows it counts
    changes: frozenset[Effect] = frozenset()
    functions: tuple[str, ...] = ()  #: of triggers; what they change is unknown

    @property
    def only_inserts(self) -> bool:
        """Whether it certainly changes and deletes no existing row."""
        return not self.functions and all(each.kind == "insert" for each in self.changes)


@dataclass(frozen=True, kw_only=True)
class Permitted:
    """A query that the database understands."""

    query: Query
    columns: tuple[Column, ...]
    #: By parameter, and by claim as :claims.x.
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)  #: their SQL names, if the database needs them
    reads: Collection[tuple[str, str, str]] | None = None  #: schema, table and column; None: unknown
    versions: tuple[str, ...] = ()  #: of the tables that it reads, if known
    functions: tuple[str, ...] = ()  #: user-defined ones; what they read is unknown
    effects: Effects | None = None  #: None: it only reads

    @property
    def name(self) -> str:
        """The name of its tool."""
        return self.query.name

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """The arguments that callers supply."""
        return self.query.parameters


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The part of a file that holds one query, or that precedes the first."""

    text: str
    source: Source  #: of its first line
    name: str  #: as written, or else the file's
    named: bool  #: whether the name is written

    def line_of(self, offset: int) -> int:
        """Return the line in the file of *offset* in the text."""
        return (self.source.line or 1) + self.text.count("\n", 0, offset)

    @property
    def sql_offset(self) -> int:
        """Where the first line begins that is neither blank nor a one-line comment."""
        lines = self.text.split("\n")
        header = takewhile(lambda line: line.lstrip()[:2] in ("", "--"), lines)
        return min(sum(len(line) + 1 for line in header), len(self.text))


Mistakes = list[tuple[int, str]]  #: a line, and what is wrong there


def read_queries(text: str, file: str, lexis: Lexis) -> tuple[tuple[Query, ...], tuple[Finding, ...]]:
    """Return the usable queries in the *text* of *file*, and findings about the others."""
    before, parts = _split(text, file)
    queries: dict[str, Query] = {}
    mistakes = _before_names(before, lexis) if before else []
    findings = [_mistake("", problem, replace(parts[0].source, line=line)) for line, problem in mistakes]
    lines: dict[str, int] = {}
    for part in parts:
        query, mistakes = _query(part, lexis)
        line = part.line_of(0)
        if part.name and lines.setdefault(part.name, line) != line:
            queries.pop(part.name, None)
            mistakes.append((line, f"line {lines[part.name]} has the same name; neither query is used"))
        elif query is not None and not mistakes:
            queries[part.name] = query
        findings += (_mistake(part.name, problem, replace(part.source, line=at)) for at, problem in mistakes)
    return tuple(queries.values()), tuple(sorted(findings, key=lambda each: each.source.line or 0))


def sources_of(text: str, file: str) -> Mapping[str, Source]:
    """Return the place of each query in the *text* of *file* by name, including unusable ones."""
    return {part.name: part.source for part in _split(text, file)[1]}


def texts_of(text: str, file: str) -> Mapping[str, str]:
    """Return the text of each query in the *text* of *file* by name; each could be a separate file."""
    texts = {}
    for part in _split(text, file)[1]:
        beginning = "" if part.named else f"-- name: {part.name}\n"
        texts[part.name] = f"{beginning}{part.text.strip()}\n"
    return texts


def _mistake(name: str, problem: str, source: Source) -> Finding:
    """Return the finding at *source* that the query *name*, if it is a valid name, has a *problem*."""
    kind = Kind.BAD_QUERY if QUERY_NAME.fullmatch(name) else Kind.BAD_QUERY_NAME
    stop = "" if problem.endswith((".", "?")) else "."
    return finding(kind, source, subject=name, problem=f"{problem}{stop}")


def _split(text: str, file: str) -> tuple[_Part | None, list[_Part]]:
    """Return the part of *text* before the first name, if any, and the parts from there on."""
    text = text.removeprefix("\ufeff")
    found = list(BEGINNING.finditer(_without_comments(text)))
    starts = sorted({0, *(each.start() for each in found)})
    names = {each.start(): each["name"].strip() for each in found}
    first, *more = (
        _Part(
            text=text[start:end],
            source=Source(file=file, line=text.count("\n", 0, start) + 1),
            name=names.get(start, PurePath(file).stem),
            named=start in names,
        )
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True)
    )
    return (first, more) if more and not first.named else (None, [first, *more])


def _without_comments(text: str) -> str:
    """Return *text* with spaces instead of block comments."""
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]) if match[1] else match[0], text)


def _before_names(part: _Part, lexis: Lexis) -> Mistakes:
    """Return the mistakes in *part*, which precedes the first name."""
    try:
        code = code_of(part.text, lexis)
    except SqlError as exc:
        return [(part.line_of(exc.offset), exc.problem)]
    problems = [(part.line_of(each.offset), "there is SQL before the first -- name") for each in code[:1]]
    return [*problems, *_misplaced_lines(part, 0)]


def _misplaced_lines(part: _Part, start: int) -> Mistakes:
    """Return the lines of *part* from *start* on that look like header lines."""
    lines = enumerate(_without_comments(part.text[start:]).split("\n"), part.line_of(start))
    return [(line, problem) for line, text in lines if (problem := near_miss(text, LIKE_HEADER))]


def _query(part: _Part, lexis: Lexis) -> tuple[Query | None, Mistakes]:
    """Return the query in *part*, if it can be read, and its mistakes."""
    start = part.sql_offset
    sql, line = part.text[start:], part.line_of(start)
    header = read_header(enumerate(part.text[:start].split("\n"), part.line_of(0)), part.source.file)
    mistakes = [*header.mistakes, *mistakes_of(header, part.line_of(0)), *_misplaced_lines(part, start)]
    if not part.named and not QUERY_NAME.fullmatch(part.name):
        problem = f"write -- name: NAME, since {quote(part.name)}, the file's name, is not {NAME_WANTED}"
        mistakes.append((part.line_of(0), problem))
    always = {each.name for each in header.parameters if not each.may_be_absent}
    try:
        body = read_body(sql, lexis, always)
    except SqlError as exc:
        return None, [*mistakes, (part.line_of(start + exc.offset), exc.problem)]
    for found in (_undeclared_parameters(header, body), _absent_lists(header, body)):
        mistakes += ((line + at, problem) for at, problem in found)
    unused = [each for each in header.parameters if Parameter(each.name) not in body.parameters]
    for each in unused:
        problem = f"param {each.name}: the SQL has no :{each.name} outside quotes"
        mistakes.append((each.source.line or 1, problem))
    query = Query(
        **{**header.declared, "name": part.name},
        parameters=tuple(header.parameters),
        body=body,
        source=part.source,
        sql_source=replace(part.source, line=line),
    )
    return query, mistakes


def _undeclared_parameters(header: Header, body: Body) -> Iterator[tuple[int, str]]:
    """Yield the parameters of the SQL that the header does not declare."""
    names = [each.name for each in header.parameters]
    known = {*names, *header.mentioned}
    for _, parameter, line in body.places():
        if parameter.claim is None and parameter.name not in known:
            known.add(parameter.name)
            form = f"Write -- param {parameter.name}: TYPE  text, or :{CLAIMS}.NAME for a claim of the caller"
            yield line, f"{parameter} is not declared. {did_you_mean(parameter.name, names)}{form}"


def _absent_lists(header: Header, body: Body) -> Iterator[tuple[int, str]]:
    """Yield the optional lists outside of clauses.

    A list that is null means all rows to one database and none to another.
    """
    names = {each.name for each in header.parameters if each.array and each.may_be_absent}
    for part, parameter, line in body.places():
        if not part.needs and parameter.name in names:
            names.remove(parameter.name)
            problem = f"{parameter} is a list that may be absent: put it in {OPTIONAL_MARKS}"
            yield line, f"{problem}, or give it a default such as = '[]'"
