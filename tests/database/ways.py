"""Ways to a PostgreSQL database: as another role, with settings of the session, and behind poolers."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anyio.from_thread import BlockingPortal

from tests.database.poolers import proxy
from tests.postgresql_server import PostgresqlServer


@dataclass(frozen=True, kw_only=True)
class Way:
    """How statements reach the database."""

    privileges: str = ""  #: of the role that they run as, on tables; empty: they run as the login
    has_pooler: bool = False  #: that ignores what a client sets when it connects

    @contextmanager
    def role(self, server: PostgresqlServer) -> Iterator[str]:
        """Create the role that statements run as, and give its name, or ""."""
        name = f"clerk_{secrets.token_hex(4)}" if self.privileges else ""
        if name:
            server.execute(f"create role {name}", url=server.url)
        yield name
        if name:
            server.execute(f"drop role {name}", url=server.url)

    def grants(self, role: str) -> str:
        """Return what grants *role* its privileges, and makes {} a member of it."""
        granted = f"grant {self.privileges} on all tables in schema public to {role}; grant {role} to {{}}"
        return granted if role else ""

    @contextmanager
    def pooled(self, url: str, portal: BlockingPortal) -> Iterator[str]:
        """Give the URL of the pooler in front of *url*, if there is one, or else *url*."""
        if not self.has_pooler:
            yield url
            return
        with portal.wrap_async_context_manager(proxy(url, refuses=False)) as pooled:
            yield pooled


PLAIN = Way()
#: What else than a connection of a login may be between dbtools and the rows.
WAYS = {
    "set_role": Way(privileges="select"),
    "set_role with changes": Way(privileges="select, update, delete"),
    "pooler": Way(has_pooler=True),
    "set_role behind a pooler": Way(privileges="select", has_pooler=True),
}


def keys_of(role: str) -> str:
    """Return the keys in a configuration of a role that runs as the database role *role*, if there is one."""
    return f'set_role = "{role}"\nsettings = {{ "app.region" = ":claims.region" }}\n' if role else ""
