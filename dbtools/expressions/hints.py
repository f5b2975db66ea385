"""Understand SQL and other tools' JSON that callers write out of habit. Their form in, ours or a hint out."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from dbtools.expressions.terms import Bucket, Function
from dbtools.schema.sql import words
from dbtools.values.cells import escape
from dbtools.values.types import Operator

BUCKET_NAMES = tuple(map(str, Bucket))
MEASURES = 'For totals use aggregate_rows with measures such as {"function": "sum", "column": "total"}.'
LONGEST_HINTED = (
    1_000  #: characters of what is checked: the patterns may take time in proportion to their square
)
QUOTED_TEXT = re.compile(r"""'[^']*'|"[^"]*\"""")
#: Hints by patterns of texts that are neither columns nor expressions.
HINTS_BY_PATTERN: Mapping[str, str] = {
    r"^\s*(\w+\.)?\*\s*$": "Omit columns to get all of them.",
    r"\bover\s*\(": "There are no window functions: group, order_by and offset instead.",
    r"\brank\s*\(": "rank(column) is for order_by of a list, with matches in where.",
    r"\b(where|filter)\b": "Expressions take no conditions: call aggregate_rows on their table, with where.",
    r"^[^()]*,": "Name one column in each item of the array.",
    r"\b\d{4}-\d\d-\d\d\b": "Write a day in single quotes: '2024-03-05'.",
    r"\bcount\s*\(\s*[*)]": 'To count rows use aggregate_rows with measures [{"function": "count"}].',
    r"^\s*(count|sum|avg|min|max)\s*$": "Only having and order_by of aggregate_rows name measures; a list "
    'is ordered by an expression such as "count(orders) desc".',
    r"\bdistinct\b|\bcount_distinct\s*\(": "aggregate_rows without measures lists distinct groups; its "
    "function count_distinct counts values.",
    rf"\b(date_trunc|date_part|extract|strftime|to_char|{'|'.join(BUCKET_NAMES)})\s*\(": "Write a bucket "
    f"after the date, such as ordered_on:month. Buckets: {', '.join(BUCKET_NAMES)}.",
    r"\b(datediff|timestampdiff|julianday|age)\s*\(": "A date minus a date is a number of days.",
    r"\b(now|today|getdate|date)\s*\(|\bcurrent_(date|timestamp)\b|\b(today|interval)\b": "Write a day as "
    "'2024-03-05'; a date plus 7 is a week later.",
    r"\bcase\b.*\bwhen\b|\b(iif|if|nullif)\s*\(": "case is not supported: group by the column, or make a "
    "call for each condition.",
    r"\b(ifnull|nvl|isnull)\s*\(": "Use coalesce(a, b).",
    r"::|\bcast\s*\(": "There are no casts: name the column as it is.",
    r"\|\||\bconcat\s*\(": "Text cannot be concatenated: name each column.",
    r"\b(substr|substring|left|right|instr|replace|trim)\s*\(": "Search texts with contains, starts_with "
    "or ends_with in where.",
    r"\bi?like\b": "Use contains, starts_with or ends_with in where, without %.",
    r"\bis\s+(not\s+)?null\b": 'Use op is_null with value "true" or "false" in where.',
    r"[%^]": "Numbers take + - * /.",
    r"\bas\b": "A name after as has letters, digits and _ only.",
    r"[<>=]": 'Conditions belong in where: {"column": "total", "op": "gt", "value": "100"}.',
}


def hint(text: str) -> str:
    """Return a hint on what to write instead of *text*, which is neither a column nor an expression."""
    bare = QUOTED_TEXT.sub("''", text[:LONGEST_HINTED])
    return next((each for form, each in HINTS_BY_PATTERN.items() if re.search(form, bare, re.IGNORECASE)), "")


