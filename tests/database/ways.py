"""Ways to a PostgreSQL database: as another role, with settings of the session, and behind poolers."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import BlockingPortal

from tests.database.pgbouncer import needs_pgbouncer, pgbouncer
from tests.database.poolers import proxy
from tests.postgresql_server import PostgresqlServer

#: A URL in; the URL of a pooler in front of it out.
Pooler = Callable[[str], AbstractAsyncContextManager[str]]
#: Stands in for a pooler that ignores what a client sets when it connects.
IGNORING: Pooler = partial(proxy, refuses=False)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How statements reach the database."""

    privileges: str = ""  #: of the role that they run as, on tables; empty: they run as the login
    pooler: Pooler | None = None

    @property
    def marks(self) -> Sequence[pytest.MarkDecorator]:
        """The marks of tests that go this way."""
        return [needs_pgbouncer] if self.pooler is pgbouncer else []

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
        """Yield the URL of the pooler in front of *url*, if there is one, or else *url*."""
        if self.pooler is None:
            yield url
            return
        with portal.wrap_async_context_manager(self.pooler(url)) as pooled:
            yield pooled


PLAIN = Way()
#: What else than a connection of a login may be between dbtools and the rows.
WAYS = {
    "set_role": Way(privileges="select"),
    "set_role with changes": Way(privileges="select, update, delete"),
    "pooler": Way(pooler=IGNORING),
    "set_role behind a pooler": Way(privileges="select", pooler=IGNORING),
    "pgbouncer": Way(pooler=pgbouncer),
    "set_role behind pgbouncer": Way(privileges="select", pooler=pgbouncer),
}


def keys_of(role: str) -> str:
    """Return the keys in a configuration of a role that runs as the database role *role*, if there is one."""
    return f'set_role = "{role}"\nsettings = {{ "app.region" = ":claims.region" }}\n' if role else ""


def netloc_of(login: str, url: str) -> str:
    """Return the login of the URL *login* at the host of *url*."""
    return f"{urlsplit(login).netloc.rpartition('@')[0]}@{urlsplit(url).netloc.rpartition('@')[2]}"
