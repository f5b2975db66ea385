"""Find the values nearest to a wanted one. Texts in, the nearest of them out."""

from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from heapq import nlargest
from itertools import pairwise

from dbtools.errors import without_accents
from dbtools.values.dates import clock_of, utc
from dbtools.values.types import NUMERIC, TEMPORAL, Family, lower

LIKELY = 50  #: candidates that are compared letter by letter
COMPARED = 40  #: characters of two values that are compared
NEAR = 5  #: nearest values to list


def value_of(text: str, family: Family) -> str | Decimal:
    """Return the value of *text*, equal for all spellings of the same value."""
    if family not in NUMERIC:
        return (utc(text.strip()) or clock_of(text.strip())) if family in TEMPORAL else text
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return text
    return text if number.is_nan() else number


def nearest_values(family: Family, wanted: str, texts: Sequence[str]) -> Sequence[str]:
    """Return the *texts* nearest to *wanted*: by letters, or the one before and the one after."""
    if family not in (*NUMERIC, *TEMPORAL):
        return _nearest_texts(wanted, texts)
    meant = value_of(wanted, family)
    values = ((value_of(text, family), text) for text in texts)
    ordered = sorted(each for each in values if type(each[0]) is type(meant))
    at = bisect_left(ordered, (meant, ""))
    return [text for _, text in ordered[max(0, at - 1) : at + 1]]


def _nearest_texts(wanted: str, texts: Sequence[str]) -> Sequence[str]:
    low = without_accents(lower(wanted.strip()))[:COMPARED]
    folded = {without_accents(lower(text.strip()))[:COMPARED]: text for text in texts}
    similar = [each for each in folded if min(len(each), len(low)) > 2 and (low in each or each in low)]
    # Counting common pairs of letters finds likely candidates quickly.
    pairs = set(pairwise(low))
    likely = nlargest(LIKELY, folded, key=lambda text: len(pairs & set(pairwise(text))))
    close = get_close_matches(low, likely, n=NEAR, cutoff=0.7)
    return [folded[each] for each in dict.fromkeys([*close[:2], *similar, *close])][:NEAR]
