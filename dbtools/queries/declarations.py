"""What a query declares. `NAME: TYPE[?] [options] [= default]  text` in, a QueryParameter out."""

import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from dbtools.dates import Point
from dbtools.errors import listing, nearest
from dbtools.policy import Source
from dbtools.sql import CLAIMS
from dbtools.types import NUMERIC, PARAMETERS, TEMPORAL, ColumnType, Digits, Family, quoted

FORM = "-- param NAME: TYPE  text"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DECLARED = re.compile(rf"({NAME.pattern}):[ \t]*")
TYPE = re.compile(r"(?P<name>[A-Za-z]\w*)(?P<array>\[\])?(?P<optional>\?)?(?!\S)")
QUOTED = r"'(?:[^']|'')*+'(?!')"
CHOICE = rf"{QUOTED}|[^\s,'\"()][^\s,'()]*+"
WRITTEN = (
    rf" (?:(?P<pattern>pattern) (?P<regex>{QUOTED})"
    rf"|in ?\((?P<in>\s*(?:{CHOICE})\s*(?:,\s*(?:{CHOICE})\s*)*+)\)"
    rf"|(?P<bound>min|max) (?P<limit>{QUOTED}|[^\s']\S*+)"
    rf"|= ?(?P<default>{QUOTED}|[^\s']\S*+))"
)
OPTION = re.compile(rf"{WRITTEN}(?!\S)")
#: The mark of what may be left out, behind all that comes after the type.
LATE_MARK = re.compile(rf"(?:{WRITTEN})?\s*\?(?!\S)")
#: A value in double quotes, which are names in SQL, and in JSON belong to the value.
DOUBLE_QUOTES = re.compile(rf' (?:= ?|(?:min|max|pattern) |in ?\(\s*(?:(?:{CHOICE})\s*,\s*)*+)"')
#: What follows the options: an end, or blanks and a text.
REST = re.compile(r"[ \t]*$|(?:[ \t]{2,}|\t)(?P<text>.*)", re.DOTALL)
#: A text that begins like this is an option whose writer put two blanks before it.
STRAY = re.compile(r"(?P<option>=|in ?\(|pattern '|(?:min|max) ['+-]?\d)")
WANTED: Mapping[str, str] = {
    "in": "in (a, 'b c')",
    "min": "min 1",
    "max": "max 9",
    "pattern": "pattern '^[A-Z]+$'",
    "=": "= value, or = 'a value' in quotes, as the last before the text",
}
LIST_WANTED = """a list's default is JSON, such as '[1, 2]' or '["a", "b"]'"""
DEFAULT_WANTED = f"a default with blanks stands in quotes, such as 'a value'; {LIST_WANTED}"
TYPES = f"Types: {listing(PARAMETERS)}, and with [] behind for lists"
ORDERED = (*NUMERIC, *TEMPORAL)
#: What other systems call the types.
ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("int", "bigint", "smallint", "int4", "int8"), "integer"),
    **dict.fromkeys(("float", "double", "real", "float8"), "number"),
    "numeric": "decimal",
    **dict.fromkeys(("string", "str", "varchar", "char"), "text"),
    "bool": "boolean",
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
    "jsonb": "json",
}


#: What JSON has for an item of an array; for all others a text.
KINDS: Mapping[Family, type] = {
    Family.INTEGER: Digits,
    Family.NUMBER: Digits,
    Family.DECIMAL: str,
    Family.BOOLEAN: bool,
    Family.JSON: object,
}


@dataclass(frozen=True, kw_only=True)
class QueryParameter:
    """An argument of a query, as its header declares it; all values are texts as they are written."""

    name: str
    type: ColumnType  #: one of PARAMETERS; of an array, that of its items
    array: bool = False
    optional: bool = False  #: whether it may be left out though it has no default
    default: str | None = None  #: of an array: a JSON array
    choices: tuple[str, ...] = ()  #: none: any value; of an array: what each item may be, and so below
    minimum: str | None = None
    maximum: str | None = None
    pattern: str | None = None  #: a regular expression that is found somewhere in the value
    description: str = ""
    source: Source = field(default_factory=Source)

    @property
    def required(self) -> bool:
        """Whether every call must give it."""
        return not self.optional and self.default is None

    @property
    def may_be_absent(self) -> bool:
        """Whether a call may leave it without any value."""
        return self.optional and self.default is None


