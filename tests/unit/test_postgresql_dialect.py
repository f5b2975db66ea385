"""Generated SQL names the schema of each operator, or is not written at all."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import operators

from dbtools.backends.postgresql.reading.dialect import Dialect

X, Y = sa.column("x", sa.Integer), sa.column("y", sa.Integer)
TEXT, TRUTH = sa.column("t", sa.Text), sa.column("b", sa.Boolean)
#: What an operator is written as, with its schema, and values.
QUALIFIED = re.compile(r"OPERATOR\(pg_catalog\.[^)]+\)|\$\d+::\w+|__\[POSTCOMPILE_\w+\]")
SIGN = re.compile(r"[-+*/<>=~!@#%^&|`?]|\b(?:i?like|similar|between|distinct from)\b", re.IGNORECASE)


Make = Callable[[], Any]


def _written(make: Make) -> str:
    """Return the SQL of what *make* returns."""
    dialect: Any = Dialect  # SQLAlchemy's has no types
    return str(make().compile(dialect=dialect()))


def _expressions() -> Iterator[tuple[str, Make]]:
    """Yield an expression for each operator of SQLAlchemy, with one, two and three operands."""
    for name, found in vars(operators).items():
        if callable(found) and not isinstance(found, type) and not name.startswith("_"):
            make: Any = found
            for each in (X, TEXT, TRUTH):
                yield name, partial(make, each)
                yield name, partial(make, each, each)
                yield name, partial(_nested, make, each)
                yield name, partial(_negated, make, each)


def _nested(make: Any, each: object) -> Any:
    return make(make(each, each), each)


def _negated(make: Any, each: object) -> Any:
    return sa.not_(make(each, each))


def _attempts() -> Iterator[tuple[str, str]]:
    """Yield what can be written, each with the name of its operator."""
    for name, make in _expressions():
        try:
            yield name, _written(make)
        except (ValueError, TypeError, AttributeError, NotImplementedError, sa.exc.SQLAlchemyError):
            continue


@pytest.mark.filterwarnings("ignore")
def test_no_operator_is_written_without_its_schema() -> None:
    written = [*_attempts()]

    assert len(written) > 50
    assert [(name, sql) for name, sql in written if SIGN.search(QUALIFIED.sub("", sql))] == []


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: X + Y + X, id="three operands"),
        pytest.param(lambda: TEXT + TEXT + TEXT, id="three texts"),
        pytest.param(lambda: TEXT.like("a"), id="like"),
        pytest.param(lambda: X.is_distinct_from(Y), id="distinct from"),
        pytest.param(lambda: X.bitwise_not(), id="before its operand"),
        pytest.param(lambda: sa.case({1: 2}, value=X), id="case of values"),
        pytest.param(lambda: TEXT.ilike("a", escape="!"), id="another escape"),
    ],
)
def test_what_has_no_sign_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"schema|keyword"):
        _written(make)


@pytest.mark.parametrize(
    ("make", "sql"),
    [
        pytest.param(lambda: X == Y, "(x OPERATOR(pg_catalog.=) y)", id="comparison"),
        pytest.param(lambda: -X, "(OPERATOR(pg_catalog.-) x)", id="minus"),
        pytest.param(lambda: X.op("||")(Y), "(x OPERATOR(pg_catalog.||) y)", id="sign"),
        pytest.param(
            lambda: sa.and_(X.is_(None), sa.not_(sa.or_(TRUTH, Y.is_not(None)))),
            "x IS NULL AND NOT (b OR y IS NOT NULL)",
            id="keywords",
        ),
        pytest.param(lambda: X.desc().nulls_last(), "x DESC NULLS LAST", id="order"),
    ],
)
def test_operators_have_their_schema_and_keywords_have_none(make: Make, sql: str) -> None:
    assert _written(make) == sql
