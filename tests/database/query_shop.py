"""A database that is served with permitted queries and roles. DDL and files in, answers and findings out."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anyio.from_thread import BlockingPortal

from dbtools.answers.results import Answer
from dbtools.backends.port import Backend
from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from dbtools.service.explanation import Explanation, explain
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.settings import load
from tests.database.shop import ROLE, Bare, open_bare

FILES = Path(__file__).parents[1] / "queries"

#: A dialect, DDL, files by name and the rest of a configuration in; a served database out.
ServeQueries = Callable[..., AbstractContextManager["QueryShop"]]


@dataclass(frozen=True, kw_only=True)
class QueryShop:
    """A served database with queries."""

    path: Path  #: of its configuration; the queries are beside it
    toolbox: Toolbox
    database: Backend
    portal: BlockingPortal
    stack: ExitStack  #: closes what has been opened
    bare_url: str  #: of the direct connection

    @cached_property
    def bare(self) -> Bare:
        """A direct connection, opened when it is first asked for, outside of the portal."""
        dialect = "sqlite" if self.bare_url.startswith("sqlite:") else "postgresql"
        bare = open_bare(dialect, self.bare_url, self.portal)
        self.stack.callback(bare.close)
        return bare

    def call(self, tool: str, arguments: Mapping[str, object] | None = None, **caller: object) -> Answer:
        """Return the answer of *tool*."""
        return self.portal.call(self.toolbox.call, _caller(caller), tool, arguments or {})

    def refusal(self, tool: str, arguments: Mapping[str, object] | None = None, **caller: object) -> str:
        """Return the code and the text with which *tool* refuses."""
        try:
            answer = self.call(tool, arguments, **caller)
        except DbtoolsError as exc:
            return f"{exc.code}: {exc}"
        raise AssertionError(f"{tool} is answered: {answer.text}")

    def rows(self, tool: str, arguments: Mapping[str, object] | None = None, **caller: object) -> object:
        """Return the rows that *tool* answers."""
        return self.call(tool, arguments, **caller).structured["rows"]

    def explain(self, tool: str, arguments: Mapping[str, object], **caller: object) -> Explanation:
        """Return what becomes of a call."""
        return self.portal.call(explain, self.toolbox, self.database, _caller(caller), tool, arguments)

    def view(self, role: str = ROLE) -> RoleSnapshot:
        """Return what *role* sees."""
        return self.portal.call(self.toolbox.view, role)

    def listed(self, role: str = ROLE) -> list[str]:
        """Return the names of the tools that are listed to *role*."""
        return [each.name for each in self.portal.call(self.toolbox.list, role)]

    def refresh(self) -> None:
        """Let the toolbox read the catalog and the queries again."""
        self.portal.call(self.toolbox.refresh)


def _caller(known: Mapping[str, object]) -> Caller:
    claims = {name: value for name, value in known.items() if name != "role"}
    return Caller(role=str(known.get("role", ROLE)), claims=claims)


@contextmanager
def open_query_shop(
    url: str,
    folder: Path,
    queries: Mapping[str, str | bytes],
    rest: str,
    portal: BlockingPortal,
    write_url: str = "",
) -> Iterator[QueryShop]:
    """Serve the database at *url* with the files *queries*; *rest* is the rest of the configuration."""
    directory = folder / "queries"
    directory.mkdir(exist_ok=True)
    for name, text in queries.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    path = folder / "dbtools.toml"
    urls = f"url = {json.dumps(url)}\n" + (f"write_url = {json.dumps(write_url)}\n" if write_url else "")
    path.write_text(f'[database]\n{urls}[queries]\ndirectory = "queries"\n{rest}', encoding="utf-8")
    with ExitStack() as stack:
        toolbox, database = open_toolbox(load(path))
        stack.callback(portal.call, database.close)
        yield QueryShop(
            path=path, toolbox=toolbox, database=database, portal=portal, stack=stack, bare_url=url
        )
