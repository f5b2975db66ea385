"""dbtools reads names and strings as the server does."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal
from hypothesis import given, strategies as st

from dbtools.backends.postgresql.schema.names import SqlNames
from dbtools.backends.postgresql.schema.types import lexis, name_of, string_of
from dbtools.errors import Refused
from dbtools.schema.sql import code_of
from tests.database.shop import Bare, open_bare

ESCAPES = st.sampled_from(
    [
        *(r"\\", r"\'", "''", r"\n", r"\b", r"\7", r"\101", r"\x4", r"\x41", r"\u00e4", r"\U0001F600", r"\q"),
        *(r"\xc3\xa4", r"\ud83d\ude00", "ä", "a", '"', " ", "-- ", "'\n'", "' -- it's\n\t'"),
    ]
)
LETTERS = st.characters(exclude_categories=("Cs", "Cc")).filter(lambda c: c not in '"')


@pytest.fixture(scope="module")
def bare(
    postgresql_database: Callable[[str], AbstractContextManager[str]], portal: BlockingPortal
) -> Iterator[Bare]:
    with postgresql_database("select 1") as url:
        connection = open_bare("postgresql", url, portal)
        yield connection
        connection.close()


@given(st.lists(ESCAPES, max_size=8))
def test_strings_with_escapes_have_the_value_that_the_server_gives(bare: Bare, parts: list[str]) -> None:
    sql = f"E'{''.join(parts)}'"
    (token,) = code_of(sql, lexis)

    assert [(string_of(token),)] == bare.rows(f"select {sql}")


@given(st.text(LETTERS, min_size=1, max_size=40), st.booleans())
def test_names_are_those_that_the_server_reads(bare: Bare, text: str, is_quoted: bool) -> None:
    name = f'"{text}"' if is_quoted else "x" + "".join(c for c in text if c.isalnum())
    (token,) = code_of(name, lexis)
    row = "q" * 41  # longer than the name, which would otherwise mean the column
    try:
        ((found,),) = bare.rows(
            f"select pg_catalog.json_object_keys(to_json({row})) from (select 1 as {name}) {row}"
        )
    except asyncpg.PostgresSyntaxError:
        return

    assert name_of(token) == found


@pytest.mark.parametrize("text", ["u&'\\0061'", 'U&"\\0061"'])
def test_escapes_of_unicode_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="not supported"):
        SqlNames.of(f"a = {text}", ())


def test_text_may_follow_an_operator() -> None:
    names = SqlNames.of("u & 'visible' = 'Late.\"Table\"' and x &'a b'", ("public",))

    assert {"visible", "late", "Table", "a", "b", "public"} <= names.words
    assert ("late", "Table") in names.placed
    assert "Table" not in names.bare
