"""Columns that look like secrets, by the words in their names and by their types."""

import pytest

from dbtools.catalog import Catalog, Column, Table
from dbtools.types import ColumnType, Family
from dbtools.vetting import secret_columns

SECRETS = (
    *("password", "passwd", "user_password", "PasswordHash", "passwordHash", "hashedpassword", "pass", "pwd"),
    *(
        "secret",
        "client_secret",
        "clientsecret",
        "token",
        "access_token",
        "refreshTokens",
        "accesstoken",
        "pin",
    ),
    *("hash", "hashes", "ssn", "api_key", "apiKey", "APIKey", "api_keys", "APIKEYS", "tls_psk", "pin"),
    *("private key", "ssh_key", "signing_key", "otp", "cvc", "jwt", "salt", "social_security_number"),
)
OTHERS = (
    *("passport_no", "hashtag", "tokenizer", "key", "public_key", "secretary", "compass", "monkey", ""),
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


@pytest.mark.parametrize("family", [Family.INTEGER, Family.BOOLEAN, Family.TIMESTAMP])
def test_number_or_date_is_a_fact_about_a_secret(family: Family) -> None:
    assert not _found("password", family)
    assert _found("ssn", family)


@pytest.mark.parametrize("family", [Family.UUID, Family.JSON, Family.ARRAY, Family.BYTES])
def test_value_of_any_other_type_may_be_a_secret(family: Family) -> None:
    assert _found("reset_token", family)
