"""The posture: what the login of a database can do beyond reading, and what dbtools does about it."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import pytest

from dbtools.backends.postgresql.schema.introspection import NAMES_PER_SENTENCE
from dbtools.schema.catalog import Catalog, Selection
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import RoleSnapshot
from dbtools.settings import Settings, load
from tests.database.shop import catalog_of
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

Login = Callable[[str, str], AbstractContextManager[str]]
SUPERUSER = "The login is a superuser: it may do anything, whatever dbtools forbids."
DDL = """
create schema app;
create table app.customers (id integer primary key, name text);
create table orders (id integer primary key, total integer);
create view totals as select sum(total) from orders;
"""
READING = "grant usage on schema app to {}; grant select on all tables in schema app, public to {};"


@pytest.fixture(scope="module")
def url(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL of the database, with the tests' own login."""
    with postgresql_database(DDL) as url:
        yield url


@pytest.fixture
def owner(postgresql_server: PostgresqlServer, url: str) -> Iterator[str]:
    """Yield a role that no one can log in as, for logins to be members of."""
    name = f"dbtools_test_{secrets.token_hex(8)}"
    postgresql_server.execute(f"create role {name}", url=postgresql_server.url)
    try:
        yield name
    finally:
        me = postgresql_server.user
        postgresql_server.execute(
            f'reassign owned by {name} to "{me}"; drop owned by {name}; drop role {name}', url=url
        )


async def _catalog(url: str, selection: Selection | None = None) -> Catalog:
    return await catalog_of(url, selection)


async def test_superuser_is_reported_and_nothing_more(url: str) -> None:
    assert (await _catalog(url)).posture == (SUPERUSER,)


async def test_login_that_only_reads_has_no_posture(url: str, postgresql_login: Login) -> None:
    with postgresql_login(url, READING) as own:
        catalog = await _catalog(own)

    assert [table.name for table in catalog.tables] == ["orders", "totals", "customers"]
    assert catalog.posture == ()


@pytest.mark.parametrize(
    ("grants", "told"),
    [
        pytest.param(
            "alter role {} bypassrls", "The login bypasses row-level security.", id="bypasses row security"
        ),
        pytest.param("alter role {} createrole", "The login may create roles.", id="creates roles"),
        pytest.param("alter role {} createdb", "The login may create databases.", id="creates databases"),
        pytest.param(
            "alter role {} replication",
            "The login may replicate: it can read every change to every database.",
            id="replicates",
        ),
        *(
            pytest.param(
                f"grant {privilege} on orders to {{}}",
                "The login may write to public.orders.",
                id=privilege,
            )
            for privilege in ("insert", "update", "delete", "truncate", "insert (total)", "update (id)")
        ),
        pytest.param(
            "grant insert on totals, app.customers to {}",
            "The login may write to app.customers, public.totals.",
            id="two tables",
        ),
        pytest.param(
            "grant create on schema app to {}",
            "The login may create objects in schema app.",
            id="creates objects",
        ),
        *(
            pytest.param(f"grant {name} to {{}}", f"The login is a member of {name}.", id=name)
            for name in ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program")
        ),
    ],
)
async def test_each_fact_has_its_sentence(url: str, postgresql_login: Login, grants: str, told: str) -> None:
    with postgresql_login(url, READING + grants) as own:
        assert (await _catalog(own)).posture == (told,)


@pytest.mark.parametrize("name", ["pg_read_all_data", "pg_write_all_data"])
async def test_membership_in_roles_for_all_data_is_reported(
    url: str, postgresql_server: PostgresqlServer, postgresql_login: Login, name: str
) -> None:
    if postgresql_server.version < 14:
        pytest.skip("these roles came with version 14")
    with postgresql_login(url, f"grant {name} to {{}}") as own:
        assert (await _catalog(own)).posture == (f"The login is a member of {name}.",)


