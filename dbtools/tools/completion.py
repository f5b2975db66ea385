"""Values for the variables of resource templates: tables, keys that are stored, and columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import size
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE, key_text
from dbtools.policy import Limits
from dbtools.results import Budget, ResultSet
from dbtools.statement import Comparison, Condition, Order, Output, Select, Statement, bind_conditions
from dbtools.tools.definition import Setting
from dbtools.tools.get_row import key_arguments
from dbtools.types import Family, Operator, quoted

MOST_VALUES = 100  #: that the protocol allows (MCP, server/utilities/completion)
VARIABLES: Mapping[str, tuple[str, ...]] = {
    ROW_TEMPLATE: ("table", "key"),
    CELL_TEMPLATE: ("table", "key", "column"),
}
LONGEST = 400  #: characters that are read of a key


@dataclass(frozen=True, kw_only=True)
class Completed:
    """Values that begin as the caller has, the likeliest first."""

    values: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A request for values whose arguments have been read."""

    known: tuple[str, ...] = ()  #: where the catalog has the answer
    statement: Statement | None = None  #: what reads keys
    limits: Limits = field(default_factory=Limits)

    def render(self, found: ResultSet) -> Completed:
        """Return the values that the catalog, or the rows *found*, have."""
        keys = (key for row in found.rows if (key := _key(row)) is not None)
        values = self.known or tuple(keys)
        budget = Budget(limits=self.limits, reserved=0)
        shown = values[: budget.fitting(map(size, values[: _most(self.limits)]))]
        return Completed(values=shown, more=found.more or len(shown) < len(values))


def _most(limits: Limits) -> int:
    return min(MOST_VALUES, limits.max_rows)


def _key(row: Sequence[object]) -> str | None:
    """Return the key in *row* as an address has it, or None where an address cannot have it."""
    texts = [key_text(cell) for cell in row]
    if any(text is None or (len(texts) > 1 and "," in text) for text in texts):
        return None
    return ",".join(map(str, texts))


def bind_completion(
    setting: Setting, template: str, name: str, value: str, given: Mapping[str, str]
) -> Completion:
    """Return what completes *value* of the variable *name* of *template*; *given* are those before it."""
    variables = VARIABLES.get(template, ())
    if name not in variables:
        raise errors.UnknownArgument(
            f"{template} has no variable {quoted(name)}.", hint=f"Variables: {listing(variables) or 'none'}."
        )
    catalog = setting.catalog
    tables = catalog.tables if name == "table" else catalog.named(given.get("table", ""))
    keyed = [table for table in tables if key_arguments(table)]
    if name == "table":
        return Completion(known=_beginning(map(catalog.label, keyed), value), limits=setting.limits)
    if len(tables) != 1 or not keyed:
        return Completion(limits=setting.limits)
    if name == "column":
        return Completion(known=_beginning(keyed[0].column_by_name, value), limits=setting.limits)
    composite = len(keyed[0].key_columns()) > 1
    return _keys(setting, keyed[0], value.split(",") if composite else [value])


def _beginning(names: Iterable[str], value: str) -> tuple[str, ...]:
    """Return those of *names* that begin with *value*, then those that contain it."""
    low = value.lower()
    found = [name for name in names if low in name.lower()]
    return tuple(sorted(found, key=lambda name: not name.lower().startswith(low)))


def _keys(setting: Setting, table: Table, parts: list[str]) -> Completion:
    """Return what reads the keys of *table* that begin with *parts*, the last of which is unfinished."""
    columns = table.key_columns()
    if len(parts) > len(columns) or not all(map(_completes, columns)):
        return Completion(limits=setting.limits)
    before = [
        Comparison(column=column.name, value=part) for column, part in zip(columns, parts[:-1], strict=False)
    ]
    conditions, values = bind_conditions(setting.names(table), before)
    if parts[-1]:
        last = Condition(term=columns[len(parts) - 1], operator=Operator.STARTS_WITH, parameters=("start",))
        conditions, values = (*conditions, last), {**values, "start": parts[-1]}
    shape = Select(
        table=table,
        outputs=tuple(Output(term=column, cut=LONGEST) for column in columns),
        conditions=conditions,
        order=tuple(Order(term=column) for column in columns),
    )
    statement = Statement(shape=shape, values=values, limit=_most(setting.limits))
    return Completion(statement=statement, limits=setting.limits)


def _completes(column: Column) -> bool:
    return column.type.ordered and column.type.family not in (Family.BYTES, Family.ARRAY)
