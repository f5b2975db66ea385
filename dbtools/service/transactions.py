"""Make the changes of calls, confirmed where the role requires it, and once for each idempotency key.

A Transaction of a tool in, an Answer out. A change that must be confirmed is previewed by a dry run; its
answer has a token, with which the same call makes the change, if it would still do the same. The token is
bound to the caller, the tool, its arguments and the preview; the journal makes sure that it works only once.
"""

import base64
import hashlib
import hmac
import json
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import anyio

from dbtools import errors
from dbtools.backends.port import JournalEntry
from dbtools.cells import json_of
from dbtools.changes import KEPT_IN_MEMORY, EarlierCall, Transaction, keys_of, running, taken, used
from dbtools.policy import Caller
from dbtools.queries.headers import OF_CHANGES
from dbtools.results import Answer, Changed
from dbtools.service.execution import Agrees, Execution
from dbtools.service.snapshot import View
from dbtools.tools.change_calls import ChangeCall

UNCHECKED_LOGIN = "The login that changes rows could not be checked yet. Nothing was changed."
TOKEN_LIFETIME = 300  #: seconds
CODE = 16  #: bytes of a code: half of an HMAC-SHA256, since a model copies the token
HEAD = struct.Struct(">12sI16s")  #: the ID, when it expires, and the digest of the preview
NEW_PREVIEW = "Nothing was changed. Repeat the call without confirm for a new preview."
TOKEN = "token"  #: how a call with the argument `confirm` is confirmed


class Confirmation(NamedTuple):
    """A confirmation that does not come from the model, whose argument `confirm` then has no effect."""

    token: str  #: empty until a person has confirmed
    means: str  #: for the audit log


MakeChange = Callable[[], Awaitable[Changed]]


class Transactions:
    """Makes the changes of calls; confirmations are sealed with *secret* where a journal keeps those used."""

    def __init__(self, execution: Execution, secret: str = "") -> None:
        self._execution = execution
        self._shared = Confirmations(secret)
        self._own = Confirmations("")  #: valid as long as the memory of this process
        self._memory = MemoryJournal()

    async def make(
        self,
        call: ChangeCall,
        tool: str,
        arguments: Mapping[str, object],
        view: View,
        caller: Caller,
        confirmation: Confirmation | None,
    ) -> Answer:
        """Make the change of *call*, of *tool* with *arguments*, or preview it; raise a CallError."""
        transaction = call.transaction
        confirmations = self._shared if view.context.journal else self._own
        if transaction.dry_run or not (transaction.idempotency_key or transaction.confirms):
            return call.render(await self._execution.change(transaction, view, caller))
        if view.context.journal is None:
            raise errors.DatabaseUnavailable(UNCHECKED_LOGIN, hint="Try again in a moment.")
        asked = (call.query, call.arguments) if call.query else (tool, arguments)
        entry = _entry(transaction, *asked, view, caller)
        if not transaction.confirms:
            return await self._finish(call, await self._once(transaction, view, caller, entry), view, caller)
        token, means = confirmation or Confirmation(transaction.token, TOKEN)
        if not token:
            preview = replace(transaction, dry_run=True)
            found = await self._once(preview, view, caller, entry if transaction.idempotency_key else None)
        else:
            confirmed = confirmations.open(token, _binding(entry))
            agrees = partial(confirmations.agrees, confirmed.preview)
            found = await self._once(transaction, view, caller, entry._replace(id=confirmed.id), agrees)
            found = replace(found, confirmed=None if found.dry_run or found.earlier else means)
        if not (found.affected or found.elsewhere):
            # There is nothing to confirm.
            found = replace(found, dry_run=False)
        if found.dry_run:
            new = confirmations.seal(_binding(entry), confirmations.digest(found))
            return call.render_pending(found, new, TOKEN_LIFETIME, is_outdated=bool(token))
        return await self._finish(call, found, view, caller)

    async def _once(
        self,
        transaction: Transaction,
        view: View,
        caller: Caller,
        entry: JournalEntry | None,
        agrees: Agrees | None = None,
    ) -> Changed:
        """Run *transaction*, and keep *entry* in the journal of the database, or else in memory."""
        if view.context.journal or entry is None:
            return await self._execution.change(transaction, view, caller, entry, agrees)
        change = partial(self._execution.change, transaction, view, caller, None, agrees)
        return await self._memory.once(entry, change, view.role.limits.timeout)

    async def _finish(self, call: ChangeCall, found: Changed, view: View, caller: Caller) -> Answer:
        """Return the answer to *found*; what an earlier call has changed is read again."""
        if found.earlier is None:
            return call.render(found)
        rows: list[tuple[object, ...]] = []
        ends = time.monotonic() + view.role.limits.timeout
        try:
            for statement in call.again(found.earlier.keys):
                left = max(ends - time.monotonic(), 0.01)
                rows += (await self._execution.execute(statement, view, caller, left)).rows
        except errors.SchemaChanged:
            raise
        except errors.CallError:
            # The change was made: the call does not fail because its rows cannot be read.
            return call.render(replace(found, earlier=found.earlier._replace(keys=None)))
        return call.render(replace(found, rows=tuple(rows)))


