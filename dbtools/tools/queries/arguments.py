"""The arguments of permitted queries. What a header declares in; JSON Schemas, and decoded values, out."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.queries import Permitted, QueryParameter
from dbtools.queries.headers import check_value, defaults_of
from dbtools.schema.catalog import Column
from dbtools.tools.arguments import Schema, arguments_schema, as_text, check, in_words, unknown_argument
from dbtools.tools.wording import description_of, sentences
from dbtools.values.types import (
    SAFE_INTEGER,
    STRING,
    ColumnType,
    Family,
    choices_schema,
    quote,
    shown_choices,
)

#: The schemas of cells; others are strings.
SHOWN: Mapping[Family, tuple[str, ...]] = {
    Family.INTEGER: ("integer",),
    Family.NUMBER: ("number", "string"),  # NaN and infinities
    Family.BOOLEAN: ("boolean",),
    Family.ARRAY: ("array", "string"),  # a string if it is cut
    Family.OBJECT: ("object", "string"),
}
#: Patterns that mean the same everywhere: providers read others differently, or refuse them.
PLAIN_PATTERN = re.compile(r"(?:[^\\(]|\\[dswDSWbB.\-+*?^$|/()\[\]{}\\]|\((?!\?)|\(\?:)*")
NUMBER_FAMILIES = (Family.INTEGER, Family.NUMBER)  #: numbers in JSON
#: The forms of values that the schema does not describe.
VALUE_FORMS: Mapping[Family, str] = {
    Family.DECIMAL: "decimal number",
    Family.TIME: "time such as 14:30",
    Family.TIMESTAMPTZ: "date and time such as 2024-03-05T14:30:00",
}


def cell_schema(column: Column) -> dict[str, object]:
    """Return the schema of the cells of *column*: exact if the database enforces types."""
    if column.type.lenient or column.type.family in (Family.ANY, Family.JSON):
        return {}
    types = SHOWN.get(column.type.family, ("string",))
    most = column.type.maximum
    if column.type.family is Family.INTEGER and (most is None or most > SAFE_INTEGER):
        types = ("integer", "string")  # some JSON parsers cannot read greater integers
    types = (*types, "null") if column.nullable else types
    items: dict[str, object] = {"items": {}} if "array" in types else {}
    return {"type": types[0] if len(types) == 1 else list(types), **items}


def parameters_schema(permitted: Permitted, more: Mapping[str, Mapping[str, object]]) -> Schema:
    """Return the JSON Schema of the arguments of *permitted*, and of *more*."""
    properties = {each.name: _schema(each, permitted.types[each.name]) for each in permitted.parameters}
    return arguments_schema(
        {**properties, **more}, [each.name for each in permitted.parameters if each.required]
    )


def _schema(parameter: QueryParameter, type: ColumnType) -> dict[str, object]:
    declared = parameter.type
    item = declared.schema()
    element = type.element if parameter.array and type.element is not None else type
    choices = parameter.choices or element.labels
    form = VALUE_FORMS.get(declared.family, str(item.pop("description", "")))
    notes = [form] if form else []
    listed = choices_schema(choices) if item == STRING else {}
    if "enum" in listed:
        item |= listed
    elif choices:
        notes.append(f"one of {shown_choices(choices)}")
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and declared.family in NUMBER_FAMILIES:
            item[key] = _json_value(bound, declared)
        elif bound is not None:
            notes.append(f"{key} {bound}")
    if parameter.pattern is not None and PLAIN_PATTERN.fullmatch(parameter.pattern):
        item["pattern"] = parameter.pattern
    elif parameter.pattern is not None:
        notes.append(f"matching {parameter.pattern}")
    schema: dict[str, object] = {"type": "array", "items": item} if parameter.array else item
    if parameter.default is not None:
        shown = [_json_value(each, declared) for each in defaults_of(parameter)]
        schema["default"] = shown if parameter.array else shown[0]
    return schema | description_of(sentences(parameter.description, "; ".join(notes)))


def _json_value(text: str, type: ColumnType) -> object:
    """Return the JSON value of *text* as *type*."""
    # JSON is given as a text.
    value = text if type.family is Family.JSON else type.read(text)
    return text if isinstance(value, str) else value


def values_of(
    permitted: Permitted, arguments: Mapping[str, object], listed: Sequence[str]
) -> Iterator[tuple[str, object]]:
    """Yield the names and values of parameters that are given or have a default, or raise a CallError.

    *listed*: the arguments that hints name.
    """
    check(arguments)
    known = {each.name for each in permitted.parameters}
    for name in arguments:
        if name not in known:
            raise unknown_argument(name, listed)
    for parameter in permitted.parameters:
        name, type = parameter.name, permitted.types[parameter.name]
        texts = _texts(parameter, arguments.get(name))
        if texts is not None and parameter.array:
            element = type.element or type
            yield name, [_value(each, parameter, element, f"{name}[{at}]") for at, each in enumerate(texts)]
        elif texts is not None:
            yield name, _value(texts[0], parameter, type, name)


def _texts(parameter: QueryParameter, given: object) -> Sequence[str] | None:
    """Return the *given* value or items of *parameter* as texts, or its default."""
    if given is None or (given == "" and not parameter.required):
        if parameter.required:
            raise errors.BadArgument(f"{parameter.name} is missing.", hint=_wants(parameter))
        return None if parameter.default is None else list(defaults_of(parameter))
    if not parameter.array:
        return [_text(given, parameter.type, parameter.name)]
    items = _items(given, parameter)
    return [_text(each, parameter.type, f"{parameter.name}[{at}]") for at, each in enumerate(items)]


def _wants(parameter: QueryParameter) -> str:
    """Describe *parameter* and its values."""
    bounds = {"at least": parameter.minimum, "at most": parameter.maximum, "matching": parameter.pattern}
    bounds["one of"] = listing(parameter.choices)
    type = f"Expected: {parameter.type.name}{'[]' if parameter.array else ''}"
    parts = ", ".join([type, *(f"{words} {bound}" for words, bound in bounds.items() if bound)])
    return f"{parts}. {parameter.description}".rstrip(". ") + "."


def _items(given: object, parameter: QueryParameter) -> Sequence[object]:
    """Return *given* as an array: it may be one, the JSON of one, or a single item."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        # Keep numbers as written: a double would lose digits of a decimal number.
        is_decimal = parameter.type.family is Family.DECIMAL
        with suppress(ValueError, RecursionError):
            given = json.loads(given, parse_float=str if is_decimal else float)
            check({parameter.name: given})
    return given if isinstance(given, list | tuple) else [given]


