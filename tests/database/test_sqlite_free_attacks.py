"""Free SQL on SQLite neither reads nor detects anything that is hidden."""

import re
from collections.abc import Iterator

import pytest

from dbtools.backends.sqlite.refusals import RULES
from tests.database.conftest import Serve
from tests.database.free_attacks import COLUMN_POSITIONS, OTHERS, TABLE_POSITIONS, attacks
from tests.database.free_clinic import CANARY, NUMBER, open_clinics
from tests.database.role_callers import Caller, calling

RANDOM_NAME = re.compile(r"x[0-9a-f]{32}")
#: What only SQLite says.
ENGINE = re.compile(r"no such|not authorized|prohibited|near \"|misuse of|SQLITE_")


@pytest.fixture(scope="module")
def clinics(serve: Serve) -> Iterator[tuple[Caller, Caller]]:
    """Give the rich and the poor database."""
    with open_clinics(serve) as callers:
        yield callers


def test_corpus_is_large() -> None:
    assert len(set(attacks())) >= 150
    assert len(TABLE_POSITIONS) + len(COLUMN_POSITIONS) + len(OTHERS) >= 150


def test_attacks_get_the_same_of_the_database_without_hidden_data(clinics: tuple[Caller, Caller]) -> None:
    rich, poor = clinics
    differing = []
    for sql in attacks():
        outcomes = [each.outcome(calling("run_sql", sql=sql)) for each in (rich, poor)]
        if outcomes[0] != outcomes[1]:
            differing.append((sql, *outcomes))

    assert differing == []


def test_attacks_show_no_canary_and_no_words_of_the_engine(clinics: tuple[Caller, Caller]) -> None:
    rich, _ = clinics
    shown = []
    for sql in attacks():
        code, text = rich.outcome(calling("run_sql", sql=sql))
        leaks = CANARY in str(text) or NUMBER in str(text) or RANDOM_NAME.search(str(text))
        if leaks or (code != "answer" and ENGINE.search(str(text))):
            shown.append((sql, text))

    assert shown == []


def test_every_attack_is_answered_or_refused_by_a_rule(clinics: tuple[Caller, Caller]) -> None:
    rich, _ = clinics
    codes = {str(rich.outcome(calling("run_sql", sql=sql))[0]) for sql in attacks()}

    assert codes == {"answer", "sql_refused", "bad_argument"}
    assert all(rule and not rule.endswith(".") for _, rule, _ in RULES)
