"""The column types of SQLite."""

from typing import Any

import pytest

from dbtools.backends.sqlite.schema.types import LEAST, MOST, column_type
from dbtools.values.types import ColumnType, Family


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


WHOLE = {"minimum": LEAST, "maximum": MOST}
LOOSE, LARGE, TEXT = {"lenient": True, "large": True}, {"large": True}, {"dated": True, "unchecked": True}


@pytest.mark.parametrize(
    ("declared", "strict", "rowid", "family", "facts"),
    [
        ("integer", False, False, Family.INTEGER, WHOLE | LOOSE),
        ("integer", False, True, Family.INTEGER, WHOLE),
        ("INT", True, False, Family.INTEGER, WHOLE),
        ("real", True, False, Family.NUMBER, {}),
        ("text", True, False, Family.TEXT, LARGE | TEXT),
        ("blob", True, False, Family.BYTES, LARGE),
        ("any", True, False, Family.ANY, LOOSE | TEXT),
        ("date", False, False, Family.DATE, LOOSE),
    ],
)
def test_type_tells_what_its_cells_may_be(
    declared: str, strict: bool, rowid: bool, family: Family, facts: dict[str, Any]
) -> None:
    expected = ColumnType(family=family, name=declared.lower(), **facts)

    assert column_type(declared, strict=strict, rowid=rowid) == expected
