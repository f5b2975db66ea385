"""The header of a query. The comments before its SQL in; what they declare, and their mistakes, out.

A header line is `-- KEY: value`, or `-- param NAME: TYPE[?] [options] [= default]  text`: two hyphens at the
beginning, a space, and a lowercase key. A line that is almost a header line is an error; any other comment is
allowed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from dbtools.errors import did_you_mean, listing
from dbtools.findings import Source
from dbtools.schema.sql import CLAIMS
from dbtools.values.dates import seconds_of
from dbtools.values.types import NUMERIC, PARAMETERS, TEMPORAL, ColumnType, Digits, Family, quote

LONGEST_TIMEOUT = 3600.0  #: seconds, as in [limits]
FORM = "-- param NAME: TYPE[?] [in (a, 'b c')] [min 1] [max 9] [pattern 'regex'] [= default]  text"
WANTED = f"Write {FORM}, with values that contain spaces in single quotes, and two spaces before the text"
QUOTED_VALUE = r"'(?:[^']|'')*+'"
CHOICE = rf"{QUOTED_VALUE}|[^\s,'\"()][^\s,'()]*+"
OPTION = (
    rf" (?:(?P<bound>min|max) (?P<limit>{QUOTED_VALUE}|[^\s'\"]\S*+)|pattern (?P<pattern>{QUOTED_VALUE})"
    rf"|in ?\((?P<in>\s*+(?:{CHOICE})\s*+(?:,\s*+(?:{CHOICE})\s*+)*+)\))(?!\S)"
)
#: An option with an extra space before it must not be read as the text.
DECLARATION = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63}):[ \t]*+"
    r"(?P<type>[A-Za-z]\w*+)(?P<array>\[\])?+(?P<optional>\?)?+"
    rf"(?P<options>(?:{OPTION})*+)(?: = ?(?!null\b)(?P<default>{QUOTED_VALUE}|[^\s']\S*+)(?!\S))?+"
    r"(?:[ \t]*|(?:[ \t]{2,}+|\t)(?!=|(?:in|min|max|pattern) ?['(+\-\d])(?P<text>\S.*))",
    re.DOTALL,
)
OPTION_PATTERN = re.compile(OPTION)
QUERY_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_WANTED = "a name of at most 40 characters a-z, 0-9 and _, a letter first"
DESCRIPTION_KEY = "description"
HEADER_KEYS = ("name", "title", DESCRIPTION_KEY, "returns", "max_rows", "timeout", "writes", "confirm")
MOST_WRITTEN = 1_000  #: rows that one call of a query may change
#: The arguments of a query that changes rows, besides its parameters.
OF_CHANGES = ("dry_run", "idempotency_key", "confirm")
LINE_WANTED = (
    "Write above the SQL, from the beginning of a line: -- KEY: value, "
    f"with one of the keys {', '.join(HEADER_KEYS)}, or {FORM}"
)
HEADER = re.compile(rf"-- (?:param |(?P<key>{'|'.join(HEADER_KEYS)}):(?!//|:))(?P<value>.*)")
CONTINUATION = re.compile(r"--(?:[ \t]{2}|\t)\s*(\S.*)")
KEY_WORDS = "name|title|description|returns|max[_ -]?rows|timeout|writes|confirm"
#: A comment that is almost certainly a misspelt header line, anywhere in the file.
LIKE_HEADER = re.compile(rf"\s*--\s*(?i:(?:{KEY_WORDS})\s*:(?!//|:)|param\s+\w+\s*:)")
#: Before the SQL, also a comment that begins with a key, or with a lowercase word and a colon.
LIKE_KEY = re.compile(rf"--\s*(?:(?:{KEY_WORDS}|param)\b|[a-z][a-z0-9_-]*\s*:(?!\S))")


@dataclass(frozen=True, kw_only=True)
class QueryParameter:
    """An argument of a query, as its header declares it; values are kept as text."""

    name: str
    type: ColumnType  #: one of PARAMETERS; for an array, the type of its items
    array: bool = False
    optional: bool = False  #: whether a call may omit it, even without a default
    default: str | None = None  #: for an array: a JSON array
    choices: tuple[str, ...] = ()  #: empty: any value; in an array, these and all bounds apply to items
    minimum: str | None = None
    maximum: str | None = None
    pattern: str | None = None  #: a regular expression to find anywhere in the value
    description: str = ""
    source: Source = field(default_factory=Source)

    @property
    def required(self) -> bool:
        """Whether every call must supply it."""
        return not self.optional and self.default is None

    @property
    def may_be_absent(self) -> bool:
        """Whether a call may leave it without a value."""
        return self.optional and self.default is None


class Returns(StrEnum):
    """How many rows a query returns."""

    ONE = "one"
    MANY = "many"


@dataclass(kw_only=True)
class Header:
    """What the comments before a query's SQL declare, filled in line by line."""

    declared: dict[str, Any] = field(default_factory=dict)  #: values by key; a Query has a field for each
    parameters: list[QueryParameter] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)  #: the words of faulty lines
    mistakes: list[tuple[int, str]] = field(default_factory=list)  #: a line, and what is wrong there


