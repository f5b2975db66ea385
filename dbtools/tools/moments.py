"""A day that is compared with moments: what callers of an answer should know of it."""

import re
from collections.abc import Sequence

from dbtools.statement import Comparison, Condition
from dbtools.types import MOMENTS, Operator

DAY = re.compile(r"\s*\d{4}-?\d\d-?\d\d\s*", re.ASCII)
#: What of a day such a comparison leaves out, or takes in, that its writer may not have meant.
MISTAKABLE = (Operator.EQ, Operator.LTE, Operator.GT, Operator.BETWEEN)


def note_of_days(comparisons: Sequence[Comparison], conditions: Sequence[Condition]) -> str:
    """Return that a day means its first moment, where *conditions* compare moments with the end of a day."""
    for comparison, condition in zip(comparisons, conditions, strict=True):
        if comparison.operator not in MISTAKABLE or condition.term.type.family not in MOMENTS:
            continue
        last = comparison.values[-1] if comparison.values else str(comparison.value)
        if DAY.fullmatch(last):
            name = condition.term.name
            return f"{name} has times: {last.strip()} is 00:00 of that day. For all of it use gte and lt."
    return ""
