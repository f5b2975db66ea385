"""Permitted queries that sort or group by a parameter, which is a value and no column: an error."""

import pytest

from dbtools.backends.postgresql import types as postgresql
from dbtools.backends.sqlite import syntax as sqlite
from dbtools.queries import read_queries
from dbtools.sql import Lexis

LEXES = [pytest.param(sqlite.lexis, id="sqlite"), pytest.param(postgresql.lexis, id="postgresql")]
HEADER = "-- name: q\n-- description: Q.\n-- param p: text?\n-- param n: integer = 1\n"


def _lines(sql: str, lexis: Lexis) -> list[tuple[int | None, str]]:
    """Return the lines of the file with a parameter that does nothing, and what is said there."""
    used = "" if ":n" in sql else "\n-- :n\nlimit :n"
    used += "" if ":p" in sql else " + length(:p)"
    _, findings = read_queries(f"{HEADER}{sql}{used}", "q.sql", lexis)
    return [(each.source.line, each.message) for each in findings]


@pytest.mark.parametrize("lexis", LEXES)
@pytest.mark.parametrize(
    ("sql", "line", "word"),
    [
        pytest.param("select id from t\norder by :p", 6, "order", id="alone"),
        pytest.param("select id from t\nORDER BY :p DESC", 6, "order", id="descending"),
        pytest.param("select id from t order by :p, id", 5, "order", id="first of several"),
        pytest.param("select id from t order /* of */ by -- it\n :p", 6, "order", id="comments"),
        pytest.param("select id from t\n/*? order by :p ?*/", 6, "order", id="clause"),
        pytest.param("select * from (select id from t order by :p) limit :n", 5, "order", id="subquery"),
        pytest.param("select sum(a) over (order by :p rows 1 preceding) from t", 5, "order", id="window"),
        pytest.param(
            "select sum(a) over (partition by :p, b order by id) from t", 5, "partition", id="partition"
        ),
        pytest.param("select count(*) as n from t group by :p", 5, "group", id="group"),
        pytest.param("select a from t order by :p union select a from t", 5, "order", id="before another"),
    ],
)
def test_parameter_that_rows_are_sorted_or_grouped_by_is_refused(
    lexis: Lexis, sql: str, line: int, word: str
) -> None:
    ((where, told),) = _lines(sql, lexis)

    assert where == line
    assert told.startswith(f"query q: {word} by :p ")
    assert f"Write {word} by case :p when 'name' then name when … end." in told


@pytest.mark.parametrize("lexis", LEXES)
@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("select id from t order by case :p when 'name' then name else id end", id="case"),
        pytest.param("select id from t order by name = :p, id", id="comparison"),
        pytest.param("select id from t order by :p || name", id="concatenation"),
        pytest.param("select id from t order by abs(id - :n), coalesce(name, :p)", id="arguments"),
        pytest.param("select id from t order by id limit :n", id="limit"),
        pytest.param("select id, :p as p from t where a in (:n, :p) order by id", id="elsewhere"),
        pytest.param("select :p, :p as p from t group by id", id="columns"),
        pytest.param("select f(id, :p) from t order by g(a, :p), id", id="last argument"),
        pytest.param("select ':p order by :p', id as \"order by :p\" from t where a = :p", id="quotes"),
        pytest.param("select sum(a) over (order by id rows :n preceding) from t where b = :p", id="frame"),
    ],
)
def test_parameter_in_what_rows_differ_by_is_none_of_these(lexis: Lexis, sql: str) -> None:
    assert [told for _, told in _lines(sql, lexis) if " by :" in told.partition("Write")[0]] == []
