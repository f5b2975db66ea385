"""Two databases that look the same to a role give the same answers to its writes."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.role_callers import Ask, Caller, Grants, calling, calling_as, listing_tools
from tests.database.shop import Serve, Shops, open_shops
from tests.database.written_shop import stored

NORTH = {"region": "north", "sub": "ann"}
SEEN = """
    id integer primary key, owner text not null default 'nobody', region text not null, balance integer,
    note text, pin text default {pin}
"""
ROWS = (
    "(1, 'Ann', 'north', 10, 'a', {0}), (2, 'Bea', 'north', 20, null, {1}), (3, 'Cid', 'north', 30, 'c', {2})"
)
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


def _rich(dialect: str) -> str:
    balance = "bigint" if dialect == "postgresql" else "integer"
    seen = SEEN.format(pin="'CANARY default'").replace("balance integer", f"balance {balance}")
    rows = ROWS.format("'CANARY 1'", "'CANARY 2'", "null")
    return f"""
    create table accounts ({seen}, canary_secret text default 'CANARY', canary_number integer);
    insert into accounts (id, owner, region, balance, note, pin) values {rows};
    insert into accounts values
        (9, 'CANARY', 'south', {POISON[dialect]}, 'CANARY note', 'CANARY', 'CANARY', 424242);
    create table canary_vault (id integer primary key, account_id integer references accounts (id));
    insert into canary_vault values (1, 9);
    create table canary_log (word text);
    {LOGS[dialect]}
    """


def _poor(dialect: str) -> str:
    balance = "bigint" if dialect == "postgresql" else "integer"
    seen = SEEN.format(pin="'other'").replace("balance integer", f"balance {balance}")
    rows = ROWS.format("'x'", "'y'", "'z'")
    return f"create table accounts ({seen}); insert into accounts values {rows};"


def _grants(dialect: str) -> Grants:
    section = GrantSection(
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
    return {"accounts": section}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the database that hides something."""
    with open_shops(serve, {dialect: _rich(dialect) for dialect in CHECKS}) as shops:
        yield shops


@pytest.fixture(scope="module")
def twins(serve: Serve, shops: Shops, dialect: str) -> Iterator[tuple[Caller, Caller]]:
    """Give callers who see the same of that database, and of one that hides nothing."""
    with (
        serve(dialect, _poor(dialect)) as poor,
        calling_as(shops(dialect), _grants(dialect), NORTH) as first,
        calling_as(poor, _grants(dialect), NORTH) as second,
    ):
        yield first, second


HIDDEN_NAMES = (
    *("canary_secret", "CANARY_SECRET", '"canary_secret"', "accounts.canary_secret", "canary_number"),
    *("absent",),
    *("owner.name", "rowid", "ctid", "tableoid", "region", "Region", "canary_vault.id", "", "$1", "?"),
    *("set_note",),
)
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


