"""Columns that look like secrets: by the words of their names, and by their types."""

import pytest

from dbtools.catalog import Catalog, Column, Table
from dbtools.policy import secret_columns
from dbtools.types import ColumnType, Family

SECRETS = (
    *(
        "password",
        "passwd",
        "user_password",
        "PasswordHash",
        "passwordHash",
        "secret",
        "client_secret",
        "token",
    ),
    *(
        "access_token",
        "refreshTokens",
        "hash",
        "ssn",
        "api_key",
        "apiKey",
        "APIKey",
        "tls_psk",
        "private key",
    ),
)
OTHERS = ("passport_no", "hashtag", "tokenizer", "key", "public_key", "secretary", "compass", "monkey", "")


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
def test_what_holds_no_text_is_a_fact_about_a_secret(family: Family) -> None:
    assert not _found("password", family)
    assert _found("ssn", family)
