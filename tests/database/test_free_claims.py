"""Row filters that compare columns of each type with a claim work for callers' SQL as for the other tools."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.port import Backend
from dbtools.errors import Denied
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import load
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

Login = Callable[[str, str], AbstractContextManager[str]]
#: Types of columns with a value, another value, and a claim that is no value.
TYPES = {
    "smallint": ("1", "2", "one"),
    "integer": ("1", "2", "one"),
    "bigint": ("9007199254740993", "2", "1.5"),
    "numeric(8, 2)": ("1.50", "2", "one"),
    "real": ("1.5", "2", "one"),
    "double precision": ("1.5", "2", "one"),
    "boolean": ("true", "false", "maybe"),
    "date": ("2024-01-02", "2024-01-03", "tomorrows"),
    "timestamp": ("2024-01-02T03:04:05", "2024-01-03", "later"),
    "timestamptz": ("2024-01-02T03:04:05Z", "2024-01-03Z", "later"),
    "uuid": ("6f1c2d3e-0000-4000-8000-000000000001", "6f1c2d3e-0000-4000-8000-000000000002", "x"),
    "varchar(20)": ("north", "south", None),
    "character(5)": ("north", "south", None),
    "text": ("north", "south", None),
    "inet": ("10.0.0.1", "10.0.0.2", "x"),
    "color": ("red", "blue", "x"),
    "age": ("7", "8", None),
}
UNTRIED = ("inet",)  #: types of which `check` knows no value
WHY = "since it knows no value of the claims in its row filter."
TABLE = """
create table t{number} (id integer primary key, tenant {type} not null);
insert into t{number} values (1, '{own}'), (2, '{other}');
"""
DDL = """
create view broken as select 1 as id;
create type color as enum ('red', 'blue');
create domain age as integer check (value > 0);
""" + "".join(
    TABLE.format(number=number, type=type, own=own, other=other)
    for number, (type, (own, other, _)) in enumerate(TYPES.items())
)
READS = "grant select on all tables in schema public to {}"
BROKEN = "create or replace view broken as select 1 / 0 as id"


@pytest.fixture(scope="module")
def configuration(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Login,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """Yield a configuration with a role that sees the rows of its tenant in every table."""
    path = tmp_path_factory.mktemp("claims") / "dbtools.toml"
    tables = "".join(
        f'[roles.member.tables.t{number}]\nwhere = "tenant = :claims.tenant"\n'
        for number in range(len(TYPES))
    )
    with (
        postgresql_database(DDL) as owner,
        postgresql_login(owner, "grant select on all tables in schema public to {}") as url,
    ):
        path.write_text(
            f'[database]\nurl = "{url}"\n[roles.member]\nsql = true\n{tables}'
            "[roles.member.tables]\nbroken = true\n"
        )
        path.with_name("owner").write_text(owner)
        yield path


@pytest.fixture(scope="module")
def toolbox(configuration: Path, portal: BlockingPortal) -> Iterator[Toolbox]:

    async def opened() -> tuple[Toolbox, Backend]:
        return open_toolbox(load(configuration))

    toolbox, backend = portal.call(opened)
    yield toolbox
    portal.call(backend.close)


@pytest.mark.parametrize(("number", "type"), [*enumerate(TYPES)], ids=TYPES)
def test_filter_by_a_claim_of_any_type_runs(
    toolbox: Toolbox, portal: BlockingPortal, number: int, type: str
) -> None:
    own, _, wrong = TYPES[type]
    statement = {"sql": f"select id from t{number}"}

    async def ids(claim: str) -> object:
        caller = Caller(role="member", claims={"tenant": claim})
        return (await toolbox.call(caller, "run_sql", statement)).structured["rows"]

    assert portal.call(ids, own) == [[1]]
    if wrong is not None:
        with pytest.raises(Denied):
            portal.call(ids, wrong)


def findings(configuration: Path, code: str) -> list[Mapping[str, object]]:
    """Return the findings of `check` that have *code*."""
    result = run("check", str(configuration), "--json")
    return [each for each in json.loads(result.stdout)["findings"] if each["code"] == code]


def test_check_tries_what_every_role_with_sql_sees(
    configuration: Path, postgresql_server: PostgresqlServer
) -> None:
    owner = configuration.with_name("owner").read_text()

    assert findings(configuration, "unread_by_sql") == []

    postgresql_server.execute(BROKEN, url=owner)
    (found,) = findings(configuration, "unread_by_sql")

    assert found["message"] == "role member, tables.broken: run_sql cannot read broken: Division by zero."
    assert found["line"] == configuration.read_text().split("\n").index("broken = true") + 1


def test_check_tries_a_claim_of_each_type_or_says_that_it_cannot(configuration: Path) -> None:
    names = [f"t{number}" for number, type in enumerate(TYPES) if type in UNTRIED]
    untried = [(each["level"], each["message"]) for each in findings(configuration, "untried_by_sql")]

    assert untried == [
        ("warning", f"role member, tables.{name}: check could not try whether run_sql can read {name}, {WHY}")
        for name in names
    ]
