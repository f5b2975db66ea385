"""Names as SQL writes them, whatever characters they have."""


def identifier(name: str) -> str:
    """Return *name* in double quotes, as the standard has it (ISO 9075-2, delimited identifiers)."""
    return '"' + name.replace('"', '""') + '"'
