"""A role that may write a masked column cannot find the masked cells of other rows by writing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbtools import errors
from dbtools.alembic import upgrade
from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_shop import Opens, refused, stored
from tests.protocol.command_line import run

DDL = {
    "sqlite": """
        create table cards (
            id integer primary key, pin text, copy text, twin text generated always as (pin) stored,
            spare text default 'x', code text unique, note text
        );
        create trigger copying after insert on cards begin
            update cards set copy = new.pin where id = new.id;
        end;
        create trigger copying_too after update of pin on cards begin
            update cards set copy = new.pin where id = new.id;
        end;
    """,
    "postgresql": """
        create table cards (
            id integer primary key, pin text, copy text, twin text generated always as (pin) stored,
            spare text default 'x', code text unique, note text
        );
        create function copy_pin() returns trigger language plpgsql as $$
            begin new.copy := new.pin; return new; end $$;
        create trigger copying before insert or update on cards for each row execute function copy_pin();
    """,
}
ROWS = "insert into cards (id, pin, code) values (1, '1234', 'c1'), (2, '9876', 'c2')"
SECRET = ("pin", "copy", "twin", "spare", "code")
#: How a caller can send the value 1234 for the masked column pin.
WRITES: Mapping[str, tuple[str, dict[str, object]]] = {
    "insert": ("insert_cards", {"rows": [{"id": 3, "pin": "1234"}]}),
    "generic insert": ("insert_rows", {"table": "cards", "rows": [{"id": 3, "pin": "1234"}]}),
    "upsert": ("insert_cards", {"rows": [{"id": 2, "pin": "1234"}], "on_conflict": "update"}),
    "update": ("update_cards", {"id": 2, "set": {"pin": "1234"}}),
    "generic update": ("update_rows", {"table": "cards", "key": {"id": 2}, "set": {"pin": "1234"}}),
    "chosen rows": (
        "update_rows",
        {"table": "cards", "where": [{"column": "id", "op": "gte", "value": 2}], "set": {"pin": "1234"}},
    ),
}


@contextmanager
def cards(
    opened: Opens, dialect: str, mask: Mask, *, fresh: bool = False, **more: object
) -> Iterator[tuple[Caller, Shop]]:
    """Yield a caller who may write every masked column of the cards."""
    grant = GrantSection(
        insert=True, update=True, delete=True, max_affected=5, mask=dict.fromkeys(SECRET, mask)
    ).model_copy(update=more)
    with opened(dialect, {"cards": grant}, ddl=DDL[dialect] + ROWS, fresh=fresh) as (caller, shop):
        yield caller, shop


def shown(answer: Mapping[str, object], key: str = "rows") -> list[dict[str, object]]:
    """Return the rows of *answer* by column."""
    columns, rows = answer["columns"], answer.get(key, [])
    assert isinstance(columns, list)
    assert isinstance(rows, list)
    return [dict(zip(columns, row, strict=True)) for row in rows if row is not None]


@pytest.mark.parametrize("mask", [Mask.HASH, Mask.PARTIAL])
@pytest.mark.parametrize(("tool", "arguments"), WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_was_written_is_not_shown_through_a_mask_of_its_value(
    opened: Opens, dialect: str, mask: Mask, tool: str, arguments: dict[str, object], dry_run: bool
) -> None:
    with cards(opened, dialect, mask) as (caller, shop):
        answer = caller.call(tool, **arguments, dry_run=dry_run)
        [(pin,)] = stored(shop, "select pin from cards where id = 2")

    rows = [*shown(answer), *shown(answer, "before")]
    assert rows
    assert [[row[name] for name in SECRET] for row in rows] == [["***"] * len(SECRET)] * len(rows)
    assert dry_run is (pin != "1234") or tool.startswith("insert")


@pytest.mark.parametrize("confirms", [False, True])
def test_previews_questions_and_repeated_calls_show_nothing_either(
    opened: Opens, dialect: str, confirms: bool
) -> None:
    arguments: dict[str, object] = {"id": 2, "set": {"pin": "1234"}, "idempotency_key": "key"}
    with cards(opened, dialect, Mask.HASH, fresh=True, confirm=confirms) as (caller, shop):
        upgrade(shop.url)
        known = {cell for row in caller.rows("list_cards", columns=["pin"]) for cell in row}
        texts = []
        first = caller.call("update_cards", **arguments)
        texts.append(str(first))
        if confirms:
            arguments["confirm"] = first["confirm"]
            texts.append(str(caller.call("update_cards", **arguments)))
            del arguments["confirm"]
        texts.append(str(caller.call("update_cards", **arguments)))

    assert "earlier call" in texts[-1]
    assert [cell for text in texts for cell in known if str(cell) in text] == []


def test_deleted_row_is_shown_as_a_list_shows_it(opened: Opens, dialect: str) -> None:
    """A delete gives no value that it could tell about."""
    with cards(opened, dialect, Mask.HASH) as (caller, _):
        [[hashed]] = caller.rows("list_cards", columns=["pin"], where=[{"column": "id", "value": 1}])
        [row] = shown(caller.call("delete_cards", id=1, dry_run=True))

    assert row["pin"] == hashed


@pytest.mark.parametrize("mask", Mask)
def test_masked_column_cannot_be_compared_by_a_write(opened: Opens, dialect: str, mask: Mask) -> None:
    condition = [{"column": "pin", "value": "1234"}]
    with cards(opened, dialect, mask) as (caller, _):
        refusals = [
            refused(caller, "update_cards", id=1, set={"note": "x"}, expected={"pin": "1234"}),
            refused(caller, "delete_cards", id=1, expected={"pin": "1234"}),
            refused(caller, "update_rows", table="cards", where=condition, set={"note": "x"}),
            refused(caller, "delete_rows", table="cards", where=condition),
            refused(
                caller,
                "insert_cards",
                rows=[{"id": 9, "code": "c1"}],
                on_conflict="ignore",
                conflict_key=["code"],
            ),
        ]

    assert [type(each) for each in refusals[:4]] == [errors.BadOperator] * 4
    assert "Keys: id." in str(refusals[4])


def test_number_of_changed_rows_does_not_depend_on_masked_cells(opened: Opens, dialect: str) -> None:
    """An upsert looks for the keys that the role sees, whatever it writes into masked columns."""
    with cards(opened, dialect, Mask.HASH) as (caller, _):
        answers = [
            caller.call("insert_cards", rows=[{"id": 2, "pin": pin}], on_conflict=choice, dry_run=True)
            for choice in ("ignore", "update")
            for pin in ("9876", "0000")
        ]

    assert answers[0] == answers[1]
    assert answers[2] == answers[3]


def test_unique_constraint_tells_which_values_exist_as_documented(opened: Opens, dialect: str) -> None:
    """What a constraint of the database reveals cannot be hidden: see "What writes reveal"."""
    with cards(opened, dialect, Mask.HASH) as (caller, _):
        taken = refused(caller, "insert_cards", rows=[{"id": 3, "code": "c1"}], dry_run=True)
        free = caller.call("insert_cards", rows=[{"id": 3, "code": "c9"}], dry_run=True)
        problems = [each for each in caller.problems() if "which values exist" in each]

    assert (taken.code, free["affected"]) == ("constraint", 1)
    assert problems == []


CONFIGURATION = """
[database]
url = "{url}"
[policy]
hash_key = "a key of the operator's"
[roles.clerk.tables]
cards = {{ {rest} }}
"""


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ('mask = { pin = "hash" }, update = ["pin"]', ["can find its values by comparing hashes"]),
        ('mask = { pin = "hash" }, insert = ["id", "pin"]', ["can find its values by comparing hashes"]),
        ('mask = { pin = "hash" }, update = ["note"], delete = true', []),
        ('mask = { pin = "partial", note = "redact" }, update = true, insert = true', []),
        ('mask = { code = "redact" }, update = ["code"]', ["can find which values exist"]),
    ],
)
def test_check_warns_where_writing_reveals_masked_cells(
    serve: Serve, tmp_path: Path, rest: str, says: list[str]
) -> None:
    with serve("sqlite", DDL["sqlite"]) as shop:
        path = tmp_path / "dbtools.toml"
        path.write_text(CONFIGURATION.format(url=shop.url, rest=rest))
        found = run("check", str(path))

    warnings = [line for line in found.stdout.splitlines() if "can find" in line]
    assert [text in line for text, line in zip(says, warnings, strict=True)] == [True] * len(says)
    assert all(f"{path}:7: warning: role clerk, tables.cards: cards: " in line for line in warnings)


def test_hash_differs_by_column_and_is_the_same_for_equal_cells_of_one(opened: Opens, dialect: str) -> None:
    with cards(opened, dialect, Mask.HASH) as (caller, _):
        for id in (1, 2):
            caller.call("update_cards", id=id, set={"pin": "1234", "spare": "1234"})
        rows = caller.rows("list_cards", columns=["pin", "spare", "twin"])

    assert rows[0] == rows[1]
    assert len(set(map(str, rows[0]))) == 3
