"""Columns that look like secrets are masked unless the configuration names them, and never quoted."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.errors import CallError
from dbtools.schema.uris import ROW_TEMPLATE
from dbtools.settings.sections import GrantSection, TableSection
from dbtools.values.cells import REDACTED
from dbtools.values.types import Mask
from tests.database.role_callers import Grants, calling, calling_as, completing, listing_tools, reading
from tests.database.shop import Serve, Shop, Shops, open_shops, rows_of

MAIL, SECRET = "ann@example.org", "hunter2"
#: In each table, few secrets occur often, so that a sample would show them.
DDL = """
create table account (id integer primary key, email text, password text default 'hunter2',
 token_count integer, password_id integer, token_type text, pin integer,
 api_key varchar(10) check (api_key in ('hunter2', 'hunter3')));
insert into account values {rows};
create table session (token text primary key, account_id integer references account);
insert into session values ('hunter2', 1), ('hunter2b', 2);
create view people as select id, email from account;
create view logins as select id, password from account;
create view signs as select id, password as sign, pin from account;
create view signed as select id, sign from signs;
"""
ROWS = ", ".join(f"({at}, '{MAIL}', 'hunter2', {at}, 7, 'bearer', 424242, 'hunter2')" for at in range(1, 41))
ANALYZED = {"sqlite": "analyze;", "postgresql": "analyze account; analyze session;"}
SHOWN = {"account": GrantSection(columns=("id", "email", "password", "api_key")), "session": True}
ROLES: Mapping[str, Grants] = {
    "pattern": {"*": True},
    "named tables": {"account": True, "session": True, "people": True, "logins": True},
    "excluded": {"account": GrantSection(exclude=("token_count",)), "session": True},
}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, {name: DDL.format(rows=ROWS) + end for name, end in ANALYZED.items()}) as shops:
        yield shops


def test_secrets_are_masked_without_a_configuration(shop: Shop) -> None:
    row = shop.get("account", id=1)

    assert row["password"] == row["api_key"] == row["pin"] == REDACTED
    assert {**row, "password": "", "api_key": "", "pin": ""} == {
        "id": 1,
        "email": MAIL,
        "password": "",
        "token_count": 1,
        "password_id": 7,
        "token_type": "bearer",
        "pin": "",
        "api_key": "",
    }
    assert {row[0] for row in shop.rows("session", columns=["token"])} == {REDACTED}
    assert {row[1] for row in shop.rows("logins")} == {REDACTED}
    assert len(shop.rows("people")) == 40


@pytest.mark.parametrize("role", ROLES)
def test_secrets_are_masked_in_roles_that_do_not_name_them(shop: Shop, role: str) -> None:
    with calling_as(shop, ROLES[role]) as caller:
        row = caller.call("get_account", id=1)["row"]
        described = caller.outcome(calling("describe_tables", detail="full"))
        problems = caller.problems()

    assert isinstance(row, dict)
    assert row["password"] == row["api_key"] == row["pin"] == REDACTED
    assert row["email"] == MAIL
    assert "masked: may be a secret" in str(described)
    assert any("account.password" in each and "[tables.TABLE.columns]" in each for each in problems)


@pytest.mark.parametrize(
    "arguments",
    [
        {"where": [{"column": "password", "value": SECRET}]},
        {"where": [{"column": "email", "value_column": "password"}]},
        {"columns": ["lower(password)"]},
        {"columns": ["length(api_key)"]},
        {"order_by": ["password"]},
    ],
)
def test_masked_secret_can_only_be_shown(shop: Shop, arguments: Mapping[str, object]) -> None:
    with pytest.raises(CallError) as raised:
        shop.call("list_account", arguments)

    assert raised.value.code == "bad_operator"
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "sql",
    [
        "select password, api_key, pin from account",
        "select max(password) from account",
        "select password from logins",
        "select id from account where password = 'hunter2' limit 1",
        "select token from session",
    ],
)
def test_run_sql_reads_no_masked_secret(shops: Shops, sql: str) -> None:
    shop = shops("sqlite")
    with calling_as(shop, {"*": True}, sql=True) as caller:
        rows = [*rows_of(shop.call("run_sql", {"sql": sql}).structured), *caller.rows("run_sql", sql=sql)]

    assert {cell for row in rows for cell in row} == (set() if "where" in sql else {REDACTED})


@pytest.mark.parametrize(
    ("grants", "tables"),
    [
        pytest.param(SHOWN, {}, id="in columns of a rule"),
        ({"*": True}, {"account": TableSection(columns={"password": "hashed", "api_key": "old"})}),
    ],
)
def test_secret_that_the_configuration_names_is_shown_but_never_quoted(
    shop: Shop, grants: Grants, tables: Mapping[str, TableSection]
) -> None:
    with calling_as(shop, grants, tables=tables) as caller:
        row = caller.call("get_account", id=1)["row"]
        found = caller.rows("list_account", where=[{"column": "password", "value": SECRET}], columns=["id"])
        near = [
            caller.outcome(calling("list_account", where=[{"column": column, "op": op, "value": "hunter"}]))
            for column in ("password", "api_key", "lower(password)")
            for op in ("eq", "ends_with")
        ]
        described = caller.outcome(calling("describe_tables", detail="full"))
        definitions = caller.outcome(listing_tools)
        read = caller.outcome(reading("dbtools://schema"))

    assert isinstance(row, dict)
    assert row["password"] == row["api_key"] == SECRET
    assert len(found) == 40
    for each in (*near, described, definitions, read):
        assert SECRET not in str(each)


def test_key_that_is_a_secret_is_neither_masked_by_chance_nor_completed(shop: Shop) -> None:
    with calling_as(shop, {"session": GrantSection(columns=("token", "account_id"))}) as caller:
        row = caller.call("get_session", token=SECRET)["row"]
        completed = caller.outcome(completing(ROW_TEMPLATE, "key", "hunt", table="session"))

    assert row == {"token": SECRET, "account_id": 1}
    assert SECRET not in str(completed)


def test_mask_that_a_rule_gives_a_secret_is_kept(shop: Shop) -> None:
    with calling_as(shop, {"account": GrantSection(mask={"password": Mask.PARTIAL})}) as caller:
        (row,) = caller.rows("list_account", columns=["password", "api_key"], limit=1)

    assert row == ["h…", REDACTED]


def test_role_that_may_insert_a_masked_secret_sets_it_and_sees_none(shop: Shop) -> None:
    grants = {"account": GrantSection(insert=("id", "email", "password"))}
    with calling_as(shop, grants) as caller:
        rows = [{"id": 99, "email": "new@example.org", "password": "s3cret"}]
        answer = caller.outcome(calling("insert_account", rows=rows, dry_run=True))

    assert answer[0] == "answer"
    assert "s3cret" not in str(answer)
    assert REDACTED in str(answer)