def _text(given: object, type: ColumnType, place: str) -> str:
    if type.family is Family.JSON and not isinstance(given, str):
        return json.dumps(given)
    if isinstance(given, float) and given.is_integer() and type.family is Family.INTEGER:
        return str(int(given))
    text = as_text(given)
    if not isinstance(text, str):
        raise errors.BadArgument(f"{place} must be one {type.name}, not {in_words(text)}.")
    if not type.trims:
        return text
    return text.strip().lower() if type.family is Family.BOOLEAN else text.strip().removeprefix("+")


def _value(text: str, parameter: QueryParameter, type: ColumnType, place: str) -> object:
    """Decode *text* as *type*, which the database has for *parameter*."""
    declared = parameter.type.decode(text, f"{place}: ")
    try:
        check_value(place, text, parameter)
    except ValueError as exc:
        hint = f"{did_you_mean(text, parameter.choices)}{_wants(parameter)}"
        raise errors.BadValue(f"{place} cannot be {quote(text)}.", hint=hint) from exc
    if parameter.type.family is Family.DATE:
        text = str(declared)
    if type.family is Family.ANY:
        return text if isinstance(declared, str) else declared
    value = type.decode(text, f"{place}: ")
    # In a database without types for dates, the query compares texts, in the form that its tables use.
    return text if type.lenient and type.family in (Family.TIMESTAMP, Family.TIME) else value
