"""Explain why a call is allowed or denied. A call in, an Explanation out; no statement runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.findings import Finding, Source
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Table
from dbtools.schema.paths import normalise
from dbtools.service.execution import claim_of, preset_values, session_of, sql_run, values_of
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.statements.select import QueryShape, Shape, SqlStatement, Statement
from dbtools.statements.write import Transaction, Write, WriteShape, chooses
from dbtools.tools.calls import CatalogCall, ReadCall, SqlCall
from dbtools.tools.writes.calls import ChangeCall
from dbtools.values.cells import json_value

#: A claim (None: a literal), what needs it, and where that is written.
NeededClaim = tuple[str | None, str, Source]
#: What is wrong with arguments for every role, unless a limit of the role rejects them.
MISTAKES = (errors.BadArgument, errors.BadValue, errors.BadCursor)
#: How a role may get run_sql, with [roles] and without.
GRANT_SQL = "[roles.{}] sql = true grants it, unless [tools] sql is false."
OFFER_SQL = '[tools] sql = "auto" offers it if the database can confine it.'


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Whether a call is allowed, and how it would run."""

    allowed: bool
    valid: bool = True  #: whether the arguments can be used, whatever the role may do
    reason: str
    rule: Source = field(default_factory=Source)  #: where the deciding rule is written
    sql: str | None = None
    parameters: Sequence[object] = ()  #: in the order of their places

    def content(self) -> dict[str, object]:
        """Return the explanation as `dbtools explain --json` prints it."""
        return {**asdict(self), "parameters": [json_value(each) for each in self.parameters]}


async def explain(
    toolbox: Toolbox, backend: Backend, caller: Caller, name: str, arguments: Mapping[str, object]
) -> Explanation:
    """Explain the call of the tool *name* by *caller*."""
    snapshot = await toolbox.snapshot()
    view = snapshot.view(caller.role)
    tool = view.tools.get(name)
    if tool is None:
        problems = problems_of(view, name) or _missing_tool_findings(view, name)
        remedy = GRANT_SQL.format(caller.role) if snapshot.settings.roles else OFFER_SQL
        remedies = [remedy] if name == "run_sql" and not view.role.sql else []
        reason = " ".join([f"The role {caller.role} has no tool {name}.", *remedies, *map(str, problems)])
        return Explanation(allowed=False, reason=reason, rule=view.role.source)
    rule = _source(view, tool.table)
    try:
        call = tool.bind(arguments)
        shape: Shape | WriteShape
        match call:
            case CatalogCall():
                return Explanation(allowed=True, reason="It describes tables.", rule=rule)
            case SqlCall():
                return await _sql(call.statement, view, caller, backend)
            case ReadCall():
                shape, compiled = call.statement.shape, partial(_read_sql, call.statement)
            case ChangeCall():
                (shape, _), compiled = call.transaction.writes[0], partial(_write_sql, call.transaction)
            case _:
                raise TypeError(call)
        rule = _grant_source(view, shape)
        if denied := _missing_claim((*_claims(view, shape), *_session_claims(view)), caller):
            return denied
        session = session_of(view.role, caller)
        sql, parameters = await compiled(backend, caller)
    except errors.CallError as exc:
        is_mistake = isinstance(exc, MISTAKES) and not getattr(exc, "limit", "")
        rule = _refusal_source(view, exc, arguments) or rule
        return Explanation(allowed=False, valid=not is_mistake, reason=str(exc), rule=rule)
    return Explanation(
        allowed=True, reason=_reason(shape, session), rule=rule, sql=sql, parameters=parameters
    )


async def _sql(statement: SqlStatement, view: RoleSnapshot, caller: Caller, backend: Backend) -> Explanation:
    """Explain how *statement* would run, or why it would not."""
    try:
        found = await (await backend.sql_runner()).explain(sql_run(statement, view, caller))
    except errors.Denied:
        sql = statement.sql.lower()
        named = [table for table in view.catalog.tables if table.name.lower() in sql]
        if denied := _missing_claim((*_filter_claims(view, named), *_session_claims(view)), caller):
            return denied
        raise
    return Explanation(
        allowed=True,
        reason=" ".join(found.verdicts),
        rule=_source(view, None),
        sql=found.sql,
        parameters=found.parameters,
    )


async def _read_sql(statement: Statement, backend: Backend, caller: Caller) -> tuple[str, Sequence[object]]:
    """Return the SQL of *statement*, and its parameters."""
    plan = (await backend.runner()).compile(statement.shape)
    return plan.sql, plan.bind_values(values_of(plan, statement, caller), statement.limit)


async def _write_sql(
    transaction: Transaction, backend: Backend, caller: Caller
) -> tuple[str, Sequence[object]]:
    """Return the statements of *transaction*, each once, and the parameters of its first change.

    What is read after the change has parameters that the change returns. If conditions choose the rows, the
    parameters are those that find them.
    """
    compile = (await backend.writer()).compile
    shape, values = transaction.writes[0]
    plans = [compile(each) for each in dict.fromkeys(each for each, _ in transaction.writes)]
    first = (plans[0].before if chooses(shape) else None) or plans[0].change
    claims = {name: claim_of(caller, claim) for name, claim in first.claims.items()}
    values = {**values, **preset_values(shape, caller), **claims}
    statements = dict.fromkeys(each.sql for plan in plans for each in plan.statements)
    most = shape.most if isinstance(shape, Write) else shape.writes or 1
    return ";\n".join(statements), first.bind_values(values, most)


