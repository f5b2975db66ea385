"""Lists of tools that some providers of models refuse: the operator learns of them, and of the remedy."""

from collections.abc import Sequence

import pytest

from dbtools.answers.styles import Listing, Surface
from dbtools.policy.roles import Role
from dbtools.schema.catalog import Catalog
from dbtools.service.snapshot import RoleSnapshot, take_snapshot
from dbtools.tools import MOST_TOOLS
from dbtools.values.types import Family
from tests.unit.shop import column, resolved, table

COUNT = 72
MANY = Catalog(
    tables=tuple(table(column("id", Family.INTEGER), name=f"t{number}") for number in range(COUNT))
)


def _seen(listing: Listing) -> tuple[RoleSnapshot, Sequence[str]]:
    """Return what a role sees with *listing*, and what the operator learns of its tools."""
    view = take_snapshot(resolved(MANY, (Role(),), listing)).views["default"]
    return view, [*view.replacement_notes(listing)]


@pytest.mark.parametrize("surface", Surface)
def test_more_tools_than_some_providers_accept_are_reported_with_a_remedy(surface: Surface) -> None:
    view, lines = _seen(Listing(surface=surface, budget=10**9))

    assert (len(view.definitions) > MOST_TOOLS) == bool(view.excess) == (surface is Surface.TYPED)
    assert [each for each in lines if f"accept at most {MOST_TOOLS}" in each] == lines
    assert len(lines) == (surface is not Surface.GENERIC)
    assert all("[tools]" in each and "pin" in each for each in lines)


def test_pinned_tools_are_reported_if_they_are_too_many() -> None:
    view, lines = _seen(Listing(budget=0, pin=tuple(each.name for each in MANY.tables)))

    assert len(view.definitions) > MOST_TOOLS
    assert view.excess in lines
