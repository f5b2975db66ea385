"""SQLite: each spelling of a moment is compared as what Python reads in it."""

import sqlite3
from itertools import product

import pytest
import sqlalchemy as sa

from dbtools.backends.sqlite.connection.functions import install
from dbtools.backends.sqlite.reading.grammar import SqliteGrammar
from dbtools.backends.sqlite.reading.moments import spelling_of
from dbtools.values.dates import utc
from dbtools.values.types import Family

SPELLED = [
    "".join(parts)
    for parts in product(
        ("2024-01-05", "9999-12-31", "2024-1-5", "abcd-ef-gh"),
        (" ", "T", "t", "  ", ""),
        ("10:20:00", "23:59:59", "24:00:00", "10:60:00", "10:00:60", "10:00", "9:00:00", "24:00", ""),
        ("", ".", ".5", ".500", ".000", ".123456", ".000000001", ",5", ".5x"),
        (
            "",
            "Z",
            "z",
            " Z",
            "+00:00",
            "-00:00",
            "+10:00",
            "-01:00",
            "+0000",
            "+99:99",
            " ",
            "x",
            "ZZ",
            ":00",
            "+",
        ),
    )
]


def test_each_spelling_is_compared_as_its_moment() -> None:
    connection = sqlite3.connect(":memory:")
    install(connection)
    connection.execute("create table seen (at timestamp)")
    connection.executemany("insert into seen values (?)", [(text,) for text in SPELLED])
    sql = str(spelling_of(sa.column("at"), Family.TIMESTAMP).compile(dialect=SqliteGrammar.dialect))

    found = dict(connection.execute(f"select at, {sql} from seen").fetchall())

    assert found == {text: utc(text) or text for text in SPELLED}


@pytest.mark.parametrize(
    ("offset", "moment"),
    [
        ("+15:59", "2024-03-04 18:01:00"),
        ("-1559", "2024-03-06 01:59:00"),
        ("-15", "2024-03-06 01:00:00"),
        ("+16:00", None),
        ("+10:60", None),
        ("+99:99", None),
    ],
)
def test_offset_is_less_than_sixteen_hours(offset: str, moment: str | None) -> None:
    assert utc(f"2024-03-05 10:00 {offset}") == moment
