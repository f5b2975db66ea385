"""Read the arguments of calls. JSON in, a pydantic model out, which also makes the advertised schema."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, ClassVar, TypedDict, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.expressions.hints import (
    ARGUMENT_KEYS,
    MEANT,
    OF_MEASURES,
    OTHER_ARGUMENTS,
    TRANSLATIONS,
    json_values,
    translate,
)
from dbtools.schema.paths import LONGEST_PATH
from dbtools.statements.select import Match
from dbtools.values.types import STRING, UNSENDABLE, Operator, quote

DEEPEST_VALUE = 32
DEFAULT_LIMIT = 50  #: rows of a list
MOST_COLUMNS = 500
MOST_CONDITIONS = 50
MOST_SKIPPED = 100_000  #: rows before the first one
MOST_STEPS = 16  #: of an order
MOST_VALUES = 1_000  #: of a condition
MOST_CHARACTERS = 1_000_000  #: of all strings in one call's arguments
MOST_PARTS = 20_000
LARGEST_NUMBER = 10**400
PLAIN_DEFAULTS: Sequence[object] = (None, "", [], {}, 0, "all")  #: defaults that the schema omits
#: What clients need not know, or do not accept, of the schemas of arguments.
DROPPED = ("title", "maxItems", "maxLength", "propertyNames", "additionalProperties")
ARRAYS, NUMBER_CLASSES = (list, tuple), (int, float)  #: the classes of these JSON values


def check(arguments: object) -> None:
    """Reject arguments that are too deep, too large or not valid text, before anything else reads them."""
    if problem := _problem(arguments):
        given = arguments.items() if isinstance(arguments, Mapping) else ()
        name = next((str(name) for name, value in given if _problem(value)), "arguments")
        raise errors.BadArgument(f"{quote(name)[1:-1]} {problem}.")


def _problem(arguments: object) -> str:
    """Return why *arguments* are refused, or nothing."""
    texts: list[str] = []
    numbers: list[int | float] = []
    names: list[str] = []
    level, depth, parts = [arguments], 0, 0
    while level and depth <= DEEPEST_VALUE and parts <= MOST_PARTS:
        nested: list[object] = []
        for value in level:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, ARRAYS):
                nested += value
            elif isinstance(value, NUMBER_CLASSES):
                numbers.append(value)
            elif isinstance(value, Mapping):
                names += map(str, value)
                nested += value.values()
                parts += len(value)
        parts += len(level)
        level, depth = nested, depth + 1
    text = "".join([*texts, *names])
    if level or parts > MOST_PARTS:
        many = f"must have at most {MOST_PARTS:,} values and names"
        return many if parts > MOST_PARTS else f"must be nested at most {DEEPEST_VALUE} levels deep"
    if len(text) > MOST_CHARACTERS:
        return f"must have at most {MOST_CHARACTERS:,} characters"
    if UNSENDABLE.search(text):
        return "must be valid Unicode text without NUL"
    return _problem_of(names, numbers)


def _problem_of(names: Sequence[str], numbers: Sequence[int | float]) -> str:
    """Return why *names* or *numbers* among arguments are refused, or nothing."""
    if max(map(len, names), default=0) > LONGEST_PATH:
        return f"must have names of at most {LONGEST_PATH:,} characters"
    digits = "must have at most 400 digits. Write NaN and Infinity as strings"
    return "" if all(abs(each) <= LARGEST_NUMBER for each in numbers) else digits


def as_text(value: object) -> object:
    """Return a JSON number or boolean as its text, anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _as_integer(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError
    return value


def as_json(value: object) -> object:
    """Return the array or object that a string encodes: some clients send JSON as text."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        read: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    check(read)
    return read


def _as_array(value: object, info: ValidationInfo) -> object:
    """Return *value*, or *value* as its only item, as an array; items of other tools' form in ours."""
    read = as_json(value)
    items = [read] if isinstance(read, str | Mapping) else read
    name = str(info.field_name)
    if name not in TRANSLATIONS or not isinstance(items, ARRAYS) or len(items) > MOST_CONDITIONS:
        return items
    # With "or" between conditions, one cannot become several that must all hold. Of conditions on related
    # rows, `match` is not known yet.
    is_single = name == "any" or (name == "where" and (info.context == Match.ANY or "some" in info.data))
    translations = [(item, translate(name, item)) for item in items]
    return [each for item, some in translations for each in ([item] if is_single and len(some) > 1 else some)]


AsText = Annotated[str, Field(max_length=MOST_CHARACTERS), BeforeValidator(as_text)]
Count = Annotated[int, BeforeValidator(_as_integer)]
Array = BeforeValidator(_as_array)
Object = BeforeValidator(as_json)


class Schema(TypedDict, total=False):
    """The JSON Schema of the arguments of a tool."""

    type: str
    properties: Mapping[str, Mapping[str, object]]
    required: Sequence[str]


def arguments_schema(properties: Mapping[str, Mapping[str, object]], required: Sequence[str]) -> Schema:
    """Return the JSON Schema of arguments; it leaves out the keywords that some providers refuse."""
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


class Arguments(BaseModel):
    """The arguments of one kind of tool; others are rejected, and so are long texts that are not values."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, str_max_length=LONGEST_PATH)
    example: ClassVar[str] = "{}"  #: a valid value, for messages


Columns = Annotated[tuple[str, ...], Field(max_length=MOST_COLUMNS), Array]
Steps = Annotated[tuple[str, ...], Field(max_length=MOST_STEPS), Array]


class Comparison(Arguments):
    """A comparison of a term with values, or with another term."""

    example = '{"column": "id", "value": "1"}'
    column: str
    op: Operator = Operator.EQ
    value: AsText | SkipJsonSchema[None] = None
    values: Annotated[tuple[AsText, ...], Field(max_length=MOST_VALUES), Array] | SkipJsonSchema[None] = None
    value_column: str | SkipJsonSchema[None] = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, or the one value."""
        if self.value_column is not None:
            return ()
        return self.values if self.values is not None else (str(self.value),)


Comparisons = Annotated[tuple[Comparison, ...], Field(max_length=MOST_CONDITIONS), Array]
TEXTS: Mapping[str, object] = {"type": "array", "items": STRING}
#: The schema of conditions within another argument: what most of them need. The rest is accepted, too.
BRIEFLY = WithJsonSchema(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"column": STRING, "op": STRING, "value": STRING, "values": TEXTS},
        },
    }
)


