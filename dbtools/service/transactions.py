"""Make the changes of calls, confirmed where the role requires it, and once for each idempotency key.

A Transaction of a tool in, an Answer out. A change that must be confirmed is previewed by a dry run; its
answer has a token, with which the same call makes the change, if it would still do the same. The token is
bound to the caller, the tool, its arguments and the preview. The journal makes sure that it works only once;
without one, it is valid in this process only, which remembers it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dbtools import errors
from dbtools.answers.results import Answer, Changed
from dbtools.backends.runs import JournalEntry
from dbtools.policy.roles import Caller
from dbtools.queries.headers import OF_CHANGES
from dbtools.service.execution import Agrees, Execution
from dbtools.service.snapshot import RoleSnapshot
from dbtools.statements.write import Transaction, used_confirmation
from dbtools.tools.writes.calls import ChangeCall
from dbtools.values.cells import json_of

UNCHECKED_LOGIN = "The login that changes rows could not be checked yet. Nothing was changed."
TOKEN_LIFETIME = 300  #: seconds
CODE = 16  #: bytes of a code: half of an HMAC-SHA256, since a model copies the token
HEAD = struct.Struct(">12sI16s")  #: the ID, when it expires, and the digest of the preview
NEW_PREVIEW = "Nothing was changed. Repeat the call without confirm for a new preview."
TOKEN_MEANS = "token"  #: how a call with the argument `confirm` is confirmed


class Confirmation(NamedTuple):
    """A confirmation that does not come from the model, whose argument `confirm` then has no effect."""

    token: str  #: empty until a person has answered
    means: str  #: for the audit log
    refusal: errors.NotConfirmed | None = None  #: raised if the person has not agreed: the token is spent


MakeChange = Callable[[], Awaitable[Changed]]


class Transactions:
    """Makes the changes of calls; confirmations are sealed with *secret* where a journal keeps those used."""

    def __init__(self, execution: Execution, secret: str = "") -> None:
        self._execution = execution
        self._shared = Confirmations(secret)
        self._own = Confirmations("")  #: valid as long as the memory of this process
        self._used = UsedConfirmations()

    async def make(
        self,
        call: ChangeCall,
        tool: str,
        arguments: Mapping[str, object],
        view: RoleSnapshot,
        caller: Caller,
        confirmation: Confirmation | None,
    ) -> Answer:
        """Make the change of *call*, of *tool* with *arguments*, or preview it; raise a CallError."""
        transaction = call.transaction
        if confirmation is not None and confirmation.refusal is not None:
            await self._spend(call, tool, arguments, view, caller, confirmation)
            raise confirmation.refusal
        if transaction.dry_run or not (transaction.idempotency_key or transaction.confirms):
            return call.render(await self._execution.change(transaction, view, caller))
        if view.context.journal is None:
            raise errors.DatabaseUnavailable(UNCHECKED_LOGIN, hint="Try again in a moment.")
        entry = _entry(call, tool, arguments, view, caller)
        if not transaction.confirms:
            return await self._finish(
                call, await self._run_once(transaction, view, caller, entry), view, caller
            )
        token, means, _ = confirmation or Confirmation(transaction.token, TOKEN_MEANS)
        confirmations, binding = self._confirmations(view), _binding(entry, means)
        if not token:
            preview = replace(transaction, dry_run=True)
            found = await self._run_once(
                preview, view, caller, entry if transaction.idempotency_key else None
            )
        else:
            confirmed = confirmations.open(token, binding)
            self._used.check(confirmed.id)
            agrees = partial(confirmations.agrees, confirmed.preview)
            found = await self._run_once(transaction, view, caller, entry._replace(id=confirmed.id), agrees)
            found = replace(found, confirmed=None if found.dry_run or found.earlier else means)
        if not (found.affected or found.elsewhere):
            # There is nothing to confirm.
            found = replace(found, dry_run=False)
        if found.dry_run:
            new = confirmations.seal(binding, confirmations.digest(found))
            return call.render_pending(found, new, TOKEN_LIFETIME, is_outdated=bool(token))
        return await self._finish(call, found, view, caller)

    async def _spend(
        self,
        call: ChangeCall,
        tool: str,
        arguments: Mapping[str, object],
        view: RoleSnapshot,
        caller: Caller,
        refused: Confirmation,
    ) -> None:
        """Use up the token of *refused*, so that it confirms nothing.

        Raise NotConfirmed if an earlier answer has used it: the memory or the journal of the database knows.
        """
        entry = _entry(call, tool, arguments, view, caller)
        try:
            confirmed = self._confirmations(view).open(refused.token, _binding(entry, refused.means))
        except errors.NotConfirmed:
            return  # It is invalid or expired, so it confirms nothing.
        self._used.add(confirmed.id)
        if view.context.journal:
            # An idempotency key stays free for another attempt.
            await self._execution.enter(entry._replace(id=confirmed.id, key=None), view, caller)

    def _confirmations(self, view: RoleSnapshot) -> "Confirmations":
        return self._shared if view.context.journal else self._own

    async def _run_once(
        self,
        transaction: Transaction,
        view: RoleSnapshot,
        caller: Caller,
        entry: JournalEntry | None,
        agrees: Agrees | None = None,
    ) -> Changed:
        """Run *transaction*, and keep *entry* in the journal; without one, its confirmation in memory."""
        if view.context.journal or entry is None:
            return await self._execution.change(transaction, view, caller, entry, agrees)
        change = partial(self._execution.change, transaction, view, caller, None, agrees)
        return await self._used.use_once(entry.id, change)

    async def _finish(self, call: ChangeCall, found: Changed, view: RoleSnapshot, caller: Caller) -> Answer:
        """Return the answer to *found*; what an earlier call has changed is read again."""
        if found.earlier is None:
            return call.render(found)
        rows: list[tuple[object, ...]] = []
        ends = time.monotonic() + view.role.limits.timeout
        try:
            for statement in call.reread_statements(found.earlier.keys):
                left = max(ends - time.monotonic(), 0.01)
                rows += (await self._execution.execute(statement, view, caller, left)).rows
        except errors.SchemaChanged:
            raise
        except errors.CallError:
            # The change was made: the call does not fail because its rows cannot be read.
            return call.render(replace(found, earlier=found.earlier._replace(keys=None)))
        return call.render(replace(found, rows=tuple(rows)))


def _entry(
    call: ChangeCall, tool: str, arguments: Mapping[str, object], view: RoleSnapshot, caller: Caller
) -> JournalEntry:
    """Return the entry of *call*; its caller includes the claims on which the change depends."""
    transaction = call.transaction
    tool, arguments = (call.query, call.arguments) if call.query else (tool, arguments)
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


def _binding(entry: JournalEntry, means: str) -> str:
    """Return what a confirmation of the call of *entry* by *means* is bound to."""
    return json_of([entry.caller, entry.tool, entry.key, entry.arguments, means])


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
        content = json_of([before, chosen, found.left_records(), found.affected, elsewhere])
        return self._code(b"preview", content.encode())

    def agrees(self, preview: bytes, found: Changed) -> bool:
        """Return whether *preview* is the digest of *found*."""
        return hmac.compare_digest(preview, self.digest(found))

    def _code(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, purpose + content, "sha256")[:CODE]


class UsedConfirmations:
    """The confirmations that were used in this process, as long as they would be valid."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  #: monotonic seconds, by ID

    def check(self, id: str) -> None:
        """Raise NotConfirmed if the confirmation *id* has been used."""
        if id in self._until:
            raise used_confirmation()

    def add(self, id: str) -> None:
        """Use the confirmation *id*, or raise NotConfirmed if it has been used."""
        now = time.monotonic()
        self._until = {each: until for each, until in self._until.items() if until >= now}
        self.check(id)
        self._until[id] = now + TOKEN_LIFETIME

    async def use_once(self, id: str, change: MakeChange) -> Changed:
        """Return what *change* does, which uses the confirmation *id* unless nothing was changed.

        Raise NotConfirmed if it has been used, also by a call that is still running.
        """
        self.add(id)
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
                self._until.pop(id, None)  # it may have expired