#: Names of arguments in other tools, and what to write instead.
OTHER_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(("filter", "filters", "conditions"), "where"),
    **dict.fromkeys(("sort", "sort_by", "order", "direction"), "order_by"),
    **dict.fromkeys(("fields", "select"), "columns"),
    **dict.fromkeys(("group", "groups", "dimensions"), "group_by"),
    **dict.fromkeys(("aggregates", "aggregations", "metrics"), "measures"),
    **dict.fromkeys(("top", "page_size"), "limit"),
    **dict.fromkeys(("skip", "page"), "offset"),
}
#: Names of arguments in a measure, and what to do instead.
OF_MEASURES: Mapping[str, str] = {
    **dict.fromkeys(("where", "filter"), "where holds for all measures: make a call for each condition. "),
    "distinct": "Use the function count_distinct. ",
}
#: Operators by the signs and words that can only mean them.
MEANT_BY_SIGN: Mapping[str, str] = {
    "=": "eq",
    "==": "eq",
    "!=": "ne",
    "<>": "ne",
    "<": "lt",
    "<=": "lte",
    ">": "gt",
    ">=": "gte",
    "not in": "not_in",
    "equals": "eq",
    "not_equals": "ne",
    "less_than": "lt",
    "greater_than": "gt",
}
#: Names of operators and functions, and what to write instead.
MEANT: Mapping[str, str] = {
    **dict.fromkeys(("like", "ilike"), "contains, starts_with or ends_with, without %"),
    **dict.fromkeys(("null", "is null"), 'is_null with value "true"'),
    **dict.fromkeys(("not_null", "is not null", "is_not_null"), 'is_null with value "false"'),
    "and": "all",
    "or": "any",
    "distinct": "count_distinct",
    **dict.fromkeys(BUCKET_NAMES, "a bucket in group_by, such as ordered_on:month"),
}
#: Names of keys in the items of other tools' arrays, and what we call them.
CONDITION_KEYS: Mapping[str, str] = {"field": "column", "operator": "op", "operation": "op"}
MEASURE_KEYS: Mapping[str, str] = {
    "field": "column",
    **dict.fromkeys(("func", "agg", "aggregation"), "function"),
    **dict.fromkeys(("as", "alias"), "name"),
}
STEP_KEYS: Mapping[str, str] = {"field": "column", **dict.fromkeys(("dir", "order"), "direction")}
ARGUMENT_KEYS: Mapping[str, str] = {**CONDITION_KEYS, **MEASURE_KEYS, **STEP_KEYS}
#: Names in a condition that are not columns: alone, they do not mean that such a column has a value.
CONDITION_WORDS = words("column op value values value_column any some none where match and or not nor all")
#: Operators that take no value, and the value of is_null that they mean.
NULL_TESTS: Mapping[str, str] = {
    **dict.fromkeys(("null", "is null"), "true"),
    **dict.fromkeys(("not_null", "is not null", "is_not_null"), "false"),
}
OPPOSITES = {"eq": "ne", "in": "not_in", "lt": "gte", "gt": "lte", "true": "false"}
OPPOSITES |= {opposite: each for each, opposite in OPPOSITES.items()}
#: In double quotes, a text may be the name of a column.
VALUE = r"(?:'[^']*'|-?\d+(?:\.\d+)?)"
COMPARISON = re.compile(rf"([\w.:]+)\s*([<>=!]{{1,2}}|\b(?:eq|ne|[lg]te?)\b)\s*({VALUE})", re.I)
NULL_TEST = re.compile(r"([\w.:]+)\s+(is\s+(?:not\s+)?null)", re.I)
AMONG = re.compile(rf"([\w.:]+)\s+(not\s+)?in\s*\(\s*({VALUE}(?:\s*,\s*{VALUE})*)\s*\)", re.I)
RANGE = re.compile(rf"([\w.:]+)\s+between\s+({VALUE})\s+and\s+({VALUE})", re.I)
#: LIKE respects case on some databases, which our operators do not.
PATTERN = re.compile(r"([\w.:]+)\s+ilike\s+'(%?)([^'%_\\]+)(%?)'", re.I)
SEARCHES = {("%", "%"): "contains", ("", "%"): "starts_with", ("%", ""): "ends_with"}
MEASURE = re.compile(rf"({'|'.join(Function)})(?:\s*\(\s*(distinct\s+)?([^(),]*)\))?(?:\s+as\s+(\w+))?", re.I)
#: Nulls are last in every order.
STEP = re.compile(r"([^,]*?\w)(?:\s*:\s*|\s+)(asc|desc)(?:ending)?(?:\s+nulls\s+last)?", re.I)
Form = Mapping[str, object]


