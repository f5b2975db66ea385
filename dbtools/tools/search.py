"""How well names and comments fit the words that somebody searches for."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

MOST_WORDS = 10
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
#: How well a word fits, best first.
SAME, SAME_STEM, PART, START, INSIDE, GROUP, COMMENT_WORD, COMMENT = 100, 90, 70, 60, 50, 40, 20, 10


CandidateT = TypeVar("CandidateT")


def words_of(search: str) -> list[str]:
    """Return the words of *search*, the first ten."""
    return [word for word in re.split(r"[^\w.]+", search.lower()) if word][:MOST_WORDS]


def found_by(
    words: Sequence[str],
    candidates: Iterable[CandidateT],
    fits: Callable[[CandidateT, str], int],
    length: Callable[[CandidateT], int] = lambda candidate: 0,
) -> list[CandidateT]:
    """Return the *candidates* that any of *words* fits, the best first.

    Those of most words come first, then those of the best fit, then those of the least *length*.
    """
    ranked: list[tuple[tuple[int, int, int], CandidateT]] = []
    for candidate in candidates:
        found = [fit for word in words if (fit := fits(candidate, word))]
        if found:
            ranked.append(((-len(found), -sum(found), length(candidate)), candidate))
    return [candidate for _, candidate in sorted(ranked, key=itemgetter(0))]


def fit(word: str, name: str, comment: str, *, qualified: str = "", group: str = "") -> int:
    """Return how well *word* fits what has *name* and *comment*, in a *group*; 0 where it does not."""
    low = name.lower()
    if word in (low, qualified.lower()):
        return SAME
    word = _stem(word)
    if word == _stem(low):
        return SAME_STEM
    if word in _parts(name):
        return PART
    if low.startswith(word):
        return START
    if word in low:
        return INSIDE
    if group and word == _stem(group.lower()):
        return GROUP
    comment = comment.lower()
    if word not in comment:
        return 0
    return COMMENT_WORD if re.search(rf"\b{re.escape(word)}(s|es)?\b", comment) else COMMENT


@lru_cache(maxsize=10_000)
def _parts(name: str) -> frozenset[str]:
    """Return the words that *name* is made of, without endings."""
    return frozenset(_stem(part.lower()) for part in WORDS.findall(name))


def _stem(word: str) -> str:
    """Return *word* without the ending of an English plural."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
