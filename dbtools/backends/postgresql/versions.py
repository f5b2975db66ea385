"""What tells one state of a PostgreSQL schema, or of a table in it, from another. A connection in, texts out.

The fingerprint of a schema is made of catalogs that every login may read. It changes with each change that a
tool could show, also with grants and policies; not with rows, statistics and VACUUM. A different text means
that the schema may be another one; the same text that it is not.

The version of a table says which table it is, how it is called, and its columns. A statement locks the
tables that it reads until its transaction ends. Where these are then still as they were when the tools were
made, its rows are of these tables and types, whatever has been changed before or after.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dbtools.backends.postgresql.pipeline import assertion, running

T = TypeVar("T")
Ask = Callable[[Any], Awaitable[T]]  #: asks a connection

#: What is temporary is nobody else's.
PERMANENT = "not in (select p.oid from passing as p)"
#: Of roles, those that the login is a member of, or may become.
CONCERNED = """in (select e.oid from entered as e)
    or pg_catalog.current_setting('is_superuser')::pg_catalog.bool"""
NOT_SYSTEM = "not pg_catalog.starts_with({}.nspname::pg_catalog.text, 'pg_')"
#: Rows x of the catalogs, which count by their transactions: no VACUUM changes these.
WRITTEN = {
    "attribute": f"pg_attribute as x where x.attrelid >= '16384' and x.attnum > 0 and x.attrelid {PERMANENT}",
    "attrdef": f"pg_attrdef as x where x.adrelid {PERMANENT}",
    "constraint": f"pg_constraint as x where x.oid >= '16384' and x.conrelid {PERMANENT}",
    "index": f"pg_index as x where x.indexrelid >= '16384' and x.indisunique and x.indrelid {PERMANENT}",
    "inherits": "pg_inherits as x",
    "rewrite": f"pg_rewrite as x where x.oid >= '16384' and x.ev_class {PERMANENT}",
    "description": "pg_description as x where x.objoid >= '16384'",
    "type": f"""pg_type as x
    join pg_catalog.pg_namespace as n on n.oid = x.typnamespace
    where x.oid >= '16384' and {NOT_SYSTEM.format("n")}""",
    "enum": "pg_enum as x",
    "proc": "pg_proc as x where x.oid >= '16384'",
    "policy": "pg_policy as x",
    "namespace": f"pg_namespace as x where {NOT_SYSTEM.format('x')}",
    "member": f"pg_auth_members as x where x.member {CONCERNED}",
}
#: Rows of catalogs that hold statistics or secrets as well, which count by these columns.
HASHED = {
    "class": (
        "x.oid, x.relname, x.relnamespace, x.relkind, x.relowner, x.relrowsecurity, x.relforcerowsecurity, "
        "x.relispartition, x.relispopulated, x.reloptions, x.relacl",
        "pg_class as x where x.oid >= '16384' and x.relkind in ('r', 'v', 'm', 'p', 'f') "
        "and x.relpersistence <> 't'",
    ),
    "role": (
        "x.oid, x.rolname, x.rolsuper, x.rolinherit, x.rolbypassrls",
        f"pg_roles as x where x.oid {CONCERNED}",
    ),
}
COUNTED = "select '{}', count(*), sum({}) from pg_catalog.{}"
XMIN = "x.xmin::pg_catalog.text::pg_catalog.int8"
HASH = "pg_catalog.hashtextextended(pg_catalog.concat_ws(' ', {}), '0')::pg_catalog.numeric"
COUNTS = [
    *(COUNTED.format(name, XMIN, rows) for name, rows in WRITTEN.items()),
    *(COUNTED.format(name, HASH.format(columns), rows) for name, (columns, rows) in HASHED.items()),
]
FINGERPRINT = f"""
with recursive entered (oid) as (
    select r.oid
    from pg_catalog.pg_roles as r
    where r.rolname = current_user
    union
    select m.roleid
    from pg_catalog.pg_auth_members as m
    join entered as e on e.oid = m.member
),
passing as materialized (select c.oid from pg_catalog.pg_class as c where c.relpersistence = 't'),
written (catalog, rows, sum) as ({" union all ".join(COUNTS)})
select pg_catalog.string_agg(pg_catalog.concat_ws(':', w.catalog, w.rows, w.sum), ' ' order by w.catalog)
from written as w
"""
#: Which transactions have ended: while it is the same, no other one has written anything.
#: On a standby it does not tell, and each moment is another one.
ENDED = """
select case
    when pg_catalog.pg_is_in_recovery()
    then pg_catalog.clock_timestamp()::pg_catalog.text
    else pg_catalog.pg_current_snapshot()::pg_catalog.text
