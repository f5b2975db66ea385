"""How values come from asyncpg: temporal values and decimals as the server writes them."""

from typing import Any


async def set_codecs(connection: Any) -> None:
    """Let temporal values and decimals come as the server writes them: the driver's own lose some."""
    for name in ("date", "time", "timetz", "interval", "numeric", "uuid", "inet"):
        await _set_codec(connection, name, str)
    # Read as four bytes, 0.1 would be shown as 0.10000000149011612.
    await _set_codec(connection, "float4", float)
    await _set_codec(connection, "timestamp", _with_t)
    await _set_codec(connection, "timestamptz", _in_utc)


async def _set_codec(connection: Any, name: str, decoder: Any) -> None:
    await connection.set_type_codec(name, schema="pg_catalog", format="text", encoder=str, decoder=decoder)


def _with_t(text: str) -> str:
    """Return a timestamp as RFC 3339 writes it, with T between date and time."""
    return text.replace(" ", "T", 1)


def _in_utc(text: str) -> str:
    """Return a timestamp of a session in UTC as RFC 3339 writes it, with Z for its zone."""
    return text.replace(" ", "T", 1).replace("+00", "Z", 1)