def declaration(text: str, source: Source) -> QueryParameter:
    """Return the parameter that *text* declares, what comes after `-- param `, or raise ValueError."""
    name = DECLARED.match(text)
    if name is None:
        raise ValueError(f"param {quoted(text)}: wants {FORM}")
    try:
        return _parameter(name[1], text[name.end() :], source)
    except ValueError as exc:
        raise ValueError(f"param {name[1]}: {exc}") from exc


def _parameter(name: str, text: str, source: Source) -> QueryParameter:
    if name == CLAIMS:
        raise ValueError(f"this name is kept for the caller's claims, as in :{CLAIMS}.region")
    written = TYPE.match(text)
    if written is None:
        raise ValueError(f"{quoted(text)} begins with no type such as text, text? or text[]. {TYPES}")
    type = _type(written["name"])
    options, description = _options(text[written.end() :], type)
    parameter = QueryParameter(
        name=name,
        type=type,
        array=written["array"] is not None,
        optional=written["optional"] is not None,
        default=options.get("="),
        choices=tuple(map(_unquoted, re.findall(CHOICE, options.get("in", "")))),
        minimum=options.get("min"),
        maximum=options.get("max"),
        pattern=options.get("pattern"),
        description=description,
        source=source,
    )
    _check(parameter)
    return parameter


def _type(name: str) -> ColumnType:
    if name in PARAMETERS:
        return PARAMETERS[name]
    alias = ALIASES.get(name.lower())
    meant = f"Did you mean {alias}? " if alias else nearest(name, PARAMETERS)
    raise ValueError(f"{quoted(name)} is no type. {meant}{TYPES}")


def _options(text: str, type: ColumnType) -> tuple[Mapping[str, str], str]:
    """Return the options of a *type* at the beginning of *text*, by their keywords, and the text after."""
    options: dict[str, str] = {}
    while not (rest := REST.match(text)):
        if DOUBLE_QUOTES.match(text) and type.family is not Family.JSON:
            raise ValueError(f"{quoted(text.strip())}: values stand in single quotes, such as 'a value'")
        option = OPTION.match(text)
        if option is None:
            raise ValueError(_unreadable(text, type, options))
        keyword, value = _option(option, type)
        if keyword in options:
            raise ValueError(f"{keyword} is there twice")
        if "=" in options:
            raise ValueError(f"{keyword} comes after the default, which is the last before the text")
        options[keyword] = value
        text = text[option.end() :]
    description = (rest["text"] or "").strip()
    if stray := STRAY.match(description):
        keyword = stray["option"].split(" ")[0].rstrip("(")
        raise ValueError(f"{keyword} comes after two blanks, which begin the text: leave one blank before it")
    return options, description


def _option(found: re.Match[str], type: ColumnType) -> tuple[str, str]:
    if found["pattern"]:
        return "pattern", _unquoted(found["regex"])
    if found["in"] is not None:
        return "in", found["in"]
    value = str(found["limit"] or found["default"])
    if value.endswith("?") and type.family is not Family.TEXT:
        raise ValueError(f"{quoted(value)}: {_marked(type)}")
    if found["bound"]:
        return found["bound"], _unquoted(value)
    if value == "null":
        raise ValueError("null is no default: for a parameter that may be left out write ? after the type")
    return "=", _unquoted(value)


def _marked(type: ColumnType) -> str:
    return f"? stands right behind the type: {type.name}?"


def _unreadable(text: str, type: ColumnType, before: Collection[str]) -> str:
    """Return what is wrong with *text*, which is no option, behind the options *before* it."""
    if LATE_MARK.match(text):
        return f"{quoted(text.strip())}: {_marked(type)}"
    text = text.strip()
    if "=" in before:
        return f"{quoted(text)} comes after the default: {DEFAULT_WANTED}"
    for keyword, wanted in WANTED.items():
        if re.match(rf"{keyword}(?!\w)", text):
            return f"{quoted(text)} cannot be read: wants {wanted}"
    return (
        f"{quoted(text)} is no option: {', '.join(WANTED)} come after the type, "
        "and the text after two blanks or more"
    )


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _check(parameter: QueryParameter) -> None:
    """Raise ValueError where what *parameter* says is no value of its type, or contradicts itself."""
    type = parameter.type
    if parameter.pattern is not None:
        if type.family is not Family.TEXT:
            raise ValueError(f"pattern is for text, not for {type.name}")
        _check_pattern(parameter.pattern)
    if parameter.choices and type.family is Family.JSON:
        raise ValueError("in is not for json")
    for place, text in values_in(parameter):
        if place not in ("min", "max"):
            check_value(place, text, parameter)
            continue
        if type.family not in ORDERED:
            ordered = listing(name for name, each in PARAMETERS.items() if each.family in ORDERED)
            raise ValueError(f"{place} is for {ordered}, not for {type.name}")
        _check_bounds(place, text, parameter)
    if len(set(map(type.compared, parameter.choices))) < len(parameter.choices):
        raise ValueError("in has a value twice")


