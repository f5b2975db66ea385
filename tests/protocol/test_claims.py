"""Who calls: roles and claims on the command line and in the environment, and what each caller gets."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.cli import main
from tests.protocol.client import PATIENCE, ROOT, VERSIONS, spawn

DDL = """
create table orders (id integer primary key, region text not null, tenant integer, margin integer, mail text);
insert into orders values (1, 'north', 1, 50, 'ada@example.com'), (2, 'south', 2, 60, 'bo@example.com'),
  (3, 'north', 2, 70, null), (4, 'o''hara=x', 3, 80, ''), (5, 'true', 4, 90, 'cy');
create table secret (id integer primary key, canary text);
insert into secret values (1, 'canary');
"""
#: the same with only what a clerk of the north sees
SMALL_DDL = """
create table orders (id integer primary key, region text not null, tenant integer, mail text);
insert into orders values (1, 'north', 1, 'ada@example.com'), (3, 'north', 2, null);
"""
SMALL = """
[database]
url = "small.db"
[roles.clerk]
tables.orders = { where = "region = :claims.region", mask = { mail = "partial" } }
"""
CONFIGURATION = """
[database]
url = "shop.db"
[roles.boss]
tables."*" = true
[roles.clerk]
tables.orders = { exclude = ["margin"], where = "region = :claims.region", mask = { mail = "partial" } }
[roles.tenant]
tables.orders = { columns = ["id"], where = "tenant = :claims.tenant or region = :claims.region" }
[roles.nobody]
"""
WRONG = """
[database]
url = "shop.db"
[roles.clerk]
tables.secret = true
tables.orders = { exclude = ["margn"] }
tables.ordrs = true
"""
BAD_FILTER = """
[database]
url = "shop.db"
[roles.clerk]
tables.secret = true
tables.orders = { where = "colour = 'red'" }
"""
REFUSED, WRONG_USE = 1, 2


@pytest.fixture
def folder(sqlite_database: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder: a database, and configurations of it."""
    (tmp_path / "shop.db").symlink_to(sqlite_database(DDL))
    (tmp_path / "small.db").symlink_to(sqlite_database(SMALL_DDL))
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "dbtools.toml").write_text(CONFIGURATION)
    (tmp_path / "wrong.toml").write_text(WRONG)
    (tmp_path / "filter.toml").write_text(BAD_FILTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)
    monkeypatch.delenv("DBTOOLS_CLAIMS", raising=False)
    return tmp_path


