"""What a role may change in a table. A table and a grant in; Writes, or what is wrong with the grant, out."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import NamedTuple

from dbtools.errors import Broken, ConstraintViolated, did_you_mean, listing
from dbtools.findings import Kind, WriteProblem
from dbtools.schema.catalog import (
    UNKNOWN_TYPE,
    Catalog,
    Column,
    Key,
    Location,
    Preset,
    RowFilter,
    Table,
    TableKind,
    Writes,
)
from dbtools.schema.sql import has_name
from dbtools.values.types import Family, Mask, quote

CLAIM = re.compile(r":claims\.(\w+)")  #: a value that is a claim of the caller
LIKE_CLAIM = re.compile(r"^:\w|:claims?\.")
COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge}
NO_KEY, NO_IDENTITY = "you see no key of it", "dbtools cannot change single rows of it"
UNABLE = "the database does not let this server make it"
CHANGES = ("insert", "update", "delete")
Granted = bool | tuple[str, ...]  #: all that the role sees, none, or these
KeyColumns = tuple[Column, ...]
GivenValues = Mapping[Column, Sequence[object]]  #: the values that a call gives each column
Problem = tuple[str, str]  #: the change that is withheld, empty for all, and why


@dataclass(frozen=True, kw_only=True)
class WriteGrant:
    """What a role may change in one table, as configured."""

    insert: Granted = False  #: the columns that a caller may supply
    update: Granted = False
    delete: bool = False
    check: RowFilter | None = None
    after: RowFilter | None = None  #: what a row must satisfy after a change instead of the row filter
    preset: Mapping[str, object] = field(default_factory=dict)  #: by column: a literal, or :claims.NAME
    preset_update: Mapping[str, object] = field(default_factory=dict)
    max_affected: int | None = None
    confirm: bool = False  #: whether each change must be confirmed


#: The grant of a role that sees everything and may change everything.
EVERYTHING = WriteGrant(insert=True, update=True, delete=True)


def writes_of(table: Table, shown: Table, grant: WriteGrant) -> tuple[Writes | None, tuple[Problem, ...]]:
    """Return what *grant* allows in *table*, of which a role sees *shown*, and why it does not allow more.

    Where callers may update every column, they may not update those that are preset in new rows.
    """
    if not table.identity:
        is_table = table.kind is TableKind.TABLE
        why = WriteProblem.UNCHANGEABLE if is_table else WriteProblem.NO_TABLE.format(kind=table.kind)
        return None, (("", why),)
    wrong_insert = (
        *_mistakes(table, shown, grant.insert, grant.preset),
        *_missing_columns(table, shown, grant),
    )
    wrong_update = tuple(_mistakes(table, shown, grant.update, grant.preset_update))
    has_key = bool(shown.keys)
    inserts, updates = grant.insert is not False and not wrong_insert, has_key and not wrong_update
    fixed = {**(grant.preset if grant.update is True else {}), **grant.preset_update}
    supplied = _supplied_columns(table, shown, grant.insert, grant.preset)
    insert_presets = _presets(table, grant.preset) if inserts else ()
    given = (*supplied, *(preset.column for preset in insert_presets)) if inserts else ()
    conflict_keys, partial_keys = _conflict_keys(shown, given)
    writes = Writes(
        insert=supplied if inserts else None,
        update=_supplied_columns(table, shown, grant.update, fixed) if updates else (),
        delete=grant.delete and has_key,
        insert_presets=insert_presets,
        update_presets=_presets(table, grant.preset_update) if updates else (),
        checks=tuple(filter(None, (grant.check, grant.after))),
        leaves=grant.after is not None,
        most=grant.max_affected,
        confirm=grant.confirm,
        key=tuple(each.name for each in table.key_columns if each.name in shown.column_by_name),
        conflict_keys=conflict_keys,
        partial_keys=partial_keys,
    )
    keyed = [name for name in ("update", "delete") if getattr(grant, name) is not False and not has_key]
    problems = [("insert", problem) for problem in wrong_insert]
    problems += [("update", problem) for problem in wrong_update]
    problems += [(name, WriteProblem.KEYLESS) for name in keyed]
    does_nothing = writes.insert is None and not writes.update and not writes.delete
    return None if does_nothing else writes, tuple(problems)


def granted_changes(table: Table) -> tuple[str, ...]:
    """Return those of CHANGES that a role may make in *table*."""
    writes = table.writes or Writes()
    allowed = zip(CHANGES, (writes.insert is not None, writes.update, writes.delete), strict=True)
    return tuple(change for change, is_allowed in allowed if is_allowed)


class MissingPrivileges(NamedTuple):
    """What a login cannot do for the writes of a role."""

    tables: Mapping[Location, str]  #: why it cannot make the writes of each table
    journal: str = ""  #: why it cannot use the journal, empty if it can
    hindered: Mapping[Location, Sequence[str]] = MappingProxyType(
        {}
    )  #: which changes will fail, in sentences


def without_writes(table: Table) -> Table:
    """Return *table*, which a role may change, without its writes, as the database does not allow them."""
    withheld = tuple((change, UNABLE) for change in granted_changes(table))
    return replace(table, writes=None, withheld=(*withheld, *table.withheld))


def with_writes(table: Table, shown: Table, grant: WriteGrant) -> tuple[Table, tuple[Problem, ...]]:
    """Return *shown*, the part of *table* that a role sees, with what *grant* allows; and problems."""
    writes, problems = writes_of(table, shown, grant)
    return replace(shown, writes=writes, withheld=withheld_changes(shown, grant)), problems


def withheld_changes(table: Table, grant: WriteGrant) -> tuple[Problem, ...]:
    """Return the changes that *grant* allows, but not *table* as a role sees it; and why, for callers."""
    granted = [change for change in CHANGES if getattr(grant, change) is not False]
    if not table.identity:
        why = NO_IDENTITY if table.kind is TableKind.TABLE else f"it is a {table.kind}"
        return tuple((change, why) for change in granted)
    return tuple((change, NO_KEY) for change in granted if change != "insert" and not table.keys)


def _conflict_keys(
    shown: Table, given: Iterable[Column]
) -> tuple[tuple[KeyColumns, ...], Mapping[KeyColumns, Key]]:
    """Return the unique keys that the role sees unmasked and whose columns are all among those *given*.

    Return also those that are partial, of which the role sees what their condition names.
    """
    plain = {each.name for each in shown.columns if each.type.mask is None}
    columns = {each.name: each for each in given if each.name in plain}
    keys = [key.columns for key in shown.keys if not key.deferrable]
    deferrable = {key.columns for key in shown.keys if key.deferrable}
    keys += [(name,) for name in columns if name in shown.unique and (name,) not in deferrable]
    keys += [key.columns for key in shown.lesser_keys if not key.condition]
    lesser = [key for key in shown.lesser_keys if key.condition and plain >= key.reads]
    partial = {key.columns: key for key in lesser if key.columns not in keys}
    # Of two indexes of the same columns, it is not known which one is meant.
    several = {key.columns for key in lesser if partial.get(key.columns) not in (None, key)}
    partial |= {names: replace(partial[names], predicate="") for names in several}
    keys += [names for names, key in partial.items() if key.predicate]
    usable = {
        names: tuple(columns[name] for name in names)
        for names in dict.fromkeys((*keys, *partial))
        if columns.keys() >= set(names)
    }
    return (
        tuple(usable[names] for names in dict.fromkeys(keys) if names in usable),
        {usable[names]: key for names, key in partial.items() if names in usable},
    )


def revealing_masks(shown: Table) -> Iterator[tuple[Kind, str]]:
    """Yield the masked columns of *shown* whose cells a role could find by writing them, and how."""
    writes = shown.writes
    given = () if writes is None else dict.fromkeys((*(writes.insert or ()), *writes.update))
    unique = shown.unique.union(*(key.columns for key in shown.lesser_keys if len(key.columns) == 1))
    for column in (shown.column_by_name[each.name] for each in given if each.name in shown.column_by_name):
        if column.type.mask is Mask.HASH:
            yield Kind.COMPARABLE_HASHES, column.name
        elif column.type.mask is not None and column.name in unique:
            yield Kind.UNIQUE_VALUES, column.name


def named_in(condition: RowFilter | None, columns: Iterable[Column]) -> list[str]:
    """Return those of *columns*, which a role may set, that *condition* seems to name."""
    text = condition.condition.text if condition is not None else ""
    return [each.name for each in columns if has_name(text, each.name)]


def violation_of(
    violated: ConstraintViolated, table: Table, catalog: Catalog, *, refers: bool, written: GivenValues
) -> ConstraintViolated:
    """Return *violated*, worded for a role that sees *catalog* and has changed *table*.

    Name nothing that the role does not see. *refers*: whether the change sets foreign keys of the row;
    *written*: the columns that the caller has set, with their values.
    """
    kind, place = violated.kind, violated.table
    if not refers and kind is Broken.FOREIGN_KEY and place in (None, table.location):
        kind = Broken.REFERENCED
    elif place not in (None, table.location) and kind not in (
        Broken.REFERENCED,
        Broken.TRIGGER,
        Broken.POLICY,
    ):
        # A trigger has changed another table, which the role may not see.
        kind = Broken.UNKNOWN
    is_own = place == table.location and set(violated.columns) <= set(table.column_by_name)
    named = listing(violated.columns) if is_own else ""
    if kind is Broken.REFERENCED:
        # Rows and foreign keys that the role does not see may be the reason.
        others = (each for each, _ in catalog.references(table) if each.filter is None and each != table)
        named = next((catalog.label(each) for each in others if each.location == place), "")
    message, hint = MESSAGES.get((kind, bool(named))) or MESSAGES[kind, False]
    if kind is Broken.FOREIGN_KEY and not named:
        keys = {name for key in table.foreign_keys for name in key.columns}
        columns = listing(each.name for each in written if each.name in keys)
        hint = f"Check {columns}." if columns else ""
    if kind is Broken.CHECK:
        hint = " ".join(filter(None, [hint, _limits(written)]))
    message = message.format(table=catalog.label(table), columns=named)
    return ConstraintViolated(message, hint=hint)


def _limits(written: GivenValues) -> str:
    """Return the limits that the values *written* exceed, such as "price > 0"."""
    found: list[str] = []
    for column, values in written.items():
        signed = ((">=", column.minimum), ("<=", column.maximum))
        limits = [each if each[0] in "<>" else f"{sign} {each}" for sign, each in signed if each]
        if any(_exceeds(value, limit) for limit in limits for value in values):
            found.append(f"{column.name} {' and '.join(limits)}")
    return f"Limits: {listing(found)}." if found else ""


def _exceeds(value: object, limit: str) -> bool:
    """Return whether *value* is certainly beyond *limit*, such as "> 0"; texts are compared as they are."""
    sign, _, end = limit.partition(" ")
    try:
        return not COMPARED[sign](Decimal(str(value)), Decimal(end))
    except InvalidOperation:
        return isinstance(value, str | date) and not COMPARED[sign](str(value), end)


#: The message and the hint, by the kind of the constraint, and whether its columns can be named.
MESSAGES: Mapping[tuple[Broken, bool], tuple[str, str]] = {
    (Broken.UNIQUE, True): ("{table} already has a row with this {columns}.", "Use another value."),
    (Broken.UNIQUE, False): ("A unique constraint of {table} is violated.", "Use other values."),
    (Broken.FOREIGN_KEY, True): ("{columns} refers to no existing row.", "Use the key of a row that exists."),
    (Broken.FOREIGN_KEY, False): ("A foreign key refers to no existing row.", ""),
    (Broken.REFERENCED, True): ("Rows of {columns} refer to this row.", "Change or delete those first."),
    (Broken.REFERENCED, False): ("Other rows refer to this row.", "See referenced_by in describe_tables."),
    (Broken.NOT_NULL, True): ("{columns} must not be null.", "Give it a value."),
    (Broken.NOT_NULL, False): ("A column that is not shown must not be null.", ""),
    (Broken.CHECK, True): ("A check of {table} does not allow this {columns}.", "Use another value."),
    (Broken.CHECK, False): ("A CHECK constraint does not allow these values.", "Use other values."),
    (Broken.EXCLUSION, False): ("{table} has a row that excludes this one.", "Use other values."),
    (Broken.TRIGGER, False): ("A trigger or function of the database refused the change.", ""),
    (Broken.POLICY, False): ("Row-level security of the database does not allow the row.", ""),
    (Broken.KEPT, False): (
        "The database left the row as it is, and gave no reason.",
        "A trigger or a policy of row-level security may keep it.",
    ),
    (Broken.UNKNOWN, False): ("A constraint of the database does not allow this change.", ""),
}


def claim_in(text: str) -> str | None:
    """Return the name of the claim that *text* stands for, or None for a literal; or raise ValueError."""
    if claim := CLAIM.fullmatch(text):
        return claim[1]
    if LIKE_CLAIM.search(text):
        raise ValueError("a claim must be the whole value, written :claims.name")
    return None


def _supplied_columns(
    table: Table, shown: Table, granted: Granted, presets: Collection[str]
) -> tuple[Column, ...]:
    """Return the *granted* columns with their own types, without generated and preset ones."""
    names = shown.column_by_name if granted is True else granted or ()
    return tuple(
        # The default of a masked column is hidden, but not whether there is one.
        replace(column, default=column.default and "") if _is_masked(shown, column) else column
        for column in table.columns
        if column.name in names and column.name not in presets and _is_writable(column)
    )


def _is_masked(shown: Table, column: Column) -> bool:
    return column.name in shown.column_by_name and shown.column_by_name[column.name].type.mask is not None


def _is_writable(column: Column) -> bool:
    type = column.type.element or column.type
    return not column.generated and type.family is not Family.OBJECT and type is not UNKNOWN_TYPE


def _presets(table: Table, presets: Mapping[str, object]) -> tuple[Preset, ...]:
    columns = table.column_by_name
    return tuple(_preset(columns[name], value) for name, value in presets.items())


def _preset(column: Column, value: object) -> Preset:
    """Return the preset of *column*, or raise ValueError if it cannot hold *value*."""
    if isinstance(value, str) and (claim := claim_in(value)) is not None:
        return Preset(column=column, claim=claim)
    if column.type.family is Family.ARRAY:
        raise ValueError
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if column.choices and text not in column.choices:
        raise ValueError
    return Preset(column=column, value=column.type.read(text))


def _mistakes(table: Table, shown: Table, granted: Granted, presets: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with the columns *granted* to callers of *shown*, and with *presets*."""
    for name in granted if isinstance(granted, tuple) else ():
        if name in presets:
            yield WriteProblem.PRESET.format(name=name)
        elif name in table.column_by_name and name not in shown.column_by_name:
            yield WriteProblem.HIDDEN.format(name=name)
        else:
            yield from _write_obstacles(table, name)
    for name, value in presets.items():
        if granted is False:
            yield WriteProblem.IDLE_PRESET.format(name=name)
        yield from _write_obstacles(table, name) or _misfit(table.column_by_name[name], value)


