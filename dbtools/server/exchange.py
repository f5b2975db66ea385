"""One request while it is answered, and the messages that its client gets meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from dbtools.policy import Caller
from dbtools.server.kernel import Peer
from dbtools.server.messages import (
    INTERNAL_ERROR,
    Id,
    Json,
    ProtocolError,
    Response,
    encode,
    encode_notification,
)
from dbtools.server.versions import ASKED
from dbtools.telemetry import new_request_id

Send = Callable[[bytes], None]  #: one message, without its end; it waits for nothing


class Questions:
    """Our requests to one client that it has not answered yet."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[Id, asyncio.Future[Json]] = {}

    async def ask(self, send: Send, method: str, params: Json, patience: float) -> Json:
        """Return the client's result, or raise ProtocolError; TimeoutError after *patience* seconds."""
        id = f"dbtools-{next(self._numbers)}"
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._open[id] = answer
        send(encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            send(encode_notification("notifications/cancelled", {"requestId": id, "reason": "timeout"}))
            raise
        finally:
            del self._open[id]

    def answer(self, response: Response) -> None:
        """Give the *response* to the request that waits for it, if one does."""
        waiting = self._open.get(response.id) if response.id is not None else None
        if waiting is None or waiting.done():
            return
        if response.result is not None:
            waiting.set_result(response.result)
            return
        code, message = response.error.get("code"), response.error.get("message")
        known = code if isinstance(code, int) else INTERNAL_ERROR
        waiting.set_exception(ProtocolError(known, str(message)))


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request that is being answered."""

    id: Id
    method: str
    params: Json
    peer: Peer
    caller: Caller
    send: Send  #: to the client, as a part of this exchange
    questions: Questions | None = None  #: None: the client cannot be asked
    request_id: str = field(default_factory=new_request_id)  #: of letters, digits and `-_.:`

    @property
    def meta(self) -> Json:
        """What the request says beside its parameters."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    def notify(self, method: str, params: Json) -> None:
        """Send a notification that belongs to this exchange."""
        self.send(encode_notification(method, params))

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, where the client has asked for that."""
        token = self.meta.get("progressToken")
        if token is not None:
            members = {"progressToken": token, "progress": progress, "total": total, "message": message}
            params = {name: value for name, value in members.items() if value is not None}
            self.notify("notifications/progress", params)

    async def ask(self, method: str, params: Json, patience: float) -> Json:
        """Return what the client answers within *patience* seconds, or raise ProtocolError or TimeoutError.

        Until 2025-11-25 alone: since then a result of the type `input_required` asks.
        """
        is_able = method not in ASKED or ASKED[method] in self.peer.capabilities
        if self.questions is None or method not in self.peer.revision.asks or not is_able:
            raise ProtocolError(INTERNAL_ERROR, f"The client cannot be asked for {method}.")
        return await self.questions.ask(self.send, method, params, patience)
