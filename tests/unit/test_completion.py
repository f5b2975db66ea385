"""Values for the variables of resource templates: from the catalog, and from the rows."""

import pytest

from dbtools.answers.results import ResultSet
from dbtools.errors import UnknownArgument
from dbtools.policy.roles import Limits
from dbtools.schema.uris import CELL_TEMPLATE
from dbtools.statements.select import Condition, Order, Output, Select, Statement
from dbtools.tools.calls import CatalogCall, SingleCall
from dbtools.tools.definition import ToolContext
from dbtools.tools.resources import Completed, bind_completion
from dbtools.values.types import Family, Operator
from tests.calls import answered, statement_of
from tests.unit.shop import ID, PRODUCT, SHOP, column, context, select_of, table

NOTHING = ResultSet(outputs=(), rows=())
WORD = table(column("word", nullable=False), name="word", key=("word",))
CONTEXT = context(*SHOP.tables, WORD)


def _completion(
    name: str, value: str = "", of: ToolContext = CONTEXT, /, **given: str
) -> CatalogCall[Completed] | SingleCall[Completed]:
    return bind_completion(of, CELL_TEMPLATE, name, value, given)


def _known(name: str, value: str = "", of: ToolContext = CONTEXT, /, **given: str) -> list[str]:
    completion = _completion(name, value, of, **given)
    assert isinstance(completion, CatalogCall)
    return list(answered(completion).values)


def _asked(value: str, of: ToolContext = CONTEXT, /, **given: str) -> Statement:
    return statement_of(_completion("key", value, of, **given))


def _keys(table: str, *rows: tuple[object, ...], more: bool = False) -> Completed:
    return answered(_completion("key", table=table), *rows, more=more)


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
    of = context(table(ID, name="row"), WORD, *twins)

    assert _known("table", value, of) == tables


def test_no_more_values_are_offered_than_a_hundred_or_rows_and_tokens_allow() -> None:
    many, enough = (context(*(table(ID, name=f"t{at}") for at in range(count))) for count in (101, 100))
    long = [table(ID, name=f"{at:02}{'n' * 200}") for at in range(50)]
    rows = context(*long, limits=Limits(max_rows=2))
    tokens = context(*long, limits=Limits(max_tokens=500))

    assert [len(_known("table", "", each)) for each in (many, enough, rows, tokens)] == [100, 100, 2, 7]
    more = [answered(_completion("table", "", each)).more for each in (many, enough, rows, tokens)]
    assert more == [True, False, True, True]
    assert _asked("", rows, table=long[0].name).limit == 2


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
    twins = context(*(table(ID, schema=schema, name="twin") for schema in ("x", "y")))

    assert _known(name) == []
    assert _known(name, "", twins, table="twin") == []
    assert isinstance(_completion(name, "", twins, table="x.twin"), CatalogCall) is (name == "column")


@pytest.mark.parametrize("name", ["", "tables", "KEY", "\x1b"])
def test_unknown_variable_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(UnknownArgument) as raised:
        _completion(name)

    assert "table, key, column" in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("value", ["wo", "a,b", "100%", "a_b", "\\", "'; drop table word; --"])
def test_key_is_looked_up_by_its_beginning_whatever_that_is(value: str) -> None:
    word = WORD.columns[0]
    whole = _asked("", table="word")

    assert _asked(value, table="word") == Statement(
        shape=Select(
            table=WORD,
            outputs=(Output(term=word, cut=400),),
            conditions=(Condition(term=word, operator=Operator.STARTS_WITH, parameters=("start",)),),
            order=(Order(term=word),),
        ),
        values={"start": value},
        limit=100,
    )
    assert (select_of(whole).conditions, whole.values) == ((), {})


def test_composite_key_is_not_completed() -> None:
    assert _known("key", "1", table="order line") == []


@pytest.mark.parametrize(
    ("family", "completes"),
    [
        (Family.INTEGER, True),
        (Family.TEXT, True),
        (Family.DATE, True),
        (Family.UUID, True),
        (Family.BYTES, False),
    ],
)
def test_keys_are_completed_where_people_write_them(family: Family, completes: bool) -> None:
    of = context(table(column("k", family, nullable=False), name="keyed", key=("k",)))

    assert isinstance(_completion("key", "", of, table="keyed"), SingleCall) is completes


def test_keys_are_written_as_in_an_address_or_left_out() -> None:
    assert _keys("product", (2**60,)) == Completed(values=(str(2**60),))
    assert _keys("word", ("a",), (None,), ("\ud800",), more=True) == Completed(values=("a",), more=True)
    assert _keys("word") == Completed(values=())