def values_in(parameter: QueryParameter) -> Iterator[tuple[str, str]]:
    """Yield the values that *parameter* declares, each after the keyword by which it does."""
    bounds = (("min", parameter.minimum), ("max", parameter.maximum))
    yield from ((keyword, bound) for keyword, bound in bounds if bound is not None)
    yield from (("in", choice) for choice in parameter.choices)
    yield from (("default", text) for text in defaults_of(parameter))


def defaults_of(parameter: QueryParameter) -> Iterator[str]:
    """Yield the default of *parameter*, of an array each item, or raise ValueError."""
    if parameter.default is None:
        return
    if not parameter.array:
        yield parameter.default
        return
    wants = f"{quoted(parameter.default)} is not a JSON array in which each item is {parameter.type.wants}"
    numbers = None if parameter.type.family is Family.JSON else Digits
    try:
        items = json.loads(parameter.default, parse_int=numbers, parse_float=numbers)
    except (ValueError, RecursionError):
        items = None
    kind = KINDS.get(parameter.type.family)
    if not isinstance(items, list) or not all(
        isinstance(each, kind) if kind else each.__class__ is str for each in items
    ):
        raise ValueError(f"default: {wants}: {LIST_WANTED}")
    yield from (str(each) if isinstance(each, str) else json.dumps(each) for each in items)


def check_value(place: str, text: str, parameter: QueryParameter) -> None:
    """Raise ValueError, which names the *place*, where *text* may not be given."""
    type, value = parameter.type, _compared(place, text, parameter.type)
    _check_bounds(place, text, parameter)
    if parameter.pattern is not None and not _has_pattern(text, parameter.pattern):
        raise ValueError(f"{place}: {quoted(text)} does not match the pattern")
    if parameter.choices and value not in {_compared("in", each, type) for each in parameter.choices}:
        raise ValueError(f"{place}: {quoted(text)} is not among {listing(parameter.choices)}")


def _check_bounds(place: str, text: str, parameter: QueryParameter) -> None:
    if parameter.minimum is not None:
        _compare(parameter.minimum, "min", text, place, parameter.type)
    if parameter.maximum is not None:
        _compare(text, place, parameter.maximum, "max", parameter.type)


def _compare(lower: str, low: str, upper: str, high: str, type: ColumnType) -> None:
    """Raise ValueError where *lower*, the *low* of them, is above *upper*."""
    least, most = _compared(low, lower, type), _compared(high, upper, type)
    assert isinstance(least, Point)
    assert isinstance(most, Point)
    if least.zoned != most.zoned:
        raise ValueError(f"{low} {lower} and {high} {upper}: one has a zone, and the other has none")
    if least.at > most.at:
        raise ValueError(f"{low} {lower} is above {high} {upper}")


def _compared(place: str, text: str, type: ColumnType) -> object:
    try:
        return type.compared(text)
    except ValueError as exc:
        raise ValueError(f"{place}: {exc}") from exc


# Patterns are matched by pydantic's engine, which takes time in proportion to the text, whatever the pattern:
# the standard library's may take years, and holds up all other callers meanwhile.
def _check_pattern(pattern: str) -> None:
    """Raise ValueError where *pattern* is no regular expression, for the engine or for clients."""
    try:
        with warnings.catch_warnings():
            # A pattern that means something else in another version means nothing.
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as exc:
        raise ValueError(f"pattern: {quoted(pattern)} is no regular expression: {exc}") from exc
    try:
        _compiled(pattern)
    except SchemaError as exc:
        # The last line says what; those before it show where.
        problem = str(exc).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"pattern: {quoted(pattern)} cannot be used: {problem}") from exc


def _has_pattern(text: str, pattern: str) -> bool:
    """Return whether *pattern*, which is one, is found somewhere in *text*."""
    try:
        _compiled(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
