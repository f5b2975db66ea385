"""Query files: the text of one in, its queries and what is wrong with the others out.

A line that begins with `-- name:` begins a query, unless a comment around it is open. A file without such a
line is one query with the name of the file. What is broken in one query does not touch the next.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import PurePath

from dbtools.catalog import Column
from dbtools.errors import nearest
from dbtools.policy import Finding, Source
from dbtools.queries.bodies import CLOSING, OPENING, Body, idle_terms, is_clause, opened, read_body, readable
from dbtools.queries.declarations import QueryParameter
from dbtools.queries.headers import NAME, NAME_WANTED, CommentLine, Header, Returns, late_key, read_header
from dbtools.sql import CLAIMS, QUOTED, Kind, Lexis, Parameter, SqlError, Token, tokenize
from dbtools.types import UNSENDABLE, ColumnType, quoted

MOST_ATTEMPTS = 1000  #: to go on after an error, before what is left of a query is taken for SQL
BEGINNING = re.compile(r"-- name:[ \t]*(?P<name>[^\r\n]*)")
DOTTED = re.compile(r"\.([A-Za-z_]\w*)")
BEGINS = "write -- name: NAME where the line begins: only that begins a query"


@dataclass(frozen=True, kw_only=True)
class Query:
    """SQL that an operator permits, as its file declares it."""

    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[QueryParameter, ...] = ()
    returns: Returns = Returns.MANY
    max_rows: int | None = None  #: None: as many as the role may have
    timeout: float | None = None  #: seconds; None: the role's
    body: Body
    source: Source = field(default_factory=Source)  #: of its name
    sql_source: Source = field(default_factory=Source)  #: of the first line of its SQL

    def source_of(self, present: Collection[str], offset: int | None) -> Source:
        """Return where in its file *offset* of the variant for *present* is; of its name where it is None."""
        if offset is None:
            return self.source
        return replace(self.sql_source, line=(self.sql_source.line or 1) + self.body.line_of(present, offset))

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of the caller's claims that its SQL uses."""
        claims = (parameter.claim for parameter in self.body.parameters)
        return tuple(claim for claim in claims if claim is not None)