def run(*words: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(main, words, env=dict(environment or {}))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


def _ids(*words: str, environment: Mapping[str, str] | None = None) -> list[int]:
    """Return which orders a caller sees, by their id."""
    result = run("call", "list_orders", 'columns=["id"]', "--json", *words, environment=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return [row[0] for row in json.loads(result.stdout)["rows"]]


CLERK = ("--role", "clerk")
TENANT = ("--role", "tenant")


@pytest.mark.parametrize(
    ("words", "environment", "ids"),
    [
        pytest.param(("--role", "boss"), {}, [1, 2, 3, 4, 5], id="no filter"),
        pytest.param((*CLERK, "--claim", "region=north"), {}, [1, 3], id="claim"),
        pytest.param(("--claim", "region=south", *CLERK), {}, [2], id="claim before the role"),
        pytest.param((*CLERK, "--claim", "region=east"), {}, [], id="claim of nothing"),
        pytest.param((*CLERK, "--claim", "region=o'hara=x"), {}, [4], id="equals sign and quote"),
        pytest.param((*CLERK, "--claim", "region=' or 1 = 1 --"), {}, [], id="SQL"),
        pytest.param((*CLERK, "--claim", "region="), {}, [], id="empty claim"),
        pytest.param((*CLERK, "--claim", "region=true"), {}, [5], id="text that is JSON"),
        pytest.param(
            (*CLERK, "--claim", "region=south", "--claim", "region=north"), {}, [1, 3], id="last one counts"
        ),
        pytest.param(
            (*TENANT, "--claim", "tenant=2", "--claim", "region=north"), {}, [1, 2, 3], id="two claims"
        ),
        pytest.param((), {"DBTOOLS_ROLE": "boss"}, [1, 2, 3, 4, 5], id="role of the environment"),
        pytest.param(
            (),
            {"DBTOOLS_ROLE": "clerk", "DBTOOLS_CLAIMS": '{"region": "north"}'},
            [1, 3],
            id="all of the environment",
        ),
        pytest.param(
            (*CLERK, "--claim", "region=south"),
            {"DBTOOLS_ROLE": "boss", "DBTOOLS_CLAIMS": '{"region": "north"}'},
            [2],
            id="words count for more",
        ),
        pytest.param(
            (*TENANT, "--claim", "region=south"),
            {"DBTOOLS_CLAIMS": '{"region": "north", "tenant": 3}'},
            [2, 4],
            id="one of the words beside one of the environment",
        ),
        pytest.param(
            TENANT, {"DBTOOLS_CLAIMS": '{"region": "", "tenant": 2}'}, [2, 3], id="number of the environment"
        ),
        pytest.param(("--role", "boss"), {"DBTOOLS_CLAIMS": ""}, [1, 2, 3, 4, 5], id="empty environment"),
        pytest.param(
            ("--role", "boss", "--claim", "colour=red"), {}, [1, 2, 3, 4, 5], id="claim that nothing asks for"
        ),
    ],
)
def test_caller_sees_the_rows_of_role_and_claims(
    folder: Path, words: tuple[str, ...], environment: dict[str, str], ids: list[int]
) -> None:
    assert _ids(*words, environment=environment) == ids


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        pytest.param(CLERK, {}, id="none"),
        pytest.param((*CLERK, "--claim", "Region=north"), {}, id="another name"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": '{"region": null}'}, id="null"),
        pytest.param((*TENANT, "--claim", "region=north"), {}, id="one of two"),
    ],
)
@pytest.mark.parametrize("tool", ["list_orders", "get_orders", "aggregate_rows"])
def test_missing_claim_denies_the_call_with_1(
    folder: Path, words: tuple[str, ...], environment: dict[str, str], tool: str
) -> None:
    arguments = {
        "list_orders": {},
        "get_orders": {"id": 1},
        "aggregate_rows": {"table": "orders", "measures": [{"function": "count"}]},
    }
    result = run("call", tool, json.dumps(arguments[tool]), *words, environment=environment)

    assert (result.exit_code, result.stdout) == (REFUSED, "")
    assert result.stderr.startswith("dbtools: ")
    assert result.stderr.count("\n") == 1


def test_call_that_reads_no_row_needs_no_claim(folder: Path) -> None:
    result = run("call", "describe_tables", *CLERK, "--json")

    assert result.exit_code == 0
    assert [each["name"] for each in json.loads(result.stdout)["tables"]] == ["orders"]


def test_row_is_shown_without_what_is_hidden_or_masked(folder: Path) -> None:
    result = run("call", "get_orders", "id=1", *CLERK, "--claim", "region=north", "--json")

    assert json.loads(result.stdout) == {
        "row": {"id": 1, "region": "north", "tenant": 1, "mail": "a…@example.com"}
    }


def test_row_that_is_hidden_is_no_row(folder: Path) -> None:
    hidden = run("call", "get_orders", "id=2", *CLERK, "--claim", "region=north")
    absent = run("call", "get_orders", "id=9", *CLERK, "--claim", "region=north")

    assert (hidden.exit_code, hidden.stdout) == (REFUSED, "")
    assert hidden.stderr.replace("2", "9") == absent.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("list_secret",), id="tool"),
        pytest.param(("list_rows", "table=secret"), id="table"),
        pytest.param(("describe_tables", 'tables=["secret"]'), id="description of a table"),
        pytest.param(("describe_tables", "detail=full"), id="all descriptions"),
        pytest.param(("list_tables", "search=secret"), id="search"),
        pytest.param(("list_orders", 'columns=["margin"]'), id="column"),
        pytest.param(("list_orders", "order_by=margin desc"), id="order"),
        pytest.param(("list_orders", 'where=[{"column": "margin", "value": "50"}]'), id="condition"),
        pytest.param(("list_orders", 'where=[{"column": "region", "value": "sout"}]'), id="nearest values"),
        pytest.param(("list_orders", "margin=50"), id="argument"),
        pytest.param(("get_orders", "id=2"), id="row"),
        pytest.param(("aggregate_rows", "table=orders", 'measures=[{"function": "count"}]'), id="count"),
    ],
)
def test_hidden_and_absent_have_the_same_answer(folder: Path, words: tuple[str, ...]) -> None:
    caller = (*CLERK, "--claim", "region=north", "--json")
    hidden, absent = run("call", "dbtools.toml", *words, *caller), run("call", "small.toml", *words, *caller)

    assert (hidden.exit_code, hidden.stdout, hidden.stderr) == (
        absent.exit_code,
        absent.stdout,
        absent.stderr,
    )