end
"""
#: What has been read last on connections, by what read it: when, and what it was.
SEEN: "WeakKeyDictionary[Any, dict[object, tuple[str, Any]]]" = WeakKeyDictionary()

#: A number of the relation c: of its names, of whether others inherit it, and of the transactions that wrote
#: its columns.
NUMBER = """
pg_catalog.hashtextextended(
    pg_catalog.concat_ws(
        '.', c.relnamespace::pg_catalog.regnamespace::pg_catalog.text, c.relname, c.relhassubclass
    ),
    (
        select coalesce(pg_catalog.sum(a.xmin::pg_catalog.text::pg_catalog.int8), '0')::pg_catalog.int8
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid and a.attnum > 0
    )
)::pg_catalog.numeric
"""
#: Of a view also of the transaction that wrote its query.
OF_VIEW = f"""{NUMBER}
+ (
    select coalesce(pg_catalog.sum(r.xmin::pg_catalog.text::pg_catalog.int8), '0')
    from pg_catalog.pg_rewrite as r
    where r.ev_class = c.oid and r.ev_type = '1'
)
"""
#: Of a table with partitions or heirs also of the transactions that made these so.
OF_PARENT = f"""{NUMBER}
+ (
    with recursive heirs (relation, written) as (
        select i.inhrelid, i.xmin
        from pg_catalog.pg_inherits as i
        where i.inhparent = c.oid
        union
        select i.inhrelid, i.xmin
        from heirs as h
        join pg_catalog.pg_inherits as i on i.inhparent = h.relation
    )
    select coalesce(pg_catalog.sum(h.written::pg_catalog.text::pg_catalog.int8), '0')
    from heirs as h
)
"""
#: By the kind of a version, which costs a call no more than it must.
NUMBERS = {"table": NUMBER, "view": OF_VIEW, "parent": OF_PARENT}
SEPARATOR = ", "
#: Of the relation c.
VERSION = f"""case
    when c.relkind = 'v' then pg_catalog.concat_ws(' ', 'view', c.oid, {OF_VIEW})
    when c.relhassubclass then pg_catalog.concat_ws(' ', 'parent', c.oid, {OF_PARENT})
    else pg_catalog.concat_ws(' ', 'table', c.oid, {NUMBER})
end"""
#: What the server says where a table has not its version any more.
CHANGED = "dbtools_changed"
CONFIRMED = """(
    select {}
    from pg_catalog.pg_class as c
    where c.oid = $1::pg_catalog.oid
) = $2::pg_catalog.numeric"""
#: Of each kind, what fails unless the number of the relation $1 is still $2; it has no rows.
CONFIRMATIONS = {
    kind: f"select where {assertion(CONFIRMED.format(number), CHANGED)} is null"
    for kind, number in NUMBERS.items()
}
#: Of what the transaction has locked: what its statements read, and not the system's own.
LOCKED = f"""
select {VERSION} as version
from pg_catalog.pg_class as c
where c.oid >= '16384'
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.oid in (
        select l.relation
        from pg_catalog.pg_locks as l
        where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
    )
order by c.oid
"""


async def fingerprint(connection: Any) -> str:
    """Return the text of the schema that *connection* sees; in no time where nobody has written since."""
    return await newest(connection, _fingerprint)


async def _fingerprint(connection: Any) -> str:
    return str(await connection.fetchval(FINGERPRINT))


async def newest(connection: Any, read: Ask[T]) -> T:
    """Return what *read* reads on *connection*; in no time where nobody has written since it did last."""
    ended = str(await connection.fetchval(ENDED))
    seen = SEEN.setdefault(connection, {})
    if read not in seen or seen[read][0] != ended:
        seen[read] = ended, await read(connection)
    found: T = seen[read][1]
    return found


async def versions_locked(connection: Any) -> tuple[str, ...]:
    """Return the versions of the tables that the transaction of *connection* has read."""
    return tuple(row["version"] for row in await connection.fetch(LOCKED))


def together(versions: Iterable[str]) -> str:
    """Return the version of a view: its own among *versions*, and those of the views beneath it."""
    return SEPARATOR.join(versions)


@lru_cache(maxsize=1_000)
def confirmation(versions: tuple[str, ...]) -> bytes:
    """Return the messages that fail unless each table is still as of *versions*."""
    single = dict.fromkeys(each for version in versions for each in version.split(SEPARATOR))
    kinds = (each.split() for each in single)
    return b"".join(running(CONFIRMATIONS[kind], *values) for kind, *values in kinds)


def stays_confirmed(versions: Iterable[str]) -> bool:
    """Return whether nothing can happen to tables of *versions* of which the server does not tell statements.

    It does not of what is attached beneath a partition.
    """
    return not any(each.startswith("parent") for version in versions for each in version.split(SEPARATOR))
