"""Headers of a request, as an ASGI scope holds them."""

from collections.abc import Mapping, Sequence

from starlette.types import Scope

COLLECTED = "dbtools.headers"  #: the key of the scope that holds its headers by their names


def fields(scope: Scope, name: bytes) -> Sequence[str]:
    """Return the values of the header *name*, which is in lower case (ASGI 3, HTTP connection scope)."""
    collected: Mapping[bytes, Sequence[str]] | None = scope.get(COLLECTED)
    if collected is None:
        collected = scope[COLLECTED] = _collected(scope["headers"])
    return collected.get(name, ())


def _collected(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, Sequence[str]]:
    collected: dict[bytes, list[str]] = {}
    for name, value in headers:
        collected.setdefault(name, []).append(value.decode("latin-1"))
    return collected
