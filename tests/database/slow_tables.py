"""Tables and views that are slow to read, and how calls on them end."""

from collections.abc import Callable, Iterator

import pytest

from dbtools.backends.postgresql.reading import runner as postgresql_runner
from dbtools.backends.sqlite.reading import runner as sqlite_runner
from dbtools.errors import DbtoolsError
from dbtools.settings import LimitsSection
from tests.database.shop import Serve, Shops, open_shops

SHORT = LimitsSection(timeout=2)
CONNECTIONS = {"sqlite": sqlite_runner.CONNECTIONS, "postgresql": postgresql_runner.CONNECTIONS}

#: Views that take for ever, each in another way.
ENDLESS = {
    "sqlite": """
    create view counting as
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select count(*) as total from n;
    create view growing as
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select i from n where i < 0;
    """,
    "postgresql": """
    create view counting as
        with recursive n (i) as (select 1 union all select i # 1 from n)
        select count(*) as total from n;
    create view growing as select pg_sleep(60)::text as i;
    create view crossing as
        select count(*) as i from generate_series(1, 1000000) as a, generate_series(1, 1000000) as b;
    """,
}
DDL = """
create table t (id int not null primary key, v text);
insert into t values (1, 'one'), (2, 'SECRET');
create view divided as select id, 1 / (id - 2) as share from t;
"""
#: Views that fail on a row, in words of the engine's that quote it.
FAILING = {
    "sqlite": """
    create view broken as select id, json_extract(v, '$.a') as number from t;
    create view overflowing as select id, abs(-9223372036854775807 - id) as number from t;
    create view gone as select id from missing;
    """,
    "postgresql": """
    create view broken as select id, v::int as number from t;
    create view overflowing as select id, 2147483647 + id as number from t;
    create function gone() returns int language plpgsql as
        $$ begin raise exception 'SECRET' using detail = 'SECRET', hint = 'SECRET'; end $$;
    create view raising as select gone() as number;
    """,
}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Yield databases whose views take for ever or fail, under a short timeout."""
    ddl = {dialect: DDL + ENDLESS[dialect] + FAILING[dialect] for dialect in ENDLESS}
    with open_shops(serve, ddl, limits=SHORT) as shops:
        yield shops


def code_of(call: Callable[[], object]) -> str:
    """Return the code of the error that *call* ends with, or nothing, or its text where that quotes data."""
    try:
        call()
    except DbtoolsError as exc:
        return exc.code if "SECRET" not in str(exc) else str(exc)
    return ""