def read_header(lines: Iterable[tuple[int, str]], file: str) -> Header:
    """Return what *lines* of *file*, each with its number, declare."""
    header = Header()
    key = ""  #: of the line before
    for number, line in lines:
        text = line.rstrip()
        found = HEADER.fullmatch(text)
        more = CONTINUATION.fullmatch(text) if key == DESCRIPTION_KEY else None
        try:
            if found:
                key = found["key"] or ""
                _add(header, key, found["value"].strip(), Source(file=file, line=number))
            elif problem := near_miss(text, LIKE_HEADER, *([] if more else [LIKE_KEY])):
                raise ValueError(problem)
            elif more:
                header.declared[DESCRIPTION_KEY] = f"{header.declared[DESCRIPTION_KEY]} {more[1]}".strip()
            else:
                key = ""
        except ValueError as exc:
            key = ""
            header.mistakes.append((number, str(exc)))
            header.mentioned.update(re.findall(r"\w+", text))
    return header


def mistakes_of(header: Header, line: int) -> Iterator[tuple[int, str]]:
    """Yield what is contradictory in the keys and parameters of *header*, which begins at *line*."""
    if "writes" in header.declared:
        idle = [key for key in ("returns", "max_rows") if key in header.declared]
        yield from ((line, f"{key}: a query that writes returns what RETURNING returns") for key in idle)
        taken = [each for each in header.parameters if each.name in OF_CHANGES]
        for each in taken:
            yield (
                each.source.line or line,
                f"param {each.name}: a query that writes has this argument already",
            )
    elif "confirm" in header.declared and "writes" not in header.mentioned:
        yield line, "confirm: only a query that writes can be confirmed: add -- writes: N"


def near_miss(text: str, *patterns: re.Pattern[str]) -> str:
    """Return the right form if *text* resembles a header line by one of *patterns*, or nothing."""
    is_near = any(pattern.match(text) for pattern in patterns)
    return f"{quote(text.strip())} is not a header line. {LINE_WANTED}" if is_near else ""


def _add(header: Header, key: str, value: str, source: Source) -> None:
    """Put *value* into *header* under *key*, or as a parameter without a key; or raise ValueError."""
    if not key:
        parameter = declaration(value, source)
        if any(parameter.name == each.name for each in header.parameters):
            raise ValueError(f"param {parameter.name}: this name is declared above")
        header.parameters.append(parameter)
        return
    if key in header.declared:
        raise ValueError(f"{key} is given twice")
    pattern, read, wanted = READERS[key]
    if not re.fullmatch(pattern, value):
        raise ValueError(f"{key}: must be {wanted}, not {quote(value)}")
    header.declared[key] = read(value)


def _timeout(value: str) -> float:
    seconds = seconds_of(value)
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise ValueError(f"timeout: must be more than 0 seconds and at most an hour, not {quote(value)}")
    return seconds


#: By key: the pattern of a value, how to read it, and what to write instead of another.
READERS: Mapping[str, tuple[str | re.Pattern[str], Callable[[str], Any], str]] = {
    "name": (QUERY_NAME, str, NAME_WANTED),
    "title": (".*", str, "text"),
    DESCRIPTION_KEY: (".*", str, "text"),
    "returns": ("|".join(Returns), Returns, " or ".join(Returns)),
    "max_rows": ("[1-9][0-9]{0,8}", int, "a number of rows such as 50"),
    "timeout": (r"\d+(\.\d+)?\s*(ms|s|m|h|)", _timeout, "a duration such as 10s, 500ms or 2m"),
    "writes": ("[1-9][0-9]{0,2}|1000", int, f"a number of rows from 1 to {MOST_WRITTEN:,}"),
    "confirm": ("true|false", lambda value: value == "true", "true or false"),
}


def declaration(text: str, source: Source) -> QueryParameter:
    """Return the parameter that *text*, which follows `-- param `, declares, or raise ValueError."""
    written = DECLARATION.fullmatch(text)
    options = list(OPTION_PATTERN.finditer(written["options"])) if written else []
    keywords = [each["bound"] or each[0].split()[0] for each in options]
    if written is None or len(set(keywords)) < len(keywords):
        raise ValueError(f"param {quote(text)} cannot be read. {WANTED}")
    try:
        parameter = _parameter(written, dict(zip(keywords, options, strict=True)), source)
        _check(parameter)
    except ValueError as exc:
        raise ValueError(f"param {written['name']}: {exc}") from exc
    return parameter