class Within(Comparison):
    """A condition on a related row."""

    column: str = ""
    any: Annotated[Comparisons, BRIEFLY] = ()


class Where(Within):
    """One condition."""

    some: str = Field(default="", description="with such related rows")
    none: str = ""
    where: Annotated[tuple[Within, ...], Field(max_length=MOST_CONDITIONS), Array, BRIEFLY] = Field(
        default=(), description="as where"
    )
    match: SkipJsonSchema[Match] = Match.ALL


#: The members of a condition on related rows.
OF_RELATED = ("some", "none", "where")
Conditions = Annotated[tuple[Where, ...], Field(max_length=MOST_CONDITIONS), Array]


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def read(
    model: type[ArgumentsT],
    arguments: Mapping[str, object],
    *,
    max_rows: int | None = None,
    listed: Sequence[str] = (),
) -> ArgumentsT:
    """Return *arguments* as *model*; "" and null mean absent, and `limit` is at most *max_rows*.

    *listed*: the arguments that hints name, by default all.
    """
    check(arguments)
    given = {name: value for name, value in arguments.items() if value is not None and value != ""}
    try:
        asked = model.model_validate(given, context=given.get("match"))
    except ValidationError as exc:
        raise _complaint(exc, model, listed) from exc
    limit: int = getattr(asked, "limit", 0)
    if max_rows is None or limit <= max_rows:
        return asked
    if "limit" in given:
        message = f"limit must be at most {max_rows}, not {limit}."
        refused = errors.BadArgument(message, limit="max_rows")
        raise refused
    # The caller has not set this limit.
    return model.model_construct(asked.model_fields_set, **{**dict(asked), "limit": max_rows})


def unknown_argument(name: str, known: Sequence[str], place: str = "") -> errors.UnknownArgument:
    """Return the error for an unknown argument *name*."""
    joins = name.lower().rpartition(".")[2].lstrip("$") in JOINING
    meant = (ARGUMENT_KEYS if place else OTHER_ARGUMENTS).get(name.lower())
    if joins and place.startswith("where"):
        advice = NESTED
    elif joins and "match" in known:
        advice = MATCH
    elif place.startswith("measures[") and name in OF_MEASURES:
        advice = OF_MEASURES[name]
    else:
        advice = f"Did you mean {meant}? " if meant in known else did_you_mean(name, known)
        advice = advice or "".join(hint for each, hint in VALUES_IN.items() if each in known)
    return errors.UnknownArgument(
        f"{f'{place} has' if place else 'There is'} no argument {quote(name)}.",
        hint=f"{advice}Arguments: {listing(known) or 'none'}.",
    )


def unknown_column(name: str, known: Sequence[str], place: str) -> errors.UnknownArgument:
    """Return the error for the unknown column *name* in the object at *place*."""
    hint = f"{did_you_mean(name, known)}Columns: {listing(known)}."
    return errors.UnknownArgument(f"{place} takes no column {quote(name)}.", hint=hint)


