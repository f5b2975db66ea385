"""The command line shows what a role with its claims sees."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.protocol.claimed_rows import CLERK, REFUSED, WRONG_USE, folder as folder, run


def _ids(*words: str, environment: Mapping[str, str] | None = None) -> list[int]:
    """Return which orders a caller sees, by their id."""
    result = run("call", "list_orders", 'columns=["id"]', "--json", *words, environment=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return [row[0] for row in json.loads(result.stdout)["rows"]]


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
