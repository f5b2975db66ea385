"""The types of claims. Settings and the claims of a token in, typed values out; and what lacks a type.

In a database where only values have types, a value of an unexpected type equals nothing, and is less or
greater than everything. So a claim needs a declared type, unless it ends a condition `… = :claims.tenant`
that is not negated: there, another type only finds fewer rows.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise

from dbtools.schema.sql import Fragment, Group, Lexis, Token, TokenKind, code_of, nest, split, words
from dbtools.settings.sections import Settings
from dbtools.values.types import PARAMETERS, ColumnType, Family

#: What may follow a condition that ends in a claim.
ENDS = words(
    "and or from group having window order limit offset union intersect where join inner cross on returning"
) | {""}
TURNING = words("not except left right full outer between case")  #: may turn fewer rows into more rows


def typed_claims(settings: Settings, claims: Mapping[str, object]) -> Mapping[str, object]:
    """Return *claims* as values of their declared types, without those that do not fit."""
    declared = {name: PARAMETERS[type] for name, type in settings.policy.claims.items()}
    typed = {name: _typed_value(value, declared.get(name)) for name, value in claims.items()}
    return {name: value for name, value in typed.items() if value is not None}


def _typed_value(value: object, type: ColumnType | None) -> object:
    """Return *value* as one of *type*, or None; a text may spell the value.

    Without a declared type, return None for an array or an object, since it equals nothing.
    """
    if type is None:
        return None if isinstance(value, list | dict) else value
    if isinstance(value, list | dict) and type.family is not Family.JSON:
        return None
    try:
        read = type.read(value if isinstance(value, str) else json.dumps(value))
    except ValueError:
        return None
    return read if type.family is Family.BOOLEAN else value


def untyped_claims(settings: Settings, fragment: Fragment, lexis: Lexis) -> Sequence[str]:
    """Return the claims of *fragment* that need a type: a value of another type may let rows in."""
    return [each for each in uncertain_claims(fragment, lexis) if each not in settings.policy.claims]


def declared_cast(settings: Settings, claim: str | None, casts: Mapping[str, str]) -> str:
    """Return the one of *casts* for the declared type of *claim*, or an empty text if it has none."""
    declared = settings.policy.claims.get(claim or "")
    return casts.get(declared, "text") if declared else ""


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* that may let rows in if their value has another type, each once."""
    tokens = code_of(fragment.text, lexis)
    words = [token.word for token in tokens]
    turned = not TURNING.isdisjoint(words) or any(map(_computes, tokens, tokens[1:]))
    claims: dict[str, None] = {}
    for at, token in enumerate(tokens):
        claim = token.parameter.claim if token.kind is TokenKind.PARAMETER else None
        after = next(dropwhile(")".__eq__, words[at + 1 :]), "")
        if claim and (turned or words[at - 1 : at] not in (["="], ["=="]) or after not in ENDS):
            claims[claim] = None
    yield from claims


def _computes(token: Token, after: Token) -> bool:
    """Return whether *token* computes with a condition in brackets, or with an EXISTS."""
    return token.kind is TokenKind.SIGN and token.text not in ",." and after.word in ("(", "exists")


def listed_json(condition: Fragment, lexis: Lexis, claims: Collection[str]) -> Iterator[str]:
    """Yield those of *claims*, whose type is json, that *condition* compares as a whole in `in (…)`."""
    whole = nest(code_of(condition.text, lexis), condition.text)
    pairs = (pair for group in whole.groups() for pair in pairwise(group.parts))
    lists = (after for before, after in pairs if before.word == "in" and isinstance(after, Group))
    values = [each[0] for group in lists for each in split(group.parts, ",") if len(each) == 1]
    for value in values:
        if isinstance(value, Token) and value.kind is TokenKind.PARAMETER:
            yield from {value.parameter.claim or ""} & {*claims}
