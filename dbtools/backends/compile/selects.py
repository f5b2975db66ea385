"""Compile shapes with SQLAlchemy Core, for every database. A shape and a Grammar in, a Compiled out.

Identifiers come from the catalog and are always quoted; values are always bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from dbtools.backends.compile.pages import is_after
from dbtools.backends.compile.sources import (
    PYTHON_OPERATORS,
    SEEN,
    Element,
    Grammar,
    Truth,
    column_of,
    documents_of,
    same_key,
    source,
    without_json_space,
)
from dbtools.backends.compiled import Compiled
from dbtools.errors import BadArgument
from dbtools.expressions.terms import (
    Bucketed,
    Calculation,
    Function,
    Literal,
    Measure,
    Rank,
    Related,
    Term,
    text_index_of,
)
from dbtools.schema.catalog import Column, Table, TableKind, TextIndex
from dbtools.schema.paths import PathColumn, Relation
from dbtools.statements.select import (
    AnyOf,
    Clause,
    Condition,
    Direction,
    Existence,
    Match,
    Order,
    Select,
    Shape,
)
from dbtools.statements.write import Write
from dbtools.values.types import ORDER, TEXTUAL, ColumnType, Family, Operator

MOST_RELATED = 10  #: subqueries on related rows
MOST_JOINS = 30  #: with more, planning takes too long, and one database allows at most 64
CLAIM = ColumnType(family=Family.OTHER, name="claim")
LIMIT = sa.bindparam("limit", type_=sa.BigInteger)
OWN = "t"  #: the alias of the table of a shape
NOT_TIED: Mapping[str, Element] = {}


class Terms:
    """The terms of one shape as SQL, and the FROM clause that they need."""

    def __init__(
        self,
        table: Table,
        grammar: Grammar,
        shape: Select,
        *,
        claims: dict[str, str],
        alias: str = OWN,
        tied: Mapping[str, Element] = NOT_TIED,
    ) -> None:
        self._grammar = grammar
        self._shape = shape
        self._claims = claims  #: by the parameters of row filters
        self._own = table
        self._alias = alias
        self._table = self._source(table, alias, tied)
        self._related = 0
        self._subqueries: dict[Related, Element] = {}
        self._joined: dict[tuple[Relation, ...], sa.FromClause] = {}
        self.same: Sequence[Truth] = ()  #: in a subquery: what ties its rows to a row of the outer statement
        self.outer: sa.FromClause | None = None
        self.clause: sa.FromClause = self._table  #: complete once every term has been compiled

    @property
    def is_view(self) -> bool:
        """Whether the rows are those of a view, which has no index."""
        return self._own.kind is TableKind.VIEW

    def __getitem__(self, term: Term) -> Element:
        """Return the expression of *term*, and join the tables of its path."""
        match term:
            case Column():
                return column_of(self._table, term.name)
            case PathColumn():
                return column_of(self._table_at(term.path), term.column.name)
            case Bucketed():
                return self._grammar.bucket(self[term.place], term.place.type, term.bucket)
            case Literal():
                return self._grammar.value(term.parameter, term.type)
            case Calculation():
                return self._grammar.calculation_sql(term, [self[each] for each in term.operands])
            case Related():
                # Only once, since PostgreSQL does not recognize two equal subqueries as the same group.
                if term not in self._subqueries:
                    inner = self._related_terms(term.relation, inside=True)
                    value = inner[term.measure]
                    self._subqueries[term] = inner.correlate(sa.select(value)).scalar_subquery()
                return self._subqueries[term]
            case Measure():
                return self._measure(term)
            case Rank():
                return self._grammar.rank(*self.document(term.place), term.parameter)

    def all_of(self, clauses: Sequence[Clause], match: Match) -> Truth:
        """Return whether all or any of *clauses* hold."""
        return self.all_or_any([self._clause(each) for each in clauses], match)

    def _clause(self, clause: Clause) -> Truth:
        match clause:
            case Condition():
                return _condition(clause, self, self._grammar)
            case AnyOf():
                return sa.or_(sa.false(), *map(self._clause, clause.conditions))
            case Existence():
                inner = self._related_terms(clause.relation, inside=False)
                met = [inner.all_of(clause.conditions, clause.match)] if clause.conditions else []
                found: Truth = inner.correlate(sa.select(sa.literal_column("1")).where(*met)).exists()
                return found if clause.wanted else sa.not_(found)

    def _related_terms(self, relation: Relation, *, inside: bool) -> "Terms":
        """Return the terms of the rows to which *relation* leads back, for a subquery.

        *inside*: compare their key inside a barrier, so that each row finds its related rows by an index.
        Without that, a database can join all conditions on related rows in one pass.
        """
        self._related += 1
        if self._related > MOST_RELATED:
            raise BadArgument(f"More than {MOST_RELATED} related tables in one call.", hint="Name fewer.")
        key = relation.foreign_key
        pairs = zip(key.columns, key.target_columns, strict=True)
        tied = {here: column_of(self._table, there) for here, there in pairs}
        inner = Terms(
            relation.target,
            self._grammar,
            self._shape,
            claims=self._claims,
            alias=f"{self._alias.replace('t', '')}r{self._related}",
            tied=tied if inside else NOT_TIED,
        )
        inner.outer = self._table
        # The target comes first, because its collation must apply.
        inner.same = [inner._equals(there, inner._table, here) for here, there in tied.items()]
        return inner

    def _equals(self, target: Element, source: sa.FromClause, name: str, table: Table | None = None) -> Truth:
        """Return whether *target* equals the column *name* of *table* in *source*, which refers to it."""
        type = (table or self._own).column_by_name[name].type
        return same_key(target, column_of(source, name), type, self._grammar)

    def correlate(self, select: Any) -> Any:
        """Return *select* from the tables of these terms, restricted to rows that refer to the outer row."""
        return select.select_from(self.clause).where(*self.same).correlate(self.outer)

    def all_or_any(self, conditions: Sequence[Truth], match: Match) -> Truth:
        """Return whether all or any of *conditions* hold; with a barrier, hidden rows are not evaluated."""
        if self._own.filter is None or not self._grammar.barrier:
            return sa.and_(*conditions) if match is Match.ALL else sa.or_(*conditions)
        # AND and OR may evaluate both sides.
        *others, lazy = conditions
        for each in reversed(others):
            lazy = sa.case((each, lazy)) if match is Match.ALL else sa.case((each, sa.true()), else_=lazy)
        # A join with a table at the end of a path sees only the rows that its filter shows.
        return sa.case((column_of(self._table, SEEN), lazy))

    def _measure(self, measure: Measure) -> Element:
        if measure.place is None:
            return sa.func.count()
        column = self[measure.place]
        match measure.function:
            case Function.COUNT:
                return sa.func.count(column)
            case Function.COUNT_DISTINCT:
                return sa.func.count(sa.distinct(self._grammar.equal_form(column, measure.place.type)))
            case function:
                return self._grammar.measure(function, column, measure.place.type)

    def _source(self, table: Table, alias: str, tied: Mapping[str, Element] = NOT_TIED) -> sa.FromClause:
        needs_barrier, searched = table.needs_barrier or self._shape.raises, self._shape.searches
        # Comparing a key raises no error, unless a filter may raise one, or a view computes the key.
        computed = table.needs_barrier or table.kind is TableKind.VIEW
        tied = NOT_TIED if computed or self._grammar.barrier else tied
        grammar, claims = self._grammar, self._claims
        versioned = alias == OWN and any(each.term == grammar.version for each in self._shape.outputs)
        return source(
            table,
            alias,
            grammar,
            claims,
            needs_barrier=needs_barrier,
            tied=tied,
            searched=searched,
            versioned=versioned,
        )

    def document(self, place: Term) -> tuple[Element, TextIndex]:
        """Return what the full-text index of *place* searches, and the index."""
        path, index = place.path if isinstance(place, PathColumn) else (), text_index_of(place)
        assert index is not None
        name = documents_of(path[-1].target if path else self._own)[index.document]
        return column_of(self._table_at(path), name), index

    def _table_at(self, path: tuple[Relation, ...]) -> sa.FromClause:
        """Return the table at the end of *path*, joining it once."""
        if not path:
            return self._table
        if path not in self._joined:
            if len(self._joined) == MOST_JOINS:
                raise BadArgument(
                    f"Paths through more than {MOST_JOINS} tables in one call.", hint="Name fewer."
                )
            before = self._table_at(path[:-1])
            alias = f"{self._alias.replace('t', '')}j{len(self._joined) + 1}"
            target = self._source(path[-1].target, alias)
            key = path[-1].foreign_key
            pairs = zip(key.target_columns, key.columns, strict=True)
            # The target comes first, because its collation must apply.
            own = path[-2].target if path[:-1] else self._own
            same = [self._equals(column_of(target, there), before, here, own) for there, here in pairs]
            self.clause = self.clause.outerjoin(target, sa.and_(*same))
            self._joined[path] = target
        return self._joined[path]


def compile_select(shape: Select, grammar: Grammar) -> Compiled:
    """Return the SQL of *shape* in *grammar*."""
    claims: dict[str, str] = {}
    found = select_of(shape, grammar, claims).limit(LIMIT)
    return plan_of(shape, found, grammar, *bindings_of(shape), claims)


def bindings_of(shape: Select) -> tuple[Mapping[str, ColumnType], frozenset[str]]:
    """Return the types of the parameters of *shape*, and which of them are lists."""
    types = dict(shape.literals)
    types |= {name: each.type for each in shape.comparisons for name in each.parameters}
    types |= {name: step.term.type for step, name in zip(shape.order, shape.after, strict=False) if name}
    listing = (each for each in shape.comparisons if each.operator in LISTS)
    return types, frozenset(name for each in listing for name in each.parameters)


def select_of(shape: Select, grammar: Grammar, claims: dict[str, str]) -> sa.Select[Any]:
    """Return *shape* in *grammar*, without a limit; add the parameters of row filters to *claims*."""
    terms = Terms(shape.table, grammar, shape, claims=claims)
    groups: dict[Term, Element] = {term: grammar.equal_form(terms[term], term.type) for term in shape.groups}
    cells = [] if shape.counting else [(groups.get(each.term), each) for each in shape.outputs]
    read = [grammar.cell(terms[each.term] if group is None else group, each) for group, each in cells]
    select = sa.select(*cells_of(read)) if read else sa.select(sa.literal_column("1"))
    if shape.conditions:
        select = select.where(terms.all_of(shape.conditions, shape.match))
    if shape.after:
        order = [terms[step.term] for step in shape.order]
        select = select.where(terms.all_or_any([is_after(shape, order, grammar)], Match.ALL))
    select = select.distinct() if shape.distinct else select.group_by(*groups.values())
    if shape.having:
        select = select.having(*(_condition(each, terms, grammar) for each in shape.having))
    counted: sa.FromClause | None = None
    if shape.counting:
        counted = select.select_from(terms.clause).subquery("g")
        select = sa.select(sa.func.count().label("c0"))
    # ORDER BY may use the label of a computed output that is read whole.
    named = {output.term: f"c{at}" for at, output in enumerate(shape.outputs) if output.cut is None}
    ordered = [_order_by(step, terms, grammar, named) for step in shape.order]
    if shape.order and not (shape.groups or shape.skip or shape.counting):
        select = _with_window(select, shape.order[0], terms, grammar, LIMIT)
    elif end := _end_of(shape):
        select = _with_window(select, end, terms, grammar, sa.literal_column("1"))
    select = select.order_by(*ordered)
    if shape.skip:
        select = select.offset(sa.bindparam("skip", type_=sa.BigInteger))
    return select.select_from(terms.clause if counted is None else counted)


def _end_of(shape: Select) -> Order | None:
    """Return the order whose first row has the only output of *shape*: the least or greatest of a column."""
    term = shape.outputs[0].term
    if len(shape.outputs) > 1 or shape.groups or shape.having or not isinstance(term, Measure):
        return None
    directions = {Function.MIN: Direction.ASC, Function.MAX: Direction.DESC}
    direction = directions.get(term.function)
    return Order(term.place, direction) if term.place is not None and direction is not None else None


def _with_window(
    select: sa.Select[Any], step: Order, terms: Terms, grammar: Grammar, limit: Element
) -> sa.Select[Any]:
    """Return *select*, if possible without rows after the first *limit* ones in the order of *step*."""
    if not isinstance(step.term, Column) or grammar.barrier or terms.is_view:
        return select
    window = grammar.window(select.select_from(terms.clause), terms[step.term], step, limit)
    return select if window is None else select.where(window)


LISTS = (Operator.IN, Operator.NOT_IN)


def cells_of(read: Sequence[tuple[Element, ...]]) -> Iterator[Element]:
    """Yield the expressions *read* for each output: all values first, so that a row is a slice."""
    ordered = [value for value, *_ in read] + [other for _, *rest in read for other in rest]
    return (cell.label(f"c{at}") for at, cell in enumerate(ordered))


def plan_of(
    shape: Shape | Write,
    statement: Any,
    grammar: Grammar,
    types: Mapping[str, ColumnType],
    lists: frozenset[str],
    claims: Mapping[str, str],
) -> Compiled:
    """Return *statement*, the SQL of *shape*, compiled; its parameters have *types*, and some are *lists*."""
    compiled = statement.compile(dialect=grammar.dialect)
    # Values that SQLAlchemy binds, such as the OFFSET 0 that one database needs after LIMIT.
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    return Compiled(
        shape=shape,
        sql=str(compiled),
        parameters=tuple(compiled.places),
        types={**types, **dict.fromkeys(claims, CLAIM)},
        lists=lists,
        constants=constants,
        claims=claims,
        one=grammar.driver_value,
        many=grammar.bound_list,
    )


def all_hold(conditions: Sequence[Condition], table: sa.FromClause, grammar: Grammar) -> Truth:
    """Return whether all *conditions* on columns of *table* hold."""
    columns = {each.term: column_of(table, each.term.name) for each in conditions}
    return sa.and_(sa.true(), *(_condition(each, columns, grammar) for each in conditions))


def _condition(condition: Condition, terms: "Terms | Mapping[Term, Element]", grammar: Grammar) -> Truth:
    operator = condition.operator
    if operator is Operator.MATCHES and isinstance(terms, Terms):
        return grammar.matches(*terms.document(condition.term), condition.parameters[0])
    type, column = condition.term.type, terms[condition.term]
    if condition.other is not None:
        other = terms[condition.other], condition.other.type
        return PYTHON_OPERATORS[operator](*grammar.comparable_pair((column, type), other))
    if operator is Operator.IS_NULL:
        return column.is_(sa.null()) if condition.wanted else column.is_not(sa.null())
    first = condition.parameters[0]
    if operator in LISTS:
        return grammar.member(column, first, type, negated=operator is Operator.NOT_IN)
    if operator is Operator.CONTAINS and type.family is Family.ARRAY and type.element is not None:
        return grammar.array_contains(column, first, type.element)
    if operator in TEXTUAL:
        searched = without_json_space(column) if type.family is Family.JSON else column
        return grammar.like(searched, first, operator, type)
    values = [grammar.value(name, type) for name in condition.parameters]
    if type.family is Family.ANY and operator in ORDER:
        half = len(values) // 2
        numbers, texts = (
            PYTHON_OPERATORS[operator](column, *values[:half]),
            PYTHON_OPERATORS[operator](column, *values[half:]),
        )
        return sa.case((grammar.is_text(column), texts), else_=numbers)
    return grammar.compare(operator, column, type, *values)


def _order_by(step: Order, terms: Terms, grammar: Grammar, named: Mapping[Term, str]) -> Element:
    term = step.term
    if not isinstance(term, Column | PathColumn) and term in named:
        column: Element = sa.literal_column(named[term])
    else:
        column = terms[term]
    column = grammar.sortable_form(column, term.type)
    ordered = column.asc() if step.direction is Direction.ASC else column.desc()
    return grammar.nulls_last(ordered) if term.nullable else ordered
