"""Masked cells are shown as their masks say, of every type and length."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from dbtools.values.cells import REDACTED
from dbtools.values.types import Mask
from tests.database.role_callers import KEY, KEYED, calling, calling_as, reading, shops as shops
from tests.database.shop import Serve, Shop, Shops, open_shops, rows_of

VALUES = """
create table cells (id integer primary key, cell {type}, other text);
insert into cells values
    (1, null, ''), (2, 'secret', ''), (3, '', ''), (4, 'ann@example.org', ''), (5, 424242, ''),
    (6, {bytes}, ''), (7, 42.5, ''), (8, 'secret', ''), (9, '🦉owl', ''),
    (10, 'mail ann@example.org', ''), (11, 'p@ssword', ''), (12, 'https://ann:pw@host.org/?secret', '');
"""
CELLS = {
    "sqlite": VALUES.format(type="", bytes="x'cafecafe'"),
    "postgresql": VALUES.format(type="text", bytes="'zzz'"),
}


@pytest.fixture(scope="module")
def cells(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, CELLS) as shops:
        yield shops


def _masked(cells: Shop, mask: Mask, hash_key: str = KEY) -> dict[object, object]:
    with calling_as(cells, {"cells": GrantSection(mask={"cell": mask})}, hash_key=hash_key) as caller:
        listed = {row[0]: row[1] for row in caller.rows("list_cells", columns=["id", "cell"])}
        got = {}
        for id in listed:
            row = caller.call("get_cells", id=id)["row"]
            assert isinstance(row, dict)
            got[id] = row["cell"]
    assert listed == got
    return listed


def test_partial_mask_shows_a_first_character_and_an_addresss_domain(cells: Shops, dialect: str) -> None:
    found = _masked(cells(dialect), Mask.PARTIAL)
    shown = {id: cell for id, cell in found.items() if id not in (6,)}

    letters = {2: "s…", 3: "…", 5: "4…", 7: "4…", 8: "s…", 9: "🦉…", 10: "m…", 11: "p…", 12: "h…"}
    assert shown == {1: None, 4: "a…@example.org", **letters}
    assert len(str(found[6])) == 2


def test_hash_mask_is_equal_for_equal_cells_alone_and_keyed(cells: Shops, dialect: str) -> None:
    found = _masked(cells(dialect), Mask.HASH)
    again = _masked(cells(dialect), Mask.HASH)
    other = _masked(cells(dialect), Mask.HASH, hash_key="another")

    assert found == again
    assert found[1] is None
    assert found[2] == found[8]
    digests = [str(each) for id, each in found.items() if id not in (1, 8)]
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}
    assert not set(digests) & set(other.values())


@pytest.fixture(scope="module")
def long_cells(serve: Serve) -> Iterator[Shops]:
    address = "ann@example.org"
    lengths = f"""
    create table cells (id integer primary key, cell text, other text);
    insert into cells values
        (1, '{"é" * 10_000}', ''), (2, '{"é" * 10_000}a', ''), (3, '{"é" * 10_000}b', ''),
        (4, '{address + "x" * 305}', ''), (5, '{address + "x" * 305}y', ''), (6, '{address + " " * 400}', '');
    """
    with open_shops(serve, dict.fromkeys(CELLS, lengths)) as shops:
        yield shops


def test_cell_that_is_too_long_to_be_hashed_is_redacted(long_cells: Shops, dialect: str) -> None:
    """A hash of its beginning would be that of another cell."""
    found = _masked(long_cells(dialect), Mask.HASH)

    assert len(str(found[1])) == 16
    assert [found[2], found[3]] == [REDACTED, REDACTED]


def test_long_cell_shows_no_domain_of_its_beginning(long_cells: Shops, dialect: str) -> None:
    found = _masked(long_cells(dialect), Mask.PARTIAL)

    assert found == {1: "é…", 2: "é…", 3: "é…", 4: "a…", 5: "a…", 6: "a…"}


PICTURE = "89504e470d0a1a0a" + "ca" * 40
BLOBS = {
    "sqlite": f"""
    create table pictures (id integer primary key, picture blob, note text);
    insert into pictures values (1, x'{PICTURE}', 'n'), (2, null, 'n'), (3, x'', 'n');
    """,
    "postgresql": f"""
    create table pictures (id integer primary key, picture bytea, note text);
    insert into pictures values (1, '\\x{PICTURE}', 'n'), (2, null, 'n'), (3, '', 'n');
    """,
}


@pytest.fixture(scope="module")
def pictures(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, BLOBS) as shops:
        yield shops


@pytest.mark.parametrize("mask", Mask)
def test_masked_blob_is_neither_shown_nor_attached(mask: Mask, pictures: Shops, dialect: str) -> None:
    shop = pictures(dialect)
    with calling_as(shop, {"pictures": GrantSection(mask={"picture": mask})}) as caller:
        got = caller.portal.call(caller.toolbox.call, caller.identity, "get_pictures", {"id": 1})
        listed = caller.portal.call(
            caller.toolbox.call, caller.identity, "list_pictures", {"columns": ["picture"]}
        )
        cell = caller.portal.call(caller.toolbox.read, caller.identity, "dbtools://cell/pictures/1/picture")

    assert (got.media, got.links, listed.media, listed.links) == ((), (), (), ())
    assert cell.type in ("text/plain", "application/json")
    for told in (repr(got), repr(listed), repr(cell)):
        assert not any(each in told for each in ("caca", "ysrK", "PNG", "iVBOR", "\\xca"))


ROWS = """
    insert into keyed
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 25)
        select i, 'c' || i, 'w' || (i % 3) from n;
    insert into paired
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 25)
        select i % 5, i, 'v' || (i % 2) from n;
