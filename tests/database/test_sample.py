"""The migrations build the committed sample, on every database."""

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import anyio
import asyncpg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import settings_of
from dbtools.tools.definition import ToolGroup

REPOSITORY = Path(__file__).parents[2]
SAMPLE = REPOSITORY / "sample.db"
VERSION_TABLE = "dbtools_version"
#: A call of each query of the sample.
ASKED: Mapping[str, Mapping[str, object]] = {
    "order_status": {"order_id": 1002},
    "product_ratings": {"skus": ["TEN-001", "nothing"]},
    "sales_by_month": {"since": "2025-10-01", "country": "Germany"},
    "slow_parcels": {"carrier": "Alpenpost", "days": 15},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sample that the migrations have built from nothing; not to be changed."""
    path = tmp_path_factory.mktemp("sample") / "built.db"
    command.upgrade(_config(f"sqlite:///{path}"), "heads")
    return path


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "copied.db"))


def test_rebuilt_sample_has_the_schema_and_the_content_of_the_committed_one(built: Path) -> None:
    assert _schema(built) == _schema(SAMPLE)
    assert _content(built) == _content(SAMPLE)


def test_sample_is_whole_and_its_references_hold() -> None:
    assert _rows(SAMPLE, "pragma integrity_check") == [("ok",)]
    assert _rows(SAMPLE, "pragma foreign_key_check") == []


def test_sample_is_smaller_than_three_megabytes() -> None:
    assert SAMPLE.stat().st_size < 3_000_000


def test_sums_of_orders_and_stock_agree_with_their_parts() -> None:
    orders = _rows(
        SAMPLE,
        """
        select orders.id
        from orders
        join order_lines on order_lines.order_id = orders.id
        group by orders.id
        having abs(orders.total - orders.shipping_fee - sum(order_lines.amount)) > 0.001
        """,
    )
    products = _rows(
        SAMPLE,
        """
        select products.id
        from products
        join stock_movements on stock_movements.product_id = products.id
        group by products.id
        having products.stock <> sum(stock_movements.quantity)
        """,
    )

    assert (orders, products) == ([], [])


def test_every_product_has_a_small_picture() -> None:
    pictures = [picture for (picture,) in _rows(SAMPLE, "select picture from products")]

    assert all(isinstance(each, bytes) and each.startswith(b"\x89PNG") for each in pictures)
    assert max(len(each) for each in pictures if isinstance(each, bytes)) < 300


def test_a_guide_is_longer_than_ten_thousand_characters() -> None:
    assert _rows(SAMPLE, "select count(*) from guides where length(body) > 10000") == [(1,)]


def test_downgrade_takes_a_table_and_a_column_and_upgrade_brings_them_back(copied: Path) -> None:
    config = _config(f"sqlite:///{copied}")

    command.downgrade(config, "sample@-1")
    downgraded = _columns(copied)
    command.upgrade(config, "heads")

    committed = _columns(SAMPLE)
    assert committed.keys() - downgraded.keys() == {"product_reviews"}
    assert set(committed["customers"]) - set(downgraded["customers"]) == {"loyalty_tier"}
    assert _schema(copied) == _schema(SAMPLE)
    assert _content(copied) == _content(SAMPLE)


def test_text_of_an_altered_table_keeps_the_comments_of_all_columns() -> None:
    [(sql,)] = _rows(SAMPLE, "select sql from sqlite_schema where name = 'customers'")

    assert str(sql).splitlines()[-3:] == [
        "  created_at datetime not null -- When the account was opened, UTC",
        ", loyalty_tier text -- From the total of all orders; null before the first",
        "  check (loyalty_tier in ('bronze', 'silver', 'gold')))",
    ]


def test_downgrade_to_base_leaves_nothing_but_the_version_table(copied: Path) -> None:
    command.downgrade(_config(f"sqlite:///{copied}"), "base")

    assert [name for _, name, _ in _schema(copied)] == [VERSION_TABLE]
    assert _rows(copied, f"select * from {VERSION_TABLE}") == []


def test_revision_that_fails_leaves_no_half_of_itself(copied: Path) -> None:
    config = _config(f"sqlite:///{copied}")
    command.downgrade(config, "sample@-1")
    before = _schema(copied)
    with closing(sqlite3.connect(copied)) as connection:
        connection.execute("alter table customers add column loyalty_tier text")
    blocked = _schema(copied)

    with pytest.raises(sa.exc.OperationalError, match="loyalty_tier"):
        command.upgrade(config, "heads")

    assert _schema(copied) == blocked != before


def test_migrations_run_on_a_connection_of_the_caller(tmp_path: Path) -> None:
    config = Config(REPOSITORY / "alembic.ini")
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'mine.db'}")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "heads")
    engine.dispose()

    assert _content(tmp_path / "mine.db") == _content(SAMPLE)


def test_registry_of_the_sample_holds_its_queries() -> None:
    files = sorted((REPOSITORY / "migrations/sample/queries").glob("*.sql"))

    registered = _rows(SAMPLE, "select name, version, text, enabled from dbtools_query order by name")

    assert registered == [(path.stem, 1, path.read_text(encoding="utf-8"), 1) for path in files]
    assert len(files) == 4


@pytest.mark.parametrize("name", ["sample", "fresh"])
async def test_queries_of_the_sample_are_tools_of_their_own(
    name: str, tmp_path: Path, postgresql_url: str
) -> None:
    url = f"sqlite:///{SAMPLE}" if name == "sample" else postgresql_url
    if name == "fresh":
        await anyio.to_thread.run_sync(command.upgrade, _config(url), "heads")

    toolbox, database = open_toolbox(settings_of(url))
    view = await toolbox.view("default")
    answers = {tool: await toolbox.call(Caller(), tool, given) for tool, given in ASKED.items()}
    await database.close()

    assert [each for each in tuple(map(str, view.problems)) if "superuser" not in each] == []
    assert [each.name for each in view.definitions[:4]] == sorted(ASKED)
    assert {tool: answer.rows for tool, answer in answers.items()} == {
        "order_status": 1,
        "product_ratings": 1,
        "sales_by_month": 3,
        "slow_parcels": 20,
    }


async def test_tables_of_the_sample_keep_their_own_tools(tmp_path: Path) -> None:
    toolbox, database = open_toolbox(settings_of(str(SAMPLE)))
    view = await toolbox.view("default")
    await database.close()

    assert ToolGroup.TABLES in view.typed
    assert len(view.definitions) == 33
    assert {"list_orders", "get_orders"} <= {each.name for each in view.definitions}


def test_sample_on_postgresql_holds_as_much_as_on_sqlite(postgresql_url: str) -> None:
    command.upgrade(_config(postgresql_url), "heads")

    assert _postgresql_counts(postgresql_url) == _counts(SAMPLE)
    assert _postgresql_rows(postgresql_url, "select sum(total), sum(margin) from orders") == [
        tuple(
            Decimal(str(value)).quantize(Decimal("0.01"))
            for value in _rows(SAMPLE, "select sum(total), sum(margin) from orders")[0]
        )
    ]
    tiers = "select loyalty_tier, count(*) from customers group by loyalty_tier"
    assert set(_postgresql_rows(postgresql_url, tiers)) == set(_rows(SAMPLE, tiers))


def test_sample_on_postgresql_goes_down_and_up_again(postgresql_url: str) -> None:
    config = _config(postgresql_url)
    command.upgrade(config, "heads")

    command.downgrade(config, "sample@-1")
    downgraded = _postgresql_counts(postgresql_url)
    command.upgrade(config, "heads")

    assert _counts(SAMPLE).keys() - downgraded.keys() == {"product_reviews"}
    assert _postgresql_counts(postgresql_url) == _counts(SAMPLE)


def test_downgrade_to_base_leaves_nothing_else_on_postgresql(postgresql_url: str) -> None:
    config = _config(postgresql_url)
    command.upgrade(config, "heads")

    command.downgrade(config, "base")

    tables = "select relname from pg_class where relnamespace = 'public'::regnamespace"
    types = "select typname from pg_type where typnamespace = 'public'::regnamespace"
    assert _postgresql_rows(postgresql_url, f"{tables} and relkind <> 'i'") == [(VERSION_TABLE,)]
    assert _postgresql_rows(postgresql_url, f"{types} and typtype = 'e'") == []
    assert _postgresql_rows(postgresql_url, "select to_regnamespace('dbtools')") == [(None,)]


def _config(url: str) -> Config:
    config = Config(REPOSITORY / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def _rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def _names(path: Path) -> list[str]:
    query = """
        select name
        from pragma_table_list
        where schema = 'main'
        and type <> 'shadow'
        and name not like 'sqlite~_%' escape '~'
        order by name
    """
    return [str(name) for (name,) in _rows(path, query)]


def _schema(path: Path) -> list[tuple[object, ...]]:
    # The text of shadow tables is SQLite's own and differs from release to release.
    query = """
        select type, name, sql
        from sqlite_schema
        where sql is not null
        and name not in (select name from pragma_table_list where type = 'shadow')
        order by name
    """
    return _rows(path, query)


def _content(path: Path) -> Mapping[str, Sequence[tuple[object, ...]]]:
    return {name: _rows(path, f'select * from "{name}"') for name in _names(path)}


def _columns(path: Path) -> dict[str, list[str]]:
    query = "select name from pragma_table_info('{}')"
    return {table: [str(name) for (name,) in _rows(path, query.format(table))] for table in _names(path)}


def _counts(path: Path) -> dict[str, int]:
    return {name: len(rows) for name, rows in _content(path).items()}


def _postgresql_counts(url: str) -> dict[str, object]:
    query = """
        select relname, format('%I.%I', nspname, relname)
        from pg_class
        join pg_namespace on pg_namespace.oid = relnamespace
        where nspname in ('public', 'dbtools')
        and relkind in ('r', 'v')
    """
    places = _postgresql_rows(url, query)
    return {str(name): _postgresql_rows(url, f"select count(*) from {place}")[0][0] for name, place in places}


def _postgresql_rows(url: str, query: str) -> list[tuple[object, ...]]:
    return anyio.run(_fetch, url, query)


async def _fetch(url: str, query: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(record) for record in await connection.fetch(query)]
    finally:
        await connection.close()
