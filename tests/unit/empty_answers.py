"""Calls that find no rows of a shop: which questions they ask the database, and their notes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dbtools.answers.results import Answer, ResultSet
from dbtools.schema.catalog import ForeignKey, Key
from dbtools.statements.select import Statement
from dbtools.tools.calls import Call
from dbtools.tools.definition import Toolset
from dbtools.values.types import Family
from tests.calls import read_call, result
from tests.unit.shop import ID, column, table, tools

CITY = table(ID, column("name"), column("code", Family.INTEGER), name="city")
SHOP = table(
    ID,
    column("number", Family.INTEGER, nullable=False),
    column("name"),
    column("owner"),
    column("city_id", Family.INTEGER),
    column("size", Family.ENUM),
    column("rent", Family.DECIMAL),
    column("area", Family.NUMBER),
    column("opened", Family.DATE),
    column("closed_at", Family.TIMESTAMP),
    column("anything", Family.ANY),
    column("franchise", Family.BOOLEAN),
    column("uuid", Family.UUID),
    column("logo", Family.BYTES),
    column("tags", Family.ARRAY),
    column("note", Family.JSON),
    name="shop",
    keys=(Key(columns=("id",), primary=True), Key(columns=("number",))),
    foreign_keys=(ForeignKey(columns=("city_id",), target_schema="", target="city", target_columns=("id",)),),
)
TOOLS = tools(SHOP, CITY)
INFINITE = tuple(replace(each, type=replace(each.type, infinite=True)) for each in SHOP.columns)
CITIES = (
    *("Lisbon", "Porto", "Faro", "Évora", "Braga", "Coimbra", "New York", "York", "Leiria", "Sines", "Beja"),
)
Stored = Sequence[object]  #: the values of one column


def where(name: str, value: object, op: str = "eq") -> dict[str, object]:
    return {"column": name, "op": op, "values" if op in ("in", "between") else "value": value}


def listing(*conditions: Mapping[str, object], of: Toolset = TOOLS, match: str = "all") -> Call[Answer]:
    return of["list_rows"].bind({"table": "shop", "where": conditions, "match": match})


def asked_by(call: Call[Answer]) -> Sequence[Statement]:
    """Return what *call* asks about its conditions where there is no row."""
    return inquiries_of(call)[1:]


def inquiries_of(call: Call[Answer], *rows: tuple[object, ...]) -> Sequence[Statement]:
    """Return what *call* asks of the database where it has found the *rows*."""
    return read_call(call).inquire(result(call, *rows))


def note_of(call: Call[Answer], *stored: Stored, more: bool = False) -> str:
    """Return the note of an empty answer of *call*, whose inquiries brought the *stored* values."""
    return said_by(call, [(1,)], *([(value,) for value in values] for values in stored), more=more)


def said_by(
    call: Call[Answer],
    *further: Sequence[tuple[object, ...]],
    found: Sequence[tuple[object, ...]] = (),
    more: bool = False,
) -> str:
    """Return the note of *call* that has *found* rows, whose inquiries brought the *further* ones."""
    results = [
        ResultSet(outputs=each.shape.outputs, rows=tuple(rows), more=more)
        for each, rows in zip(inquiries_of(call, *found), further, strict=False)
    ]
    answer = read_call(call).render(result(call, *found), results)
    return str(answer.structured.get("note", ""))
