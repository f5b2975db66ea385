"""The clients of both TypeScript SDKs take the tour, the second one in each of its modes."""

import pytest

from tests.clients.node import needs_node, visit
from tests.clients.places import EVERYWHERE, Place
from tests.clients.tour import expected
from tests.protocol.changing import HANDSHAKE
from tests.protocol.client import MODERN

CLIENTS = [
    pytest.param({"sdk": "1"}, HANDSHAKE, id="1"),
    pytest.param({"sdk": "2", "mode": "legacy"}, HANDSHAKE, id="2-legacy"),
    pytest.param({"sdk": "2", "mode": "auto"}, MODERN, id="2-auto"),
    pytest.param({"sdk": "2", "mode": MODERN}, MODERN, id=f"2-{MODERN}"),
]
pytestmark = needs_node


@pytest.mark.parametrize(("client", "version"), CLIENTS)
@pytest.mark.parametrize("place", EVERYWHERE, indirect=True)
async def test_client_sees_what_there_is(place: Place, client: dict[str, str], version: str) -> None:
    assert await visit(place, **client) == expected(place, version)