def _parameter(written: re.Match[str], options: dict[str, re.Match[str]], source: Source) -> QueryParameter:
    if written["name"] == CLAIMS:
        raise ValueError(f"this name is reserved for the caller's claims, as in :{CLAIMS}.region")
    type = PARAMETERS.get(written["type"])
    if type is None:
        known = f"{did_you_mean(written['type'], PARAMETERS)}Types: {listing(PARAMETERS)}"
        raise ValueError(f"{quote(written['type'])} is not a type. {known}, and lists such as text[]")
    default = written["default"]
    if default and default.startswith('"') and type.family is not Family.JSON:
        raise ValueError(f"{default} is in double quotes. {WANTED}")
    minimum, maximum, pattern, choices = map(options.get, ("min", "max", "pattern", "in"))
    return QueryParameter(
        name=written["name"],
        type=type,
        array=written["array"] is not None,
        optional=written["optional"] is not None,
        default=_unquote(default),
        choices=tuple(str(_unquote(each)) for each in re.findall(CHOICE, choices["in"] if choices else "")),
        minimum=_unquote(minimum and minimum["limit"]),
        maximum=_unquote(maximum and maximum["limit"]),
        pattern=_unquote(pattern and pattern["pattern"]),
        description=(written["text"] or "").strip(),
        source=source,
    )


def _unquote(text: str | None) -> str | None:
    return text[1:-1].replace("''", "'") if text and text.startswith("'") else text


def _check(parameter: QueryParameter) -> None:
    """Raise ValueError if *parameter* contradicts itself, or declares a value of another type."""
    type = parameter.type
    bounded = parameter.minimum is not None or parameter.maximum is not None
    for option, given, fitting in (
        ("pattern", parameter.pattern is not None, type.family is Family.TEXT),
        ("in", bool(parameter.choices), type.family is not Family.JSON),
        ("min or max", bounded, type.family in (*NUMERIC, *TEMPORAL)),
    ):
        if given and not fitting:
            raise ValueError(f"a parameter of type {type.name} has no {option}")
    if parameter.pattern is not None:
        _check_pattern(parameter.pattern)
    for place, text in values_in(parameter):
        if place in ("min", "max"):
            _check_bounds(place, text, parameter)
        else:
            check_value(place, text, parameter)
    if len(set(map(type.comparable_value, parameter.choices))) < len(parameter.choices):
        raise ValueError("in lists a value twice")


def values_in(parameter: QueryParameter) -> Iterator[tuple[str, str]]:
    """Yield the values that *parameter* declares, each with its keyword."""
    bounds = (("min", parameter.minimum), ("max", parameter.maximum))
    yield from ((keyword, bound) for keyword, bound in bounds if bound is not None)
    yield from (("in", choice) for choice in parameter.choices)
    yield from (("default", text) for text in defaults_of(parameter))


def defaults_of(parameter: QueryParameter) -> Iterator[str]:
    """Yield the default of *parameter*, or each item of an array; or raise ValueError."""
    if parameter.default is None:
        return
    if not parameter.array:
        yield parameter.default
        return
    is_json = parameter.type.family is Family.JSON
    numbers = None if is_json else Digits  # as they are written: a double would lose digits
    try:
        items = json.loads(parameter.default, parse_int=numbers, parse_float=numbers)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not (is_json or all(isinstance(each, str | bool) for each in items)):
        wanted = """a JSON array such as '[1, 2]' or '["a", "b"]'"""
        raise ValueError(f"default: {quote(parameter.default)} is not {wanted}")
    yield from (each if isinstance(each, str) else json.dumps(each) for each in items)


def check_value(place: str, text: str, parameter: QueryParameter) -> None:
    """Raise ValueError, which names the *place*, if *text* is not allowed."""
    type, value = parameter.type, _check_bounds(place, text, parameter)
    if parameter.pattern is not None and not _matches_pattern(text, parameter.pattern):
        raise ValueError(f"{place}: {quote(text)} does not match the pattern")
    if parameter.choices and value not in {_comparable_value("in", each, type) for each in parameter.choices}:
        raise ValueError(f"{place}: {quote(text)} is not among {listing(parameter.choices)}")


def _check_bounds(place: str, text: str, parameter: QueryParameter) -> Any:
    """Return *text* as it is compared, or raise ValueError if it is out of bounds."""
    value = _comparable_value(place, text, parameter.type)
    for key, bound in (("min", parameter.minimum), ("max", parameter.maximum)):
        if bound is None:
            continue
        limit = _comparable_value(key, bound, parameter.type)
        try:
            is_beyond = value < limit if key == "min" else value > limit
        except TypeError as exc:
            problem = "one has a zone, and the other has none"
            raise ValueError(f"{place} {text} and {key} {bound}: {problem}") from exc
        if is_beyond:
            raise ValueError(f"{place} {text} is {'below' if key == 'min' else 'above'} {key} {bound}")
    return value


def _comparable_value(place: str, text: str, type: ColumnType) -> Any:
    try:
        return type.comparable_value(text)
    except ValueError as exc:
        raise ValueError(f"{place}: {exc}") from exc


# pydantic's engine takes linear time for any pattern. The standard library's may take years, and all other
# callers would wait.
def _check_pattern(pattern: str) -> None:
    """Raise ValueError if the engine rejects *pattern*."""
    try:
        _pattern_adapter(pattern)
    except SchemaError as exc:
        # The last line says what is wrong; those before it show where.
        problem = str(exc).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"pattern: {quote(pattern)} cannot be used: {problem}") from exc


def _matches_pattern(text: str, pattern: str) -> bool:
    """Return whether *pattern* is found anywhere in *text*."""
    try:
        _pattern_adapter(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=1_000)
def _pattern_adapter(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
