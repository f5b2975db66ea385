"""Say what to write on PostgreSQL for what other databases have. A word in, a hint out."""

from collections.abc import Iterable, Mapping

from dbtools.backends.free import unknown_function
from dbtools.errors import SqlRefused

#: What to use for a function of other databases, or for one that is not permitted.
FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("clock_timestamp", "timeofday", "getdate", "sysdate", "datetime"), "now()"),
    **dict.fromkeys(("group_concat", "listagg"), "string_agg(x::text, ', ')"),
    **dict.fromkeys(("ifnull", "nvl", "isnull"), "coalesce"),
    **dict.fromkeys(("if", "iif"), "case when … then … else … end"),
    **dict.fromkeys(("date_format", "strftime"), "to_char(x, 'YYYY-MM')"),
    **dict.fromkeys(
        ("year", "quarter", "month", "week", "day", "weekday", "hour", "minute"), "extract(year from x)"
    ),
    **dict.fromkeys(
        ("datediff", "julianday", "timestampdiff", "date_diff"),
        "a - b, and extract(epoch from a - b) for moments as seconds",
    ),
    **dict.fromkeys(("dateadd", "date_sub", "timestampadd"), "x + interval '1 day'"),
    **dict.fromkeys(("instr", "charindex", "locate"), "strpos(text, part)"),
    **dict.fromkeys(("len", "datalength"), "length"),
    **dict.fromkeys(("json_extract", "json_value"), "x ->> 'key', or x #>> '{a,b}'"),
    **dict.fromkeys(("json_group_array", "json_arrayagg"), "json_agg"),
    **dict.fromkeys(("json_group_object", "json_objectagg"), "json_object_agg"),
    **dict.fromkeys(("median", "percentile"), "percentile_cont(0.5) within group (order by x)"),
    "last_day": "date_trunc('month', x) + interval '1 month - 1 day'",
    **dict.fromkeys(("try_cast", "safe_cast"), "case when x ~ '^[0-9]+$' then x::int end"),
    **dict.fromkeys(("printf",), "format or to_char"),
    **dict.fromkeys(("total",), "coalesce(sum(x), 0)"),
    **dict.fromkeys(("rand",), "random"),
}
#: What to write for operators.
OPERATORS: Mapping[str, str] = {
    "`": "Write names in double quotes.",
    "==": "Write =.",
    "!": "Write not.",
}
#: What to write for words before a text, which would be a type.
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("regexp", "rlike", "glob"), "Write ~ for a regular expression, or like."),
    "separator": "Write string_agg(x, ', ').",
}
#: What to write where a statement cannot be read, by one of the last two words.
SYNTAX: Mapping[str, str] = {
    "top": "Write limit 5 at the end.",
    "interval": "Write interval '1 day', with the whole value in quotes.",
    "limit": "Write limit 10 offset 5.",
    "for": "Leave out for update: run_sql only reads.",
    "qualify": "Write the window function in a subquery, and its condition outside.",
    "in": "Select one column in the subquery, or give both sides equally many.",
    "into": "run_sql only reads: leave out into.",
}


def function_refusal(name: str, permitted: Iterable[str], *, position: int) -> SqlRefused:
    """Return the refusal of the function *name*, which is not among those *permitted*."""
    return unknown_function(name, permitted, instead=FUNCTIONS.get(name, ""), position=position)


def syntax_hint(before: str, word: str, usual: str) -> str:
    """Return what to write for *word*, which follows the word *before*; *usual* if neither is known."""
    return SYNTAX.get(word) or SYNTAX.get(before) or usual
