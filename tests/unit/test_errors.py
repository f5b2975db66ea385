"""The tree of errors: the codes and default messages."""

import re
from collections.abc import Iterator

import pytest

from dbtools import errors
from dbtools.errors import DbtoolsError, did_you_mean, listing


def _classes(parent: type[DbtoolsError] = DbtoolsError) -> Iterator[type[DbtoolsError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from _classes(child)


def _drawn() -> dict[str, tuple[str, str]]:
    """Return parent and code of each class in the drawing that opens the module."""
    drawn: dict[str, tuple[str, str]] = {}
    lines = re.findall(r"^(│   )?[├└]── (\w+) +([a-z_]+)?", str(errors.__doc__), re.MULTILINE)
    for indent, name, code in lines:
        drawn[name] = ("CallError" if indent else "DbtoolsError", code)
    return drawn


def test_drawing_shows_every_error_with_its_parent_and_code() -> None:
    actual = {each.__name__: (each.__mro__[1].__name__, each.code) for each in _classes()}
    del actual["DbtoolsError"]
    drawn = _drawn()
    assert drawn.pop("CallError")[0] == actual.pop("CallError")[0]

    assert drawn == actual


@pytest.mark.parametrize("error", list(_classes()), ids=lambda error: str(error.code))
def test_docstring_is_the_message_where_nothing_is_said(error: type[DbtoolsError]) -> None:
    raised = error()

    assert (raised.message, raised.hint, str(raised)) == (error.__doc__, "", error.__doc__)


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        pytest.param("custmer", ["customer", "order"], "Did you mean customer? ", id="typing error"),
        pytest.param("CUSTOMER", ["customer", "order"], "Did you mean customer? ", id="case"),
        pytest.param("name", ["Name1", "Name2"], "Did you mean Name2 or Name1? ", id="several"),
        pytest.param("zzz", ["customer", "order"], "", id="nothing like it"),
        pytest.param("x", [], "", id="nothing known"),
    ],
)
def test_nearest_names_are_offered(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known) == said


def test_long_listings_say_how_many_are_left_out() -> None:
    names = [f"n{number}" for number in range(63)]

    assert listing(names) == ", ".join(names[:60]) + " and 3 more"
    assert listing(names[:60]) == ", ".join(names[:60])