def _write_obstacles(table: Table, name: str) -> Sequence[str]:
    """Return why no value can be given to the column *name* of *table*, or nothing."""
    column = table.column_by_name.get(name)
    if column is None:
        meant = did_you_mean(name, table.column_by_name)
        return (WriteProblem.UNKNOWN_COLUMN.format(name=quote(name), nearest=meant).rstrip(),)
    if column.generated:
        return (WriteProblem.GENERATED.format(name=name),)
    if column.type is UNKNOWN_TYPE:
        return (WriteProblem.UNKNOWN_TYPE.format(name=name),)
    return () if _is_writable(column) else (WriteProblem.COMPOSITE.format(name=name),)


def _misfit(column: Column, value: object) -> Sequence[str]:
    """Return why *column* cannot be preset to *value*, or nothing."""
    name, shown = column.name, quote(str(value))
    try:
        claim_in(str(value))
    except ValueError:
        return (WriteProblem.LIKE_CLAIM.format(name=name, value=shown),)
    try:
        _preset(column, value)
    except ValueError:
        expected = f"one of {listing(column.choices)}" if column.choices else column.type.expected
        if column.type.family is Family.ARRAY:
            expected = "a claim, since it is an array"
        return (WriteProblem.MISFIT.format(name=name, value=shown, expected=expected),)
    return ()


def _missing_columns(table: Table, shown: Table, grant: WriteGrant) -> Iterator[str]:
    """Yield the columns that a new row needs and would not get, each with what to do about it."""
    supplied = {column.name for column in _supplied_columns(table, shown, grant.insert, ())}
    for column in table.columns if grant.insert is not False else ():
        if not column.required or column.name in supplied or column.name in grant.preset:
            continue
        can_supply = column.name in shown.column_by_name and _is_writable(column)
        problem = WriteProblem.NEEDS_COLUMN if can_supply else WriteProblem.NEEDS_PRESET
        yield problem.format(name=column.name)


def confirmed_tables(catalog: Catalog) -> Sequence[Table]:
    """Return the tables of *catalog* whose changes must be confirmed."""
    return [each for each in catalog.tables if each.writes is not None and each.writes.confirm]
