"""The Python API: what it opens, and that roles, claims and errors are the same as in the server."""

from collections.abc import Callable
from pathlib import Path

import pytest

import dbtools
from dbtools import errors, open_toolbox
from dbtools.settings import load

DDL = """
create table customers (id integer primary key, name text, region text);
insert into customers values (1, 'Ada', 'north'), (2, 'Bo', 'south');
"""
CONFIGURATION = """
[database]
url = "test.db"

[policy.claims]
region = "text"

[roles.support]
tables.customers = { where = "region = :claims.region" }
"""
COUNT = {"table": "customers", "measures": [{"function": "count"}]}
SQLiteDatabase = Callable[[str], Path]


@pytest.fixture
def configuration(sqlite_database: SQLiteDatabase) -> Path:
    """Return a configuration with a role, beside its database."""
    path = sqlite_database(DDL).with_name("dbtools.toml")
    path.write_text(CONFIGURATION)
    return path


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(str, id="path"),
        pytest.param(Path, id="Path"),
        pytest.param(lambda path: f"sqlite:///{path}", id="URL"),
    ],
)
async def test_database_can_be_opened_without_a_configuration(
    target: Callable[[Path], str | Path], sqlite_database: SQLiteDatabase
) -> None:
    async with open_toolbox(target(sqlite_database(DDL))) as toolbox:
        names = [tool.name for tool in await toolbox.list()]
        answer = await toolbox.call("get_customers", {"id": 2})

    assert names == ["describe_tables", "aggregate_rows", "run_sql", "list_customers", "get_customers"]
    assert answer.structured == {"row": {"id": 2, "name": "Bo", "region": "south"}}


async def test_configuration_applies_the_row_filter_of_the_role(configuration: Path) -> None:
    async with open_toolbox(configuration) as toolbox:
        answer = await toolbox.call("aggregate_rows", COUNT, role="support", claims={"region": "north"})

    assert answer.structured["rows"] == [[1]]


async def test_settings_can_be_opened(configuration: Path) -> None:
    async with open_toolbox(load(configuration)) as toolbox:
        names = [tool.name for tool in await toolbox.list("support")]

    assert names == ["describe_tables", "aggregate_rows", "list_customers", "get_customers"]


@pytest.mark.parametrize(
    "claims", [pytest.param(None, id="missing"), pytest.param({"region": ["north"]}, id="of another type")]
)
async def test_caller_without_the_claim_is_denied(
    claims: dict[str, object] | None, configuration: Path
) -> None:
    async with open_toolbox(configuration) as toolbox:
        with pytest.raises(errors.Denied):
            await toolbox.call("aggregate_rows", COUNT, role="support", claims=claims)


async def test_file_that_does_not_exist_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError):
        async with open_toolbox(tmp_path / "missing.db"):
            raise AssertionError("a file that does not exist was opened")


def test_package_has_no_other_names() -> None:
    assert not hasattr(dbtools, "open_everything")
