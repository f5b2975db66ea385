"""The types of claims that a configuration declares. What is known of a caller in, what fits them out."""

import json
from collections.abc import Iterator, Mapping

from dbtools.config.sections import Settings
from dbtools.parameters import Fragment, Kind, Lexis, Parameter, tokenize
from dbtools.queries.values import ParameterType, value_of

#: The types that a database whose values alone have types casts a claim to.
CASTS: Mapping[ParameterType, str] = {
    ParameterType.INTEGER: "integer",
    ParameterType.BOOLEAN: "integer",
    ParameterType.NUMBER: "real",
    ParameterType.DECIMAL: "numeric",
}
NEAR = 4  #: words and signs to a claim
BY_SIZE = {"<", ">", "!", "between"}  #: code of comparisons that hold for most values, whatever they are


def typed_claims(settings: Settings, claims: Mapping[str, object]) -> Mapping[str, object]:
    """Return *claims* without those that are no values of the types that are declared: they are missing."""
    declared = settings.policy.claims
    return {
        name: value for name, value in claims.items() if name not in declared or _fits(value, declared[name])
    }


def _fits(value: object, type: ParameterType) -> bool:
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        value_of(text, type)
    except ValueError:
        return False
    return True


def declared_casts(settings: Settings, condition: Fragment) -> tuple[str, ...]:
    """Return what the claims of *condition* are cast to, in their places, where the database has no types."""
    declared = settings.policy.claims
    claims = [str(piece.claim) for piece in condition.pieces if not isinstance(piece, str)]
    return tuple(CASTS.get(declared[claim], "text") if claim in declared else "" for claim in claims)


def untyped_beside(settings: Settings, fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* that have no type, near a sign that compares by size.

    A query is its author's, who may compare by size elsewhere: a whole one is not held to `untyped`.
    """
    pieces = fragment.pieces
    for at, piece in enumerate(pieces):
        if isinstance(piece, str) or piece.claim is None or piece.claim in settings.policy.claims:
            continue
        before = _codes(pieces[at - 1], lexis)[-NEAR:] if at else []
        after = _codes(pieces[at + 1], lexis)[:NEAR] if at + 1 < len(pieces) else []
        if BY_SIZE.intersection((*before, *after)):
            yield piece.claim


def _codes(piece: str | Parameter, lexis: Lexis) -> list[str]:
    """Return the words and signs of *piece*, folded."""
    if not isinstance(piece, str):
        return []
    return [token.text.lower() for token in tokenize(piece, lexis) if token.kind is Kind.CODE]


def untyped(settings: Settings, condition: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *condition* that have no type, where it compares by size.

    A value of another type is less or greater than all others, and would let any row through.
    """
    if any(BY_SIZE.intersection(_codes(piece, lexis)) for piece in condition.pieces):
        claims = (str(parameter.claim) for parameter in condition.parameters)
        yield from (claim for claim in claims if claim not in settings.policy.claims)
