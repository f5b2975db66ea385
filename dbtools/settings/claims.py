"""The types of claims that a configuration declares. What is known of a caller in, what fits them out."""

import json
from collections.abc import Iterator, Mapping

from dbtools.conditions import uncertain_claims
from dbtools.settings.sections import Settings
from dbtools.sql import Fragment, Lexis
from dbtools.types import PARAMETERS, ColumnType, Family


def typed_claims(settings: Settings, claims: Mapping[str, object]) -> Mapping[str, object]:
    """Return *claims* as values of the types that are declared; those that are none are missing."""
    declared = {name: PARAMETERS[type] for name, type in settings.policy.claims.items()}
    typed = {name: _typed(value, declared.get(name)) for name, value in claims.items()}
    return {name: value for name, value in typed.items() if value is not None}


def _typed(value: object, type: ColumnType | None) -> object:
    """Return *value* as one of *type*, None where it is none; a text may be the value as it is written.

    Where no type is declared an array or an object is none: nobody would see it equal anything.
    """
    if type is None:
        return None if isinstance(value, list | dict) else value
    if isinstance(value, list | dict) and type.family is not Family.JSON:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        read = type.read(text)
    except ValueError:
        return None
    return read if type.family is Family.BOOLEAN else value


def declared_casts(settings: Settings, condition: Fragment, casts: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of *casts* the claims of *condition* have, in their places, by their declared types."""
    declared = settings.policy.claims
    claims = [str(piece.claim) for piece in condition.pieces if not isinstance(piece, str)]
    return tuple(casts.get(declared[claim], "text") if claim in declared else "" for claim in claims)


def untyped(settings: Settings, fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* that have no type, and of which another value may let rows in."""
    yield from (claim for claim in uncertain_claims(fragment, lexis) if claim not in settings.policy.claims)
