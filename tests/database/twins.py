"""Twins: two databases that look the same to a role, though only one of them has something to hide.

An answer that differs between them, or that holds a canary, shows what is hidden. A test gives the two sides,
DDL and grants, and asks both the same.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from dbtools.settings.sections import TableSection
from tests.database.role_callers import NORTH, Ask, Caller, Grants, Outcome, calling_as
from tests.database.shop import Serve

#: In hidden cells and names. The last ones are "CANARY" in base64, by where it begins, and in hex.
CANARY = re.compile("canary|424242|1942|Q0FOQVJZ|NBTkFSW|DQU5BUl|43414e415259", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two databases, and what the role is granted on it."""

    ddl: str
    grants: Grants
    tables: Mapping[str, TableSection] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Twins:
    """A caller of the database that hides something, and one of the database that does not."""

    rich: Caller
    poor: Caller

    def outcome(self, ask: Ask) -> Outcome:
        """Return what both databases answer to *ask*, after checking that it shows nothing hidden."""
        rich = self.rich.outcome(ask)
        assert_shows_nothing(rich, self.poor.outcome(ask), ask.words)
        return rich


@contextmanager
def open_twins(
    serve: Serve,
    dialect: str,
    rich: Side,
    poor: Side,
    claims: Mapping[str, object] = NORTH,
    *,
    sql: bool = False,
) -> Iterator[Twins]:
    """Serve both databases to callers with these *claims*."""
    with (
        serve(dialect, rich.ddl) as rich_shop,
        serve(dialect, poor.ddl) as poor_shop,
        calling_as(rich_shop, rich.grants, claims, tables=rich.tables, sql=sql) as one,
        calling_as(poor_shop, poor.grants, claims, tables=poor.tables, sql=sql) as other,
    ):
        yield Twins(rich=one, poor=other)


def assert_shows_nothing(rich: Outcome, poor: Outcome, words: object) -> None:
    """Check that the answers are the same, and hold no canary but those in the *words* of the request."""
    assert rich == poor, words
    assert not has_canary(rich, words), (words, rich)


def has_canary(outcome: Outcome, words: object) -> bool:
    """Return whether *outcome*, or a cursor in it, holds a canary that is not in *words*."""
    told = "\n".join(map(str, outcome))
    told += "".join(decoded(cursor) for cursor in re.findall(r'"next_cursor":"([\w-]+)"', told))
    for each in sorted(filter(CANARY.search, _texts(words)), key=len, reverse=True):
        told = told.replace(each, "")
    return bool(CANARY.search(told))


def decoded(cursor: str) -> str:
    """Return what is in *cursor*."""
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()


def _texts(words: object) -> Iterator[str]:
    match words:
        case str():
            yield words
            # Errors name parts of a path, of an expression and of an address as well.
            yield from re.split(r"[.:/ (),*+'-]", words)
        case Mapping():
            yield from (text for each in words.items() for text in _texts(each))
        case list() | tuple():
            yield from (text for each in words for text in _texts(each))
        case _:
            return
