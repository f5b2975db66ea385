"""SQLite: a cell of text that is not valid UTF-8 finds its row when a caller copies it as it is shown."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.sqlite.connection.files import UNHEX
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import BareSqlite, Serve, Shop, rows_of
from tests.database.test_moments import plan_of
from tests.database.test_values import examples
from tests.database.written_shop import refused

EXAMPLES = 25
OPPOSITES = {"ne": "eq", "not_in": "in"}
#: A declared type of a key, and the end of its table.
TABLES = {
    "plain": ("text not null", ""),
    "ended": ("text not null", "without rowid"),
    "strict": ("text not null", "strict"),
    "untyped": ("not null", ""),
    "short": ("varchar(20) not null collate nocase", ""),
}
DDL = ";".join(
    f"create table {name} (k {declared} primary key, v text) {end}"
    for name, (declared, end) in TABLES.items()
)
#: Bytes of which some are no letters, in texts that are not UTF-8.
INVALID = st.lists(
    st.sampled_from([b"\xff", b"\xe9", b"\x80", b"\xc3", b"\xed\xa0\x80", b"a", b"Caf", b"\\", "é".encode()]),
    min_size=1,
    max_size=5,
).map(b"".join).filter(lambda content: not _is_utf8(content)) | st.binary(max_size=6).filter(
    lambda content: 0 not in content and not _is_utf8(content)
)


def _is_utf8(content: bytes) -> bool:
    return content.decode(errors="replace").encode() == content


@pytest.fixture(scope="module")
def sqlite(serve: Serve) -> Iterator[Shop]:
    """Return a database with tables whose keys hold texts."""
    with serve("sqlite", DDL) as shop:
        yield shop


@pytest.fixture(scope="module")
def caller(sqlite: Shop) -> Iterator[Caller]:
    """Return a caller who may change the tables."""
    with calling_as(sqlite, dict.fromkeys(TABLES, GrantSection(update=True, delete=True))) as caller:
        yield caller


@pytest.mark.parametrize("table", TABLES)
@examples(EXAMPLES)
@given(content=INVALID)
def test_a_shown_text_finds_its_row(table: str, content: bytes, sqlite: Shop) -> None:
    shown = _filled(sqlite, table, content)
    one: Mapping[str, object] = {"value": shown}
    many: Mapping[str, object] = {"values": ["other", shown]}
    positive = {"eq": one, "in": many, "contains": one, "starts_with": one, "ends_with": one}

    found = {op: _found(sqlite, table, {"op": op, **values}) for op, values in positive.items()}
    others = {op: _found(sqlite, table, {"op": op, **positive[of]}) for op, of in OPPOSITES.items()}

    assert found == {op: ["broken"] for op in positive}
    assert others == {op: ["valid"] for op in OPPOSITES}
    assert sqlite.get(table, k=shown) == {"k": shown, "v": "broken"}


def _filled(shop: Shop, table: str, content: bytes) -> str:
    """Put a key of *content* and another one into *table*, and return the first as it is shown."""
    shop.bare.execute(f"delete from {table}")
    shop.bare.execute(f"insert into {table} values (cast(? as text), 'broken'), ('é', 'valid')", content)
    ((shown,),) = shop.rows(table, columns=["k"], where=[{"column": "v", "op": "eq", "value": "broken"}])
    return str(shown)


def _found(shop: Shop, table: str, condition: Mapping[str, object]) -> list[object]:
    rows = shop.rows(table, columns=["v"], where=[{"column": "k", **condition}])
    return [value for (value,) in rows]


@pytest.mark.parametrize("table", sorted({*TABLES} - {"ended"}))
@examples(EXAMPLES)
@given(content=INVALID)
def test_a_shown_text_is_a_key_of_changes(table: str, content: bytes, caller: Caller, sqlite: Shop) -> None:
    shown = _filled(sqlite, table, content)
    new = {"v": "new"}

    keyed = caller.call("update_rows", table=table, key={"k": shown}, set=new, expected={"k": shown})
    each = caller.call("update_rows", table=table, rows=[{"k": shown, "v": "newer"}])
    where = [{"column": "k", "op": "eq", "value": shown}]
    chosen = caller.call("update_rows", table=table, where=where, set={"v": "newest"})
    deleted = caller.call("delete_rows", table=table, key={"k": shown})

    rows = [rows_of(answer) for answer in (keyed, each, chosen, deleted)]
    assert rows == [[[shown, "new"]], [[shown, "newer"]], [[shown, "newest"]], [[shown, "newest"]]]
    assert sqlite.bare.rows(f"select v from {table}") == [("valid",)]


def test_a_key_without_rowid_is_refused_with_the_reason(caller: Caller, sqlite: Shop) -> None:
    shown = _filled(sqlite, "ended", b"\xff")

    error = refused(caller, "update_rows", table="ended", key={"k": shown}, set={"v": "new"})
    deleted = caller.call("delete_rows", table="ended", key={"k": shown})

    assert (error.code, "not valid UTF-8" in error.message) == ("refused", True)
    assert rows_of(deleted) == [[shown, "broken"]]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_an_escape_also_means_what_is_written(encoding: str, serve: Serve) -> None:
    rows = "('\\xe9'), ('x'), (null)"
    ddl = f"pragma encoding = '{encoding}'; create table t (v text); insert into t values {rows}"
    operators = ("eq", "contains", "starts_with", "ends_with")
    with serve("sqlite", ddl) as shop:
        found = [shop.rows("t", where=[{"column": "v", "op": op, "value": r"\xe9"}]) for op in operators]

    assert found == [[[r"\xe9"]]] * len(operators)


def test_a_search_for_an_invalid_text_uses_the_index(serve: Serve) -> None:
    where = [{"column": "v", "op": "eq", "value": r"caf\xe9"}]
    with serve("sqlite", "create table t (v text); create index by_v on t (v)") as shop:
        assert isinstance(shop.bare, BareSqlite)
        shop.bare.connection.create_function(UNHEX, 1, bytes.fromhex, deterministic=True)

        plan = plan_of(shop, "list_t", {"where": where})

    assert "SEARCH t USING COVERING INDEX by_v (v=?)" in plan


def test_a_new_value_is_stored_as_it_is_written(caller: Caller, sqlite: Shop) -> None:
    shown = _filled(sqlite, "plain", b"caf\xe9")

    caller.call("update_rows", table="plain", key={"k": shown}, set={"v": shown})

    assert sqlite.bare.rows("select v from plain where v <> 'valid'") == [(r"caf\xe9",)]
