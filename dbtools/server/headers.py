"""Headers of a request, as an ASGI scope holds them."""

from starlette.types import Scope


def fields(scope: Scope, name: bytes) -> list[str]:
    """Return the values of the header *name*, which is in lower case (ASGI 3, HTTP connection scope)."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]
