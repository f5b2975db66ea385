"""A request that is being answered, messages to its client in the meantime, and notifications of changes.

A client with a handshake gets notifications on its connection or session, a client of 2026-07-28 on the
stream that it opened with `subscriptions/listen`. Each client gets only those about its role.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from dbtools.policy.roles import Caller
from dbtools.server.mcp.kernel import Peer, Questions, Session, meta_of
from dbtools.server.mcp.versions import SUBSCRIPTION_KEY
from dbtools.server.messages import (
    ClientResponse,
    Code,
    Id,
    Json,
    ProtocolError,
    encode,
    encode_id,
    encode_notification,
)
from dbtools.service.snapshot import Snapshot
from dbtools.telemetry import new_request_id
from dbtools.tools.definition import ListChange

TOOLS = "notifications/tools/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
FLAGS: Mapping[str, str] = {
    "toolsListChanged": TOOLS,
    "resourcesListChanged": RESOURCES,
}

Send = Callable[[bytes], None]  #: sends one message, without its line end; never blocks
Deliver = Callable[[str, str], None]  #: sends a method and the URI of a resource, or an empty text


@dataclass(slots=True)
class Exchange:
    """A request that is being answered."""

    id: Id
    method: str
    params: Json
    peer: Peer
    caller: Caller
    send: Send  #: to the client, before the answer
    questions: Questions | None = None  #: None: the server cannot send requests to the client
    has_asked: bool = False  #: whether the request has waited for an answer of its client
    problem: ProtocolError | None = None  #: of a malformed call, which is counted before it is refused

    def notify(self, method: str, params: Json) -> None:
        """Send a notification before the answer."""
        self.send(encode_notification(method, params))

    def report(self, progress: float, total: float, message: str) -> None:
        """Report progress if the client asked for it, but not after the server has sent it a request."""
        token = meta_of(self.params).get("progressToken")
        if token is not None and not self.has_asked:
            members = {"progressToken": token, "progress": progress, "total": total, "message": message}
            self.notify("notifications/progress", members)

    async def ask(self, method: str, params: Json, timeout: float) -> Json:
        """Send a request to the client and return the result, or raise ProtocolError or TimeoutError.

        Only until 2025-11-25: since 2026-07-28, a handler returns a result of type `input_required` instead.
        """
        needed = self.peer.revision.asks.get(method)
        if self.questions is None or needed not in self.peer.capabilities:
            raise ProtocolError(Code.INTERNAL_ERROR, f"The client cannot be asked for {method}.")
        id = f"dbtools-{new_request_id()}"
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.questions[id], self.has_asked = answer, True
        self.send(encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            self.notify("notifications/cancelled", {"requestId": id, "reason": "timeout"})
            raise
        finally:
            del self.questions[id]


def deliver_response(session: Session | None, response: ClientResponse) -> None:
    """Deliver *response* to the request in *session* that it answers, if any."""
    waiting = session.questions.get(response.id) if session and session.questions else None
    if waiting is None or waiting.done():
        return
    if response.result is not None:
        waiting.set_result(response.result)
        return
    code = response.error.get("code")
    known = code if isinstance(code, int) else Code.INTERNAL_ERROR
    waiting.set_exception(ProtocolError(known, str(response.error.get("message"))))


class Notifications:
    """Sends notifications of changes to clients, by role."""

    def __init__(self) -> None:
        self.flags = dict(FLAGS)  #: the notifications about lists, by the members that ask for them
        self._clients: dict[object, tuple[str, Deliver]] = {}
        self._closed = asyncio.Event()

    def follow(self, role: str, send: Send) -> None:
        """Notify a client of *role* through *send*."""
        # Until 2025-11-25, clients subscribe to resources with a method that dbtools does not implement.
        self._clients[send] = (role, lambda method, uri: None if uri else send(encode_notification(method)))

    def unfollow(self, send: Send) -> None:
        """Stop notifying a client through *send*."""
        self._clients.pop(send, None)

    async def listen(self, exchange: Exchange, known: Collection[str]) -> Json:
        """Serve `subscriptions/listen` until the stream ends; *known*: the URIs of resources that may change.

        What the server will not send is left out of the acknowledgement (MCP 2026-07-28, schema,
        SubscriptionsAcknowledgedNotification).
        """
        wanted = exchange.params["notifications"]
        assert isinstance(wanted, dict)
        uris = [uri for uri in dict.fromkeys(wanted.get("resourceSubscriptions") or []) if uri in known]
        flags = {flag: True for flag in self.flags if wanted.get(flag)}
        events = {(self.flags[flag], "") for flag in flags} | {(UPDATED, uri) for uri in uris}
        meta = {SUBSCRIPTION_KEY: exchange.id}

        def deliver(method: str, uri: str) -> None:
            if (method, uri) in events:
                exchange.notify(method, {**({"uri": uri} if uri else {}), "_meta": meta})

        accepted = {**flags, **({"resourceSubscriptions": uris} if uris else {})}
        acknowledged = {"notifications": accepted, "_meta": meta}
        exchange.notify("notifications/subscriptions/acknowledged", acknowledged)
        self._clients[deliver] = (exchange.caller.role, deliver)
        try:
            await self._closed.wait()
        finally:
            del self._clients[deliver]
        return {"_meta": {SUBSCRIPTION_KEY: encode_id(exchange.id)}}

    def publish(self, _: Snapshot, changes: Mapping[str, ListChange]) -> None:
        """Notify the clients of the roles in *changes*."""
        for role, change in changes.items():
            if change.tools:
                self.notify(role, TOOLS)
            if change.resources:
                self.notify(role, RESOURCES)
            for uri in change.updated:
                self.notify(role, UPDATED, uri)

    def notify(self, role: str, method: str, uri: str = "") -> None:
        """Send *method*, about the resource *uri* if given, to the clients of *role*."""
        for of, deliver in tuple(self._clients.values()):
            if of == role:
                deliver(method, uri)

    def close(self) -> None:
        """End the streams, each with its result (MCP 2026-07-28, basic/patterns/subscriptions)."""
        self._closed.set()
