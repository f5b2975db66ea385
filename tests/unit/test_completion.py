"""Values for the variables of resource templates: names of tables and columns."""

import pytest

from dbtools.catalog import Catalog
from dbtools.errors import UnknownArgument
from dbtools.links import CELL_TEMPLATE
from dbtools.policy import Limits
from dbtools.tools.definition import Setting
from dbtools.tools.resources import Completed, complete
from tests.unit.shop import ID, PRODUCT, SALE, SHOP, column, setting, table

WORD = table(column("word", nullable=False), name="word", key=("word",))
SETTING = setting(*SHOP.tables, WORD)


def _completed(name: str, value: str = "", of: Setting = SETTING, /, **given: str) -> Completed:
    return complete(of, CELL_TEMPLATE, name, value, given)


def _known(name: str, value: str = "", of: Setting = SETTING, /, **given: str) -> list[str]:
    return list(_completed(name, value, of, **given).values)


def test_tables_are_those_whose_rows_have_an_address() -> None:
    assert _known("table") == ["product", "order line", "anything", "word"]


@pytest.mark.parametrize(
    ("value", "tables"),
    [
        ("w", ["word", "row", "x.twin", "y.twin"]),
        ("WORD", ["word"]),
        ("twin", ["x.twin", "y.twin"]),
        ("x.", ["x.twin"]),
        ("nothing", []),
    ],
)
def test_tables_that_begin_so_come_before_those_that_contain_it(value: str, tables: list[str]) -> None:
    twins = [table(ID, schema=schema, name="twin") for schema in ("x", "y")]
    of = setting(table(ID, name="row"), WORD, *twins)

    assert _known("table", value, of) == tables


def test_no_more_than_a_hundred_values_are_offered() -> None:
    many, enough = (setting(*(table(ID, name=f"t{at}") for at in range(count))) for count in (101, 100))

    assert len(_known("table", "", many)) == 100
    assert _completed("table", "", many).more
    assert not _completed("table", "", enough).more


def test_no_more_values_are_offered_than_rows_and_tokens_allow() -> None:
    many = [table(ID, name=f"{at:02}{'n' * 200}") for at in range(50)]
    rows = setting(*many, limits=Limits(max_rows=2))
    tokens = setting(*many, limits=Limits(max_tokens=500))

    assert _known("table", "", rows) == [many[0].name, many[1].name]
    assert _completed("table", "", rows).more
    assert len(_known("table", "", tokens)) == 7
    assert _completed("table", "", tokens).more


def test_columns_are_those_of_the_table() -> None:
    assert _known("column", table="product", key="1") == list(PRODUCT.column_by_name)
    assert _known("column", "d", table="product") == ["details", "id", "sold", "added_on"]
    assert _known("column", "ID", table="Product") == ["id"]


@pytest.mark.parametrize("name", ["column", "key"])
@pytest.mark.parametrize("table", ["", "nothing", "sale", "\0"])
def test_nothing_is_known_of_a_table_that_has_no_addresses(name: str, table: str) -> None:
    assert _known(name, table=table) == []


@pytest.mark.parametrize("name", ["column", "key"])
def test_nothing_is_known_without_a_table_or_with_two(name: str) -> None:
    twins = setting(*(table(ID, schema=schema, name="twin") for schema in ("x", "y")))

    assert _known(name) == []
    assert _known(name, "", twins, table="twin") == []


@pytest.mark.parametrize("name", ["", "tables", "KEY", "\x1b"])
def test_unknown_variable_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(UnknownArgument) as raised:
        _completed(name)

    assert "table, key, column" in str(raised.value)
    assert str(raised.value).isprintable()


def test_keys_are_not_completed() -> None:
    assert _known("key", "", table="word") == []


def test_nothing_is_known_of_an_empty_database() -> None:
    empty = Setting(catalog=Catalog())

    assert _known("table", "", empty) == []
    assert _known("key", "", empty, table=SALE.name) == []
