"""A role sees what it would see of a database that has only what the role may see."""

from dataclasses import replace

from hypothesis import given, strategies as st

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Table
from dbtools.tools import define
from dbtools.tools.definition import ToolContext, Toolset, tool_content
from dbtools.values.types import ColumnType, Family, Mask
from tests.calls import answered, statement_of
from tests.unit.granted import FILTER, role_of
from tests.unit.shop import column

NOTHING = ResultSet(outputs=(), rows=())


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
        role_of(*draw(st.permutations([*rules, *rest]))),
    )


def _told(tools: Toolset) -> dict[str, object]:
    """Return all that *tools* tell without reading a row: definitions, descriptions and complaints."""
    told: dict[str, object] = {name: tool_content(tool.definition) for name, tool in tools.items()}
    told["all"] = answered(tools["list_tables"].bind({})).structured
    told["full"] = answered(tools["describe_tables"].bind({"detail": "full"})).structured
    for name in (*TABLE_NAMES, "old.item", "main.person", "nothing"):
        for each in (*COLUMN_NAMES, "item.name", "person.size", "item_id.person.name", "rowid"):
            try:
                call = tools["list_rows"].bind({"table": name, "columns": [each], "order_by": [each]})
                outputs = statement_of(call).shape.outputs
                told[f"{name} {each}"] = [output.term.name for output in outputs]
            except errors.CallError as exc:
                told[f"{name} {each}"] = f"{exc.code}: {exc}"
    return told


@given(drawn=views())
def test_role_sees_the_same_as_in_a_database_with_only_what_it_may_see(
    drawn: tuple[Catalog, Catalog, Role],
) -> None:
    small, large, role = drawn
    told = _told(define(ToolContext(catalog=restrict(large, role))))

    assert told == _told(define(ToolContext(catalog=small)))
    assert "canary" not in str(told)
