"""Hints for callers who write SQL or other tools' JSON out of habit. What they wrote in, a hint out."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from dbtools.terms import Bucket, Function

BUCKET_NAMES = tuple(map(str, Bucket))
MEASURES = 'For totals use aggregate_rows with measures such as {"function": "sum", "column": "total"}.'
LONGEST = 1_000  #: characters of a text that are checked
QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
#: Hints by patterns of texts that are neither columns nor expressions.
FORMS: Mapping[str, str] = {
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
    bare = QUOTED.sub("''", text[:LONGEST])
    return next((each for form, each in FORMS.items() if re.search(form, bare, re.IGNORECASE)), "")


#: Names of arguments in other tools, and what to write instead.
ARGUMENTS: Mapping[str, str] = {
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
#: Names of keys in the items of other tools' arrays, and what to write instead.
KEYS: Mapping[str, str] = {
    "field": "column",
    **dict.fromkeys(("operator", "operation"), "op"),
    **dict.fromkeys(("func", "agg", "aggregation"), "function"),
    **dict.fromkeys(("as", "alias"), "name"),
    **dict.fromkeys(("dir", "order"), "direction"),
}
OPPOSITES = {"eq": "ne", "in": "not_in", "lt": "gte", "gt": "lte", "true": "false"}
OPPOSITES |= {opposite: each for each, opposite in OPPOSITES.items()}
COMPARISON = re.compile(
    r"([\w.:]+)\s*(?:(is\s+(?:not\s+)?null)|([<>=!]{1,2})\s*(?:'([^']*)'|(-?[\d.]+)))", re.IGNORECASE
)
MEASURE = re.compile(
    rf"({'|'.join(Function)})(?:\s*\((\s*distinct\s)?\s*\*?([^()]*)\))?(?:\s+as\s+(\w+))?", re.I
)
STEP = re.compile(r"([^,]*?\w)\s*[:\s]\s*(asc|desc)(?:ending)?(?:\s+nulls\s+\w+)?", re.I)
Form = Mapping[str, object]


def corrected(argument: str, given: object) -> Sequence[object]:
    """Return the items that *given*, an item of the array *argument*, seems to mean, if any."""
    try:
        return CORRECTIONS[argument](given)
    except (KeyError, ValueError):
        return ()


def written(items: Iterable[object]) -> str:
    """Return *items* as JSON that callers can copy; a Python program may pass other values."""
    return ", ".join(json.dumps(each, default=str) for each in items)


def _renamed(given: object) -> dict[str, object]:
    """Return the object *given* with the right names of its keys."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError(given)
    return {KEYS.get(str(name).lower(), str(name)): value for name, value in given.items()}


def _where(given: object) -> Sequence[Form]:
    """Return the conditions, all of which must hold, that *given* means."""
    if isinstance(given, str):
        return [_condition(_compared(each)) for each in re.split(r"\sand\s", given, flags=re.I)]
    given = _renamed(given)
    name, value = next(iter(given.items()))
    word = name.lower().lstrip("$") if len(given) == 1 else ""
    if word in ("and", "all"):
        return [_single(each) for each in _items(value)]
    if word in ("or", "any"):
        nested = map(_single, _items(value))
        return [{"any": [*chain(*(_items(each.get("any", each)) for each in nested))]}]
    if word == "not":
        return [_opposite(_single(value))]
    if given.keys() & {"column", "some", "none"}:
        return [_condition(given)]
    if given.keys() & {"op", "value", "values", "value_column"}:
        raise ValueError(given)  # It is a condition without its column.
    return [_condition({"column": column, "value": value}) for column, value in given.items()]


def _single(given: object) -> Form:
    """Return the only condition that *given* means."""
    (condition,) = _where(given)
    return condition


def _opposite(condition: Form) -> Form:
    """Return the condition that holds where *condition*, which compares a column, does not."""
    op, value = str(condition.get("op", "eq")), str(condition.get("value")).lower()
    if "column" not in condition:
        raise ValueError(condition)
    if op == "is_null":
        return {**condition, "value": OPPOSITES[value]}
    return _condition({**condition, "op": OPPOSITES[op]})


def _compared(text: str) -> Form:
    """Return the condition that *text* such as "total > 100" means."""
    column, null, operator, quoted, number = _groups(COMPARISON, text)
    if null:
        return {"column": column, "op": "is_null", "value": "false" if "not" in null.lower() else "true"}
    return {"column": column, "op": operator, "value": quoted or number}


def _condition(given: Form) -> Form:
    """Return the condition *given* with its values where they belong."""
    if "column" not in given:
        return {name: _where(each) if name == "where" else each for name, each in given.items()}
    op, value = str(given.get("op", "eq")).lower(), given.get("values", given.get("value"))
    op = MEANT_BY_SIGN.get(op, op)
    if value is None and (("value" in given and op in ("eq", "ne")) or "null" in op):
        op, value = "is_null", "false" if "not" in op or op == "ne" else "true"
    if isinstance(value, list | tuple):
        op = {"eq": "in", "ne": "not_in"}.get(op, op)
    elif op in ("in", "not_in", "between") or (value is None and "value" in given):
        raise ValueError(given)
    values = {"values": _items(value)} if op in ("in", "not_in", "between") else {"value": value}
    others = {name: each for name, each in given.items() if name not in ("op", "value", "values")}
    return {**others, **({"op": op} if op != "eq" else {}), **(values if value is not None else {})}


def _measures(given: object) -> Sequence[object]:
    measure = _measured(given) if isinstance(given, str) else _measure(_renamed(given))
    if measure["function"] != "count" and "column" not in measure:
        raise ValueError(given)
    return [measure]


def _measure(given: Form) -> Form:
    if "function" in given:
        return {**given, **_measured(f"{given['function']}")}
    ((name, value),) = given.items()
    function, column = (value, name) if value in tuple(Function) else (name, value)
    return _measured(f"{value} as {name}" if "(" in f"{value}" else f"{function}({column})")


def _measured(text: str) -> Form:
    """Return the measure that *text* such as "sum(total) as revenue" means."""
    function, distinct, column, name = _groups(MEASURE, text)
    parts = {"function": "count_distinct" if distinct else function.lower(), "column": column, "name": name}
    return {key: each for key, each in parts.items() if each}


def _steps(given: object) -> Sequence[object]:
    if isinstance(given, str):
        return [" ".join(_groups(STEP, step)) for step in given.split(",")]
    given = _renamed(given)
    if given.keys() <= {"column", "direction"}:
        given = {str(given["column"]): given.get("direction", "asc")}
    return _steps(", ".join(f"{column} {direction}" for column, direction in given.items()))


def _groups(pattern: re.Pattern[str], text: str) -> Sequence[str]:
    match = pattern.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if match is None:
        raise ValueError(text)
    return match.groups("")


def _items(value: object) -> Sequence[object]:
    if value in ([], ()):
        raise ValueError(value)
    return value if isinstance(value, list | tuple) else [value]


#: How the items of arrays are corrected.
CORRECTIONS: Mapping[str, Callable[[object], Sequence[object]]] = {
    **dict.fromkeys(("where", "having"), _where),
    "measures": _measures,
    "order_by": _steps,
}