#: What callers write to join conditions, and what to write instead.
JOINING = ("or", "and", "any", "all")
NESTED = '{"any": [A, B]} joins with "or"; "(A and B) or C" is {"any": [A, C]}, {"any": [B, C]}. '
MATCH = 'List all conditions in where; match: "any" joins them with "or" (default "all": "and"). '
#: Where values by name belong, by the argument that takes them.
VALUES_IN: Mapping[str, str] = {
    "rows": 'The values of columns belong in rows, as in [{"name": "Ann"}]. ',
    "set": "New values of columns belong in set. ",
    "key": 'The key belongs in key, as in {"id": 1}. ',
    "arguments": "The parameters of the query belong in arguments. ",
}
ONE_VALUE = 'It is one text: write a condition for each item, or for each member such as "a":1.'
WANTED: Mapping[str, str] = {
    "enum": "cannot be {got}",
    "greater_than_equal": "must be at least {ge}, not {given}",
    "less_than_equal": "must be at most {le:,}, not {given}",
    "string_too_long": "must have at most {max_length:,} characters",
    "too_long": "must have at most {max_length:,} items, not {actual_length}",
    "too_short": "must not be empty",
    "string_type": "must be a string, not {got}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "value_error"), "must be an integer"),
    "tuple_type": "must be a JSON array, not {got}",
    **dict.fromkeys(("model_type", "dict_type"), "must be an object, not {got}"),
    "missing": "is missing",
}


def _complaint(exc: ValidationError, model: type[Arguments], listed: Sequence[str]) -> errors.CallError:
    found = exc.errors(include_url=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    kind, given, context = first["type"], first["input"], first.get("ctx", {})
    if kind == "extra_forbidden":
        *within, name = first["loc"]
        place, within_model = _place(within), _model_at(model, within)
        known = list(within_model.model_fields) if within or not listed else listed
        error = unknown_argument(str(name), known, place)
        if place.startswith(("where", "having")) and error.hint.startswith("Arguments"):
            return error.with_hint(f"{error.hint} For example: {within_model.example}.")
        return error
    place = _place([part for part in first["loc"] if not str(part).startswith(("function-", "tuple["))])
    words = {"given": given, "got": in_words(given)}
    hint = ""
    if kind == "model_type":
        hint = f"For example: {_model_at(model, first['loc']).example}."
    elif place == "key":
        hint = 'Name the columns of the key of that table, as in {"COLUMN": "VALUE"}.'
    elif kind == "string_type" and place.endswith(".value"):
        hint = ONE_VALUE
    elif kind == "enum":
        known = f"one of {context['expected']}"
        hint = f"Use {MEANT.get(str(given).strip().lower(), known)}."
    problem = WANTED.get(kind, "cannot be read").format(**words, **context)
    return errors.BadArgument(f"{place} {problem}.", hint=hint)


def _model_at(model: type[Arguments], within: Sequence[int | str]) -> type[Arguments]:
    """Return the model at the place *within* of *model*: itself, or the model of an array's items."""
    for name in within:
        items = get_args(model.model_fields[name].annotation) if name in model.model_fields else ()
        found = (item for item in items if isinstance(item, type) and issubclass(item, Arguments))
        model = next(found, model)
    return model


def in_words(value: object) -> str:
    """Return *value* for a message; describe it in words if it is long."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping | list | tuple):
        return "an object" if isinstance(value, Mapping) else "an array"
    # A Python program may pass other values than those of JSON.
    return json_values([value])[:60]


def _place(location: Sequence[int | str]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


@cache
def schema_of(model: type[Arguments], *, searches: bool, relates: bool) -> Schema:
    """Return the JSON Schema of *model*, without references, titles, null defaults and additionalProperties.

    *searches* is whether a column has a full-text index, *relates* whether there are related rows.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    if not searches and "Operator" in definitions:
        definitions["Operator"]["enum"].remove(Operator.MATCHES)
    if not relates and "Where" in definitions:
        for name in OF_RELATED:
            del definitions["Where"]["properties"][name]
    return cast(Schema, _inline_schema(schema, definitions))


def _inline_schema(schema: object, definitions: Mapping[str, object]) -> object:
    """Return *schema* without references, and without what only readers of the code need."""
    if isinstance(schema, list):
        return [_inline_schema(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        assert isinstance(target, dict)
        schema = target | {name: each for name, each in schema.items() if name != "$ref"}
    # The description of an object or an enumeration is its docstring.
    documented = "properties" in schema or "enum" in schema
    dropped = DROPPED if not documented else (*DROPPED, "description")
    return {
        name: _inline_schema(each, definitions)
        for name, each in schema.items()
        if name not in dropped and not (name == "default" and each in PLAIN_DEFAULTS)
    }