@pytest.mark.parametrize("command", [("tools",), ("call", "list_orders"), ("serve",)])
@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        pytest.param(("--role", "chef"), {}, ["'chef'", "boss, clerk, tenant, nobody"], id="unknown role"),
        pytest.param((), {"DBTOOLS_ROLE": "chef"}, ["'chef'", "boss"], id="unknown role of the environment"),
        pytest.param((), {}, ["'default'", "boss"], id="no role"),
        pytest.param(("--role", "BOSS"), {}, ["'BOSS'", "boss"], id="role in another case"),
        pytest.param((*CLERK, "--claim", "region"), {}, ["--claim", "NAME=VALUE"], id="no value"),
        pytest.param((*CLERK, "--claim", "=north"), {}, ["--claim", "NAME=VALUE"], id="no name"),
        pytest.param((*CLERK, "--claim", ""), {}, ["--claim", "NAME=VALUE"], id="empty claim"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": "region=north"}, ["DBTOOLS_CLAIMS"], id="not JSON"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": '["region"]'}, ["DBTOOLS_CLAIMS"], id="array"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": "null"}, ["DBTOOLS_CLAIMS"], id="null"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": '{"region": ["north"]}'}, ["DBTOOLS_CLAIMS"], id="list"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": '{"region": {}}'}, ["DBTOOLS_CLAIMS"], id="object"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": '{"a":' * 99_999}, ["DBTOOLS_CLAIMS"], id="deep JSON"),
    ],
)
def test_caller_that_cannot_be_ends_with_2(
    folder: Path,
    command: tuple[str, ...],
    words: tuple[str, ...],
    environment: dict[str, str],
    said: list[str],
) -> None:
    result = run(*command, *words, environment=environment)

    assert (result.exit_code, result.stdout) == (WRONG_USE, "")
    assert [part for part in said if part not in result.stderr] == []
    assert result.stderr.count("\n") <= 5


def test_claims_that_are_wrong_are_not_said_again(folder: Path) -> None:
    """What is known of a caller may be a secret; where it is wrong is enough."""
    result = run("tools", *CLERK, environment={"DBTOOLS_CLAIMS": '{"token": "sekret"'})

    assert "sekret" not in result.stderr


def test_database_without_a_configuration_has_the_default_role(folder: Path) -> None:
    called = run("call", "shop.db", "list_orders", 'columns=["id"]', "--json", "--claim", "region=north")
    refused = run("call", "shop.db", "list_orders", *CLERK)

    assert json.loads(called.stdout)["row_count"] == 5
    assert (refused.exit_code, refused.stdout) == (WRONG_USE, "")


@pytest.mark.parametrize(
    ("role", "typed"),
    [
        ("boss", ["list_orders", "list_secret", "get_orders", "get_secret"]),
        ("clerk", ["list_orders", "get_orders"]),
        ("nobody", []),
    ],
)
def test_tools_shows_what_the_role_sees(folder: Path, role: str, typed: list[str]) -> None:
    result = run("tools", "--role", role, "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert [each["name"] for each in json.loads(result.stdout)] == [
        "describe_tables",
        "aggregate_rows",
        *typed,
    ]
    assert role == "boss" or ("secret" not in result.stdout and "margin" not in result.stdout)


def test_tools_takes_claims(folder: Path) -> None:
    with_claims = run("tools", *CLERK, "--claim", "region=north", "--json")
    without = run("tools", *CLERK, "--json")

    assert (with_claims.exit_code, with_claims.stdout) == (0, without.stdout)


