"""The registry in a SQLite file. A URL in, what it holds out; or changes in, which are written at once."""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from urllib.parse import quote

from dbtools.backends.registered import Change, Disable, Enable, Registered, Registry, Remove, Save
from dbtools.backends.sqlite.location import Location, connect, location_of, unavailable
from dbtools.errors import DatabaseUnavailable

LONGEST = 4 * 2**20  #: bytes of the text of one query
TABLES = """
select name
from main.sqlite_schema
where type = 'table'
and name in ('dbtools_query', 'dbtools_version')
"""
REVISIONS = """
select version_num
from main.dbtools_version
where version_num glob 'registry_*'
order by version_num
"""
QUERIES = """
select
    coalesce(cast(name as text), ''),
    coalesce(cast(version as integer), 0),
    coalesce(cast(text as text), ''),
    coalesce(enabled, 0) <> 0,
    coalesce(strftime('%Y-%m-%dT%H:%M:%SZ', changed_at), '')
from main.dbtools_query
order by name, version desc
"""
SAVE = """
insert into main.dbtools_query (name, version, text, enabled, changed_at)
select :name, coalesce(max(version), 0) + 1, :text, true, datetime('now')
from main.dbtools_query
where name = :name
"""
PRUNE = """
delete from main.dbtools_query
where name = :name
and version not in (
    select version
    from main.dbtools_query
    where name = :name
    order by version desc
    limit 2
)
"""
REMOVE = "delete from main.dbtools_query where name = :name"
SWITCH = """
update main.dbtools_query
set enabled = {}, changed_at = datetime('now')
where name = :name
and version = (select max(version) from main.dbtools_query where name = :name)
"""
STATEMENTS: Mapping[type[Change], Sequence[str]] = {
    Save: (SAVE, PRUNE),
    Remove: (REMOVE,),
    Enable: (SWITCH.format("true"),),
    Disable: (SWITCH.format("false"),),
}


async def read_registry(url: str) -> Registry | None:
    """Return what the registry in the file at *url* holds, None where there is none."""
    return await asyncio.to_thread(_read, location_of(url))


async def change_registry(url: str, changes: Sequence[Change]) -> None:
    """Make all *changes* in the registry in the file at *url*, or none."""
    await asyncio.to_thread(_change, location_of(url), changes)


def _read(location: Location) -> Registry | None:
    with closing(connect(location)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            connection.execute("begin")
            tables = {name for (name,) in connection.execute(TABLES)}
            if "dbtools_query" not in tables:
                return None
            revisions = connection.execute(REVISIONS).fetchall() if "dbtools_version" in tables else []
            return Registry(
                revisions=tuple(str(revision) for (revision,) in revisions),
                queries=tuple(_queries(connection)),
            )
        except sqlite3.Error as exc:
            raise DatabaseUnavailable("The registry cannot be read.") from exc


def _queries(connection: sqlite3.Connection) -> Iterator[Registered]:
    for name, version, text, enabled, changed_at in connection.execute(QUERIES):
        yield Registered(
            name=name, version=version, text=text, enabled=bool(enabled), changed_at=str(changed_at)
        )


def _change(location: Location, changes: Sequence[Change]) -> None:
    with closing(connect(location)):
        pass  # says what is wrong with the file itself
    with _writing(location) as connection:
        for change in changes:
            for statement in STATEMENTS[type(change)]:
                connection.execute(statement, asdict(change))


@contextmanager
def _writing(location: Location) -> Iterator[sqlite3.Connection]:
    """Lend a connection in a transaction that writes."""
    try:
        uri = f"file:{quote(str(location.path))}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)) as connection:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")
    except sqlite3.Error as exc:
        name = getattr(exc, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_NOTADB")):
            raise unavailable(location, exc) from exc
        raise DatabaseUnavailable(f"The registry cannot be written: {exc}.") from exc
