"""A server on stdio answers for one role and its claims."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.protocol.claimed_rows import CLERK, REFUSED, WRONG_USE, folder as folder, run
from tests.protocol.client import PATIENCE, ROOT, VERSIONS, spawn


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
def test_server_of_an_unknown_caller_does_not_start(
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
