"""Hints for callers who write SQL out of habit. A text in, a hint on what to write instead out."""

import re
from collections.abc import Mapping

from dbtools.terms import Bucket

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
    **dict.fromkeys(("sort", "sort_by", "order"), "order_by"),
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
#: Operators by the signs that can only mean them.
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
}
#: Names of operators and functions, and what to write instead.
MEANT: Mapping[str, str] = {
    **dict.fromkeys(("like", "ilike"), "contains, starts_with or ends_with, without %"),
    **dict.fromkeys(("null", "is null"), 'is_null with value "true"'),
    **dict.fromkeys(("not_null", "is not null", "is_not_null"), 'is_null with value "false"'),
    "and": "all",
    "or": "any",
    "distinct": "count_distinct",
    "count(*)": "count without a column",
    **dict.fromkeys(BUCKET_NAMES, "a bucket in group_by, such as ordered_on:month"),
}
