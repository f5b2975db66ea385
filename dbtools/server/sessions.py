"""Sessions of the 2025 era: the SDK's, of which one caller that is known cannot take all."""

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from dbtools.server.load import share_of


class SharedSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, shared among callers."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Return a new session, or None where there is no room for one of *requestor*'s.

        The SDK, 2.3 for now, has no public way to tell whose sessions there are.
        """
        owned = sum(owner == requestor for owner in self._session_owners.values())
        is_known = requestor is not None and bool(requestor["client_id"])
        if is_known and self.max_sessions is not None and owned >= share_of(self.max_sessions):
            return None
        return super()._admit_session(requestor)
