"""Views, and the state of a session after they were read."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from dbtools.backends.postgresql.schema.changes import CHANNEL
from tests.postgresql_server import PostgresqlServer

PATIENCE = 20  #: seconds
SURROUNDINGS = ("transaction_read_only", "transaction_isolation", "statement_timeout", "search_path")
SHOWN = ", ".join(f"current_setting('{name}') as {name}" for name in SURROUNDINGS)
#: A login whose sessions and transactions begin as they should not.
DDL = f"""
create view surroundings as select {SHOWN};
create table t (id integer primary key, v text);
insert into t values (1, 'one');
create function arm() returns text language sql volatile as $$
    select concat(
        set_config('default_transaction_read_only', 'off', false),
        set_config('search_path', 'nowhere', false),
        set_config('statement_timeout', '0', false),
        set_config('lock_timeout', '0', false)
    )
$$;
create view arming as select arm() as v;
create table guarded (id integer primary key); insert into guarded values (1);
alter table guarded enable row level security;
create policy own on guarded using (arm() is not null);
create function write() returns text language sql volatile as $$
    insert into t values (2, 'two') returning v
$$;
create view writing as select write() as v;
create function poison() returns text language plpgsql volatile as $$
declare name text;
begin
    for name in select p.name from pg_prepared_statements as p where p.parameter_types = '{{}}' loop
        execute format('deallocate %I', name);
        execute format('prepare %I as insert into public.t values (3, null)', name);
    end loop;
    return 'done';
end
$$;
create view poisoning as select poison() as v;
create function fail_poisoned() returns text language plpgsql volatile as $$
begin
    perform poison(), pg_advisory_lock(8);
    raise exception 'failed';
end
$$;
create view failing as select fail_poisoned() as v;
create table secured (id integer primary key); insert into secured values (1);
alter table secured enable row level security;
create policy own on secured using (poison() is not null);
create table plain (id integer primary key); insert into plain values (1);
create view locking as select pg_advisory_lock(7)::text as v;
create function tell() returns text language sql volatile as $$
    select pg_notify('{CHANNEL}', 'from a view')::text
$$;
create view telling as select tell() as v;
create view keeping as select lo_create(0) as v;
"""
UNSAFE = """
alter database {name} set default_transaction_isolation = 'repeatable read';
alter database {name} set default_transaction_read_only = on
"""


@pytest.fixture
def url(
    postgresql_server: PostgresqlServer, postgresql_database: Callable[[str], AbstractContextManager[str]]
) -> Iterator[str]:
    with postgresql_database(DDL) as url:
        postgresql_server.execute(UNSAFE.format(name=url.rpartition("/")[2]), url=postgresql_server.url)
        yield url
