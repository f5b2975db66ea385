"""Whose tables dbtools touches: SQL that tells whom the login trusts, and which tables would run code.

An operator is found by its name, and one that fits exactly wins over the system's own, in whichever schema of
the search path it is. So what is here runs, and what goes with it, where PATH is the search path.
"""

#: Where nobody else may create anything.
PATH = "pg_catalog, pg_temp"
#: For one transaction.
PIN = f"set local search_path = {PATH}"

#: The start of a statement. Trusted are superusers, the database's owner, and the roles whose privileges the
#: login has as a member of them: a superuser has those of every role.
TRUSTED = """
with recursive memberships (role) as (
    select r.oid
    from pg_catalog.pg_roles as r
    where r.rolname = session_user
    union
    select m.roleid
    from memberships as b
    join pg_catalog.pg_auth_members as m on m.member = b.role
),
trusted (role) as (
    select r.oid
    from pg_catalog.pg_roles as r
    join pg_catalog.pg_database as d on d.datname = pg_catalog.current_database()
    where r.rolsuper
        or r.oid = d.datdba
        or r.rolname = 'pg_database_owner'
        or r.oid in (select b.role from memberships as b)
        and pg_catalog.pg_has_role(session_user, r.oid, 'usage')
)"""

#: The condition that one of the columns of the table c has a type that is not the system's.
HAS_FOREIGN_TYPE = """
exists (
    select
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.oid = a.atttypid
    join pg_catalog.pg_namespace as s on s.oid = t.typnamespace
    where a.attrelid = c.oid
        and a.attnum > 0
        and not a.attisdropped
        and s.nspname <> 'pg_catalog'
)"""