def translate(argument: str, item: object) -> Sequence[object]:
    """Return *item* of the array *argument* in our form, if it is in the form of another tool.

    Several items stand for one that demands them all. What has no exact translation is returned as it is.
    """
    try:
        return TRANSLATIONS[argument](item)
    except (KeyError, ValueError):
        return [item]


def steps_in(text: str) -> list[str]:
    """Return the steps of an order that *text* such as "total:desc, id asc" means, if it has this form."""
    try:
        return [" ".join(_groups(STEP, step)) for step in text.split(",")]
    except ValueError:
        return []


def json_values(items: Iterable[object]) -> str:
    """Return *items* as JSON that callers can copy; a Python program may pass other values."""
    return escape(", ".join(json.dumps(each, default=str, ensure_ascii=False) for each in items))


def _rename_keys(given: object, keys: Mapping[str, str]) -> dict[str, object]:
    """Return the object *given* with the names that *keys* has for its keys."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError(given)
    renamed = {keys.get(str(name).lower(), str(name)): value for name, value in given.items()}
    if len(renamed) < len(given):
        raise ValueError(given)  # Two keys mean the same.
    return renamed


def _conditions(given: object) -> Sequence[Form]:
    """Return the conditions, all of which must hold, that *given* means."""
    if isinstance(given, str):
        return _conditions_in(given)
    form = _rename_keys(given, CONDITION_KEYS)
    if "column" in form:
        return _comparisons(form)
    name, value = next(iter(form.items()))
    word = name.lower().removeprefix("$") if len(form) == 1 else ""
    if word in ("and", "all"):
        return [*chain.from_iterable(map(_conditions, _items(value)))]
    if word in ("or", "any"):
        nested = (_single_condition(each) for each in _items(value))
        return [{"any": [*chain.from_iterable(_items(each.get("any", each)) for each in nested)]}]
    if word == "not":
        return [_opposite_comparison(_single_condition(value))]
    if form.keys() & {"some", "none"}:
        return [_related_condition(form)]
    if any(name.lower() in CONDITION_WORDS or name.startswith("$") for name in form):
        raise ValueError(given)
    return [*chain.from_iterable(_equality(*each) for each in form.items())]


def _single_condition(given: object) -> Form:
    (condition,) = _conditions(given)
    return condition


def _related_condition(form: Form) -> Form:
    """Return the condition *form* on related rows with the conditions in it in our form."""
    if "where" not in form:
        return form
    read = _conditions if form.get("match") != "any" else lambda each: [_single_condition(each)]
    return {**form, "where": [*chain.from_iterable(map(read, _items(form["where"])))]}


def _opposite_comparison(comparison: Form) -> Form:
    """Return the comparison that holds where *comparison* does not; as in SQL, neither holds for a null."""
    op = str(comparison.get("op", "eq")) if "column" in comparison else ""
    value = str(comparison.get("value", "true")).lower()
    changed = {"value": OPPOSITES[value]} if op == "is_null" else {"op": OPPOSITES[op]}
    return {**comparison, **changed}


def _equality(column: str, value: object) -> Sequence[Form]:
    if value is None:
        return [{"column": column, "op": "is_null", "value": "true"}]
    values = _items(value)
    if any(isinstance(each, Mapping | list | tuple) for each in values):
        raise ValueError(value)
    return _comparisons({"column": column, "value": value})


def _comparisons(form: Form) -> Sequence[Form]:
    """Return the comparison *form* with its operator in our words, and its values where they belong."""
    op, value, values = form.get("op", "eq"), form.get("value"), form.get("values")
    if not isinstance(op, str):
        raise ValueError(form)
    op = MEANT_BY_SIGN.get(op.strip().lower(), op.strip().lower())
    others = {name: each for name, each in form.items() if name not in ("op", "value", "values")}
    if op in NULL_TESTS and value is None and values is None:
        return [{**others, "op": "is_null", "value": NULL_TESTS[op]}]
    if isinstance(value, list | tuple) and values is None:
        op, values = {"eq": "in", "ne": "not_in"}.get(op, op), _items(value)
        if op not in ("in", "not_in", "between"):
            raise ValueError(form)
    elif not isinstance(values, list | tuple) or value is not None:
        return [{**form, "op": op} if "op" in form else form]
    if None in values and op in ("in", "not_in"):
        return _with_null(others, op, [each for each in values if each is not None])
    return [{**others, "op": op, "values": values}]


def _with_null(column: Form, op: str, values: Sequence[object]) -> Sequence[Form]:
    """Return the conditions that *column* is null or one of *values*, or with not_in neither."""
    null = {**column, "op": "is_null", "value": "true" if op == "in" else "false"}
    some = [{**column, "op": op, "values": values}] if values else []
    return [{"any": [*some, null]}] if op == "in" and some else [*some, null]


def _conditions_in(text: str) -> Sequence[Form]:
    """Return the conditions, all of which must hold, in *text* such as "total > 100 and id < 5"."""
    if len(text) > LONGEST_HINTED:
        raise ValueError(text)
    parts = [text] if RANGE.fullmatch(text.strip()) else re.split(r"\sand\s", text, flags=re.I)
    return [_comparison_in(each.strip()) for each in parts]


def _comparison_in(text: str) -> Form:
    if found := AMONG.fullmatch(text):
        values = [each.strip("'") for each in re.findall(VALUE, found[3])]
        return {"column": found[1], "op": "not_in" if found[2] else "in", "values": values}
    if found := RANGE.fullmatch(text):
        column, *ends = found.groups()
        return {"column": column, "op": "between", "values": [each.strip("'") for each in ends]}
    if found := NULL_TEST.fullmatch(text):
        return {"column": found[1], "op": "is_null", "value": NULL_TESTS[" ".join(found[2].lower().split())]}
    if found := PATTERN.fullmatch(text):
        return {"column": found[1], "op": SEARCHES[found[2], found[4]], "value": found[3]}
    column, sign, value = _groups(COMPARISON, text)
    op = Operator(MEANT_BY_SIGN.get(sign, sign.lower()))
    return {"column": column, "op": op, "value": value.strip("'")}


def _measures(given: object) -> Sequence[Form]:
    if isinstance(given, str):
        return [_measure_in(given)]
    form = _rename_keys(given, MEASURE_KEYS)
    if isinstance(function := form.get("function"), str):
        measure = {"function": function.strip().lower()} if "(" not in function else _measure_in(function)
        if measure.keys() & form.keys() - {"function"}:
            raise ValueError(given)
        return [{**form, **measure}]
    ((name, value),) = form.items()
    functions = {*map(str, Function)}
    if name in ("column", "name") or not isinstance(value, str) or {name.lower(), value.lower()} <= functions:
        raise ValueError(given)
    if "(" in value:
        return [_measure_in(f"{value} as {name}")]
    return [_measure_in(f"{value}({name})" if value.lower() in functions else f"{name}({value})")]


def _measure_in(text: str) -> Form:
    """Return the measure that *text* such as "sum(total) as revenue" means."""
    function, distinct, column, name = (each.strip() for each in _groups(MEASURE, text))
    column = column if column != "*" else ""
    function = "count_distinct" if distinct else function.lower()
    if (distinct and not text.strip().lower().startswith("count")) or (function != "count" and not column):
        raise ValueError(text)
    parts = {"function": function, "column": column, "name": name}
    return {key: each for key, each in parts.items() if each}


def _steps(given: object) -> Sequence[object]:
    form = _rename_keys(given, STEP_KEYS)
    if form.keys() & {"column", "direction"}:
        if form.keys() - {"column", "direction"}:
            raise ValueError(given)
        form = {str(form["column"]): form.get("direction", "asc")}
    return steps_in(", ".join(f"{column} {direction}" for column, direction in form.items())) or [given]


def _groups(pattern: re.Pattern[str], text: str) -> Sequence[str]:
    match = pattern.fullmatch(text.strip()) if len(text) <= LONGEST_HINTED else None
    if match is None:
        raise ValueError(text)
    return match.groups("")


def _items(value: object) -> Sequence[object]:
    if value in ([], ()):
        raise ValueError(value)
    return value if isinstance(value, list | tuple) else [value]


#: How the items of arrays are translated.
TRANSLATIONS: Mapping[str, Callable[[object], Sequence[object]]] = {
    **dict.fromkeys(("where", "any", "having"), _conditions),
    "measures": _measures,
    "order_by": _steps,
}
