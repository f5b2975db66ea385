"""What a role may change in a table. A table and a grant in; Writes, or what is wrong with the grant, out."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dbtools.catalog import Catalog, Column, Preset, RowFilter, Table, Writes, has_name
from dbtools.errors import Broken, ConstraintViolated, listing, nearest
from dbtools.types import Family, quoted

CLAIM = re.compile(r":claims\.(\w+)")  #: a preset or a setting that takes the value of a claim
LIKE_CLAIM = re.compile(r"^:\w|:claims?\.")
#: Values that callers cannot write as a text.
UNWRITABLE = (Family.OBJECT,)
Columns = bool | tuple[str, ...]  #: all that the role sees, none, or these


@dataclass(frozen=True, kw_only=True)
class WriteGrant:
    """What a role may change in one table, as configured."""

    insert: Columns = False  #: the columns that a caller may supply
    update: Columns = False
    delete: bool = False
    check: RowFilter | None = None
    preset: Mapping[str, object] = field(default_factory=dict)  #: by column: a literal, or :claims.NAME
    preset_update: Mapping[str, object] = field(default_factory=dict)
    max_affected: int | None = None


EVERYTHING = WriteGrant(insert=True, update=True, delete=True)


def writes_of(table: Table, shown: Table, grant: WriteGrant) -> tuple[Writes | None, tuple[str, ...]]:
    """Return what *grant* allows in *table*, of which a role sees *shown*; or None, and what is wrong.

    Where callers may update every column, they may not update those that are preset in new rows.
    """
    problems = tuple(_problems(table, shown, grant))
    if problems:
        return None, problems
    inserted = _supplied(table, shown, grant.insert, grant.preset)
    preset = grant.preset if grant.update is True else {}
    return (
        Writes(
            insert=None if grant.insert is False else inserted,
            update=_supplied(table, shown, grant.update, {**preset, **grant.preset_update}),
            delete=grant.delete,
            insert_presets=_presets(table, grant.preset),
            update_presets=_presets(table, grant.preset_update),
            check=grant.check,
            most=grant.max_affected,
            key=_key(table, shown),
        ),
        (),
    )


def all_writes(table: Table) -> Writes | None:
    """Return every possible change of *table*, for a role that sees everything."""
    if not table.identity:
        return None
    columns = _supplied(table, table, True, {})
    has_key = bool(table.keys)
    inserted = None if _missing(table, table, EVERYTHING) else columns
    updated = columns if has_key else ()
    return Writes(insert=inserted, update=updated, delete=has_key, key=_key(table, table))


def _key(table: Table, shown: Table) -> tuple[str, ...]:
    return tuple(each.name for each in table.key_columns if each.name in shown.column_by_name)


def named_in(condition: RowFilter | None, table: Table) -> list[str]:
    """Return the columns of *table*, which a role sees, that *condition* seems to name."""
    text = condition.condition.text if condition is not None else ""
    return [name for name in table.column_by_name if has_name(text, name)]


def explained(
    violated: ConstraintViolated, table: Table, catalog: Catalog, *, refers: bool
) -> ConstraintViolated:
    """Return *violated* in words for a change of *table* by a role that sees *catalog*.

    Name nothing that the role does not see. *refers*: whether the row was to get foreign keys.
    """
    kind, place = violated.kind, violated.table
    if not refers and kind is Broken.FOREIGN_KEY and place in (None, table.location):
        kind = Broken.REFERENCED
    is_own = place == table.location and set(violated.columns) <= set(table.column_by_name)
    named = listing(violated.columns) if is_own else ""
    if kind is Broken.REFERENCED:
        # Rows and foreign keys that the role does not see may be the reason.
        others = (each for each, _ in catalog.references(table) if each.filter is None and each != table)
        named = next((catalog.label(each) for each in others if each.location == place), "")
    message, hint = MESSAGES.get((kind, bool(named))) or MESSAGES[kind, False]
    if kind is Broken.FOREIGN_KEY and not named and table.foreign_keys:
        hint = f"Check {listing(name for key in table.foreign_keys for name in key.columns)}."
    message = message.format(table=catalog.label(table), columns=named)
    return ConstraintViolated(message, hint=hint)


#: The message and the hint, by the kind of the constraint, and whether its columns can be named.
MESSAGES: Mapping[tuple[Broken, bool], tuple[str, str]] = {
    (Broken.UNIQUE, True): ("{table} already has a row with this {columns}.", "Use another value."),
    (Broken.UNIQUE, False): ("A unique constraint of {table} is violated.", "Use other values."),
    (Broken.FOREIGN_KEY, True): ("{columns} refers to no existing row.", "Use the key of a row that exists."),
    (Broken.FOREIGN_KEY, False): ("A foreign key refers to no existing row.", ""),
    (Broken.REFERENCED, True): ("Rows of {columns} refer to this row.", "Change or delete those first."),
    (Broken.REFERENCED, False): ("Other rows refer to this row.", ""),
    (Broken.NOT_NULL, True): ("{columns} must not be null.", "Give it a value."),
    (Broken.NOT_NULL, False): ("A column that is not shown must not be null.", ""),
    (Broken.CHECK, True): ("A check of {table} does not allow this {columns}.", "Use another value."),
    (Broken.CHECK, False): ("A check of {table} does not allow these values.", "Use other values."),
    (Broken.EXCLUSION, False): ("{table} has a row that excludes this one.", "Use other values."),
    (Broken.TRIGGER, False): ("A trigger of the database refused the change.", ""),
    (Broken.UNKNOWN, False): ("A constraint of the database does not allow this change.", ""),
}


def claim_in(text: str) -> str | None:
    """Return the name of the claim that *text* is; None: a literal. Raise ValueError if it is unclear."""
    if claim := CLAIM.fullmatch(text):
        return claim[1]
    if LIKE_CLAIM.search(text):
        raise ValueError("a claim must be the whole value, written :claims.name")
    return None


def _supplied(table: Table, shown: Table, granted: Columns, presets: Collection[str]) -> tuple[Column, ...]:
    """Return the *granted* columns with their own types: generated and preset ones are left out."""
    names = shown.column_by_name if granted is True else granted or ()
    return tuple(
        # The default of a masked column is hidden, whether it has one is not.
        replace(column, default=column.default and "") if _is_masked(shown, column) else column
        for column in table.columns
        if column.name in names and column.name not in presets and _is_writable(column)
    )


def _is_masked(shown: Table, column: Column) -> bool:
    return column.name in shown.column_by_name and shown.column_by_name[column.name].type.mask is not None


def _is_writable(column: Column) -> bool:
    type = column.type.element or column.type
    return not column.generated and type.family not in UNWRITABLE


def _presets(table: Table, presets: Mapping[str, object]) -> tuple[Preset, ...]:
    columns = table.column_by_name
    return tuple(_preset(columns[name], value) for name, value in presets.items())


def _preset(column: Column, value: object) -> Preset:
    """Return the preset of *column*, or raise ValueError if it cannot hold *value*."""
    if isinstance(value, str) and (claim := claim_in(value)) is not None:
        return Preset(column=column, claim=claim)
    if column.type.family is Family.ARRAY:
        raise ValueError("only a claim can be an array")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Preset(column=column, value=column.type.read(text))


def _problems(table: Table, shown: Table, grant: WriteGrant) -> Iterator[str]:
    if not table.identity:
        yield f"dbtools cannot change the rows of this {table.kind}"
        return
    for key, granted, presets in (
        ("insert", grant.insert, grant.preset),
        ("update", grant.update, grant.preset_update),
    ):
        names = granted if isinstance(granted, tuple) else ()
        unsuitable = (_unsuitable(table, shown, name, presets) for name in names)
        yield from (f"{key}: {problem}" for problem in unsuitable if problem)
    for key, presets in (("preset", grant.preset), ("preset_update", grant.preset_update)):
        misfits = (_misfit(table, name, value) for name, value in presets.items())
        yield from (f"{key}: {problem}" for problem in misfits if problem)
    if missing := _missing(table, shown, grant):
        yield f"insert: {listing(missing)} has no default, and is neither supplied nor preset"
    if (grant.update is not False or grant.delete) and not shown.keys:
        yield "update and delete need a key whose columns the role sees as they are"


def _missing(table: Table, shown: Table, grant: WriteGrant) -> list[str]:
    """Return the columns that a new row needs and would not get."""
    given = {column.name for column in _supplied(table, shown, grant.insert, ())} | set(grant.preset)
    wanted = table.columns if grant.insert is not False else ()
    return [column.name for column in wanted if column.required and column.name not in given]


def _unsuitable(table: Table, shown: Table, name: str, presets: Collection[str]) -> str:
    """Return why callers cannot supply the column *name*, or nothing."""
    column = table.column_by_name.get(name)
    if column is None:
        return f"there is no column {quoted(name)}. {nearest(name, table.column_by_name)}".rstrip()
    if name in presets:
        return f"{name} is preset, so callers cannot supply it"
    if name not in shown.column_by_name:
        return f"the role does not see {name}"
    return "" if _is_writable(column) else f"{name} is {'generated' if column.generated else 'composite'}"


def _misfit(table: Table, name: str, value: object) -> str:
    """Return why the column *name* cannot be preset to *value*, or nothing."""
    column = table.column_by_name.get(name)
    if column is None:
        return f"there is no column {quoted(name)}. {nearest(name, table.column_by_name)}".rstrip()
    if column.generated:
        return f"{name} is generated"
    try:
        _preset(column, value)
    except ValueError as exc:
        return f"{name}: {exc}"
    return ""
