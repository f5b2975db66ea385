"""The lens: which rule decides on a table, and what it leaves of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dbtools import errors
from dbtools.catalog import Catalog, Column, ForeignKey, Key, RowFilter, Table
from dbtools.policy import Grant, Role, Rule, Source, restrict
from dbtools.results import ResultSet
from dbtools.sql import Fragment, Parameter
from dbtools.tools import define
from dbtools.tools.definition import Setting, Toolset, tool_content
from dbtools.types import ColumnType, Family, Mask
from dbtools.vetting import vetted
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, SHOP, column, select_of, table

OURS = Catalog(
    tables=(
        table(ID, name="orders", schema="main"),
        table(ID, name="order_lines", schema="main"),
        table(ID, name="orders", schema="old"),
        table(ID, name="o[12]", schema="old"),
    ),
    default_schema="main",
)
FILTER = RowFilter(condition=Fragment(pieces=("id = ", Parameter("claims.tenant"))))
NOTHING = ResultSet(outputs=(), rows=())


def _role(*rules: Rule) -> Role:
    return Role(name="support", rules=rules)


def _granted(catalog: Catalog, **grants: Grant | None) -> Catalog:
    """Return what a role sees that has these *grants*."""
    return restrict(catalog, _role(*(Rule(pattern=name, grant=grant) for name, grant in grants.items())))


def _the(name: str, grant: Grant, of: Catalog = SHOP) -> Table:
    """Return what *grant* leaves of the table *name*, beside everything else."""
    seen = restrict(of, _role(Rule(pattern=name, grant=grant), Rule(pattern="*", grant=Grant())))
    (found,) = (each for each in seen.tables if each.name == name)
    return found


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
    rule = _role(*(reversed(rules) if turned else rules)).rule_of(OURS, OURS.tables[0])

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

    assert _role(first, then).rule_of(OURS, OURS.tables[0]) is first
    assert _role(then, first).rule_of(OURS, OURS.tables[0]) is then


def test_inherited_rule_decides_over_an_own_one_that_is_less_precise() -> None:
    own, inherited = Rule(pattern="*", grant=None), Rule(pattern="orders", grant=Grant())

    assert _role(own, inherited).rule_of(OURS, OURS.tables[0]) is inherited


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
    found = restrict(OURS, _role(Rule(pattern=pattern, grant=Grant())))

    assert [OURS.qualified(each) for each in found.tables] == seen


def test_label_names_its_table() -> None:
    """Beside a table "a.b", table "b" of schema "a" is written otherwise."""
    tables = (table(ID, name="b", schema=""), table(ID, name="a.b"), table(ID, name="b", schema="a"))
    catalog = Catalog(tables=tables)
    label = catalog.label(tables[2])
    found = restrict(catalog, _role(Rule(pattern=label, grant=Grant())))

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


def test_role_without_rules_sees_everything_but_what_operators_are_told() -> None:
    catalog = replace(SHOP, **TOLD)
    seen = restrict(catalog, Role())

    assert _for_operators(catalog) != _for_operators(seen) == ((), (), {})
    assert seen == SHOP


def test_role_that_is_granted_everything_sees_everything_but_what_operators_are_told() -> None:
    seen = _granted(replace(SHOP, **TOLD), **{"*": Grant()})

    assert (seen, _for_operators(seen)) == (SHOP, ((), (), {}))


@pytest.mark.parametrize("rules", [(), (Rule(pattern="*", grant=None),)])
def test_role_without_a_grant_sees_nothing(rules: tuple[Rule, ...]) -> None:
    assert restrict(SHOP, _role(*rules)) == Catalog()


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(Grant(columns=()), id="no columns"),
        pytest.param(Grant(columns=("day",), exclude=("day",)), id="its columns are excluded"),
        pytest.param(Grant(exclude=("day", "total")), id="all columns are excluded"),
    ],
)
def test_table_of_which_no_column_is_seen_does_not_exist(grant: Grant) -> None:
    assert _granted(SHOP, sale=grant, product=Grant()).tables == (PRODUCT,)


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

    assert tuple(_the("product", grant, Catalog(tables=(product,))).column_by_name) == seen


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
    seen = _the("product", grant, Catalog(tables=(KEYED,)))

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
    seen = _the("product", grant, Catalog(tables=(KEYED,)))

    assert (seen.row_identifier, seen.row_estimate) == (identifier, estimate)


def test_estimate_is_no_count_of_rows_that_may_not_be_counted() -> None:
    assert _the("product", Grant(aggregate=False)).row_estimate is None


@pytest.mark.parametrize(
    ("grant", "default"),
    [
        pytest.param(Grant(), "cost * 2", id="whole"),
        pytest.param(Grant(exclude=("cost",)), None, id="hidden column"),
        pytest.param(Grant(masks={"cost": Mask.REDACT}), None, id="masked column"),
        pytest.param(Grant(filter=FILTER), None, id="hidden rows"),
    ],
)
def test_how_a_column_is_computed_is_told_of_whole_tables_only(grant: Grant, default: str | None) -> None:
    sale = table(
        column("cost"),
        column("price", default="cost * 2", generated=True),
        column("state", default="'new'"),
        name="sale",
        key=(),
    )
    seen = _the("sale", grant, Catalog(tables=(sale,))).column_by_name

    assert (seen["price"].default, seen["price"].generated) == (default, True)
    assert seen["state"].default == "'new'"


TO_PRODUCT = ORDER_LINE.foreign_keys


@pytest.mark.parametrize(
    ("grants", "keys"),
    [
        pytest.param({"order line": Grant(), "product": Grant()}, TO_PRODUCT, id="both seen"),
        pytest.param({"order line": Grant()}, (), id="hidden table"),
        pytest.param({"order line": Grant(), "product": Grant(exclude=("id",))}, (), id="hidden key there"),
        pytest.param(
            {"order line": Grant(), "product": Grant(masks={"id": Mask.HASH})}, (), id="masked key there"
        ),
        pytest.param(
            {"order line": Grant(exclude=("product_id",)), "product": Grant()}, (), id="hidden column here"
        ),
        pytest.param(
            {"order line": Grant(masks={"product_id": Mask.HASH}), "product": Grant()}, (), id="masked here"
        ),
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
    seen = _granted(SHOP, **grants).table("", "order line")

    assert seen is not None
    assert seen.foreign_keys == keys


def test_foreign_key_to_the_table_itself_is_followed_where_its_key_is_seen() -> None:
    boss = ForeignKey(columns=("boss_id",), target_schema="", target="person", target_columns=("id",))
    person = table(ID, column("boss_id", Family.INTEGER), name="person", foreign_keys=(boss,))
    catalog = Catalog(tables=(person,))

    assert _the("person", Grant(), catalog).foreign_keys == (boss,)
    assert _the("person", Grant(exclude=("id",)), catalog).foreign_keys == ()


def test_filter_rides_on_its_table() -> None:
    seen = _granted(SHOP, product=Grant(filter=FILTER), sale=Grant())

    assert [each.filter for each in seen.tables] == [FILTER, None]


MASKED = Grant(masks={"price": Mask.PARTIAL, "color": Mask.NULL, "size": Mask.HASH, "added_on": Mask.REDACT})
LENS = _granted(SHOP, **{"product": MASKED, "order line": Grant(), "sale": Grant(aggregate=False)})


@pytest.mark.parametrize("name", ["price", "color", "size", "added_on"])
def test_masked_column_is_a_nullable_text_of_which_nothing_else_is_told(name: str) -> None:
    sold = table(
        ID,
        column(
            name,
            Family.INTEGER,
            nullable=False,
            default="7",
            generated=True,
            choices=("7", "8"),
            minimum="7",
            maximum="8",
            comment="seven",
        ),
    )
    seen = _the("product", Grant(masks={name: MASKED.masks[name]}), Catalog(tables=(sold,)))

    (masked,) = (each for each in seen.columns if each.name == name)
    assert masked == Column(name=name, type=masked.type, nullable=True, comment="seven")
    assert (masked.type.family, masked.type.operators) == (Family.TEXT, ())
    assert masked.type.mask is MASKED.masks[name]


PRICE = "product.price"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("list_product", {"where": [{"column": "price", "value": "1"}]}, id="condition"),
        pytest.param(
            "list_product", {"where": [{"column": "price", "op": "is_null", "value": "true"}]}, id="is null"
        ),
        pytest.param(
            "list_product", {"where": [{"column": "color", "op": "contains", "value": "r"}]}, id="search"
        ),
        pytest.param("list_product", {"order_by": ["price"]}, id="order"),
        pytest.param("list_product", {"order_by": ["size desc"]}, id="order from the other end"),
        pytest.param("list_order_line", {"order_by": [PRICE]}, id="order by a path"),
        pytest.param(
            "list_order_line", {"where": [{"column": PRICE, "value": "1"}]}, id="condition on a path"
        ),
        pytest.param("aggregate product", {"group_by": ["color"]}, id="group"),
        pytest.param("aggregate product", {"group_by": ["added_on:month"]}, id="bucket"),
        pytest.param("aggregate order line", {"group_by": ["product.color"]}, id="group by a path"),
        *(
            pytest.param(
                f"aggregate {name}", {"measures": [{"function": each, "column": at}]}, id=f"{each} {at}"
            )
            for each in ("count", "count_distinct", "sum", "avg", "min", "max")
            for name, at in (("product", "price"), ("order line", PRICE))
        ),
        pytest.param(
            "aggregate product",
            {"where": [{"column": "price", "value": "1"}]},
            id="condition of an aggregate",
        ),
    ],
)
def test_masked_column_is_shown_and_nothing_else(tool: str, arguments: dict[str, object]) -> None:
    tools = define(Setting(catalog=LENS))
    if tool.startswith("aggregate "):
        measures = {"measures": [{"function": "count"}]}
        arguments = {"table": tool.removeprefix("aggregate "), **measures, **arguments}
        tool = "aggregate_rows"
    with pytest.raises(errors.CallError) as refused:
        tools[tool].bind(arguments)

    assert refused.value.code in ("bad_operator", "bad_argument")


def test_masked_column_is_read_by_its_name_and_along_paths() -> None:
    tools = define(Setting(catalog=LENS))
    own = tools["list_product"].bind({"columns": ["price"]}).statement
    distant = tools["list_order_line"].bind({"columns": [PRICE]}).statement

    assert own is not None
    assert distant is not None
    assert own.shape.outputs[0].term.type.mask is Mask.PARTIAL
    assert distant.shape.outputs[0].term.type.mask is Mask.PARTIAL


@pytest.mark.parametrize(
    "masks", [{"id": Mask.HASH}, {each.name: Mask.NULL for each in PRODUCT.columns}], ids=["key", "all"]
)
def test_masked_column_is_in_no_order_and_so_in_no_cursor(masks: dict[str, Mask]) -> None:
    tools = define(Setting(catalog=_granted(SHOP, product=Grant(masks=masks))))
    statement = tools["list_product"].bind({}).statement

    assert "get_product" not in tools
    assert statement is not None
    assert [step.term.name for step in select_of(statement).order if step.term.type.mask is not None] == []


def test_table_that_may_not_be_aggregated_is_listed_only() -> None:
    tools = define(Setting(catalog=LENS))
    count = {"measures": [{"function": "count"}]}

    with pytest.raises(errors.Denied):
        tools["aggregate_rows"].bind({"table": "sale", **count})
    assert tools["list_sale"].bind({}).statement is not None
    assert tools["aggregate_rows"].bind({"table": "product", **count}).statement is not None


@pytest.mark.parametrize("function", ["count", "count_distinct", "sum", "avg", "min", "max"])
def test_table_that_may_not_be_aggregated_is_not_along_a_path_either(function: str) -> None:
    catalog = _granted(SHOP, **{"order line": Grant(), "product": Grant(aggregate=False)})
    tool = define(Setting(catalog=catalog))["aggregate_rows"]
    measures = [{"function": function, "column": PRICE}]

    with pytest.raises(errors.Denied):
        tool.bind({"table": "order line", "measures": measures})


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"group_by": [PRICE]}, id="group"),
        pytest.param({"group_by": [f"{PRICE}:month"]}, id="bucket"),
        pytest.param({"where": [{"column": PRICE, "value": "1"}]}, id="condition"),
        pytest.param({"where": [{"column": PRICE, "op": "is_null", "value": "false"}]}, id="null"),
    ],
)
def test_rows_that_may_not_be_aggregated_are_not_counted_along_a_path(arguments: dict[str, object]) -> None:
    """Where each order line has one product, and each product one line, they would be counted."""
    catalog = _granted(SHOP, **{"order line": Grant(), "product": Grant(aggregate=False)})
    tool = define(Setting(catalog=catalog))["aggregate_rows"]

    with pytest.raises(errors.Denied):
        tool.bind({"table": "order line", "measures": [{"function": "count"}], **arguments})


TABLE_NAMES = ("item", "Item", "order line", "order_line", "person", "x.y")
SCHEMAS = ("main", "old")
COLUMN_NAMES = ("id", "name", "item", "item_id", "personId", "person", "size", "a:b")
FAMILIES = (Family.INTEGER, Family.TEXT, Family.DATE, Family.ENUM, Family.JSON, Family.DECIMAL)


def _masked_column(name: str, mask: Mask) -> Column:
    type = ColumnType(
        family=Family.TEXT, name="masked", equatable=False, ordered=False, large=True, mask=mask
    )
    return Column(name=name, type=type)


@st.composite
def columns_of(draw: st.DrawFn) -> tuple[list[Column], dict[str, Column], list[Column]]:
    """Draw columns that a role sees, of which some stand for others by name, and columns that it does not."""
    names = draw(st.lists(st.sampled_from(COLUMN_NAMES), unique=True, min_size=1))
    plain: list[Column] = []
    masked: dict[str, Column] = {}
    hidden: list[Column] = []
    for name in names:
        stored = column(name, draw(st.sampled_from(FAMILIES)), nullable=draw(st.booleans()))
        match draw(st.sampled_from(["plain", "plain", "masked", "hidden"])) if plain else "plain":
            case "masked":
                masked[name] = replace(stored, choices=("canary",), default="canary")
            case "hidden":
                hidden.append(replace(stored, comment="canary"))
            case _:
                plain.append(stored)
    return plain, masked, hidden


@st.composite
def views(draw: st.DrawFn) -> tuple[Catalog, Catalog, Role]:
    """Draw a small catalog, a larger one that hides more behind it, and the role that sees only the small."""
    small: list[Table] = []
    large: list[Table] = []
    rules: list[Rule] = []
    places = st.tuples(st.sampled_from(SCHEMAS), st.sampled_from(TABLE_NAMES))
    for schema, name in sorted(draw(st.lists(places, unique=True, max_size=5))):
        plain, masked, hidden = draw(columns_of())
        masks = {each: draw(st.sampled_from(Mask)) for each in masked}
        shown = [*plain, *(_masked_column(each, masks[each]) for each in masked)]
        stored = [*plain, *masked.values()]
        order = draw(st.permutations(range(len(shown))))
        shown, stored = [shown[at] for at in order], [stored[at] for at in order]
        for each in hidden:
            stored.insert(draw(st.integers(0, len(stored))), each)
        filtered, seen = draw(st.booleans()), draw(st.integers(0, 3)) > 0
        whole = not (filtered or masked or hidden)
        base = Table(name=name, schema=schema, columns=tuple(shown), row_estimate=9)
        keyed = draw(st.lists(st.sampled_from(plain), unique=True, max_size=2))
        keys = tuple(Key(columns=(each.name,), primary=each is keyed[0]) for each in keyed)
        secret = tuple(Key(columns=(plain[0].name, each.name)) for each in (*masked.values(), *hidden))
        large.append(
            replace(
                base,
                columns=tuple(stored),
                keys=tuple(draw(st.permutations((*secret, *keys)))),
                row_identifier="rowid",
            )
        )
        kept = tuple(key for key in large[-1].keys if key in keys)
        estimate, identifier = None if filtered else 9, "rowid" if whole else None
        if seen:
            small.append(replace(base, keys=kept, row_estimate=estimate, row_identifier=identifier))
        by_name = Grant(columns=tuple(each.name for each in shown))
        by_exclusion = Grant(exclude=tuple(each.name for each in hidden))
        grant = replace(draw(st.sampled_from([by_name, by_exclusion])), masks=masks)
        grant = replace(grant, filter=FILTER if filtered else None)
        if seen or draw(st.booleans()):
            rules.append(Rule(pattern=f"{schema}.{name}", grant=grant if seen else None))
    return draw(_related(small, large, rules))


@st.composite
def _related(
    draw: st.DrawFn, small: list[Table], large: list[Table], rules: list[Rule]
) -> tuple[Catalog, Catalog, Role]:
    """Draw foreign keys between the tables: in the small catalog those of which every column is plain."""
    plain = {
        (each.schema, each.name): {one.name for one in each.columns if one.type.mask is None}
        for each in small
    }
    keys: dict[tuple[str, str], list[ForeignKey]] = {}
    for source in large:
        for target in draw(st.lists(st.sampled_from(large), max_size=2)) if large else []:
            here, there = draw(st.sampled_from(source.columns)), draw(st.sampled_from(target.columns))
            key = ForeignKey(
                columns=(here.name,),
                target_schema=target.schema,
                target=target.name,
                target_columns=(there.name,),
            )
            keys.setdefault((source.schema, source.name), []).append(key)

    def shown(table: Table) -> tuple[ForeignKey, ...]:
        place = (table.schema, table.name)
        return tuple(
            key
            for key in keys.get(place, ())
            if plain[place].issuperset(key.columns)
            and plain.get((key.target_schema, key.target), set()).issuperset(key.target_columns)
        )

    narrow = tuple(replace(each, foreign_keys=shown(each)) for each in small)
    wide = tuple(replace(each, foreign_keys=tuple(keys.get((each.schema, each.name), ()))) for each in large)
    rest = draw(st.sampled_from([(), (Rule(pattern="*", grant=None),)]))
    return (
        Catalog(tables=narrow, default_schema="main"),
        Catalog(
            tables=wide,
            default_schema="main",
            warnings=("canary",),
            posture=("canary",),
            unreadable={("main", "canary"): ("canary",)},
        ),
        _role(*draw(st.permutations([*rules, *rest]))),
    )


def _told(tools: Toolset) -> dict[str, object]:
    """Return all that *tools* tell without reading a row: definitions, descriptions and complaints."""
    told: dict[str, object] = {name: tool_content(tool.definition) for name, tool in tools.items()}
    told["all"] = tools["list_tables"].bind({}).render(NOTHING).structured
    told["full"] = tools["describe_tables"].bind({"detail": "full"}).render(NOTHING).structured
    for name in (*TABLE_NAMES, "old.item", "main.person", "nothing"):
        for each in (*COLUMN_NAMES, "item.name", "person.size", "item_id.person.name", "rowid"):
            try:
                call = tools["list_rows"].bind({"table": name, "columns": [each], "order_by": [each]})
                told[f"{name} {each}"] = (
                    [output.term.name for output in call.statement.shape.outputs]
                    if (call.statement)
                    else None
                )
            except errors.CallError as exc:
                told[f"{name} {each}"] = f"{exc.code}: {exc}"
    return told


@given(drawn=views())
def test_role_is_told_what_a_database_would_tell_that_has_only_what_it_sees(
    drawn: tuple[Catalog, Catalog, Role],
) -> None:
    small, large, role = drawn
    told = _told(define(Setting(catalog=restrict(large, role))))

    assert told == _told(define(Setting(catalog=small)))
    assert "canary" not in str(told)


#: A login that may select neither all of `orders` nor anything of two other tables.
NARROW = Catalog(
    tables=(
        table(ID, column("total"), column("note"), name="orders", schema="main"),
        table(ID, name="staff", schema="old"),
    ),
    default_schema="main",
    unreadable={
        ("main", "orders"): ("margin", "cost"),
        ("main", "secret"): ("id", "value"),
        ("main", "staff"): ("id", "pay"),
    },
)
HERE = Source(file="dbtools.toml", line=7)


def _vetted(pattern: str, grant: Grant | None) -> tuple[Role, list[tuple[str, str]]]:
    """Return the role with this rule as it can be served, and the code and the level of what is wrong."""
    role, findings = vetted(NARROW, _role(Rule(pattern=pattern, grant=grant, source=HERE)))
    assert all(finding.source == HERE for finding in findings)
    return role, [(finding.code, finding.level) for finding in findings]


@pytest.mark.parametrize(
    ("pattern", "grant"),
    [
        pytest.param("secret", None, id="denied table"),
        pytest.param("sec*", None, id="denied pattern"),
        pytest.param("orders", Grant(exclude=("margin", "cost")), id="excluded"),
        pytest.param("orders", Grant(columns=("id", "total")), id="not among the columns"),
        pytest.param("orders", Grant(exclude=("cost",), masks={"margin": Mask.REDACT}), id="masked blank"),
        pytest.param("orders", Grant(columns=("id", "cost"), masks={"cost": Mask.NULL}), id="shown as null"),
        pytest.param("*", Grant(), id="all tables"),
        pytest.param("*", Grant(exclude=("pay",)), id="excluded of all tables"),
        pytest.param("s*", Grant(), id="pattern"),
    ],
)
def test_rule_may_hide_what_the_login_may_not_select(pattern: str, grant: Grant | None) -> None:
    role, found = _vetted(pattern, grant)

    assert found == []
    assert role.rules is not None
    assert role.rules[0].grant == grant


@pytest.mark.parametrize(
    ("pattern", "grant"),
    [
        pytest.param("secret", Grant(), id="table"),
        pytest.param("main.secret", Grant(columns=("value",)), id="column of such a table"),
        pytest.param("orders", Grant(), id="all columns"),
        pytest.param("orders", Grant(columns=("id", "margin")), id="column"),
        pytest.param("orders", Grant(exclude=("cost",)), id="column that is left"),
        pytest.param("orders", Grant(exclude=("cost",), masks={"margin": Mask.HASH}), id="hashed column"),
        pytest.param("o*", Grant(columns=("id", "margin")), id="column of a pattern"),
    ],
)
def test_grant_of_what_the_login_may_not_select_is_told_and_stands(pattern: str, grant: Grant) -> None:
    role, found = _vetted(pattern, grant)

    assert found == [("unreadable", "warning")]
    assert role.rules is not None
    assert role.rules[0].grant == grant


def test_grant_that_another_rule_overrules_is_not_told() -> None:
    rules = (Rule(pattern="o*", grant=Grant(columns=("margin", "id"))), Rule(pattern="orders", grant=None))

    assert vetted(NARROW, _role(*rules))[1] == ()


def test_name_that_is_nowhere_is_unknown_still() -> None:
    assert _vetted("secrets", None)[1] == [("unknown_table", "error")]
    assert _vetted("orders", Grant(exclude=("margins",)))[1] == [("unknown_column", "error")]


def test_name_means_the_same_whatever_the_login_may_select() -> None:
    """The bare name is also that of a table which cannot be read."""
    bare, findings = vetted(NARROW, _role(Rule(pattern="staff", grant=Grant())))
    qualified, _ = vetted(NARROW, _role(Rule(pattern="old.staff", grant=Grant())))

    assert [each.code for each in findings] == ["ambiguous_table"]
    assert restrict(NARROW, bare).tables == ()
    assert [each.name for each in restrict(NARROW, qualified).tables] == ["staff"]


@pytest.mark.parametrize("rules", [None, (Rule(pattern="*", grant=Grant()),)])
def test_role_sees_nothing_of_what_the_login_may_not_select(rules: tuple[Rule, ...] | None) -> None:
    seen = restrict(NARROW, Role(rules=rules))

    assert [(each.name, *each.column_by_name) for each in seen.tables] == [
        ("orders", "id", "total", "note"),
        ("staff", "id"),
    ]
    assert (seen.unreadable, seen.whole) == ({}, seen)


def test_column_of_which_nothing_is_read_is_shown_masked_whatever_the_login_may_select() -> None:
    masks = {"margin": Mask.REDACT, "cost": Mask.HASH, "note": Mask.NULL}
    seen = restrict(NARROW, _role(Rule(pattern="orders", grant=Grant(masks=masks))))
    found = {name: each.type.mask for name, each in seen.tables[0].column_by_name.items()}

    assert found == {"id": None, "total": None, "note": Mask.NULL, "margin": Mask.REDACT}