def problems_of(view: RoleSnapshot, query: str) -> list[Finding]:
    """Return why *query* is withdrawn, for the operator."""
    return [each for each in view.problems if each.subject == query and each.role in ("", view.role.name)]


def _missing_tool_findings(view: RoleSnapshot, tool: str) -> list[Finding]:
    """Return the findings about the role of *view* that may explain why *tool* is missing."""
    found = [each for each in view.problems if each.role == view.role.name]
    names = [f"_{normalise(each.subject.rpartition('.')[2])}" for each in found]
    return [each for each, name in zip(found, names, strict=True) if not each.subject or tool.endswith(name)]


def _refusal_source(
    view: RoleSnapshot, refusal: errors.CallError, arguments: Mapping[str, object]
) -> Source | None:
    """Return where the limit that *refusal* is about is written, or the rule for the table in *arguments*."""
    if isinstance(refusal, errors.BadArgument) and refusal.limit:
        return view.role.bounds.get(refusal.limit, view.role.source)
    found = view.catalog.find_tables(str(arguments.get("table", "")))
    return _source(view, found[0]) if len(found) == 1 else None


def _missing_claim(needed: Iterable[NeededClaim], caller: Caller) -> Explanation | None:
    """Return the explanation that *caller* lacks the first of the claims *needed* that is missing, if any."""
    for claim, what, rule in needed:
        if claim is not None and caller.claims.get(claim) is None:
            reason = f"{what} the claim {claim}, which is missing."
            return Explanation(allowed=False, reason=reason, rule=rule)
    return None


def _claims(view: RoleSnapshot, shape: Shape | WriteShape) -> Iterator[NeededClaim]:
    """Yield each claim that *shape* needs."""
    rule = _grant_source(view, shape)
    if isinstance(shape, Write):
        for preset in (preset for each in shape.variants for preset in each.presets):
            yield preset.claim, f"{preset.column.name} is preset to", rule
        for asked in (each for check in shape.checks for each in check.condition.parameters):
            yield asked.claim, f"The check of {shape.table.name} requires", rule
    if isinstance(shape, QueryShape):
        yield from ((claim, f"The query {shape.name} requires", rule) for claim in shape.claims)
    else:
        yield from _filter_claims(view, shape.tables)


def _filter_claims(view: RoleSnapshot, tables: Iterable[Table]) -> Iterator[NeededClaim]:
    """Yield each claim that the row filters of *tables* need."""
    for table in tables:
        for asked in table.filter.condition.parameters if table.filter else ():
            yield asked.claim, f"The rows of {table.name} are filtered by", _source(view, table)


def _session_claims(view: RoleSnapshot) -> Iterator[NeededClaim]:
    """Yield each claim that the session of the role of *view* needs."""
    for each in view.role.session:
        yield each.claim, f"The setting {each.name} requires", each.source


def _source(view: RoleSnapshot, table: Table | None) -> Source:
    """Return where the rule for *table* is written, or else the role."""
    rule = view.role.rule_of(view.catalog, table) if table is not None else None
    return rule.source if rule else view.role.source


def _grant_source(view: RoleSnapshot, shape: Shape | WriteShape) -> Source:
    """Return where the grant for *shape* is written."""
    if not isinstance(shape, QueryShape):
        return _source(view, shape.table)
    grants = (grant.source for grant in view.role.queries or () if grant.means(shape.name))
    return next(grants, view.role.source)


def _reason(shape: Shape | WriteShape, session: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{name} = {value}" for name, value in session.items())
    sessions = [f"the session has {pairs}"] if session else []
    if isinstance(shape, QueryShape):
        parts = [f"call the query {shape.name}; row filters and masks do not apply to it"]
    else:
        parts = [f"read {' and '.join(map(_readable_rows, shape.tables))}"]
    if isinstance(shape, Write):
        kinds = " and ".join(each.kind for each in shape.variants)
        confirm = ", if that is confirmed," if shape.writes.confirm else ""
        presets = dict.fromkeys(preset.column.name for each in shape.variants for preset in each.presets)
        check = ["rows must pass its check"] if shape.checks else []
        preset = [f"{name} is preset" for name in presets]
        parts = [f"{kinds} rows of {shape.table.name}{confirm} and {parts[0]}", *check, *preset]
    return f"The role may {'; '.join([*parts, *sessions])}."


def _readable_rows(table: Table) -> str:
    masked = ", ".join(column.name for column in table.columns if column.type.mask is not None)
    rows = f"all rows of {table.name}"
    if table.filter is not None:
        rows = f"the rows of {table.name} that pass its filter"
    return f"{rows}, with {masked} masked" if masked else rows
