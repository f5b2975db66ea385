"""What a compiled statement says about the size of its rows."""

import pytest

from dbtools.backends.plans import Plan
from dbtools.catalog import Column, Table
from dbtools.statement import Output, Select
from dbtools.types import ColumnType, Family
from tests.unit.shop import plan_of

TEXT = ColumnType(family=Family.TEXT, name="text", large=True)
BYTES = ColumnType(family=Family.BYTES, name="bytea", large=True)
NUMBER = ColumnType(family=Family.INTEGER, name="integer")


def _plan(*outputs: tuple[ColumnType, int | None]) -> Plan:
    """Return a plan whose outputs have types and are cut."""
    columns = [Column(name=f"c{at}", type=type) for at, (type, _) in enumerate(outputs)]
    read = [Output(term=column, cut=cut) for column, (_, cut) in zip(columns, outputs, strict=True)]
    return plan_of(Select(table=Table(name="t", columns=tuple(columns)), outputs=tuple(read)))


@pytest.mark.parametrize(
    ("outputs", "cuts", "most", "bounded"),
    [
        pytest.param([(NUMBER, None)], {}, 64, True, id="small"),
        pytest.param([(NUMBER, 100), (TEXT, 100)], {1: 100}, 464, True, id="characters of four bytes"),
        pytest.param([(BYTES, 100), (NUMBER, None)], {0: 100}, 164, True, id="bytes"),
        pytest.param([(TEXT, None), (TEXT, 100)], {1: 100}, 464, False, id="read whole"),
    ],
)
def test_rows_are_as_large_as_what_is_cut_of_them(
    outputs: list[tuple[ColumnType, int | None]], cuts: dict[int, int], most: int, bounded: bool
) -> None:
    plan = _plan(*outputs)

    assert (plan.cuts, plan.most_bytes, plan.is_bounded) == (cuts, most, bounded)
