"""The column types of SQLite."""

import pytest

from dbtools.backends.sqlite.types import LEAST, MOST, column_type
from dbtools.types import ColumnType, Family


@pytest.mark.parametrize(
    ("declared", "family"),
    [
        ("", Family.ANY),
        ("ANY", Family.ANY),
        ("INTEGER", Family.INTEGER),
        ("int", Family.INTEGER),
        ("BigInt", Family.INTEGER),
        ("UNSIGNED BIG INT", Family.INTEGER),
        ("tinyint(1)", Family.INTEGER),
        ("CHARINT", Family.INTEGER),
        ("text", Family.TEXT),
        ("VARCHAR(255)", Family.TEXT),
        ("native character(70)", Family.TEXT),
        ("CLOB", Family.TEXT),
        ("uuid", Family.TEXT),
        ("GUID", Family.TEXT),
        ("BLOB", Family.BYTES),
        ("varbinary(16)", Family.BYTES),
        ("BINARY", Family.BYTES),
        ("REAL", Family.NUMBER),
        ("double precision", Family.NUMBER),
        ("FLOAT(8)", Family.NUMBER),
        ("bool", Family.BOOLEAN),
        ("BOOLEAN", Family.BOOLEAN),
        ("date", Family.DATE),
        ("TIME", Family.TIME),
        ("time(3) with time zone", Family.TIME),
        ("datetime", Family.TIMESTAMP),
        ("DATETIME2(7)", Family.TIMESTAMP),
        ("timestamp", Family.TIMESTAMP),
        ("TIMESTAMPTZ", Family.TIMESTAMP),
        ("timestamp (6) with time zone", Family.TIMESTAMP),
        ("json", Family.JSON),
        ("JSONB", Family.JSON),
        ("decimal", Family.DECIMAL),
        ("DECIMAL(10, 2)", Family.DECIMAL),
        ("numeric(10)", Family.DECIMAL),
        ("money", Family.DECIMAL),
        ("interval", Family.ANY),
        ("POINT", Family.ANY),
        ("STRING", Family.ANY),
        ("whatever it is (", Family.ANY),
    ],
)
def test_declared_type_has_a_family(declared: str, family: Family) -> None:
    assert column_type(declared, strict=False).family is family


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        pytest.param("DECIMAL(10,2)", "decimal(10,2)", id="typmods"),
        pytest.param("Double\n  Precision", "double precision", id="spaces"),
        pytest.param(" ", "any", id="nothing"),
    ],
)
def test_name_is_the_declared_one(declared: str, name: str) -> None:
    assert column_type(declared, strict=False).name == name


@pytest.mark.parametrize(
    ("declared", "strict", "rowid", "expected"),
    [
        pytest.param(
            "integer",
            False,
            False,
            ColumnType(
                family=Family.INTEGER, name="integer", minimum=LEAST, maximum=MOST, lenient=True, large=True
            ),
            id="integer",
        ),
        pytest.param(
            "integer",
            False,
            True,
            ColumnType(family=Family.INTEGER, name="integer", minimum=LEAST, maximum=MOST),
            id="rowid",
        ),
        pytest.param(
            "INT",
            True,
            False,
            ColumnType(family=Family.INTEGER, name="int", minimum=LEAST, maximum=MOST),
            id="strict integer",
        ),
        pytest.param("real", True, False, ColumnType(family=Family.NUMBER, name="real"), id="strict real"),
        pytest.param(
            "text",
            True,
            False,
            ColumnType(family=Family.TEXT, name="text", large=True, dated=True),
            id="strict text",
        ),
        pytest.param(
            "blob", True, False, ColumnType(family=Family.BYTES, name="blob", large=True), id="strict blob"
        ),
        pytest.param(
            "any",
            True,
            False,
            ColumnType(family=Family.ANY, name="any", lenient=True, large=True, dated=True),
            id="strict any",
        ),
        pytest.param(
            "date",
            False,
            False,
            ColumnType(family=Family.DATE, name="date", lenient=True, large=True),
            id="date",
        ),
    ],
)
def test_type_tells_what_its_cells_may_be(
    declared: str, strict: bool, rowid: bool, expected: ColumnType
) -> None:
    assert column_type(declared, strict=strict, rowid=rowid) == expected
