"""What a role sees of tables that the login may not select, and of columns that look like secrets."""

import pytest

from dbtools.configured.rules import with_valid_rules
from dbtools.findings import Source
from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.policy.sensitive import secret_columns
from dbtools.schema.catalog import Catalog, Column, Table
from dbtools.values.types import ColumnType, Family, Mask
from tests.unit.granted import role_of
from tests.unit.shop import ID, column, table

#: A login that may select neither all of `orders` nor anything of two other tables.
NARROW = Catalog(
    tables=(
        table(ID, column("total"), column("note"), name="orders", schema="main"),
        table(ID, name="staff", schema="old"),
    ),
    default_schema="main",
    unreadable={
        ("main", "orders"): ("margin", "cost"),
        ("main", "secret"): ("id", "value"),
        ("main", "staff"): ("id", "pay"),
    },
)
HERE = Source(file="dbtools.toml", line=7)


def _vetted(pattern: str, grant: Grant | None) -> tuple[Role, list[tuple[str, str]]]:
    """Return the role with this rule as it can be served, and the code and the level of what is wrong."""
    role, findings = with_valid_rules(NARROW, role_of(Rule(pattern=pattern, grant=grant, source=HERE)))
    assert all(finding.source == HERE for finding in findings)
    return role, [(finding.code, finding.level) for finding in findings]


@pytest.mark.parametrize(
    ("pattern", "grant"),
    [
        pytest.param("secret", None, id="denied table"),
        pytest.param("sec*", None, id="denied pattern"),
        pytest.param("orders", Grant(exclude=("margin", "cost")), id="excluded"),
        pytest.param("orders", Grant(columns=("id", "total")), id="not among the columns"),
        pytest.param("orders", Grant(exclude=("cost",), masks={"margin": Mask.REDACT}), id="masked blank"),
        pytest.param("orders", Grant(columns=("id", "cost"), masks={"cost": Mask.NULL}), id="shown as null"),
        pytest.param("*", Grant(), id="all tables"),
        pytest.param("*", Grant(exclude=("pay",)), id="excluded of all tables"),
        pytest.param("s*", Grant(), id="pattern"),
    ],
)
def test_rule_may_hide_what_the_login_may_not_select(pattern: str, grant: Grant | None) -> None:
    role, found = _vetted(pattern, grant)

    assert found == []
    assert role.rules is not None
    assert role.rules[0].grant == grant


@pytest.mark.parametrize(
    ("pattern", "grant"),
    [
        pytest.param("secret", Grant(), id="table"),
        pytest.param("main.secret", Grant(columns=("value",)), id="column of such a table"),
        pytest.param("orders", Grant(), id="all columns"),
        pytest.param("orders", Grant(columns=("id", "margin")), id="column"),
        pytest.param("orders", Grant(exclude=("cost",)), id="column that is left"),
        pytest.param("orders", Grant(exclude=("cost",), masks={"margin": Mask.HASH}), id="hashed column"),
        pytest.param("o*", Grant(columns=("id", "margin")), id="column of a pattern"),
    ],
)
def test_grant_of_what_the_login_may_not_select_is_reported_and_stands(pattern: str, grant: Grant) -> None:
    role, found = _vetted(pattern, grant)

    assert found == [("unreadable", "warning")]
    assert role.rules is not None
    assert role.rules[0].grant == grant


def test_overruled_grant_is_not_reported() -> None:
    rules = (Rule(pattern="o*", grant=Grant(columns=("margin", "id"))), Rule(pattern="orders", grant=None))

    assert with_valid_rules(NARROW, role_of(*rules))[1] == ()


def test_name_that_is_nowhere_is_unknown_still() -> None:
    assert _vetted("secrets", None)[1] == [("unknown_table", "error")]
    assert _vetted("orders", Grant(exclude=("margins",)))[1] == [("unknown_column", "error")]


