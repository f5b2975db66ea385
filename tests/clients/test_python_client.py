"""The SDK's Python client takes the tour in each of its modes."""

import pytest

from tests.clients.places import EVERYWHERE, Place
from tests.clients.tour import expected, tour
from tests.protocol.changing import HANDSHAKE
from tests.protocol.client import MODERN

VERSIONS = {"legacy": HANDSHAKE, "auto": MODERN, MODERN: MODERN}  #: by mode


@pytest.mark.parametrize("mode", VERSIONS)
@pytest.mark.parametrize("place", EVERYWHERE, indirect=True)
async def test_client_sees_what_there_is(place: Place, mode: str) -> None:
    assert await tour(place, mode) == expected(place, VERSIONS[mode])
