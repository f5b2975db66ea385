"""Query files for tests: text in, queries or findings out."""

import pytest

from dbtools.backends.postgresql.schema import types as postgresql
from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.queries import Query, read_queries
from dbtools.schema.sql import Lexis

LEXES = [pytest.param(sqlite.lexis, id="sqlite"), pytest.param(postgresql.lexis, id="postgresql")]
either = pytest.mark.parametrize("lexis", LEXES)


def read(text: str, lexis: Lexis = sqlite.lexis, file: str = "shop.sql") -> tuple[Query, ...]:
    """Return the queries of *text*, in which nothing is wrong."""
    queries, findings = read_queries(text, file, lexis)
    assert findings == ()
    return queries


def complaints(text: str, lexis: Lexis = sqlite.lexis, file: str = "shop.sql") -> list[tuple[int, str]]:
    """Return what is wrong with *text*: the lines, and the messages without the name of the query."""
    _, findings = read_queries(text, file, lexis)
    assert all((each.code, each.level, each.source.file) == ("bad_query", "error", file) for each in findings)
    return [(each.source.line or 0, each.message.removeprefix("query q: ")) for each in findings]