def _process(
    *words: str, folder: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "dbtools", *words),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_process_reads_role_and_claims_of_its_environment(folder: Path) -> None:
    environment = {"DBTOOLS_ROLE": "clerk", "DBTOOLS_CLAIMS": '{"region": "south"}'}
    words = ("call", "list_orders", 'columns=["id"]', "--json")
    called = _process(*words, folder=folder, environment=environment)
    refused = _process(*words, folder=folder, environment={"DBTOOLS_ROLE": "clerk"})

    assert (called.returncode, json.loads(called.stdout)["rows"]) == (0, [[2]])
    assert (refused.returncode, refused.stdout) == (REFUSED, "")


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        pytest.param(("--role", "chef"), {}, "'chef'", id="unknown role"),
        pytest.param((*CLERK, "--claim", "region"), {}, "NAME=VALUE", id="no claim"),
        pytest.param(CLERK, {"DBTOOLS_CLAIMS": "{"}, "DBTOOLS_CLAIMS", id="claims that are no JSON"),
    ],
)
def test_server_of_nobody_does_not_start(
    folder: Path, words: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    ended = _process("serve", *words, folder=folder, environment=environment)

    assert (ended.returncode, ended.stdout) == (WRONG_USE, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("file", "said"),
    [
        pytest.param("wrong.toml", ["wrong.toml:6: error: ", "'margn'", "wrong.toml:7: error: "], id="names"),
        pytest.param("filter.toml", ["filter.toml:6: error: ", "tables.orders.where"], id="condition"),
    ],
)
def test_server_says_at_its_start_what_is_wrong_with_its_roles(
    folder: Path, file: str, said: list[str]
) -> None:
    ended = _process("serve", file, *CLERK, folder=folder)

    assert (ended.returncode, ended.stdout) == (0, "")
    assert [part for part in said if part not in ended.stderr] == []


@pytest.mark.parametrize("file", ["wrong.toml", "filter.toml"])
def test_what_is_right_is_served_although_something_else_is_wrong(folder: Path, file: str) -> None:
    served = run("call", file, "list_secret", *CLERK, "--json")
    withheld = run("call", file, "list_orders", *CLERK, "--json")

    assert (served.exit_code, json.loads(served.stdout)["row_count"]) == (0, 1)
    assert (withheld.exit_code, withheld.stdout) == (WRONG_USE, "")


@pytest.mark.parametrize("version", VERSIONS)
async def test_server_answers_every_request_on_behalf_of_its_caller(
    folder: Path, tmp_path: Path, version: str
) -> None:
    options = (*CLERK, "--claim", "region=north")
    async with spawn(folder / "dbtools.toml", tmp_path, version=version, options=options) as client:
        await client.open()
        rows = await client.call("list_orders", {"columns": ["id", "mail"]})
        hidden = await client.call("get_orders", {"id": 2})
        read = await client.result("resources/read", {"uri": "dbtools://row/orders/1"})
        missing = await client.error("resources/read", {"uri": "dbtools://row/orders/2"})
        absent = await client.error("resources/read", {"uri": "dbtools://row/orders/9"})
        names = [tool["name"] for tool in await client.list_all("tools/list", "tools")]

    assert rows["structuredContent"]["rows"] == [[1, "a…@example.com"], [3, None]]
    assert hidden["isError"] is True
    assert "a…@example.com" in str(read)
    assert missing["code"] == absent["code"]
    assert str(missing).replace("orders/2", "orders/9").replace("'2'", "'9'") == str(absent)
    assert names == ["describe_tables", "aggregate_rows", "list_orders", "get_orders"]


async def test_server_without_the_claim_of_a_filter_denies_each_call(folder: Path, tmp_path: Path) -> None:
    async with spawn(folder / "dbtools.toml", tmp_path, options=CLERK) as client:
        await client.open()
        denied = await client.call("list_orders")
        described = await client.call("describe_tables")

    assert (denied["isError"], described["isError"]) == (True, False)
    assert "north" not in str(denied)


async def test_claims_of_the_environment_are_the_servers(folder: Path, tmp_path: Path) -> None:
    environment = {"DBTOOLS_ROLE": "clerk", "DBTOOLS_CLAIMS": '{"region": "south"}'}
    async with spawn(folder / "dbtools.toml", tmp_path, environment=environment) as client:
        await client.open()
        rows = await client.call("list_orders", {"columns": ["id"]})

    assert rows["structuredContent"]["rows"] == [[2]]


async def test_arguments_of_a_call_are_no_claims(folder: Path, tmp_path: Path) -> None:
    async with spawn(folder / "dbtools.toml", tmp_path, options=CLERK) as client:
        await client.open()
        answers = [
            await client.call("list_orders", {name: {"region": "north"}})
            for name in ("claims", "claims.region")
        ]

    assert [answer["isError"] for answer in answers] == [True, True]
