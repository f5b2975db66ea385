"""A database with hidden data for ad-hoc SQL, and a twin without them, which look the same to a role."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from dbtools.backends.runs import RunContext, SqlRun
from dbtools.backends.sqlite.connection.files import location_of, read_file
from dbtools.backends.sqlite.run_sql.lens import lens_of, specification
from dbtools.backends.sqlite.run_sql.worker import Refusal, Sandbox
from dbtools.backends.sqlite.schema.introspection import read_catalog
from dbtools.backends.sqlite.schema.syntax import lexis, names_in
from dbtools.configured.roles import roles_of
from dbtools.policy.roles import FunctionRules, restrict
from dbtools.schema.catalog import Selection
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import GrantSection, PolicySection, RoleSection
from dbtools.values.types import Mask
from tests.database.role_callers import KEY, NORTH, Grants
from tests.database.twins import Side

#: The columns of a table that only the rich database has.
HIDDEN_COLUMNS = ("ssn", "Salary", "line_total")
HIDDEN_TABLES = ("secrets", "v_secrets", "mails", "mails_content", "Weird Name", "geheim_ä", "numbered")
COMMON = """
    create table orders (
        id integer primary key, customer_id integer, total real, status text, placed text,
        note text collate nocase
    );
    insert into orders values
        (1, 1, 10.5, 'new', '2024-01-05', 'Red'), (2, 1, 20, 'paid', '2024-02-07', 'red'),
        (3, 3, 30, 'paid', '2024-02-29', null), (4, 5, 5, 'new', '2025-12-31', 'blue'),
        (5, null, null, null, null, '{"a": [1, 2]}');
    create index orders_status on orders(status);
    create table tags (name text primary key, weight int) without rowid;
    insert into tags values ('a', 1), ('b', 2), ('c', null);
    create virtual table docs using fts5(title, body);
    insert into docs values ('one', 'hello world'), ('two', 'hello again'), ('three', 'good bye');
    create view paid as select id, total from orders where status = 'paid';
"""
RICH_DDL = (
    COMMON
    + """
    create table customers (
        id integer primary key, name text, region text, email text, phone text, remark text, code text,
        amount integer, ssn text, Salary integer, line_total integer as (amount * 2)
    );
    insert into customers values
        (1, 'Ann', 'north', 'ann@example.org', '123', 'CANARY', 'CANARY', 7, 'CANARY', 424242),
        (2, 'CANARY', 'south', 'CANARY@CANARY.org', 'CANARY', 'CANARY', 'CANARY',
         -9223372036854775808, 'CANARY', 424242),
        (3, 'Cid', 'north', null, null, 'CANARY', 'CANARY', 9, 'CANARY', 424242),
        (4, '{"CANARY', 'south', 'CANARY', 'CANARY', 'CANARY', 'CANARY', 424242,
         'CANARY', 424242),
        (5, 'Eve', 'north', 'ex@example.org', 'CANARY', null, null, 1, null, null);
    create table secrets (id integer primary key autoincrement, v text, name text, region text, total real);
    insert into secrets values (1, 'CANARY', 'Ann', 'north', 424242), (2, 'x', 'CANARY', 'south', 1);
    create index secrets_v on secrets(v);
    create trigger secrets_watched after insert on secrets begin delete from secrets where v is null; end;
    analyze secrets;
    create view v_secrets as select * from secrets;
    create view regions as
        select region, count(*) as n from customers where name <> 'CANARY' group by region;
    create virtual table mails using fts5(subject, body);
    insert into mails values ('CANARY', 'hello CANARY');
    create table "Weird ""Name" (v text);
    insert into "Weird ""Name" values ('CANARY');
    create table "geheim_ä" (v text);
    insert into "geheim_ä" values ('CANARY');
    create table numbered (id integer primary key, v text) ;
    insert into numbered values (424242, 'CANARY');
    create table gaps (id integer primary key, v text);
    insert into gaps values (1, 'a'), (424242, 'b');
"""
)
POOR_DDL = (
    COMMON
    + """
    create table customers (
        id integer primary key, name text, region text, email text, phone text, remark text, code text,
        amount integer
    );
    insert into customers values
        (1, 'Ann', 'north', 'axx@example.org', 'x', 'x', 'x', 7), (3, 'Cid', 'north', null, 'x', 'x', 'x', 9),
        (5, 'Eve', 'north', 'exxx@example.org', 'x', 'x', 'x', 1);
    create table gaps (id integer primary key, v text);
    insert into gaps values (1, 'a');
"""
)
SEEN = ("id", "name", "region", "email", "phone", "remark", "code", "amount")
MASKS = {"email": Mask.PARTIAL, "phone": Mask.REDACT, "remark": Mask.NULL, "code": Mask.HASH}
#: The filter reads a hidden table, and raises no error on a row.
RICH_FILTER = """
    region = :claims.region
    and not exists (select 1 from secrets s where s.name = customers.name and s.id > 1)
"""
GRANTS: Grants = {
    "orders": True,
    "tags": True,
    "docs": True,
    "paid": True,
    "customers": GrantSection(columns=SEEN, where=RICH_FILTER, mask=MASKS),
    "gaps": GrantSection(where="id < 100"),
}
RICH = Side(ddl=RICH_DDL, grants=GRANTS)
POOR = Side(
    ddl=POOR_DDL,
    grants={**GRANTS, "customers": GrantSection(columns=SEEN, where="region = :claims.region", mask=MASKS)},
)
SCHEMA = "xfile"


@contextmanager
def open_sandbox(path: Path, grants: Grants, kind: type[Sandbox] = Sandbox) -> Iterator[Sandbox]:
    """Yield the connection to the file at *path* of a role with *grants*."""
    settings = Settings(
        database=DatabaseSection(url=f"sqlite:///{path}"),
        roles={"reader": RoleSection(tables=dict(grants), sql=True)},
        policy=PolicySection(hash_key=KEY, claims={"region": "text"}),
    )
    location = location_of(settings.database.url)
    catalog = read_file(location, lambda driver, file: read_catalog(driver, Selection(), file))
    (role,) = roles_of(settings, lexis)
    ask = partial(
        SqlRun,
        sql="",
        claims=NORTH,
        caller="",
        limit=1,
        longest=1,
        most_bytes=1,
        context=RunContext(timeout=1),
    )
    lens = lens_of(ask(catalog=restrict(catalog, role), whole=catalog), SCHEMA)
    sandbox = kind(specification(lens, location, catalog.stamp, SCHEMA, FunctionRules()))
    with closing(sandbox):
        yield sandbox


def run_in(sandbox: Sandbox, sql: str) -> Mapping[str, object] | Refusal:
    """Return the answer to *sql*, or why there is none."""
    request = {"limit": 10_000, "longest": 1_000, "bytes": 10_000_000, "explains": False}
    try:
        return sandbox.run({**request, "sql": sql, "names": [*names_in(sql)]})
    except Refusal as exc:
        return exc
