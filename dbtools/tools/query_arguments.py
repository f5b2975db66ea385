"""Arguments of permitted queries: the schema that is advertised, and how values are read, from one header."""

import json
import re
from collections.abc import Iterator, Mapping

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.queries import ParameterType, QueryParameter
from dbtools.queries.declarations import check_value
from dbtools.queries.permitted import Permitted
from dbtools.queries.values import items_of, value_of
from dbtools.tools.arguments import as_text, check
from dbtools.types import ColumnType, Family, quoted

SCHEMAS: Mapping[ParameterType, Mapping[str, object]] = {
    ParameterType.INTEGER: {"type": "integer"},
    ParameterType.NUMBER: {"type": "number"},
    ParameterType.DECIMAL: {"type": "string", "description": "decimal number"},
    ParameterType.TEXT: {"type": "string"},
    ParameterType.BOOLEAN: {"type": "boolean"},
    ParameterType.DATE: {"type": "string", "format": "date"},
    ParameterType.TIME: {"type": "string", "description": "time such as 14:30"},
    ParameterType.TIMESTAMP: {"type": "string", "description": "date and time such as 2024-03-05T14:30:00"},
    ParameterType.UUID: {"type": "string", "format": "uuid"},
    ParameterType.JSON: {"description": "any JSON; a text is read as JSON"},
}
NUMERIC = (ParameterType.INTEGER, ParameterType.NUMBER)


def arguments_schema(permitted: Permitted) -> dict[str, object]:
    """Return the JSON Schema of the arguments of *permitted*."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties_of(permitted),
        "additionalProperties": False,
    }
    required = required_of(permitted)
    return schema | ({"required": required} if required else {})


def properties_of(permitted: Permitted) -> dict[str, dict[str, object]]:
    """Return the JSON Schema of each argument of *permitted*, by name."""
    return {each.name: _schema(each, permitted.types[each.name]) for each in permitted.parameters}


def required_of(permitted: Permitted) -> list[str]:
    """Return the names of the arguments that every call of *permitted* must give."""
    return [each.name for each in permitted.parameters if each.required]


def _schema(parameter: QueryParameter, type: ColumnType) -> dict[str, object]:
    item = dict(SCHEMAS[parameter.type])
    element = type.element if parameter.array and type.element is not None else type
    choices = parameter.choices or element.labels
    if choices:
        item["enum"] = [_shown(each, parameter.type) for each in choices]
    told = [str(item.pop("description"))] if "description" in item else []
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and parameter.type in NUMERIC:
            item[key] = _shown(bound, parameter.type)
        elif bound is not None:
            told.append(f"{key} {bound}")
    if parameter.pattern is not None:
        item["pattern"] = parameter.pattern
    schema: dict[str, object] = {"type": "array", "items": item} if parameter.array else item
    if parameter.default is not None:
        schema["default"] = _default(parameter)
    description = _sentences(parameter.description, "; ".join(told))
    return schema | ({"description": description} if description else {})


def _sentences(description: str, more: str) -> str:
    """Return the *description* of an operator, with what *more* is told of its values."""
    if not description or not more:
        return description or more
    stop = "" if description.endswith((".", "!", "?", ":", "…")) else "."
    return f"{description}{stop} {more[0].upper()}{more[1:]}."


def _default(parameter: QueryParameter) -> object:
    assert parameter.default is not None
    if parameter.array:
        return [_shown(each, parameter.type) for each in items_of(parameter.default, parameter.type)]
    return _shown(parameter.default, parameter.type)


def _shown(text: str, type: ParameterType) -> object:
    """Return the JSON value that *text* is of *type*."""
    match type:
        case ParameterType.INTEGER:
            return int(text)
        case ParameterType.NUMBER:
            return float(text)
        case ParameterType.BOOLEAN:
            return text == "true"
        case ParameterType.JSON:
            value: object = json.loads(text)
            # A text is read as JSON, so the JSON of a text is shown with its quotes.
            return text if isinstance(value, str) else value
        case _:
            return text


def read_arguments(permitted: Permitted, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the parameters that are there, by name, or raise a CallError."""
    check(arguments)
    known = {each.name: each for each in permitted.parameters}
    for name in arguments:
        if name not in known:
            has = f"Arguments: {listing(known)}." if known else "It takes none."
            raise errors.UnknownArgument(
                f"{permitted.name} has no argument {quoted(name)}.", hint=f"{nearest(name, known)}{has}"
            )
    return dict(_values(permitted, arguments))