async def test_login_that_may_create_schemas_is_reported(
    postgresql_url: str, postgresql_login: Login
) -> None:
    database = postgresql_url.rpartition("/")[2]
    with postgresql_login(postgresql_url, f"grant create on database {database} to {{}}") as own:
        assert (await _catalog(own)).posture == ("The login may create schemas in the database.",)


async def test_owner_of_tables_is_reported(
    postgresql_url: str, postgresql_login: Login, postgresql_server: PostgresqlServer
) -> None:
    ddl = "create table own (id integer); alter table own owner to {}; create table other (id integer)"
    with postgresql_login(postgresql_url, ddl) as own:
        catalog = await _catalog(own)

    assert catalog.posture == ("The login owns public.own, and so may write, change and drop them.",)


async def test_what_everybody_may_do_the_login_may(postgresql_url: str, postgresql_login: Login) -> None:
    grants = "create table t (id int); grant delete on t to public; grant create on schema public to public"
    with postgresql_login(postgresql_url, grants) as own:
        catalog = await _catalog(own)

    assert catalog.posture == (
        "The login may write to public.t.",
        "The login may create objects in schema public.",
    )


async def test_no_more_than_a_few_tables_are_named(postgresql_url: str, postgresql_login: Login) -> None:
    names = [f"t{number}" for number in range(NAMES_PER_SENTENCE + 2)]
    ddl = "".join(f"create table {name} (id integer); grant update on {name} to {{}};" for name in names)
    with postgresql_login(postgresql_url, ddl) as own:
        (told,) = (await _catalog(own)).posture

    assert told.endswith(" to public.t0, public.t1, public.t2, public.t3, public.t4 and 2 more.")


async def test_what_is_not_served_counts_as_well(url: str, postgresql_login: Login) -> None:
    with postgresql_login(url, f"{READING} grant update on orders to {{}}") as own:
        catalog = await _catalog(own, Selection(exclude=("orders",)))

    assert catalog.posture == ("The login may write to public.orders.",)


@pytest.mark.parametrize(
    ("powers", "told"),
    [
        pytest.param("alter role {0} superuser", "The login, as {0}, is a superuser", id="superuser"),
        pytest.param(
            "alter role {0} bypassrls", "The login, as {0}, bypasses row-level security.", id="row security"
        ),
        pytest.param(
            "grant delete on orders to {0}",
            "The login, as {0}, may write to public.orders.",
            id="writes",
        ),
        pytest.param(
            "alter table app.customers owner to {0}", "The login, as {0}, owns app.customers,", id="owns"
        ),
        pytest.param(
            "grant create on schema app to {0}", "The login, as {0}, may create objects", id="creates"
        ),
        pytest.param(
            "grant pg_read_server_files to {0}", "The login is a member of pg_read_server_files.", id="member"
        ),
    ],
)
@pytest.mark.parametrize("inherits", ["inherit", "noinherit"])
async def test_what_the_login_can_become_counts(
    url: str,
    owner: str,
    postgresql_server: PostgresqlServer,
    postgresql_login: Login,
    powers: str,
    told: str,
    inherits: str,
) -> None:
    postgresql_server.execute(powers.format(owner), url=url)
    with postgresql_login(url, f"alter role {{}} {inherits}; grant {owner} to {{}}") as own:
        found = (await _catalog(own)).posture

    assert len(found) == 1
    assert found[0].startswith(told.format(owner))


async def test_file_has_no_posture(sqlite_database: Callable[[str], Path]) -> None:
    catalog = await _catalog(f"sqlite:///{sqlite_database('create table t (id integer primary key)')}")

    assert (catalog.posture, catalog.unreadable) == ((), {})


@pytest.fixture
def configured(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what writes a configuration, of the tests' own login unless another is given."""
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)

    def write(more: str = "", of: str = url) -> str:
        path = tmp_path / "shop.toml"
        path.write_text(f'[database]\nurl = "{of}"\n{more}')
        return str(path)

    return write


