"""Clients of the handshake era that can answer requests, over stdio and over HTTP."""

import json
from collections.abc import AsyncIterator, Mapping

import anyio
import httpx2

from tests.protocol.client import CLIENT, PATIENCE, Client, Message
from tests.protocol.http_server import HANDSHAKE, SESSION, posted

ABLE: Mapping[str, object] = {"elicitation": {}}
ELICIT = "elicitation/create"


def initialize(version: str, capabilities: Mapping[str, object]) -> Message:
    """Return the params of a handshake."""
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT}


class LineTalk:
    """A client that has shaken hands over a socket, as over the pipes of stdio."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(self, request: Message) -> None:
        """Send *request*."""
        await self._client.send(request)

    async def hear(self) -> Message:
        """Return the next message."""
        return await self._client.receive()

    async def say(self, message: Message) -> None:
        """Send a message."""
        await self._client.send(message)

    async def leave(self) -> None:
        """Say no more."""
        self._client.hang_up()


class HttpTalk:
    """A client that has shaken hands over HTTP."""

    def __init__(self, client: httpx2.AsyncClient, session: Mapping[str, str]) -> None:
        self._client = client
        self._session = session
        self._response = httpx2.Response(204)
        self._lines: AsyncIterator[str] = self._response.aiter_lines()

    async def start(self, request: Message) -> None:
        """Send *request*, and take the answer as it comes."""
        built = self._client.build_request("POST", **posted(request, self._session))
        self._response = await self._client.send(built, stream=True)
        self._lines = self._response.aiter_lines()

    async def hear(self) -> Message:
        """Return the next message of the answer."""
        with anyio.fail_after(PATIENCE):
            async for line in self._lines:
                if (content := line.removeprefix("data: ")).startswith("{"):
                    message: Message = json.loads(content)
                    return message
        raise EOFError("The answer has ended.")

    async def say(self, message: Message) -> None:
        """Send a message in a separate request."""
        answer = await self._client.post(**posted(message, self._session))
        assert (answer.status_code, answer.content) == (202, b"")

    async def hang_up(self) -> None:
        """Read no more of the answer."""
        await self._response.aclose()

    async def leave(self) -> None:
        """End the session."""
        answer = await self._client.delete("/mcp", headers=self._session)
        assert answer.status_code == 200


async def shake_hands(
    client: httpx2.AsyncClient, able: Mapping[str, object] = ABLE, version: str = HANDSHAKE
) -> HttpTalk:
    """Open a session of a client that is *able*."""
    params = initialize(version, able)
    asked = posted({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    answer = await client.post(**asked)
    assert answer.status_code == 200, answer.text
    session = {SESSION: answer.headers[SESSION], "MCP-Protocol-Version": version}
    return HttpTalk(client, session)


def answered(question: Message, result: Message) -> Message:
    """Return the answer to *question*."""
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}
