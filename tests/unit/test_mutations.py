"""The faults that `tests/mutants.py` puts into the package."""

import ast

import pytest

from tests.mutations import chosen, mutants_of

SOURCE = b'''
"""At least 1."""

import os
MOST: int = 3


class Room:
    def name(self, first: int, last: int = 9) -> str:
        """Return 1 of them."""
        logger.info("%d", 1)
        if first <= last and not self.is_full:
            raise ValueError(first)
        self.count += last
        return min(first, last)
'''
CODE = [
    "a.py:: MOST: int = 3 [3 -> 4] #1",
    "a.py:: MOST: int = 3 [3 -> 2] #1",
    "a.py:Room.name: def name(self, first: int, last: int = 9) -> str: [9 -> None] #1",
    "a.py:Room.name: def name(self, first: int, last: int = 9) -> str: [9 -> 10] #1",
    "a.py:Room.name: def name(self, first: int, last: int = 9) -> str: [9 -> 8] #1",
    "a.py:Room.name: if first <= last and not self.is_full: "
    "[first <= last and not self.is_full -> (not (first <= last and not self.is_full))] #1",
    "a.py:Room.name: if first <= last and not self.is_full: [and -> or] #1",
    "a.py:Room.name: if first <= last and not self.is_full: [<= -> <] #1",
    "a.py:Room.name: if first <= last and not self.is_full: [not -> ] #1",
    "a.py:Room.name: raise ValueError(first) [raise ValueError(first) -> pass] #1",
    "a.py:Room.name: self.count += last [self.count += last -> pass] #1",
    "a.py:Room.name: return min(first, last) [return min(first, last) -> return None] #1",
    "a.py:Room.name: return min(first, last) [min -> max] #1",
]
QUERY = b"""
NAMES = "select name from t where not hidden and a < b"
"""
SQL = [
    'a.py:: NAMES = "select name from t where not hidden and a < b" [not -> ] #1',
    'a.py:: NAMES = "select name from t where not hidden and a < b" [and -> or] #1',
    'a.py:: NAMES = "select name from t where not hidden and a < b" [< -> <=] #1',
]


@pytest.mark.parametrize(
    ("source", "keys"), [pytest.param(SOURCE, CODE, id="code"), pytest.param(QUERY, SQL, id="SQL")]
)
def test_each_mutant_is_one_edit_of_what_runs(source: bytes, keys: list[str]) -> None:
    mutants = mutants_of("a.py", source)

    assert [each.key for each in mutants] == keys
    assert len({ast.dump(ast.parse(each.applied(source))) for each in mutants}) == len(keys)


def test_mutants_keep_their_keys_when_other_lines_change() -> None:
    moved = SOURCE.replace(b"import os", b"import os\n\n\ndef other() -> bool:\n    return True")

    assert {*CODE} <= {each.key for each in mutants_of("a.py", moved)}


def test_choice_spreads_over_all_modules_and_is_the_same_each_time() -> None:
    sources = {"a.py": SOURCE, "b.py": QUERY, "c.py": SOURCE * 3}

    keys = [each.key for each in chosen(sources, count=12, seed=1)]

    assert keys == [each.key for each in chosen(sources, count=12, seed=1)]
    assert [sum(key.startswith(module) for key in keys) for module in sources] == [3, 1, 9]
