"""Objects that exist only while a statement is analysed, checked or run do not change what it means.

A proxy holds the requests of dbtools while someone else creates and drops an object. Each answer is the right
one or a refusal.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from tests.database.cutting_proxy import Cutting, cutting_proxy
from tests.database.query_shop import QueryShop, open_query_shop
from tests.database.shop import BarePostgresql, open_bare
from tests.database.ways import PLAIN, WAYS, Way, keys_of, netloc_of
from tests.postgresql_server import PostgresqlServer

Step = tuple[bytes, str]  #: the next request that contains the text waits until the SQL has run
ANY, CHECK, NONE = b"", b"dbtools_changed", b"no request contains this"
READER = Caller(role="reader", claims={"region": "north"})

DDL = """
create table public.orders (id integer primary key, region varchar(10), status varchar(10));
insert into public.orders
select g, case when g % 3 = 0 then 'north' else 'south' end, 'new' from generate_series(1, 6) as g;
create function public.always(varchar, text) returns boolean language sql immutable as 'select true';
create function public.waiting(varchar, text) returns boolean language plpgsql immutable
    as 'begin perform pg_advisory_xact_lock_shared(5); return true; end';
"""
FILTER = "region = :claims.region and lower(status) <> 'x'"
OPERATOR = "create operator public.= (leftarg = varchar, rightarg = text, function = public.always)"
WAITING_OPERATOR = OPERATOR.replace("always", "waiting")
WAITING = "select from pg_locks where locktype = 'advisory' and not granted"
NO_OPERATOR = "drop operator public.= (varchar, text)"
#: What the filter or a query means wrongly, and the end of that.
OBJECTS = {
    "operator": (OPERATOR, NO_OPERATOR),
    "schema with an operator": (
        "create schema late; create operator late.= "
        "(leftarg = varchar, rightarg = text, function = public.always)",
        "drop schema late cascade",
    ),
    "renamed schema": (
        "create schema other; create operator other.= "
        "(leftarg = varchar, rightarg = text, function = public.always); alter schema other rename to late",
        "alter schema late rename to other; drop schema other cascade",
    ),
    "operator moved into the path": (
        "create schema other; create operator other.= (leftarg = varchar, rightarg = text, "
        "function = public.always); alter operator other.= (varchar, text) set schema public",
        "drop operator public.= (varchar, text); drop schema other",
    ),
}
READING = f"-- name: mine\n-- description: Orders.\nselect id from orders where {FILTER}\n"
CHANGING = """-- name: pay
-- description: Pay the orders of a region.
-- writes: 6
update orders set status = 'paid' where region = :claims.region"""
RULES = f"""
sql = true
tables.orders = {{ where = {json.dumps(FILTER)}, update = ["status"], delete = true }}
queries = [
    "mine",
    "pay",
    "returned",
]
"""
#: Tools that see two of six rows, and the row with ID 1 not at all.
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "list": ("list_orders", {}),
    "aggregate": ("aggregate_rows", {"table": "orders", "group_by": ["id"]}),
    "get": ("get_orders", {"id": 1}),
    "query": ("mine", {}),
    "run_sql": ("run_sql", {"sql": "select id from orders"}),
    "update": ("update_orders", {"id": 1, "set": {"status": "VOID"}}),
    "update many": (
        "update_rows",
        {
            "table": "orders",
            "set": {"status": "VOID"},
            "where": [{"column": "id", "op": "eq", "value": 1}],
        },
    ),
    "delete": ("delete_orders", {"id": 1}),
    "changing query": ("pay", {}),
    "changing query with rows": ("returned", {}),
}
#: How many rows they show or change; the others refuse.
SEEN = {
    **dict.fromkeys(
        ("list", "aggregate", "query", "run_sql", "changing query", "changing query with rows"), 2
    ),
    "update many": 0,
}
HIDDEN = "select id, region, status from public.orders where region <> 'north' order by id"
KEPT = [(1, "south", "new"), (2, "south", "new"), (4, "south", "new"), (5, "south", "new")]


@dataclass(frozen=True, kw_only=True)
class Meddling:
    """A served database, and someone else who acts between two requests of dbtools."""

    shop: QueryShop
    proxy: Cutting
    other: BarePostgresql

    def call(
        self, tool: str, arguments: Mapping[str, object], *steps: Step, while_waiting: Sequence[str] = ()
    ) -> object:
        """Return how many rows *tool* shows or changes, None if it refuses, while *steps* happen.

        Then, once a statement waits for an advisory lock, unless the call has ended, run *while_waiting*.
        """
        return self.shop.portal.call(self._call, tool, arguments, steps, while_waiting)

    async def _call(
        self,
        tool: str,
        arguments: Mapping[str, object],
        steps: Sequence[Step],
        while_waiting: Sequence[str],
    ) -> object:
        answer: list[object] = []

        async def call() -> None:
            try:
                found = await self.shop.toolbox.call(READER, tool, arguments)
                rows = found.structured.get("rows")
                answer.append(found.structured.get("affected", isinstance(rows, list) and len(rows)))
            except DbtoolsError:
                answer.append(None)
            self.proxy.met.set()

        self._wait_for(steps[0][0] if steps else NONE)
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            for at, (_, sql) in enumerate(steps, 1):
                with anyio.fail_after(60):
                    await self.proxy.met.wait()
                if answer:
                    break
                await self.execute(sql)
                self._wait_for(steps[at][0] if at < len(steps) else NONE)
            for sql in while_waiting:
                while not (answer or await self.other.connection.fetch(WAITING)):
                    await anyio.lowlevel.checkpoint()
                await self.execute(sql)
        return answer[0]

    def _wait_for(self, text: bytes) -> None:
        """Let what is held go on, and hold the next request that contains *text*."""
        released = self.proxy.released
        self.proxy.at(lambda request: text in request, None)
        released.set()

    async def execute(self, sql: str) -> None:
        """Run *sql* as someone else."""
        await self.other.connection.execute(sql)


@pytest.fixture
def meddle(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[..., AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    portal: BlockingPortal,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Meddling]:
    """Yield a served database behind a proxy, by a Way if a test asks for one."""
    way: Way = getattr(request, "param", PLAIN)
    queries = {
        "mine.sql": READING,
        "pay.sql": CHANGING,
        "returned.sql": CHANGING.replace("pay\n", "returned\n", 1) + "\nreturning id",
    }
    with (
        way.role(postgresql_server) as role,
        postgresql_database(DDL) as url,
        postgresql_login(
            url, f"grant select on all tables in schema public to {{}}; {way.grants(role)}"
        ) as login,
        portal.wrap_async_context_manager(cutting_proxy(url)) as proxy,
        way.pooled(proxy.url, portal) as pooled,
    ):
        other = open_bare("postgresql", url, portal)
        assert isinstance(other, BarePostgresql)
        writing = f"{pooled}?options=-csearch_path%3Dlate,public"
        reading = urlsplit(writing)._replace(netloc=netloc_of(login, pooled)).geturl()
        rules = f"[roles.reader]\n{keys_of(role)}{RULES}"
        with open_query_shop(reading, tmp_path, queries, rules, portal, writing) as shop:
            shop.listed("reader")
            yield Meddling(shop=shop, proxy=proxy, other=other)
        other.close()


#: The calls that each attack is tried on.
TRIED = [
    *((call, "operator") for call in CALLS),
    *((call, attack) for call in ("list", "update", "run_sql") for attack in OBJECTS if attack != "operator"),
]


@pytest.mark.parametrize("is_warm", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize(("name", "attack"), TRIED)
def test_object_that_is_dropped_before_the_check_is_not_meant(
    name: str, attack: str, is_warm: bool, meddle: Meddling
) -> None:
    tool, arguments = CALLS[name]
    created, dropped = OBJECTS[attack]
    if is_warm:
        meddle.call(tool, arguments)
    answer = meddle.call(tool, arguments, (ANY, created), (CHECK, dropped))

    assert answer in (None, SEEN.get(name))
    assert meddle.other.rows(HIDDEN) == KEPT


@pytest.mark.parametrize("is_warm", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("name", CALLS)
def test_object_that_is_created_after_the_check_is_not_meant(
    name: str, is_warm: bool, meddle: Meddling
) -> None:
    tool, arguments = CALLS[name]
    if is_warm:
        meddle.call(tool, arguments)
    answer = meddle.call(tool, arguments, (CHECK, "select"), (ANY, OPERATOR))

    assert answer in (None, SEEN.get(name))
    assert meddle.other.rows(HIDDEN) == KEPT


#: What precedes the analysis of the statement that runs: all that is compared before, in run_sql.
BEFORE: Mapping[str, Sequence[Step]] = {"run_sql": [(CHECK, "select")] * 3}


@pytest.mark.parametrize("is_warm", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("name", CALLS)
def test_object_that_is_dropped_while_it_runs_is_not_meant(
    name: str, is_warm: bool, meddle: Meddling
) -> None:
    tool, arguments = CALLS[name]
    if is_warm:
        meddle.call(tool, arguments)
    meddle.other.execute("select pg_advisory_lock(5)")
    steps = [*BEFORE.get(name, ()), (ANY, WAITING_OPERATOR)]
    drops = (NO_OPERATOR, "select pg_advisory_unlock(5)")
    answer = meddle.call(tool, arguments, *steps, while_waiting=drops)

    assert answer in (None, SEEN.get(name))
    assert meddle.other.rows(HIDDEN) == KEPT


@pytest.mark.parametrize(
    ("tool", "arguments", "seen"),
    [
        ("list_orders", {}, 2),
        ("run_sql", {"sql": "select id from orders"}, 2),
        ("update_orders", {"id": 3, "set": {"status": "paid"}}, 1),
        ("pay", {}, 2),
    ],
)
def test_call_goes_on_while_the_server_analyses_it_again_and_again(
    tool: str, arguments: Mapping[str, object], seen: int, meddle: Meddling
) -> None:
    # So does autovacuum, whenever its numbers of rows and pages differ.
    steps = [(CHECK, f"create statistics s{at} on region, status from public.orders") for at in range(9)]
    answer = meddle.call(tool, arguments, *steps)

    assert answer == seen


REQUESTS = 9  #: more than a statement of any of them takes
#: Calls by their ways: a login that may change rows through a role is not offered run_sql.
REACHED = [
    *((way, call) for way in WAYS if "changes" not in way for call in ("list", "run_sql")),
    ("set_role with changes", "update"),
    ("pooler", "update"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("meddle", "name"),
    [pytest.param(WAYS[way], name, id=f"{way}-{name}", marks=WAYS[way].marks) for way, name in REACHED],
    indirect=["meddle"],
)
def test_object_that_passes_is_not_meant_as_another_role_or_behind_a_pooler(
    name: str, meddle: Meddling
) -> None:
    tool, arguments = CALLS[name]
    seen = [meddle.call(tool, arguments)]
    for passed in range(REQUESTS):
        steps = [*[(ANY, "select")] * passed, (ANY, OPERATOR), (ANY, NO_OPERATOR)]
        seen.append(meddle.call(tool, arguments, *steps))
        meddle.other.execute(NO_OPERATOR.replace("operator", "operator if exists", 1))

    assert seen[0] == SEEN.get(name)
    assert {*seen} <= {None, SEEN.get(name)}
    assert meddle.other.rows(HIDDEN) == KEPT


@pytest.mark.parametrize("sign", ["+", "="])
def test_operator_that_passes_between_any_two_requests_is_not_meant_by_run_sql(
    sign: str, meddle: Meddling
) -> None:
    """The guard cannot write the schemas of these operators: they would lose their precedence."""
    types = "(integer, numeric)"
    created = f"""
    create function public.shown{types} returns text language sql immutable as $$ select 'CANARY' $$;
    create operator public.{sign} (leftarg = integer, rightarg = numeric, function = public.shown)
    """
    dropped = f"drop operator if exists public.{sign} {types}; drop function if exists public.shown{types}"
    value = f"(id {sign} 1.0)::text = 'CANARY'"
    meddle.other.execute(created)
    would_show = meddle.other.rows(f"select from orders where {value}")
    meddle.other.execute(dropped)
    statement = {"sql": f"select id from orders where {value}"}
    answers = [meddle.call("run_sql", statement)]
    for passed in range(REQUESTS):
        steps = [*[(ANY, "select")] * passed, (ANY, created), (ANY, dropped)]
        answers.append(meddle.call("run_sql", statement, *steps))
        meddle.other.execute(dropped)

    assert len(would_show) == 6
    assert answers[0] == answers[-1] == 0
    assert {*answers} <= {0, None}


def test_calls_see_their_rows_if_nobody_meddles(meddle: Meddling) -> None:
    seen = {name: meddle.call(tool, arguments) for name, (tool, arguments) in CALLS.items()}

    assert {name: number for name, number in seen.items() if number is not None} == SEEN