STRICT = "[server]\nstrict = true\n"


def test_strict_server_refuses_a_login_that_can_write(configured: Callable[..., str]) -> None:
    result = run("tools", configured(STRICT))

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dbtools: {SUPERUSER} `dbtools grants` prints the SQL for a login")


def test_strict_server_is_not_compared_with_a_migrated_database_under_a_login_that_can_write(
    configured: Callable[..., str], url: str
) -> None:
    result = run("check", configured(STRICT), "--against", url)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dbtools: {SUPERUSER}")


def test_strict_server_takes_a_login_that_only_reads(
    configured: Callable[..., str], url: str, postgresql_login: Login
) -> None:
    with postgresql_login(url, READING) as own:
        result = run("tools", configured(STRICT, own))

    assert (result.exit_code, result.stderr) == (0, "")


async def _view(settings: Settings) -> RoleSnapshot:
    toolbox, database = open_toolbox(settings)
    try:
        return await toolbox.view("a")
    finally:
        await database.close()


def test_server_that_is_not_strict_warns_at_start(
    configured: Callable[..., str], url: str, postgresql_login: Login
) -> None:
    with postgresql_login(url, f"{READING} grant delete on orders to {{}}") as own:
        view = anyio.run(_view, load(Path(configured("[roles.a]\ntables.orders = true\n", own))))

    assert tuple(map(str, view.problems)) == (
        "shop.toml:1: warning: The login may write to public.orders. "
        "`dbtools grants` prints the SQL for a login that can only read.",
    )
    assert (view.catalog.posture, view.catalog.warnings) == ((), ())


def test_check_reports_the_posture_as_a_warning(configured: Callable[..., str]) -> None:
    result = run("check", configured(), "--json")
    found, offered = sorted(json.loads(result.stdout)["findings"], key=lambda each: str(each["code"]))[::-1]

    assert (result.exit_code, found["code"], found["level"]) == (0, "posture", "warning")
    assert (offered["code"], offered["level"]) == ("no_sql", "warning")
    assert offered["message"].endswith("Without run_sql, set sql = false.")
    assert (Path(found["file"]).name, found["line"]) == ("shop.toml", 1)
    assert found["message"].startswith(SUPERUSER)


def test_check_of_a_strict_server_reports_the_posture_as_an_error(configured: Callable[..., str]) -> None:
    result = run("check", configured(f"{STRICT}[roles.a]\ntables.nothing = true\n"), "--json")
    found = [(each["code"], each["level"]) for each in json.loads(result.stdout)["findings"]]

    assert result.exit_code == 1
    assert ("posture", "error") in found
    assert ("unknown_table", "error") in found


def test_tables_that_the_login_may_not_select_are_reported_without_roles(
    configured: Callable[..., str], url: str, postgresql_login: Login
) -> None:
    with postgresql_login(url, "grant select on orders to {}") as own:
        result = run("check", configured("", own))
        wild = run("check", configured('[roles.a]\ntables."*" = true\n', own))
        named = run("check", configured("[roles.a]\ntables.customers = true\ntables.totals = false", own))

    assert result.stdout.endswith(
        "/shop.toml:1: warning: The login may not select from app.customers, public.totals.\n"
    )
    assert wild.stdout == "No problems found.\n"
    told = "/shop.toml:4: warning: role a, tables.customers: the login may not select from customers.\n"
    assert told in named.stdout
    assert "totals" not in named.stdout


def test_descriptions_and_pins_may_name_what_the_login_may_not_select(
    configured: Callable[..., str], url: str, postgresql_login: Login
) -> None:
    more = """
        [tables.customers]
        description = "hidden"
        [tables.orders.columns]
        total = "hidden as well"
        [tools]
        pin = ["customers"]
    """
    with postgresql_login(url, "grant select (id) on orders to {}") as own:
        result = run("call", configured(more, own), "describe_tables", '{"detail": "full"}', "--json")

    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "hidden" not in result.stdout
