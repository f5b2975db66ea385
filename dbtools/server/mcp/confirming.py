"""Let a person confirm a change. A call in; its answer out, perhaps after a question, or the question.

Until 2025-11-25, the server asks during the call. Since 2026-07-28, it returns the question, and the client
repeats the call with the person's answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from dbtools import errors
from dbtools.answers.results import Answer, Pending
from dbtools.records import AuditEntry
from dbtools.server.mcp.exchange import Exchange
from dbtools.server.messages import Json, ProtocolError
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.transactions import TOKEN_LIFETIME, Confirmation

ELICIT = "elicitation/create"
ELICITATION = "elicitation"  #: for the audit log
QUESTION_KEY = "confirm"  #: of the question among those of a result, and of the answer in the form
ANSWER_TIMEOUT = TOKEN_LIFETIME - 10.0  #: seconds that a person has; then the answer can still arrive in time
ROUNDS = 3  #: questions of one call
CONFIRMATION_SCHEMA = {
    "type": "object",
    "properties": {QUESTION_KEY: {"type": "boolean", "title": "Make this change"}},
    "required": [QUESTION_KEY],
}
DECLINED = "The user declined the change; nothing was changed."
DISMISSED = "The user closed the question without an answer; nothing was changed."
SILENT = "The user did not answer within {:g} seconds; nothing was changed."
UNASKED = "The client could not ask the user; nothing was changed."
UNCONFIRMED = 'The client\'s answer has no "confirm": true; nothing was changed.'
UNSTEADY = "What the call would change differed after each confirmation; nothing was changed."
UNLESS_ASKED = "Do not repeat the call unless the user asks for it."

MakeCall = Callable[[RoleSnapshot | None, Confirmation], Awaitable[Answer]]
Ask = Callable[[str], Awaitable[None]]  #: asks a person a question, and raises NotConfirmed unless they agree


def can_ask(exchange: Exchange) -> bool:
    """Return whether the client of *exchange* can show a form to a person now."""
    able, revision = exchange.peer.capabilities.get(ELICITATION), exchange.peer.revision
    if not isinstance(able, Mapping) or ("url" in able and "form" not in able):
        return False
    return not revision.has_handshake or (ELICIT in revision.asks and exchange.questions is not None)


def confirmable_call(
    exchange: Exchange, entry: AuditEntry, call: MakeCall, timeout: float
) -> Callable[[RoleSnapshot], Awaitable[Answer]]:
    """Return what makes *call*, which *entry* records, and lets the person behind the client confirm it."""
    if exchange.peer.revision.has_handshake:
        return partial(ask_and_call, entry, call, partial(_ask, exchange, timeout))
    return partial(_repeat, exchange.params, entry, call)


async def ask_and_call(entry: AuditEntry, call: MakeCall, ask: Ask, view: RoleSnapshot) -> Answer:
    """Return the answer of *call*; if its change must be confirmed, *ask* first."""
    answer = await call(view, Confirmation("", ELICITATION))
    for _ in range(ROUNDS):
        if answer.pending is None:
            return answer
        entry.changed, entry.dry_run = answer.changed, True
        await ask(answer.pending.question)
        entry.changed, entry.dry_run, entry.confirmed = None, None, ELICITATION
        # The role may have changed while the person read the question: look it up again.
        answer = await call(None, Confirmation(answer.pending.token, ELICITATION))
    if answer.pending is not None:
        raise errors.NotConfirmed(UNSTEADY, hint=UNLESS_ASKED)
    return answer


async def _ask(exchange: Exchange, timeout: float, question: str) -> None:
    """Ask the person behind the client of *exchange*; raise NotConfirmed unless they agree."""
    try:
        answer = await exchange.ask(ELICIT, _form(question), timeout)
    except TimeoutError as exc:
        raise errors.NotConfirmed(SILENT.format(timeout), hint=UNLESS_ASKED) from exc
    except ProtocolError as exc:
        raise errors.NotConfirmed(UNASKED, hint=UNLESS_ASKED) from exc
    if (refusal := _refusal_in(answer)) is not None:
        raise refusal


async def _repeat(params: Json, entry: AuditEntry, call: MakeCall, view: RoleSnapshot) -> Answer:
    """Return the answer of *call*, confirmed if *params* have the question's state and a person's answer.

    An answer that does not agree uses the state up: the same state with another answer changes nothing.
    """
    state, answers = params.get("requestState"), params.get("inputResponses")
    answer = answers.get(QUESTION_KEY) if isinstance(answers, Mapping) else None
    if not (isinstance(state, str) and isinstance(answer, Mapping)):
        return await call(view, Confirmation("", ELICITATION))
    refusal = _refusal_in(answer)
    if refusal is None:
        entry.confirmed = ELICITATION
    return await call(view, Confirmation(state, ELICITATION, refusal))


def question_result(pending: Pending) -> Json:
    """Return the result that asks the question of *pending* (MCP 2026-07-28, basic/patterns/mrtr)."""
    question = {"method": ELICIT, "params": _form(pending.question)}
    return {
        "resultType": "input_required",
        "inputRequests": {QUESTION_KEY: question},
        "requestState": pending.token,
    }


def _form(question: str) -> Json:
    return {"message": question, "requestedSchema": CONFIRMATION_SCHEMA}


def _refusal_in(answer: Json) -> errors.NotConfirmed | None:
    """Return the error to raise for *answer*, None if it says that a person agrees."""
    match answer:
        case {"action": "accept", "content": {"confirm": True}}:
            return None
        case {"action": "decline" | "cancel"} | {"action": "accept", "content": {"confirm": False}}:
            said = DISMISSED if answer["action"] == "cancel" else DECLINED
            return errors.NotConfirmed(said, hint=UNLESS_ASKED, declined=True)
        case _:
            return errors.NotConfirmed(UNCONFIRMED, hint=UNLESS_ASKED)