def _values(permitted: Permitted, arguments: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for parameter in permitted.parameters:
        given = arguments.get(parameter.name)
        if given is None or (given == "" and not parameter.required):
            if parameter.required:
                raise errors.BadArgument(f"{parameter.name} is missing.", hint=_wants(parameter))
            if parameter.default is None:
                continue
            given = _default(parameter)
        type = permitted.types[parameter.name]
        yield (
            parameter.name,
            _array(given, parameter, type)
            if parameter.array
            else _one(given, parameter, type, parameter.name),
        )


def _wants(parameter: QueryParameter) -> str:
    """Return what *parameter* is, and what its values may be."""
    bounds = [
        f"{words} {bound}"
        for words, bound in (
            ("at least", parameter.minimum),
            ("at most", parameter.maximum),
            ("matching", parameter.pattern),
            ("one of", listing(parameter.choices)),
        )
        if bound
    ]
    told = ", ".join([f"It is {parameter.type}{'[]' if parameter.array else ''}", *bounds])
    return f"{told}: {parameter.description}".rstrip(": .") + "."


def _array(given: object, parameter: QueryParameter, type: ColumnType) -> list[object]:
    if isinstance(given, str) and given.lstrip().startswith("["):
        given = _items(given, parameter)
    items = given if isinstance(given, list | tuple) else [given]
    element = type.element or type
    return [_one(each, parameter, element, f"{parameter.name}[{at}]") for at, each in enumerate(items)]


def _items(text: str, parameter: QueryParameter) -> object:
    """Return the array that *text* is the JSON of, else the text itself as the one item."""
    try:
        # As they are written: a double would lose digits of a decimal number.
        read: object = json.loads(text, parse_float=str if parameter.type is ParameterType.DECIMAL else float)
    except (ValueError, RecursionError):
        return [text]
    check({parameter.name: read})
    return read


def _one(given: object, parameter: QueryParameter, type: ColumnType, place: str) -> object:
    text = _text(given, parameter, place)
    try:
        value_of(text, parameter.type)
    except ValueError as exc:
        raise errors.BadValue(f"{place}: {exc}.") from exc
    try:
        check_value(place, text, parameter)
    except ValueError as exc:
        meant = nearest(text, parameter.choices)
        raise errors.BadValue(
            f"{place}: {quoted(text)} may not be given.", hint=f"{meant}{_wants(parameter)}"
        ) from exc
    if type.family is Family.ANY:
        return _shown(text, parameter.type) if parameter.type in (*NUMERIC, ParameterType.BOOLEAN) else text
    try:
        value = type.decode(text)
    except errors.BadValue as exc:
        raise errors.BadValue(f"{place}: {exc.message}", hint=exc.hint) from exc
    # Where moments are texts the query compares them as texts, in the form in which its tables keep them.
    return text if type.lenient and type.family is Family.TIMESTAMP else value


def _text(given: object, parameter: QueryParameter, place: str) -> str:
    if parameter.type is ParameterType.JSON and not isinstance(given, str):
        return json.dumps(given)
    if isinstance(given, float) and given.is_integer() and parameter.type is ParameterType.INTEGER:
        return str(int(given))
    text = as_text(given)
    if not isinstance(text, str):
        got = "null" if text is None else "an object" if isinstance(text, Mapping) else "an array"
        raise errors.BadArgument(f"{place}: wants one {parameter.type}, not {got}.")
    trimmed = text.strip()
    if parameter.type is ParameterType.BOOLEAN:
        return trimmed.lower()
    return text if parameter.type in (ParameterType.TEXT, ParameterType.JSON) else re.sub(r"^\+", "", trimmed)
