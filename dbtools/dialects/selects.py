"""Shapes into SQLAlchemy Core, for every dialect; what the dialects say differently is their Grammar.

Identifiers come from the catalog and are always quoted; values are always bound.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name

from dbtools.aggregates import Bucket, Bucketed, Function, Measure
from dbtools.catalog import Column, RowFilter, Table
from dbtools.column_types import ORDER, TEXTUAL, ColumnType, Family, Mask, Operator
from dbtools.dialects.driver import Plan
from dbtools.errors import BadArgument
from dbtools.paths import Distant, Relation
from dbtools.statement import After, Condition, Direction, Match, Order, Output, Select, Term

Element = sa.ColumnElement[Any]
Truth = sa.ColumnElement[bool]

MOST_JOINS = 30  #: more take a planner too long, and one database takes no more than 64
CLAIM = ColumnType(family=Family.OTHER, name="claim")
#: What is shown of such a column is the same for all cells, and so no cell is read.
BLANK = (Mask.NULL, Mask.REDACT)
ESCAPE = "\\"


class Grammar(Protocol):
    """What the databases say differently."""

    @property
    def dialect(self) -> sa.Dialect:
        """What SQLAlchemy compiles for."""

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter *name*, a value of *type*."""

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Return whether *column* is (not) one of the list that the parameter *name* holds."""

    def like(self, column: Element, name: str) -> Truth:
        """Return whether the text of *column* is like the pattern that the parameter *name* holds."""

    def comparable(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in the form in which decoded values of *type* are written."""

    def is_text(self, column: Element) -> Truth:
        """Return whether the cell of *column*, which declares no type, holds a text."""

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Return whether the array *column* has the value of the parameter *name* among its items."""

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a claim of the caller, as the type that *cast* names."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Return what is read for *output*: its value, and its full length where it may be cut."""

    def sortable(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in a form that has an order."""

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Return the text that *bucket* makes of the dates of *column*, null for what is none."""

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Return *function*, any but a count, over the values of *column*."""


class Terms:
    """The terms of one shape as SQL, and the tables that they are read from."""

    def __init__(self, table: Table, grammar: Grammar) -> None:
        self._grammar = grammar
        self.claims: dict[str, str] = {}  #: by the parameters of row filters
        self._table = self._source(table, "t")
        self._joined: dict[tuple[Relation, ...], sa.FromClause] = {}
        self.clause: sa.FromClause = self._table  #: once every term has been asked for

    def __getitem__(self, term: Term) -> Element:
        """Return the expression of *term*; a path joins what it leads through."""
        match term:
            case Column():
                return _column(self._table, term)
            case Distant():
                return _column(self._along(term.path), term.column)
            case Bucketed():
                return self._grammar.bucket(self[term.place], term.place.type, term.bucket)
            case Measure():
                return self._measure(term)

    def _measure(self, measure: Measure) -> Element:
        if measure.place is None:
            return sa.func.count()
        column = self[measure.place]
        match measure.function:
            case Function.COUNT:
                return sa.func.count(column)
            case Function.COUNT_DISTINCT:
                return sa.func.count(sa.distinct(column))
            case function:
                return self._grammar.measure(function, column, measure.place.type)

    def _source(self, table: Table, alias: str) -> sa.FromClause:
        return source(table, alias, self._grammar, self.claims)

    def _along(self, path: tuple[Relation, ...]) -> sa.FromClause:
        """Return the table that *path* leads to, joined where no other term has joined it."""
        if not path:
            return self._table
        if path not in self._joined:
            if len(self._joined) == MOST_JOINS:
                raise BadArgument(
                    f"Paths through more than {MOST_JOINS} tables in one call.", hint="Name fewer."
                )
            before = self._along(path[:-1])
            target = self._source(path[-1].target, f"j{len(self._joined) + 1}")
            key = path[-1].foreign_key
            pairs = zip(key.target_columns, key.columns, strict=True)
            # The target stands first: its collation tells its rows apart.
            same = [_named(target, there) == _named(before, here) for there, here in pairs]
            self.clause = self.clause.outerjoin(target, sa.and_(*same))
            self._joined[path] = target
        return self._joined[path]


def compile_select(shape: Select, grammar: Grammar) -> Plan:
    """Return the SQL of *shape* in *grammar*."""
    terms = Terms(shape.table, grammar)
    read = [grammar.cell(terms[output.term], output) for output in shape.outputs]
    # Values first, so that a row is a slice of what is read; behind them what is told of the values.
    cells = [value for value, *_ in read] + [told for _, *rest in read for told in rest]
    select = sa.select(*(cell.label(f"c{at}") for at, cell in enumerate(cells)))
    if shape.conditions:
        select = select.where(_conditions(shape.conditions, shape.match, terms, grammar))
    if shape.after:
        select = select.where(_after(shape.after, terms, grammar))
    select = select.group_by(*(terms[group] for group in shape.groups))
    if shape.having:
        select = select.having(_conditions(shape.having, Match.ALL, terms, grammar))
    # What is computed and read whole has a name in the answer, which an order may use.
    named = {output.term: f"c{at}" for at, output in enumerate(shape.outputs) if output.cut is None}
    for step in shape.order:
        select = select.order_by(_ordered(step, terms, grammar, named))
    select = select.limit(sa.bindparam("limit", type_=sa.BigInteger))
    if shape.skip:
        select = select.offset(sa.bindparam("skip", type_=sa.BigInteger))
    return _plan(shape, select.select_from(terms.clause), grammar, terms.claims)


LISTS = (Operator.IN, Operator.NOT_IN)


def _plan(shape: Select, select: Any, grammar: Grammar, claims: Mapping[str, str]) -> Plan:
    types = {name: each.term.type for each in shape.comparisons for name in each.parameters}
    types |= {each.parameter: each.order.term.type for each in shape.after if each.parameter}
    types |= dict.fromkeys(claims, CLAIM)
    lists = frozenset(
        name for each in shape.comparisons if each.operator in LISTS for name in each.parameters
    )
    compiled = select.compile(dialect=grammar.dialect)
    # What SQLAlchemy itself binds, such as the OFFSET 0 that one database wants behind a LIMIT.
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    return Plan(
        shape=shape,
        sql=STAND_IN.sub(_meant, str(compiled)),
        parameters=tuple(compiled.positiontup),
        types=types,
        lists=lists,
        constants=constants,
        claims=claims,
    )


def source(table: Table, alias: str, grammar: Grammar, claims: dict[str, str]) -> sa.FromClause:
    """Return *table* as every statement reads it: the one place where a row filter narrows it.

    The parameters of the filter are added to *claims*.
    """
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    whole = sa.table(quoted_name(table.name, quote=True), schema=schema)
    if table.filter is None and not any(column.type.mask in BLANK for column in table.columns):
        return whole.alias(alias)
    select = sa.select(*(_visible(whole, column) for column in table.columns)).select_from(whole)
    if table.filter is not None:
        select = select.where(Written(_pieces(table.filter, grammar, claims)))
    return select.subquery(alias)


def _visible(table: sa.FromClause, column: Column) -> Element:
    """Return *column* as a filtered table has it: without its cells where nothing of them is shown."""
    if column.type.mask in BLANK:
        return sa.null().label(quoted_name(column.name, quote=True))
    return _column(table, column)


def _pieces(filter: RowFilter, grammar: Grammar, claims: dict[str, str]) -> Iterator[str | Element]:
    casts = iter(filter.casts or repeat(""))
    for piece in filter.condition.pieces:
        if isinstance(piece, str):
            yield piece
        else:
            name = f"claim{len(claims)}"
            claims[name] = str(piece.claim)
            yield grammar.claim(name, next(casts))


class Written(sa.ColumnElement[bool]):
    """A condition as an operator wrote it, in parentheses, with parameters between its pieces."""

    inherit_cache = False

    def __init__(self, pieces: Iterable[str | Element]) -> None:
        self.pieces = tuple(pieces)


#: What stands for a piece of text while SQLAlchemy looks for marks of its own: the text's bytes in hex.
STAND_IN = re.compile("\x01([0-9a-f]*)\x01")


def _stand_in(text: str) -> str:
    return f"\x01{text.encode().hex()}\x01"


def _meant(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1]).decode()


@compiles(Written)
def _compile_written(element: Written, compiler: Any, **options: Any) -> str:
    written = (
        _stand_in(piece) if isinstance(piece, str) else compiler.process(piece, **options)
        for piece in element.pieces
    )
    # The parenthesis stands on a line of its own, where no comment swallows it.
    return f"({''.join(written)}\n)"


def _column(table: sa.FromClause, column: Column) -> Element:
    return _named(table, column.name)


def _named(table: sa.FromClause, name: str) -> Element:
    return sa.column(quoted_name(name, quote=True), _selectable=table)


def _conditions(wanted: Sequence[Condition], match: Match, terms: Terms, grammar: Grammar) -> Truth:
    conditions = [_condition(each, terms[each.term], grammar) for each in wanted]
    return sa.and_(*conditions) if match is Match.ALL else sa.or_(*conditions)


def _condition(condition: Condition, column: Element, grammar: Grammar) -> Truth:
    type = condition.term.type
    operator = condition.operator
    if operator is Operator.IS_NULL:
        return column.is_(sa.null()) if condition.wanted else column.is_not(sa.null())
    first = condition.parameters[0]
    if operator in LISTS:
        comparable = grammar.comparable(column, type)
        return grammar.member(comparable, first, type, negated=operator is Operator.NOT_IN)
    if operator is Operator.CONTAINS and type.family is Family.ARRAY and type.element is not None:
        return grammar.array_contains(column, first, type.element)
    if operator in TEXTUAL:
        return grammar.like(column, first)
    values = [grammar.value(name, type) for name in condition.parameters]
    if type.family is Family.ANY and operator in ORDER:
        half = len(values) // 2
        numbers = _compared(operator, column, values[:half])
        texts = _compared(operator, column, values[half:])
        return sa.case((grammar.is_text(column), texts), else_=numbers)
    return _compared(operator, grammar.comparable(column, type), values)


def _compared(operator: Operator, column: Element, values: list[Element]) -> Truth:
    match operator:
        case Operator.EQ:
            return column == values[0]
        case Operator.NE:
            return column != values[0]
        case Operator.LT:
            return column < values[0]
        case Operator.LTE:
            return column <= values[0]
        case Operator.GT:
            return column > values[0]
        case Operator.GTE:
            return column >= values[0]
        case Operator.BETWEEN:
            return column.between(values[0], values[1])
        case _:
            raise AssertionError(operator)


def pattern(operator: Operator, text: str) -> str:
    """Return the LIKE pattern that finds *text* itself, whatever characters it has."""
    escaped = text.replace(ESCAPE, ESCAPE * 2).replace("%", ESCAPE + "%").replace("_", ESCAPE + "_")
    before = "" if operator is Operator.STARTS_WITH else "%"
    after = "" if operator is Operator.ENDS_WITH else "%"
    return f"{before}{escaped}{after}"


def driver_values(
    plan: Plan,
    values: Mapping[str, object],
    limit: int,
    one: Callable[[object, ColumnType], object],
    many: Callable[[Sequence[object], ColumnType], object],
) -> tuple[object, ...]:
    """Return *values* in the order of *plan*'s parameters, each as *one* or *many* write it for the driver.

    One row more than *limit* is asked for, so that whether there are more is a fact.
    """
    bound = {"limit": limit + 1, **plan.constants, **values}
    like = _patterns(plan.shape)

    def write(name: str) -> object:
        value = bound[name]
        if name in like:
            return pattern(like[name], str(value))
        if name in plan.lists and isinstance(value, list):
            return many(value, plan.types[name])
        return one(value, plan.types[name]) if name in plan.types else value

    return tuple(write(name) for name in plan.parameters)


def _patterns(shape: Select) -> Mapping[str, Operator]:
    """Return the parameters of *shape* that are patterns, with their operators."""
    return {
        each.parameters[0]: each.operator
        for each in shape.comparisons
        if each.operator in TEXTUAL and each.term.type.family is not Family.ARRAY
    }


def _ordered(step: Order, terms: Terms, grammar: Grammar, named: Mapping[Term, str]) -> Element:
    term = step.term
    if isinstance(term, Bucketed | Measure) and term in named:
        column: Element = sa.literal_column(named[term])
    else:
        column = grammar.sortable(terms[term], term.type)
    ordered = column.asc() if step.direction is Direction.ASC else column.desc()
    return ordered.nulls_last() if term.nullable else ordered


def _after(steps: tuple[After, ...], terms: Terms, grammar: Grammar) -> Truth:
    """Return the condition that a row comes after the one whose values *steps* hold.

    A row comparison where it means the same, since one index serves it whole; else one alternative a step,
    with a bound on the first column in front that an index can use.
    """
    plain = all(step.parameter and not step.order.term.nullable for step in steps)
    if plain and len(steps) > 1 and len({step.order.direction for step in steps}) == 1:
        row = sa.tuple_(*(terms[step.order.term] for step in steps))
        values = sa.tuple_(*(_last(step, grammar) for step in steps))
        return row > values if steps[0].order.direction is Direction.ASC else row < values
    alternatives = [
        sa.and_(
            *(_same(step, terms, grammar) for step in steps[:at]),
            _beyond(steps[at], terms, grammar),
        )
        for at in range(len(steps))
    ]
    bound = [_from(steps[0], terms, grammar)] if len(steps) > 1 and plain else []
    return sa.and_(*bound, sa.or_(*alternatives))


def _last(step: After, grammar: Grammar) -> Element:
    return grammar.value(str(step.parameter), step.order.term.type)


def _same(step: After, terms: Terms, grammar: Grammar) -> Truth:
    column = terms[step.order.term]
    return column.is_(sa.null()) if step.parameter is None else column == _last(step, grammar)


def _beyond(step: After, terms: Terms, grammar: Grammar) -> Truth:
    column = terms[step.order.term]
    if step.parameter is None:
        return sa.false()
    ascending = step.order.direction is Direction.ASC
    further: Truth = column > _last(step, grammar) if ascending else column < _last(step, grammar)
    return sa.or_(further, column.is_(sa.null())) if step.order.term.nullable else further


def _from(step: After, terms: Terms, grammar: Grammar) -> Truth:
    column = terms[step.order.term]
    last = _last(step, grammar)
    return column >= last if step.order.direction is Direction.ASC else column <= last