#: Conditions that hidden rows would meet, or that could raise an error on one.
CONDITIONS: tuple[Mapping[str, object], ...] = (
    {"column": "id", "op": "gte", "value": 0},
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


def _choices(at: int, dry: Mapping[str, bool]) -> Iterator[tuple[str, Ask]]:
    """Yield changes to the rows that meet conditions."""
    update, delete, accounts = "update_rows", "delete_rows", {"table": "accounts"}
    for condition in CONDITIONS:
        same = {"column": "id", "value": at}
        for name, where in (("alone", [condition]), ("with the key", [same, condition])):
            label = f"{condition} {name}"
            yield f"update {label}", calling(update, **accounts, where=where, set={"note": "w"}, **dry)
            yield f"delete {label}", calling(delete, **accounts, where=where, dry_run=True)
        either = {"where": [same, condition], "match": "any"}
        yield f"update {condition} or", calling(update, **accounts, **either, set={"balance": 1}, **dry)
    for table in ("canary_vault", "absent"):
        yield f"table {table}", calling(delete, table=table, where=[CONDITIONS[0]], **dry)
    yield "leave", calling(update, **accounts, where=[CONDITIONS[0]], set={"region": "south"}, **dry)
    yield "raising check", calling(update, **accounts, where=[CONDITIONS[0]], set={"balance": 0}, **dry)
    yield "delete all", calling(delete, **accounts, where=[CONDITIONS[0]], dry_run=True)


def _writes(at: int, dry: Mapping[str, bool]) -> Iterator[tuple[str, Ask]]:
    """Yield changes to the row *at*, which may be hidden, or inserts."""
    update, delete = "update_accounts", "delete_accounts"
    for expected in EXPECTED:
        yield (
            f"update expects {expected}",
            calling(update, id=at, set={"note": "n"}, expected=expected, **dry),
        )
        yield f"delete expects {expected}", calling(delete, id=at, expected=expected, dry_run=True)
    for name in HIDDEN_NAMES:
        yield f"set {name}", calling(update, id=at, set={name: "x"}, **dry)
        yield f"insert {name}", calling("insert_accounts", rows=[{"id": 50 + at, name: "x"}], **dry)
        by_name = {"on_conflict": "ignore", "conflict_key": [name]}
        yield f"by {name}", calling("insert_accounts", rows=[{"id": 50 + at}], **by_name, **dry)
        yield f"key {name}", calling(update, **{"id": at, name: 1}, set={"note": "n"}, **dry)
    yield "note", calling(update, id=at, set={"note": "changed"}, **dry)
    yield "masked", calling(update, id=at, set={"pin": "1234"}, **dry)
    yield "leave", calling(update, id=at, set={"region": "south"}, **dry)
    yield "no region", calling(update, id=at, set={"region": None}, **dry)
    yield "raising check", calling(update, id=at, set={"balance": 0}, **dry)
    yield "generic", calling("update_rows", table="accounts", key={"id": at}, set={"note": "g"}, **dry)
    yield (
        "table canary_vault",
        calling("update_rows", table="canary_vault", key={"id": 1}, set={"account_id": 1}, **dry),
    )
    yield "table canary_log", calling("delete_rows", table="canary_log", key={"id": 1}, **dry)
    yield "insert", calling("insert_accounts", rows=[{"id": 20 + at, "balance": 5}], **dry)
    yield "insert again", calling("insert_accounts", rows=[{"id": 20 + at, "balance": 5}], **dry)
    yield (
        "insert many",
        calling("insert_accounts", rows=[{"id": 30 + at}, {"id": 40 + at, "balance": 1}], **dry),
    )
    # A hidden row with the same key necessarily shows: as a constraint, as for a plain insert.
    for how in ("ignore", "update") if at != 9 else ():
        row = {"id": at, "balance": 5, "note": how, "pin": "CANARY"}
        yield how, calling("insert_accounts", rows=[{"id": 70 + at}, row], on_conflict=how, **dry)
        twice = [{**row, "id": 80 + at}, {**row, "id": 80 + at, "balance": 0}]
        yield f"{how} twice", calling("insert_accounts", rows=twice, on_conflict=how, **dry)
    yield "move", calling(update, id=at, set={"id": 60 + at}, **dry)
    yield "delete", calling(delete, id=60 + at, **dry)
    yield "delete absent", calling(delete, id=at, **dry)
    yield from _choices(at, dry)


@pytest.mark.parametrize("at", [1, 9, 77], ids=["visible", "hidden", "absent"])
@pytest.mark.parametrize("dry", [{"dry_run": True}, {}], ids=["dry", "real"])
def test_writes_do_not_depend_on_what_is_hidden(
    at: int, dry: Mapping[str, bool], twins: tuple[Caller, Caller]
) -> None:
    rich, poor = twins
    for name, ask in _writes(at, dry):
        one, other = rich.outcome(ask), poor.outcome(ask)
        # A preview says that there is something, and no more.
        told = str(one[1]).replace(" Triggers and foreign keys would change rows elsewhere.", "")

        assert (one[0], told) == (other[0], str(other[1])), name
        assert "canary" in name.lower() or "canary" not in told.lower(), name
    assert rich.outcome(listing_tools) == poor.outcome(listing_tools)


def test_hidden_rows_and_columns_are_as_before(
    twins: tuple[Caller, Caller], shops: Shops, dialect: str
) -> None:
    for at in (1, 9, 77):
        for _, ask in _writes(at, {}):
            twins[0].outcome(ask)

    hidden = stored(shops(dialect), "select * from accounts where id = 9 or canary_number is not null")
    assert hidden == [(9, "CANARY", "south", POISON[dialect], "CANARY note", "CANARY", "CANARY", 424242)]
    others = stored(shops(dialect), "select distinct region, canary_secret from accounts where id <> 9")
    assert others == [("north", "CANARY")]


def test_definitions_do_not_show_the_default_of_a_masked_column(twins: tuple[Caller, Caller]) -> None:
    assert "CANARY default" not in repr(twins[0].outcome(listing_tools))