@dataclass(frozen=True, kw_only=True)
class Permitted:
    """A query that the database understands."""

    query: Query
    columns: tuple[Column, ...]
    #: Of parameters, and of claims as :claims.x.
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)  #: their SQL names, where the database wants them
    reads: Collection[tuple[str, str, str]] | None = None  #: schema, table and column; None: not known
    versions: tuple[str, ...] = ()  #: of the tables that it reads, where they are known
    functions: tuple[str, ...] = ()  #: not the system's: what they read is not among that

    @property
    def name(self) -> str:
        """The name by which it is called."""
        return self.query.name

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """What callers give it."""
        return self.query.parameters


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The part of a file that holds one query, or what stands before the first."""

    text: str
    line: int  #: on which it begins
    lexis: Lexis
    unclosed: int | None = None  #: where in the text a comment begins that hides the rest of the file

    @property
    def name(self) -> str | None:
        """The name as it is written, None where there is none."""
        beginning = BEGINNING.match(self.text)
        return beginning["name"].strip() if beginning else None

    def line_of(self, offset: int) -> int:
        """Return on which line of the file a place in the text is."""
        return self.line + self.text.count("\n", 0, offset)

    def before(self, offset: int) -> str:
        """Return what stands before a place in the text on its line."""
        return self.text[max(self.text.rfind("\n", 0, offset), self.text.rfind("\r", 0, offset)) + 1 : offset]

    @cached_property
    def tokens(self) -> tuple[Sequence[Token], int | None]:
        """The tokens up to the first that cannot be read, and where that is."""
        return readable(self.text, self.lexis)

    @property
    def sql_offset(self) -> int | None:
        """Where there is more than blanks and comments, None where there is nothing else."""
        tokens, error = self.tokens
        sql = (each.offset for each in tokens if each.kind is not Kind.COMMENT or is_clause(each))
        return next(sql, error)


Mistakes = list[tuple[int, str]]  #: lines, and what is wrong there


def read_queries(text: str, file: str, lexis: Lexis) -> tuple[tuple[Query, ...], tuple[Finding, ...]]:
    """Return the queries in *text*, that of *file*, which can be used, and what is wrong with the others."""
    before, parts = _split(text, lexis)
    nameless, early = _before_names(before) if before else ([], [])
    findings = [_finding(file, "", *each) for each in nameless]
    names = [PurePath(file).stem if part.name is None else part.name for part in parts]
    queries: list[Query] = []
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        query, mistakes = _query(part, name, file)
        mistakes += early if number == 0 else []
        if name and name in names[:number]:
            other = parts[names.index(name)].line
            mistakes.append((part.line, f"line {other} has this name as well, and neither is used"))
        findings += (_finding(file, name, *each) for each in mistakes)
        if query is not None and not mistakes and names.count(name) == 1:
            queries.append(query)
    return tuple(queries), tuple(sorted(findings, key=lambda each: each.source.line or 0))


def sources_of(text: str, file: str, lexis: Lexis) -> Mapping[str, Source]:
    """Return where in *text*, that of *file*, each query is, by name: those that cannot be used too."""
    return {name: Source(file=file, line=part.line) for name, part in _named(text, file, lexis)}


def texts_of(text: str, file: str, lexis: Lexis) -> Mapping[str, str]:
    """Return the text of each query in *text*, that of *file*, by name, each as a file of its own."""
    texts: dict[str, str] = {}
    for name, part in _named(text, file, lexis):
        beginning = "" if part.name else f"-- name: {name}\n"
        texts[name] = f"{beginning}{part.text.strip()}\n"
    return texts


def _named(text: str, file: str, lexis: Lexis) -> Iterator[tuple[str, _Part]]:
    """Yield the parts of *text* that hold a query, each after its name."""
    return ((part.name or PurePath(file).stem, part) for part in _split(text, lexis)[1])


def _split(text: str, lexis: Lexis) -> tuple[_Part | None, Sequence[_Part]]:
    """Return what stands in *text* before the first name, if anything does, and the parts after."""
    first, *more = _parts(text.removeprefix("\ufeff"), lexis)
    return (first, more) if more and first.name is None else (None, [first, *more])


def _finding(file: str, name: str, line: int, problem: str) -> Finding:
    where = f"query {name}: " if NAME.fullmatch(name) else ""
    stop = "" if problem.endswith((".", "?")) else "."
    source = Source(file=file, line=line)
    return Finding(code="bad_query", message=f"{where}{problem}{stop}", source=source, subject=name)


def _parts(text: str, lexis: Lexis) -> Iterator[_Part]:
    """Yield *text* in parts, each from a beginning of a query to the next."""
    readable = UNSENDABLE.sub(" ", text)
    line_begins = rf"(?<![^{lexis.line_ends}])"
    starts = [found.start() for found in re.finditer(line_begins + BEGINNING.pattern, readable)]
    start, end = -1, 0
    while start < 0 or end < len(text):
        start = end
        end, unclosed = _end(readable, start, starts, lexis)
        yield _Part(
            text=text[start:end],
            line=text.count("\n", 0, start) + 1,
            lexis=lexis,
            unclosed=None if unclosed is None else unclosed - start,
        )


def _end(text: str, start: int, starts: Sequence[int], lexis: Lexis) -> tuple[int, int | None]:
    """Return where the part that begins at *start* ends, and where in it a comment hides the rest of *text*.

    It ends at the next of *starts* that is not commented out. A quote that is open there has been forgotten.
    """
    at, end = start, len(text)
    for _ in range(MOST_ATTEMPTS):
        number = bisect_left(starts, max(at, start + 1))
        end = starts[number] if number < len(starts) else len(text)
        error = readable(text[at:end], lexis)[1] if end < len(text) else None
        if error is None:
            break
        at += error
        if not text.startswith("/*", at) or text.startswith(OPENING, at):
            at += 1
            continue
        length = _length_of_comment(text[at:], lexis)
        if length is None:
            return len(text), at
        at += length
    return end, None


def _length_of_comment(sql: str, lexis: Lexis) -> int | None:
    """Return how long the comment at the beginning of *sql* is, None where it does not end."""
    try:
        return next(tokenize(sql, lexis)).end
    except SqlError:
        return None


def _before_names(part: _Part) -> tuple[Mistakes, Mistakes]:
    """Return what is wrong with *part*, which is before the first name, and with the query after it."""
    start = part.sql_offset
    late = list(_late_headers(part, 0, "stands before -- name: header lines come after it"))
    if start is not None:
        return [(part.line_of(start), "SQL stands before the first -- name"), *late], []
    return [], late


def _query(part: _Part, name: str, file: str) -> tuple[Query | None, Mistakes]:
    """Return the query in *part*, if anything can be made of it, and what is wrong with it."""
    lines, start = _head(part)
    header = read_header(lines, file)
    mistakes = header.mistakes
    if part.name is None and not NAME.fullmatch(name):
        problem = f"wants a line -- name: NAME, since {quoted(name)}, the file's name, is not {NAME_WANTED}"
        mistakes.append((part.line, problem))
    if part.unclosed is not None:
        mistakes.append((part.line_of(part.unclosed), "/* is not closed, and hides the rest of the file"))
        return None, mistakes
    late = "stands below the beginning of the SQL: header lines come above it"
    mistakes += _late_headers(part, start, late)
    sql = part.text[start:]
    always = {each.name for each in header.parameters if not each.may_be_absent}
    try:
        body = read_body(sql, part.lexis, always)
    except SqlError as exc:
        mistakes.append((part.line_of(start + exc.offset), exc.problem))
        return None, mistakes
    tokens = list(opened(part.tokens[0], part.lexis))
    parameters = (token for token in reversed(tokens) if token.kind is Kind.PARAMETER)
    places = {token.parameter: part.line_of(token.offset) for token in parameters}
    mistakes += _undeclared(header, body, places)
    mistakes += _unused(header, places, [token.text for token in tokens if token.kind in QUOTED])
    mistakes += _absent_lists(header, part)
    mistakes += ((part.line_of(at), problem) for at, problem in idle_terms(tokens, part.text))
    source = Source(file=file, line=part.line)
    query = Query(
        **{**header.said, "name": name},
        parameters=tuple(header.parameters),
        body=body,
        source=source,
        sql_source=replace(source, line=part.line_of(start)),
    )
    return query, mistakes


def _head(part: _Part) -> tuple[list[CommentLine], int]:
    """Return the comments of one line before the SQL of *part*, and where the SQL begins.

    Comments in between the last of them and the SQL belong to the SQL, since a database may heed them.
    """
    end = len(part.text) if part.sql_offset is None else part.sql_offset
    comments = [token for token in part.tokens[0] if token.offset < end]
    lines = [
        CommentLine(text=text, line=part.line_of(offset), indented=part.before(offset) != "")
        for _, text, offset, _ in comments
        if text.startswith("--")
    ]
    kept = list(takewhile(lambda token: not token.text.startswith("--"), reversed(comments)))
    return lines, kept[-1].offset if kept else end


def _late_headers(part: _Part, start: int, problem: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of *part* from *start* on that must have been meant for header lines."""
    for token in part.tokens[0]:
        key = late_key(token.text) if token.offset >= start and token.text.startswith("--") else ""
        if key and not part.before(token.offset).strip():
            yield part.line_of(token.offset), BEGINS if key == "name" else f"{key} {problem}"


