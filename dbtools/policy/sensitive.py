"""Recognize columns that look like secrets, by the words of their names and by their types."""

import re
from collections.abc import Mapping, Sequence

from dbtools.schema.catalog import Catalog, Column, Location
from dbtools.values.types import NUMERIC, TEMPORAL, Family

#: The names of columns that look like secrets, their words in lower case and joined by "_".
SECRET = re.compile(
    r"""
    password|passwd|passphrase|passcode|secret(?!ar)|credential|api_?key          # anywhere
    |(token|psk)s?(_|$)                                                           # where a word ends
    |^hash(es)?$                                                                  # alone
    |(?:^|_)(pass|pwd|pw|salt|pin|otp|totp|cvv|cvc|jwt|ssn|social_security_number)s?(?:_|$)
    |(private|priv|access|encryption|signing|ssh)_?keys?(_|$)
    """,
    re.VERBOSE,
)
#: What a name ends in that says something about a secret, or refers to one.
ABOUT_SECRET = re.compile(
    r"_(id|type|kind|name|algorithm|state|status|scope|count|length|version|format|method|policy|issuer|label"
    r"|at|on|date|limit|expires|expiry)$"
)
#: Those that are secrets as numbers as well.
SECRET_NUMBER = re.compile(
    r"(?:^|_)(ssn|cvv|cvc|pin|otp|totp|pass(word|wd|code|phrase)|pwd|social_security_number)(?:_(code|number|no))?$"
)
PUBLIC = (*TEMPORAL, Family.BOOLEAN, Family.INTERVAL, Family.ENUM)  #: families of facts about a secret
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def secret_columns(catalog: Catalog) -> Mapping[Location, Sequence[str]]:
    """Return the names of columns whose words and types suggest secrets, by table."""
    found = {
        table.location: [column.name for column in table.columns if is_secret(column)]
        for table in catalog.tables
    }
    return {location: names for location, names in found.items() if names}


def is_secret(column: Column) -> bool:
    """Return whether the words and the type of *column* suggest a secret: then no value of it is quoted."""
    name = "_".join(words_of(column.name))
    family = column.type.family
    if family in NUMERIC:
        return bool(SECRET_NUMBER.search(name))
    return family not in PUBLIC and bool(SECRET.search(name)) and not ABOUT_SECRET.search(name)


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of *name* in lower case: `passwordHash` has two, and so has `password_hash`."""
    return tuple(word.lower() for word in WORD.findall(name))
