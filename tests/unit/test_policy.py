"""What a role sees of a catalog: which tables, columns, keys and foreign keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.schema.catalog import Catalog, ForeignKey, Key
from dbtools.values.types import Family, Mask
from tests.unit.granted import FILTER, granted_to, role_of, the
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, SHOP, column, table

OURS = Catalog(
    tables=(
        table(ID, name="orders", schema="main"),
        table(ID, name="order_lines", schema="main"),
        table(ID, name="orders", schema="old"),
        table(ID, name="o[12]", schema="old"),
    ),
    default_schema="main",
)


@pytest.mark.parametrize(
    ("patterns", "decides"),
    [
        pytest.param(["*", "main.orders"], "main.orders", id="exact name over any"),
        pytest.param(["main.order[s]", "main.orders"], "main.orders", id="exact name over a longer pattern"),
        pytest.param(["o*", "orde*", "or*"], "orde*", id="longer pattern over shorter"),
        pytest.param(["*", "o*"], "o*", id="any pattern over the star"),
        pytest.param(["ord***", "orde*"], "orde*", id="stars do not count"),
        pytest.param(["main.*", "o*"], "main.*", id="pattern of the qualified name"),
        pytest.param(["orde*", "*.orders"], "*.orders", id="pattern of any schema"),
        pytest.param(["old.*", "*"], "*", id="pattern of another schema"),
        pytest.param(["old.orders", "*"], "*", id="name of another schema"),
        pytest.param(["ORDERS", "Main.orders", "*"], "*", id="other case"),
        pytest.param(["order_lines", "*rder"], None, id="none"),
        pytest.param([], None, id="no rules"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_most_precise_rule_decides_wherever_it_stands(
    patterns: list[str], decides: str | None, turned: bool
) -> None:
    rules = [Rule(pattern=pattern, grant=Grant()) for pattern in patterns]
    rule = role_of(*(reversed(rules) if turned else rules)).rule_of(OURS, OURS.tables[0])

    assert (rule.pattern if rule else None) == decides


@pytest.mark.parametrize(
    ("own", "inherited"),
    [
        pytest.param("orders", "main.orders", id="two exact names"),
        pytest.param("orders", "orders", id="the same name"),
        pytest.param("*", "*", id="the same pattern"),
        pytest.param("or*", "*rs", id="patterns of the same length"),
    ],
)
def test_own_rule_decides_over_an_inherited_one_of_equal_precision(own: str, inherited: str) -> None:
    first, then = Rule(pattern=own, grant=None), Rule(pattern=inherited, grant=Grant())

    assert role_of(first, then).rule_of(OURS, OURS.tables[0]) is first
    assert role_of(then, first).rule_of(OURS, OURS.tables[0]) is then


def test_inherited_rule_decides_over_an_own_one_that_is_less_precise() -> None:
    own, inherited = Rule(pattern="*", grant=None), Rule(pattern="orders", grant=Grant())

    assert role_of(own, inherited).rule_of(OURS, OURS.tables[0]) is inherited


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [
        pytest.param("old.orders", ["old.orders"], id="qualified name"),
        pytest.param("*.orders", ["main.orders", "old.orders"], id="any schema"),
        pytest.param("main.*", ["main.orders", "main.order_lines"], id="one schema"),
        pytest.param("order?", ["main.orders", "old.orders"], id="one character"),
        pytest.param("o[12]", ["old.o[12]"], id="name that looks like a pattern"),
        pytest.param("*", ["main.orders", "main.order_lines", "old.orders", "old.o[12]"], id="all"),
    ],
)
def test_pattern_is_a_shells_over_bare_and_qualified_names(pattern: str, seen: list[str]) -> None:
    found = restrict(OURS, role_of(Rule(pattern=pattern, grant=Grant())))

    assert [OURS.full_name(each) for each in found.tables] == seen


def test_label_names_its_table() -> None:
    """Beside a table "a.b", table "b" of schema "a" is written otherwise."""
    tables = (table(ID, name="b", schema=""), table(ID, name="a.b"), table(ID, name="b", schema="a"))
    catalog = Catalog(tables=tables)
    label = catalog.label(tables[2])
    found = restrict(catalog, role_of(Rule(pattern=label, grant=Grant())))

    assert label == 'a."b"'
    assert found.tables == (tables[2],)


#: what is for operators only
TOLD: dict[str, Any] = {
    "warnings": ("left out",),
    "posture": ("may write",),
    "unreadable": {("", "product"): ("cost",)},
}


def _for_operators(catalog: Catalog) -> tuple[object, ...]:
    return tuple(getattr(catalog, name) for name in TOLD)


@pytest.mark.parametrize("role", [Role(), role_of(Rule(pattern="*", grant=Grant()))])
def test_role_of_everything_sees_all_but_notes_for_operators(role: Role) -> None:
    catalog = replace(SHOP, **TOLD)
    seen = restrict(catalog, role)

    assert _for_operators(catalog) != _for_operators(seen) == ((), (), {})
    assert seen == SHOP


@pytest.mark.parametrize("rules", [(), (Rule(pattern="*", grant=None),)])
def test_role_without_a_grant_sees_nothing(rules: tuple[Rule, ...]) -> None:
    assert restrict(SHOP, role_of(*rules)) == Catalog()


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(Grant(columns=()), id="no columns"),
        pytest.param(Grant(columns=("day",), exclude=("day",)), id="its columns are excluded"),
        pytest.param(Grant(exclude=("day", "total")), id="all columns are excluded"),
    ],
)
def test_table_of_which_no_column_is_seen_does_not_exist(grant: Grant) -> None:
    assert granted_to(SHOP, sale=grant, product=Grant()).tables == (PRODUCT,)


@pytest.mark.parametrize(
    ("grant", "seen"),
    [
        pytest.param(Grant(), ("id", "name", "price"), id="all"),
        pytest.param(Grant(columns=("price", "id")), ("id", "price"), id="columns, in the table's order"),
        pytest.param(Grant(exclude=("price",)), ("id", "name"), id="exclude"),
        pytest.param(Grant(columns=("id", "price"), exclude=("price",)), ("id",), id="columns but exclude"),
        pytest.param(Grant(columns=("id",), masks={"price": Mask.NULL}), ("id",), id="mask grants nothing"),
        pytest.param(Grant(exclude=("price",), masks={"price": Mask.NULL}), ("id", "name"), id="not masked"),
    ],
)
def test_columns_and_exclude_decide_which_columns_are_seen(grant: Grant, seen: tuple[str, ...]) -> None:
    product = table(ID, column("name"), column("price", Family.DECIMAL))

    assert tuple(the("product", grant, Catalog(tables=(product,))).column_by_name) == seen


KEYED = table(
    ID,
    column("code", nullable=False),
    column("maker", nullable=False),
    keys=(Key(columns=("id",), primary=True), Key(columns=("code",)), Key(columns=("maker", "code"))),
    row_identifier="rowid",
    row_estimate=7,
)


@pytest.mark.parametrize(
    ("grant", "keys"),
    [
        pytest.param(Grant(), [("id",), ("code",), ("maker", "code")], id="all"),
        pytest.param(Grant(exclude=("id",)), [("code",), ("maker", "code")], id="hidden primary key"),
        pytest.param(Grant(exclude=("maker",)), [("id",), ("code",)], id="hidden part of a key"),
        pytest.param(Grant(masks={"code": Mask.HASH}), [("id",)], id="masked key"),
        pytest.param(Grant(columns=("maker",)), [], id="no key left"),
        pytest.param(Grant(filter=FILTER), [("id",), ("code",), ("maker", "code")], id="filter"),
    ],
)
def test_key_with_a_hidden_or_masked_column_is_none(grant: Grant, keys: list[tuple[str, ...]]) -> None:
    seen = the("product", grant, Catalog(tables=(KEYED,)))

    assert [key.columns for key in seen.keys] == keys


@pytest.mark.parametrize(
    ("grant", "identifier", "estimate"),
    [
        pytest.param(Grant(), "rowid", 7, id="whole"),
        pytest.param(Grant(columns=("id", "code", "maker")), "rowid", 7, id="all columns by name"),
        pytest.param(Grant(exclude=("maker",)), None, 7, id="hidden column"),
        pytest.param(Grant(masks={"id": Mask.NULL}), None, 7, id="masked column"),
        pytest.param(Grant(filter=FILTER), None, None, id="hidden rows"),
    ],
)
def test_row_identifier_and_estimate_tell_of_nothing_hidden(
    grant: Grant, identifier: str | None, estimate: int | None
) -> None:
    seen = the("product", grant, Catalog(tables=(KEYED,)))

    assert (seen.row_identifier, seen.row_estimate) == (identifier, estimate)


def test_estimate_is_no_count_of_rows_that_may_not_be_counted() -> None:
    assert the("product", Grant(aggregate=False)).row_estimate is None


@pytest.mark.parametrize(
    ("grant", "default"),
    [
        pytest.param(Grant(), "cost * 2", id="whole"),
        pytest.param(Grant(exclude=("cost",)), None, id="hidden column"),
        pytest.param(Grant(masks={"cost": Mask.REDACT}), None, id="masked column"),
        pytest.param(Grant(filter=FILTER), None, id="hidden rows"),
    ],
)
def test_how_a_column_is_computed_is_shown_of_whole_tables_only(grant: Grant, default: str | None) -> None:
    sale = table(
        column("cost"),
        column("price", default="cost * 2", generated=True),
        column("state", default="'new'"),
        name="sale",
        key=(),
    )
    seen = the("sale", grant, Catalog(tables=(sale,))).column_by_name

    assert (seen["price"].default, seen["price"].generated) == (default, True)
    assert seen["state"].default == "'new'"


TO_PRODUCT = ORDER_LINE.foreign_keys


@pytest.mark.parametrize(
    ("grants", "keys"),
    [
        pytest.param({"order line": Grant(), "product": Grant()}, TO_PRODUCT, id="both seen"),
        pytest.param({"order line": Grant()}, (), id="hidden table"),
        pytest.param({"order line": Grant(), "product": Grant(exclude=("id",))}, (), id="hidden key there"),
        ({"order line": Grant(), "product": Grant(masks={"id": Mask.HASH})}, ()),
        pytest.param(
            {"order line": Grant(exclude=("product_id",)), "product": Grant()}, (), id="hidden column here"
        ),
        ({"order line": Grant(masks={"product_id": Mask.HASH}), "product": Grant()}, ()),
        pytest.param({"order line": Grant(), "product": Grant(filter=FILTER)}, TO_PRODUCT, id="filter there"),
        pytest.param(
            {"order line": Grant(columns=("product_id",)), "product": Grant(columns=("id",))},
            TO_PRODUCT,
            id="nothing but the key",
        ),
    ],
)
def test_foreign_key_is_followed_where_all_of_it_is_seen(
    grants: Mapping[str, Grant], keys: tuple[ForeignKey, ...]
) -> None:
    seen = granted_to(SHOP, **grants).table("", "order line")

    assert seen is not None
    assert seen.foreign_keys == keys


def test_foreign_key_to_the_table_itself_is_followed_where_its_key_is_seen() -> None:
    boss = ForeignKey(columns=("boss_id",), target_schema="", target="person", target_columns=("id",))
    person = table(ID, column("boss_id", Family.INTEGER), name="person", foreign_keys=(boss,))
    catalog = Catalog(tables=(person,))

    assert the("person", Grant(), catalog).foreign_keys == (boss,)
    assert the("person", Grant(exclude=("id",)), catalog).foreign_keys == ()


def test_filter_rides_on_its_table() -> None:
    seen = granted_to(SHOP, product=Grant(filter=FILTER), sale=Grant())

    assert [each.filter for each in seen.tables] == [FILTER, None]
