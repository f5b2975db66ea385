"""Two databases that look the same to a role give the same answers to its writes."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.role_callers import Ask, Outcome, calling, calling_as, listing_tools
from tests.database.shop import Serve
from tests.database.twins import Side, Twins, assert_shows_nothing, open_twins
from tests.database.written_shop import NORTH, stored

SEEN = """
    id integer primary key, owner text not null default 'nobody', region text not null, balance {balance},
    note text, pin text default {pin}
"""
#: What a hidden row holds, on which the check raises an error.
POISON = {"sqlite": -(2**63), "postgresql": 0}
CHECKS = {"sqlite": "abs(balance) > 0", "postgresql": "1000 / balance > 0"}
LOGS = {
    "sqlite": """
    create trigger logged after update on accounts begin insert into canary_log values (old.note); end;
    """,
    "postgresql": """
    create function logged() returns trigger language plpgsql as $$
        begin insert into canary_log values (old.note); return null; end
    $$;
    create trigger logged after update on accounts for each row execute function logged();
    """,
}


def _side(
    dialect: str, *, pins: tuple[str, str, str], default: str, hidden: str = "", more: str = ""
) -> Side:
    balance = "bigint" if dialect == "postgresql" else "integer"
    seen = SEEN.format(pin=default, balance=balance)
    ddl = f"""
    create table accounts ({seen}{hidden});
    insert into accounts (id, owner, region, balance, note, pin) values
        (1, 'Ann', 'north', 10, 'a', {pins[0]}), (2, 'Bea', 'north', 20, null, {pins[1]}),
        (3, 'Cid', 'north', 30, 'c', {pins[2]});
    """
    grant = GrantSection(
        columns=("id", "owner", "region", "balance", "note", "pin"),
        where="region = :claims.region",
        mask={"pin": Mask.REDACT},
        insert=("id", "owner", "balance", "note", "pin"),
        update=("id", "region", "balance", "note", "pin"),
        delete=True,
        check=CHECKS[dialect],
        preset={"region": ":claims.region"},
        preset_update={"owner": ":claims.sub"},
        max_affected=3,
    )
    return Side(ddl=ddl + more, grants={"accounts": grant})


def _rich(dialect: str) -> Side:
    hidden = f"""
    insert into accounts values
        (9, 'CANARY', 'south', {POISON[dialect]}, 'CANARY note', 'CANARY', 'CANARY', 424242);
    create table canary_vault (id integer primary key, account_id integer references accounts (id));
    insert into canary_vault values (1, 9);
    create table canary_log (word text);
    {LOGS[dialect]}
    """
    return _side(
        dialect,
        pins=("'CANARY'", "'CANARY 2'", "null"),
        default="'CANARY default'",
        hidden=", canary_secret text default 'CANARY', canary_number integer",
        more=hidden,
    )


def _poor(dialect: str) -> Side:
    return _side(dialect, pins=("null", "'y'", "'z'"), default="'other'")


@pytest.fixture(scope="module")
def twins(serve: Serve, dialect: str) -> Iterator[Twins]:
    with open_twins(serve, dialect, _rich(dialect), _poor(dialect), NORTH) as twins:
        yield twins


HIDDEN_NAMES = (
    "canary_secret",
    "CANARY_SECRET",
    '"canary_secret"',
    "accounts.canary_secret",
    "canary_number",
)
ODD_NAMES = ("owner.name", "rowid", "ctid", "tableoid", "region", "Region", "canary_vault.id", "", "$1", "?")
NAMES = (*HIDDEN_NAMES, *ODD_NAMES, "absent", "set_note")
EXPECTED: tuple[Mapping[str, object], ...] = (
    {"pin": "CANARY"},
    {"pin": None},
    {"PIN": "x"},
    {"canary_secret": "CANARY"},
    {"note": "CANARY note"},
    {"note": None},
    {"NOTE": "a"},
    {"balance": 2**63},
    {"balance": "x"},
    {"balance": [1]},
    {"id": 1, "owner": "ann"},
)
#: What may be set, though it may leave the filter or raise an error in the check.
VALUES: tuple[Mapping[str, object], ...] = (
    {"note": "changed"},
    {"pin": "1234"},
    {"region": "south"},
    {"region": None},
    {"balance": 0},
)
#: Conditions that hidden rows would meet, or that could raise an error on one.
CONDITIONS: tuple[Mapping[str, object], ...] = (
    {"column": "id", "op": "in", "values": [1, 9, 77]},
    {"column": "balance * 9000000000000000000 * balance", "op": "ne", "value": 7},
    {"column": "abs(balance)", "op": "gt", "value": 1},
    {"column": "round(100 / balance)", "op": "is_null", "value": "true"},
    {"column": "balance", "op": "lte", "value_column": "id - 1"},
    {"column": "note", "op": "contains", "value": "CANARY"},
    {"column": "owner", "value": "CANARY"},
    {"column": "pin", "op": "is_null", "value": "true"},
    {"column": "canary_secret", "value": "CANARY"},
    {"some": "canary_vault"},
    {"none": "canary_vault"},
    {"any": [{"column": "region", "value": "south"}, {"column": "balance / 0", "op": "gt", "value": 1}]},
)


def _choices(at: int, dry: Mapping[str, bool]) -> Iterator[Ask]:
    """Yield changes to the rows that meet conditions."""
    accounts = {"table": "accounts"}
    same, every = {"column": "id", "value": at}, {"column": "id", "op": "gte", "value": 0}
    for condition in (every, *CONDITIONS):
        for where in ([condition], [same, condition]):
            yield calling("update_rows", **accounts, where=where, set={"note": "w"}, **dry)
            yield calling("delete_rows", **accounts, where=where, dry_run=True)
        either = {"where": [same, condition], "match": "any"}
        yield calling("update_rows", **accounts, **either, set={"balance": 1}, **dry)
    for values in ({"region": "south"}, {"balance": 0}):
        yield calling("update_rows", **accounts, where=[every], set=values, **dry)
    for table in ("canary_vault", "absent"):
        yield calling("delete_rows", table=table, where=[every], **dry)


def _writes(at: int, dry: Mapping[str, bool]) -> Iterator[Ask]:
    """Yield changes to the row *at*, which may be hidden, or inserts."""
    update, insert, delete = "update_accounts", "insert_accounts", "delete_accounts"
    for expected in EXPECTED:
        yield calling(update, id=at, set={"note": "n"}, expected=expected, **dry)
        yield calling(delete, id=at, expected=expected, dry_run=True)
    for name in NAMES:
        yield calling(update, id=at, set={name: "x"}, **dry)
        yield calling(insert, rows=[{"id": 50 + at, name: "x"}], **dry)
        yield calling(insert, rows=[{"id": 50 + at}], on_conflict="ignore", conflict_key=[name], **dry)
        yield calling(update, **{"id": at, name: 1}, set={"note": "n"}, **dry)
    for values in VALUES:
        yield calling(update, id=at, set=values, **dry)
    yield calling("update_rows", table="accounts", key={"id": at}, set={"note": "g"}, **dry)
    yield calling("update_rows", table="canary_vault", key={"id": 1}, set={"account_id": 1}, **dry)
    yield calling("delete_rows", table="canary_log", key={"id": 1}, **dry)
    for _ in ("new", "there"):
        yield calling(insert, rows=[{"id": 20 + at, "balance": 5}], **dry)
    yield calling(insert, rows=[{"id": 30 + at}, {"id": 40 + at, "balance": 1}], **dry)
    # A hidden row with the same key necessarily shows: as a constraint, as for a plain insert.
    for how in ("ignore", "update") if at != 9 else ():
        row = {"id": at, "balance": 5, "note": how, "pin": "CANARY"}
        yield calling(insert, rows=[{"id": 70 + at}, row], on_conflict=how, **dry)
        twice = [{**row, "id": 80 + at}, {**row, "id": 80 + at, "balance": 0}]
        yield calling(insert, rows=twice, on_conflict=how, **dry)
    yield calling(update, id=at, set={"id": 60 + at}, **dry)
    yield calling(delete, id=60 + at, **dry)
    yield calling(delete, id=at, **dry)
    yield from _choices(at, dry)


@pytest.mark.parametrize("at", [1, 9, 77], ids=["visible", "hidden", "absent"])
@pytest.mark.parametrize("dry", [{"dry_run": True}, {}], ids=["dry", "real"])
def test_writes_do_not_depend_on_what_is_hidden(at: int, dry: Mapping[str, bool], twins: Twins) -> None:
    for ask in _writes(at, dry):
        # A preview says that there is a trigger, and no more.
        assert_shows_nothing(_without_triggers(twins.rich.outcome(ask)), twins.poor.outcome(ask), ask.words)
    twins.outcome(listing_tools)


def _without_triggers(outcome: Outcome) -> Outcome:
    code, told = outcome
    return code, str(told).replace(" Triggers and foreign keys would change rows elsewhere.", "")


def test_hidden_rows_and_columns_are_as_before(serve: Serve, dialect: str) -> None:
    rich = _rich(dialect)
    with serve(dialect, rich.ddl) as shop, calling_as(shop, rich.grants, NORTH) as caller:
        for ask in (ask for at in (1, 9, 77) for ask in _writes(at, {})):
            caller.outcome(ask)
        hidden = stored(shop, "select * from accounts where id = 9 or canary_number is not null")
        others = stored(shop, "select distinct region, canary_secret from accounts where id <> 9")

    assert hidden == [(9, "CANARY", "south", POISON[dialect], "CANARY note", "CANARY", "CANARY", 424242)]
    assert others == [("north", "CANARY")]
