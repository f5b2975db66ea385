"""Seal what a caller has to confirm. A preview in, a token out; the token again in, what it confirms out.

A token is bound to the caller, the tool, its arguments and the preview, and is valid for a few minutes. The
journal makes sure that it works only once.
"""

import base64
import hmac
import secrets
import struct
import time
from typing import NamedTuple

from dbtools import errors
from dbtools.cells import json_of
from dbtools.results import Changed

VALID = 300  #: seconds
CODE = 16  #: bytes of a code: half of an HMAC-SHA256, since a model copies the token
HEAD = struct.Struct(">12sI16s")  #: the ID, when it expires, and the digest of the preview
HINT = "Nothing was changed. Repeat the call without confirm for a new preview."


class Confirmed(NamedTuple):
    """What a valid token confirms."""

    id: str
    preview: bytes  #: its digest


class Confirmations:
    """Seals confirmations with *secret*; without one, they are valid in this process only."""

    def __init__(self, secret: str) -> None:
        given = secret.encode() or secrets.token_bytes(32)
        self._key = hmac.digest(given, b"dbtools confirmations", "sha256")

    def seal(self, binding: str, preview: bytes) -> str:
        """Return a token that confirms the change with the digest *preview*, for the call *binding*."""
        head = HEAD.pack(secrets.token_bytes(12), int(time.time()) + VALID, preview)
        return base64.urlsafe_b64encode(head + self._code(b"token", head + binding.encode())).decode()

    def open(self, token: str, binding: str) -> Confirmed:
        """Return what *token* confirms of the call *binding*, or raise NotConfirmed."""
        try:
            content = base64.urlsafe_b64decode(token.encode())
            id, expires, preview = HEAD.unpack(content[: HEAD.size])
        except (ValueError, struct.error) as exc:
            raise errors.NotConfirmed("The confirmation is invalid.", hint=HINT) from exc
        if not hmac.compare_digest(
            content[HEAD.size :], self._code(b"token", content[: HEAD.size] + binding.encode())
        ):
            raise errors.NotConfirmed(
                "The confirmation is for another call, for other arguments, or of another server.", hint=HINT
            )
        if expires < time.time():
            raise errors.NotConfirmed("The confirmation has expired.", hint=HINT)
        return Confirmed(id.hex(), preview)

    def digest(self, found: Changed) -> bytes:
        """Return a digest of what *found* changes, as the role sees it.

        Of the new rows, it covers only the values that the call sets: numbers and times that the database
        gives them differ each time. It is keyed, since it also covers how many hidden rows change.
        """
        after, before = found.records()
        chosen = [{name: cell for name, cell in row.items() if name in found.shape.stable} for row in after]
        elsewhere = sorted((sorted(places), number) for places, number in found.elsewhere)
        content = json_of([before, chosen, found.affected, elsewhere])
        return self._code(b"preview", content.encode())

    def _code(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, purpose + content, "sha256")[:CODE]