"""


@pytest.fixture(scope="module")
def keyed(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, {dialect: ddl + ROWS for dialect, ddl in KEYED.items()}) as shops:
        yield shops


@pytest.mark.parametrize(
    ("table", "grant", "has_key"),
    [
        pytest.param("keyed", GrantSection(), True, id="seen"),
        pytest.param("keyed", GrantSection(exclude=("id",)), True, id="another key is left"),
        pytest.param("keyed", GrantSection(exclude=("id", "code")), False, id="hidden keys"),
        pytest.param("keyed", GrantSection(columns=("word",)), False, id="equal rows"),
        ("keyed", GrantSection(mask={"id": Mask.NULL, "code": Mask.PARTIAL}), False),
        ("keyed", GrantSection(mask=dict.fromkeys(("id", "code", "word"), Mask.REDACT)), False),
        pytest.param("paired", GrantSection(exclude=("b",)), False, id="half a key"),
        pytest.param("paired", GrantSection(mask={"a": Mask.HASH}), False, id="masked half"),
        pytest.param("paired", GrantSection(where="a <> 1 and b > 0"), True, id="filtered"),
    ],
)
def test_hidden_or_masked_key_gets_nothing_and_pages_run_to_the_end(
    table: str, grant: GrantSection, has_key: bool, keyed: Shops, dialect: str
) -> None:
    with calling_as(keyed(dialect), {table: grant}) as caller:
        tools = caller.tools()
        whole = caller.rows(f"list_{table}", limit=100)
        paged = [row for page in caller.pages(f"list_{table}", limit=4) for row in rows_of(page)]
        code = caller.outcome(reading(f"dbtools://row/{table}/{'1' if table == 'keyed' else '1,1'}"))[0]

    assert (f"get_{table}" in tools) == has_key
    assert paged == whole
    assert len(whole) == (20 if grant.where else 25)
    assert has_key or code == errors.UnknownResource.code


GIANTS = """
create table giants (id integer primary key, region text, cell text, big text, word text);
insert into giants values
    (1, 'north', 'CANARY-1', {repeat}'ab'{times}, 'plain'),
    (2, 'south', 'CANARY-2', {repeat}'CANARY'{times}, 'needle'),
    (3, 'north', 'CANARY-3', 'small', 'plain');
create table regions (name text primary key, open integer);
insert into regions values ('north', 1), ('south', 0);
"""
GIANT = {
    "sqlite": GIANTS.format(repeat="replace(hex(zeroblob(8500000)), '00', ", times=")"),
    "postgresql": GIANTS.format(repeat="repeat(", times=", 8500000)"),
}
CORRELATED = "exists (select 1 from regions r where r.name = region and r.open = 1)"


@pytest.fixture(scope="module")
def giants(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, GIANT) as shops:
        yield shops


@pytest.mark.parametrize(
    ("masked", "mask"),
    [(["cell"], mask) for mask in Mask] + [(["cell", "big"], Mask.PARTIAL), (["big"], Mask.HASH)],
)
def test_giant_cell_does_not_uncover_a_masked_one(
    masked: list[str], mask: Mask, giants: Shops, dialect: str
) -> None:
    grant = GrantSection(where="region = 'north'", mask=dict.fromkeys(masked, mask), exclude=("word",))
    asks = [
        calling("list_giants", columns=["id", *masked]),
        calling("list_giants"),
        calling("get_giants", id=1),
        calling("get_giants", id=2),
        reading("dbtools://row/giants/1"),
        *(reading(f"dbtools://cell/giants/{id}/{column}") for id in (1, 2) for column in masked),
    ]
    with calling_as(giants(dialect), {"giants": grant}) as caller:
        told = "".join(repr(caller.outcome(ask)) for ask in asks)

    for column in masked:
        assert ("CANARY" if column == "cell" else "abab") not in told
    assert "CANARYCANARY" not in told


@pytest.mark.parametrize("where", ["region = 'north'", CORRELATED], ids=["plain", "correlated"])
@pytest.mark.parametrize(
    "doubt",
    [
        {"op": "contains", "value": "zz"},
        {"op": "eq", "value": "zz"},
        {"op": "gt", "value": "a"},
        {"op": "in", "values": ["a", "b"]},
    ],
    ids=lambda doubt: str(doubt["op"]),
)
def test_giant_cell_of_a_hidden_row_answers_no_question_about_it(
    doubt: Mapping[str, object], where: str, giants: Shops, dialect: str
) -> None:
    with calling_as(giants(dialect), {"giants": GrantSection(where=where)}) as caller:
        outcomes = [
            caller.outcome(
                calling(
                    "list_giants",
                    columns=["id"],
                    where=[{"column": "word", "value": word}, {"column": "big", **doubt}],
                )
            )
            for word in ("needle", "noodle")
        ]

    assert outcomes[0] == (outcomes[1][0], str(outcomes[1][1]).replace("noodle", "needle"))
