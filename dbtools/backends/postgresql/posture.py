"""What a PostgreSQL login can do beyond reading. A connection in, a sentence about each such fact out.

A role that the login is a member of counts as well: SET ROLE lets it become that one.
"""

from collections.abc import Mapping

from asyncpg import Record

from dbtools.backends.postgresql.pipeline import DriverConnection
from dbtools.errors import listing

MOST_NAMES = 5  #: that one sentence has

#: Facts with the names they are about, and the roles they hold for, of all that is in the database, served
#: or not. Privileges are read from the lists themselves, all at once: the functions that tell of one
#: privilege would be asked for each role.
FACTS = """
with identities as materialized (
    select r.*
    from pg_catalog.pg_roles as r
    where pg_catalog.pg_has_role(session_user, r.oid, 'member')
),
relations as materialized (
    select c.oid, c.relkind as kind,
        n.nspname::pg_catalog.text || '.' || c.relname::pg_catalog.text as name, c.relowner as owner,
        c.relacl as privileges
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
        and not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
),
granted (fact, name, role) as (
    select 'write', r.name, p.grantee
    from relations as r
    cross join lateral pg_catalog.aclexplode(r.privileges) as p
    where p.grantee <> r.owner
        and (
            p.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
            or (r.kind = 'S' and p.privilege_type = 'USAGE')
        )
    union all
    select 'write', r.name, p.grantee
    from relations as r
    join pg_catalog.pg_attribute as a on a.attrelid = r.oid
    cross join lateral pg_catalog.aclexplode(a.attacl) as p
    where a.attacl is not null and p.privilege_type in ('INSERT', 'UPDATE') and p.grantee <> r.owner
    union all
    select 'own', r.name, r.owner
    from relations as r
    union all
    select 'create', n.nspname, p.grantee
    from pg_catalog.pg_namespace as n
    cross join lateral pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) as p
    where p.privilege_type = 'CREATE'
        and not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
    union all
    select 'create schemas', d.datname, p.grantee
    from pg_catalog.pg_database as d
    cross join lateral pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) as p
    where d.datname = pg_catalog.current_database() and p.privilege_type = 'CREATE'
),
facts (fact, name, role) as (
    select g.fact, g.name::text, coalesce(i.rolname::text, session_user::text)
    from granted as g
    left join identities as i on i.oid = g.role
    where g.role = '0' or i.oid is not null
    union all
    select f.fact, i.rolname::text, i.rolname::text
    from identities as i
    cross join lateral (
        values
            ('superuser', i.rolsuper),
            ('bypass', i.rolbypassrls),
            ('create roles', i.rolcreaterole),
            ('create databases', i.rolcreatedb),
            ('replicate', i.rolreplication),
            ('member', i.rolname in (
                'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program',
                'pg_read_all_data', 'pg_write_all_data', 'pg_signal_backend', 'pg_maintain',
                'pg_create_subscription'
            ))
    ) as f (fact, holds)
    where f.holds
)
select f.fact, pg_catalog.array_agg(distinct f.name) as names,
    pg_catalog.array_agg(distinct f.role) as roles, pg_catalog.bool_or(f.role = session_user::text) as own
from facts as f
group by f.fact
"""

#: In the order in which they are told; the first implies all others.
SENTENCES: Mapping[str, str] = {
    "superuser": "The login{roles} is a superuser: it may do anything, whatever dbtools forbids.",
    "bypass": "The login{roles} bypasses row security.",
    "own": "The login{roles} owns {names}, and so may write, change and drop them.",
    "write": "The login{roles} may write to {names}.",
    "create": "The login{roles} may create objects in schema {names}.",
    "create schemas": "The login{roles} may create schemas in the database.",
    "member": "The login is a member of {names}.",
    "create roles": "The login{roles} may create roles.",
    "create databases": "The login{roles} may create databases.",
    "replicate": "The login{roles} may replicate: it can read every change of every database.",
}


async def read_posture(connection: DriverConnection) -> tuple[str, ...]:
    """Return what the login of *connection* can do beyond reading."""
    rows = await connection.fetch(FACTS)
    found = {row["fact"]: _sentence(row) for row in rows}
    told = tuple(found[fact] for fact in SENTENCES if fact in found)
    return told[:1] if "superuser" in found else told


def _sentence(row: Record) -> str:
    names = sorted(row["names"])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    roles = "" if row["own"] else f", as {listing(sorted(row['roles']))},"
    return SENTENCES[row["fact"]].format(names=listing(names[:MOST_NAMES]) + more, roles=roles)
