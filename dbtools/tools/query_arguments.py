"""Arguments of permitted queries: the schema that is advertised, and how values are read, from one header."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.queries import Permitted, QueryParameter
from dbtools.queries.declarations import check_value, defaults_of
from dbtools.tools.arguments import as_text, check, named, unknown_argument
from dbtools.tools.wording import sentences
from dbtools.types import ColumnType, Family, quoted

NUMBERS = (Family.INTEGER, Family.NUMBER)  #: that are numbers in JSON
#: What the schema of a family does not say.
TOLD: Mapping[Family, str] = {
    Family.DECIMAL: "decimal number",
    Family.TIME: "time such as 14:30",
    Family.TIMESTAMPTZ: "date and time such as 2024-03-05T14:30:00",
    Family.JSON: "any JSON; a text is read as JSON",
}


def arguments_schema(permitted: Permitted) -> dict[str, object]:
    """Return the JSON Schema of the arguments of *permitted*."""
    required = required_of(permitted)
    return {
        "type": "object",
        "properties": properties_of(permitted),
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def properties_of(permitted: Permitted) -> dict[str, dict[str, object]]:
    """Return the JSON Schema of each argument of *permitted*, by name."""
    return {each.name: _schema(each, permitted.types[each.name]) for each in permitted.parameters}


def required_of(permitted: Permitted) -> list[str]:
    """Return the names of the arguments that every call of *permitted* must give."""
    return [each.name for each in permitted.parameters if each.required]


def _schema(parameter: QueryParameter, type: ColumnType) -> dict[str, object]:
    declared = parameter.type
    item = declared.schema()
    element = type.element if parameter.array and type.element is not None else type
    choices = parameter.choices or element.labels
    if choices:
        item["enum"] = [_shown(each, declared) for each in choices]
    told = [TOLD[declared.family]] if declared.family in TOLD else []
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and declared.family in NUMBERS:
            item[key] = _shown(bound, declared)
        elif bound is not None:
            told.append(f"{key} {bound}")
    if parameter.pattern is not None:
        item["pattern"] = parameter.pattern
    schema: dict[str, object] = {"type": "array", "items": item} if parameter.array else item
    if parameter.default is not None:
        schema["default"] = _default(parameter)
    description = sentences(parameter.description, "; ".join(told))
    return schema | ({"description": description} if description else {})


def _default(parameter: QueryParameter) -> object:
    shown = [_shown(each, parameter.type) for each in defaults_of(parameter)]
    return shown if parameter.array else shown[0]


def _shown(text: str, type: ColumnType) -> object:
    """Return the JSON value that *text* is of *type*."""
    value = json.loads(text) if type.family is Family.JSON else type.read(text)
    # A text is read as JSON, so the JSON of a text is shown with its quotes.
    return text if isinstance(value, str) else value


def read_arguments(permitted: Permitted, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the parameters that are there, by name, or raise a CallError."""
    check(arguments)
    known = [each.name for each in permitted.parameters]
    for name in arguments:
        if name not in known:
            raise unknown_argument(name, known)
    return dict(_values(permitted, arguments))


def _values(permitted: Permitted, arguments: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for parameter in permitted.parameters:
        name, given = parameter.name, arguments.get(parameter.name)
        if given is None or (given == "" and not parameter.required):
            if parameter.required:
                raise errors.BadArgument(f"{name} is missing.", hint=_wants(parameter))
            if parameter.default is None:
                continue
            given = _default(parameter)
        type = permitted.types[name]
        if not parameter.array:
            yield name, _one(given, parameter, type, name)
            continue
        element, items = type.element or type, _items(given, parameter)
        yield name, [_one(each, parameter, element, f"{name}[{at}]") for at, each in enumerate(items)]


def _wants(parameter: QueryParameter) -> str:
    """Return what *parameter* is, and what its values may be."""
    bounds = {"at least": parameter.minimum, "at most": parameter.maximum, "matching": parameter.pattern}
    bounds["one of"] = listing(parameter.choices)
    type = f"It is {parameter.type.name}{'[]' if parameter.array else ''}"
    told = ", ".join([type, *(f"{words} {bound}" for words, bound in bounds.items() if bound)])
    return f"{told}: {parameter.description}".rstrip(": .") + "."


def _items(given: object, parameter: QueryParameter) -> Sequence[object]:
    """Return the array that *given* is, or is the JSON of, or that it is the one item of."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        # As they are written: a double would lose digits of a decimal number.
        is_decimal = parameter.type.family is Family.DECIMAL
        with suppress(ValueError, RecursionError):
            given = json.loads(given, parse_float=str if is_decimal else float)
            check({parameter.name: given})
    return given if isinstance(given, list | tuple) else [given]


def _one(given: object, parameter: QueryParameter, type: ColumnType, place: str) -> object:
    text = _text(given, parameter.type, place)
    declared = parameter.type.decode(text, f"{place}: ")
    try:
        check_value(place, text, parameter)
    except ValueError as exc:
        meant = nearest(text, parameter.choices)
        raise errors.BadValue(
            f"{place}: {quoted(text)} may not be given.", hint=f"{meant}{_wants(parameter)}"
        ) from exc
    if type.family is Family.ANY:
        return text if isinstance(declared, str) else declared
    value = type.decode(text, f"{place}: ")
    # Where moments are texts the query compares them as texts, in the form in which its tables keep them.
    return text if type.lenient and type.family is Family.TIMESTAMP else value


def _text(given: object, type: ColumnType, place: str) -> str:
    if type.family is Family.JSON and not isinstance(given, str):
        return json.dumps(given)
    if isinstance(given, float) and given.is_integer() and type.family is Family.INTEGER:
        return str(int(given))
    text = as_text(given)
    if not isinstance(text, str):
        raise errors.BadArgument(f"{place}: must be one {type.name}, not {named(text)}.")
    if not type.trims:
        return text
    return text.strip().lower() if type.family is Family.BOOLEAN else text.strip().removeprefix("+")
