"""What a connection to PostgreSQL keeps to: the meaning of names and values, and what it is told of a caller.

What it is told, a role and settings that policies may read, is a second wall behind row filters, not a first
one: whoever could run SQL of their own could set both back.
"""

from collections.abc import Callable, Mapping
from typing import Any

import asyncpg

from dbtools.backends.postgresql.connections import SETTINGS, is_pooled, keep_setting, rolled_back
from dbtools.errors import Refused

#: What dbtools itself relies on, beside what it sets for each connection.
RESERVED = {
    *SETTINGS,
    "client_encoding",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "search_path",  # the conditions of rules were understood with the login's
    "session_authorization",
    "statement_timeout",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
}
#: The role comes last: it may not be allowed to set what the login may.
SET = """
select pg_catalog.set_config(s.name, s.value, $3)
from (
    select *
    from rows from (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])
    ) as u (name, value)
    order by u.name = 'role'
    offset 0
) as s
"""
#: As it was at the connect: "$user" in it would follow the role that a statement runs as, and with it the
#: meaning of names in the conditions of rules.
PATH = """
select coalesce(
    pg_catalog.string_agg(pg_catalog.quote_ident(s.name::text), ', ' order by s.place),
    pg_catalog.quote_literal('')
)
from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as s (name, place)
"""
#: How the texts that the server writes are read: as they are, since the driver's own types lose some.
DECODERS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("date", "time", "timetz", "interval", "numeric", "uuid", "inet"), str),
    "float4": float,  # read as four bytes, 0.1 would be shown as 0.10000000149011612
    # As RFC 3339 writes them; the session is in UTC.
    "timestamp": lambda text: text.replace(" ", "T", 1),
    "timestamptz": lambda text: text.replace(" ", "T", 1).replace("+00", "Z", 1),
}


async def prepare(connection: Any) -> None:
    """Make *connection* one on which names and values mean what they mean in every call."""
    await keep_setting(connection, "search_path", await connection.fetchval(PATH))
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def apply(connection: Any, session: Mapping[str, str], *, local: bool) -> None:
    """Set *session* on *connection*, for its transaction alone where it is *local*; or raise Refused."""
    reserved = sorted(RESERVED.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")
    try:
        if local or not is_pooled(connection):
            await connection.fetch(SET, list(session), list(session.values()), local)
        else:
            async with rolled_back(connection, "begin read only"):
                await connection.fetch(SET, list(session), list(session.values()), True)
            connection.session = dict(session)
    except asyncpg.PostgresError as exc:
        if (exc.sqlstate or "").startswith(("08", "57")):
            raise
        raise Refused(f"{exc.args[0]}.") from exc