def test_name_means_the_same_whatever_the_login_may_select() -> None:
    """The bare name is also that of a table which cannot be read."""
    bare, findings = with_valid_rules(NARROW, role_of(Rule(pattern="staff", grant=Grant())))
    qualified, _ = with_valid_rules(NARROW, role_of(Rule(pattern="old.staff", grant=Grant())))

    assert [each.code for each in findings] == ["ambiguous_table"]
    assert restrict(NARROW, bare).tables == ()
    assert [each.name for each in restrict(NARROW, qualified).tables] == ["staff"]


@pytest.mark.parametrize("rules", [None, (Rule(pattern="*", grant=Grant()),)])
def test_role_sees_nothing_of_what_the_login_may_not_select(rules: tuple[Rule, ...] | None) -> None:
    seen = restrict(NARROW, Role(rules=rules))

    assert [(each.name, *each.column_by_name) for each in seen.tables] == [
        ("orders", "id", "total", "note"),
        ("staff", "id"),
    ]
    assert (seen.unreadable, seen.whole) == ({}, seen)


def test_column_of_which_nothing_is_read_is_shown_masked_whatever_the_login_may_select() -> None:
    masks = {"margin": Mask.REDACT, "cost": Mask.HASH, "note": Mask.NULL}
    seen = restrict(NARROW, role_of(Rule(pattern="orders", grant=Grant(masks=masks))))
    found = {name: each.type.mask for name, each in seen.tables[0].column_by_name.items()}

    assert found == {"id": None, "total": None, "note": Mask.NULL, "margin": Mask.REDACT}


SECRETS = (
    *("password", "passwd", "user_password", "PasswordHash", "passwordHash", "hashedpassword", "pass", "pwd"),
    *(
        *("secret", "client_secret", "clientsecret", "token", "access_token", "refreshTokens", "accesstoken"),
        "pin",
    ),
    *("hash", "hashes", "ssn", "api_key", "apiKey", "APIKey", "api_keys", "APIKEYS", "tls_psk", "pin"),
    *("private key", "ssh_key", "signing_key", "otp", "cvc", "jwt", "salt", "social_security_number"),
)
OTHERS = (
    *("passport_no", "hashtag", "tokenizer", "key", "public_key", "secretary", "compass", "monkey", ""),
    *("token_type", "tokenId", "password_id", "secret_name", "hash_algorithm", "session_token_count"),
    *("commit_hash", "file_hash", "geohash", "token_limit", "password_changed_at", "token_expires"),
    *("shipping", "spin", "opinion", "keyboard", "keys", "email", "name"),
)


def _found(name: str, family: Family = Family.TEXT) -> bool:
    column = Column(name=name, type=ColumnType(family=family, name=""))
    return bool(secret_columns(Catalog(tables=(Table(name="t", columns=(column,)),))))


@pytest.mark.parametrize("name", SECRETS)
def test_name_of_a_secret_is_recognised(name: str) -> None:
    assert _found(name)


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_not(name: str) -> None:
    assert not _found(name)


@pytest.mark.parametrize(
    ("family", "is_secret"),
    [
        *((each, False) for each in (Family.BOOLEAN, Family.TIMESTAMP, Family.ENUM)),
        *((each, True) for each in (Family.UUID, Family.JSON, Family.ARRAY, Family.BYTES)),
    ],
)
def test_date_or_flag_is_a_fact_about_a_secret(family: Family, is_secret: bool) -> None:
    assert _found("reset_token", family) is is_secret


@pytest.mark.parametrize("family", [Family.INTEGER, Family.DECIMAL, Family.NUMBER])
def test_number_is_a_secret_if_it_is_typed_in_like_one(family: Family) -> None:
    assert all(_found(name, family) for name in ("ssn", "passcode", "otp", "user_password", "pin_code"))
    assert not any(_found(name, family) for name in ("token", "password_count", "pin_attempts", "hash"))