def _entry(
    transaction: Transaction, tool: str, arguments: Mapping[str, object], view: View, caller: Caller
) -> JournalEntry:
    """Return the entry of a call; its caller includes the claims on which the change depends."""
    used = {*transaction.writes[0][0].claims, *(each.claim for each in view.role.session if each.claim)}
    claims = {name: str(caller.claims.get(name)) for name in sorted(used)}
    who = (caller.role, caller.identity, *([_digest(claims)] if claims else []))
    bound = {name: value for name, value in arguments.items() if name not in OF_CHANGES}
    return JournalEntry(
        id=secrets.token_hex(16),
        caller=json_of(who),
        tool=tool,
        key=transaction.idempotency_key or None,
        arguments=_digest(bound),
    )


def _digest(values: Mapping[str, object]) -> str:
    written = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()


def _binding(entry: JournalEntry) -> str:
    """Return what a confirmation of the call of *entry* is bound to."""
    return json_of([entry.caller, entry.tool, entry.key, entry.arguments])


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
        head = HEAD.pack(secrets.token_bytes(12), int(time.time()) + TOKEN_LIFETIME, preview)
        return base64.urlsafe_b64encode(head + self._code(b"token", head + binding.encode())).decode()

    def open(self, token: str, binding: str) -> Confirmed:
        """Return what *token* confirms of the call *binding*, or raise NotConfirmed."""
        try:
            content = base64.urlsafe_b64decode(token.encode())
            id, expires, preview = HEAD.unpack(content[: HEAD.size])
        except (ValueError, struct.error) as exc:
            raise errors.NotConfirmed("The confirmation is invalid.", hint=NEW_PREVIEW) from exc
        if not hmac.compare_digest(
            content[HEAD.size :], self._code(b"token", content[: HEAD.size] + binding.encode())
        ):
            raise errors.NotConfirmed(
                "This confirmation belongs to another call, to other arguments or to another server.",
                hint=NEW_PREVIEW,
            )
        if expires < time.time():
            raise errors.NotConfirmed("The confirmation has expired.", hint=NEW_PREVIEW)
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

    def agrees(self, preview: bytes, found: Changed) -> bool:
        """Return whether *preview* is the digest of *found*."""
        return hmac.compare_digest(preview, self.digest(found))

    def _code(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, purpose + content, "sha256")[:CODE]


@dataclass(kw_only=True)
class KnownKey:
    """What is known of an idempotency key."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    entry: JournalEntry | None = None  #: None: no call has made its change
    changed: Changed | None = None  #: None: it is not known whether the change was made
    until: float  #: monotonic seconds


class MemoryJournal:
    """Keeps idempotency keys and used confirmations of one process, where the database has no journal."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str], KnownKey] = {}
        self._used: dict[str, float] = {}  #: until when, by the ID of a confirmation

    async def once(self, entry: JournalEntry, change: MakeChange, timeout: float) -> Changed:
        """Return what *change* does, or what it has done for an earlier call with the same key.

        Raise Busy if such a call still runs after *timeout* seconds.
        """
        self._prune()
        if entry.key is None:
            return await self._use(entry, change)
        until = time.monotonic() + KEPT_IN_MEMORY
        known = self._keys.setdefault((entry.caller, entry.tool, entry.key), KnownKey(until=until))
        try:
            with anyio.fail_after(timeout):
                await known.lock.acquire()
        except TimeoutError as exc:
            raise running() from exc
        try:
            return (
                _repeated(known, entry) if known.entry is not None else await self._keep(known, entry, change)
            )
        finally:
            known.lock.release()

    async def _keep(self, known: KnownKey, entry: JournalEntry, change: MakeChange) -> Changed:
        try:
            changed = await self._use(entry, change)
        except errors.UnknownOutcome:
            known.entry = entry
            raise
        if not changed.dry_run:
            keys = keys_of(changed.shape, changed.rows)
            earlier = EarlierCall(changed.affected, keys, int(time.time()))
            known.entry = entry
            known.changed = replace(changed, rows=(), before=(), ignored=0, earlier=earlier)
        return changed

    async def _use(self, entry: JournalEntry, change: MakeChange) -> Changed:
        """Return what *change* does, or raise NotConfirmed if its confirmation has been used."""
        if entry.id in self._used:
            raise used()
        self._used[entry.id] = time.monotonic() + TOKEN_LIFETIME
        is_used = False
        try:
            changed = await change()
            is_used = not changed.dry_run
            return changed
        except errors.UnknownOutcome:
            is_used = True
            raise
        finally:
            if not is_used:
                del self._used[entry.id]

    def _prune(self) -> None:
        now = time.monotonic()
        for key, known in tuple(self._keys.items()):
            if known.until < now and not known.lock.statistics().locked:
                del self._keys[key]
        for id in [id for id, until in self._used.items() if until < now]:
            del self._used[id]


def _repeated(known: KnownKey, entry: JournalEntry) -> Changed:
    """Return what *known* says of the earlier call with the key of *entry*, or raise a CallError."""
    if known.entry is None or known.entry.arguments != entry.arguments:
        raise taken()
    if known.changed is None:
        raise errors.UnknownOutcome
    return known.changed