def _undeclared(header: Header, body: Body, places: Mapping[Parameter, int]) -> Iterator[tuple[int, str]]:
    """Yield the parameters that only the SQL has."""
    names = [each.name for each in header.parameters]
    # Written as claims are, with a name behind a dot.
    dotted = {
        piece: name[1]
        for part in body.parts
        for piece, behind in pairwise(part.pieces)
        if isinstance(piece, Parameter) and isinstance(behind, str) and (name := DOTTED.match(behind))
    }
    for parameter in body.parameters:
        if parameter.claim is not None or parameter.name in {*names, *header.mentioned}:
            continue
        meant = f"{nearest(parameter.name, names)}Write -- param {parameter.name}: TYPE  text"
        problem = f"{parameter} is not declared. {meant}"
        if claim := dotted.get(parameter):
            problem = f"{parameter}.{claim} is no parameter. What is known of the caller is :{CLAIMS}.{claim}"
        yield places[parameter], problem


def _unused(
    header: Header, places: Collection[Parameter], quotes: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield the parameters that only the header has."""
    for each in header.parameters:
        written = Parameter(each.name)
        if written in places:
            continue
        problem = f"the SQL has no {written}"
        if any(re.search(rf"{written}(?!\w)", quote) for quote in quotes):
            problem = f"{written} stands within quotes, as a part of the text: write '%' || {written} || '%'"
        yield each.source.line or 1, f"param {each.name}: {problem}"


def _absent_lists(header: Header, part: _Part) -> Iterator[tuple[int, str]]:
    """Yield the lists that may be absent outside of a clause.

    As a null a list means all rows to one database and none to another.
    """
    names = {each.name for each in header.parameters if each.array and each.may_be_absent}
    for token in part.tokens[0]:
        if token.kind is Kind.PARAMETER and token.parameter.name in names:
            names.remove(token.parameter.name)
            problem = f"{token.text} is a list that may be absent: put it in {OPENING} … {CLOSING}"
            yield part.line_of(token.offset), f"{problem}, or give it a default such as = '[]'"
