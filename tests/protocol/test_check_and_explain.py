"""`dbtools check` and `dbtools explain`: what is wrong with a configuration, and why a call is allowed."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbtools.cli import main
from tests.protocol.command_line import run

DDL = """
create table region (id integer primary key, name text);
create table customer (
    id integer primary key, tenant integer, email text, name text, region_id integer references region (id)
);
create table secret (id integer primary key, customer_id integer references customer (id));
insert into region values (1, 'north');
insert into customer values (1, 7, 'ada@example.com', 'Ada', 1), (2, 8, 'bo@example.com', 'Bo', 1);
"""
ROLES = """
[roles.support]
tables."*" = false
tables.customer = { exclude = ["name"], where = "tenant = :claims.tenant", mask = { email = "partial" } }
tables.region = { aggregate = false }

[roles.nobody]
"""
WRONG = """
[roles.a]
tables.custmer = true
tables.region = { columns = ["nam"] }
tables.secret = { where = "no such thing" }
tables.customer = { where = '"tenat" <> 8' }
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(
    request: pytest.FixtureRequest,
    sqlite_database: Callable[[str], Path],
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
) -> Iterator[str]:
    """Give the URL of the database, on each dialect, with a login that can only read."""
    if request.param == "sqlite":
        yield f"sqlite:///{sqlite_database(DDL)}"
    else:
        reading = "grant select on all tables in schema public to {}"
        with postgresql_database(DDL) as url, postgresql_login(url, reading) as own_url:
            yield own_url


@pytest.fixture
def configured(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Give what writes a configuration with these roles into the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("DBTOOLS_ROLE", "DBTOOLS_CLAIMS"):
        monkeypatch.delenv(name, raising=False)

    def write(roles: str) -> Path:
        path = Path("policy.toml")
        path.write_text(f'[database]\nurl = "{url}"\n{roles}')
        return path

    return write


def test_check_of_a_configuration_that_is_right(configured: Callable[[str], Path]) -> None:
    result = run("check", str(configured(ROLES.replace("[roles.nobody]", ""))))

    assert (result.exit_code, result.stdout) == (0, "No problems found.\n")


def test_check_tells_what_is_wrong_with_file_and_line(configured: Callable[[str], Path]) -> None:
    path = str(configured(WRONG))
    result = run("check", path)
    found = json.loads(run("check", path, "--json").stdout)["findings"]

    assert result.exit_code == 1
    assert [(each["code"], each["file"], each["line"], each["level"]) for each in found] == [
        ("unknown_table", "policy.toml", 5, "error"),
        ("unknown_column", "policy.toml", 6, "error"),
        ("bad_filter", "policy.toml", 7, "error"),
        ("bad_filter", "policy.toml", 8, "error"),
        ("sees_nothing", "policy.toml", 4, "warning"),
    ]
    assert result.stdout.startswith("policy.toml:5: error: role a, tables.custmer: unknown table.")


def test_warnings_alone_are_no_failure(configured: Callable[[str], Path]) -> None:
    result = run("check", str(configured(ROLES)))

    assert result.exit_code == 0
    assert result.stdout == "policy.toml:9: warning: role nobody: it sees no table.\n"


def _explained(path: Path, *words: str) -> dict[str, object]:
    result = run("explain", str(path), "--role", "support", *words, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_allowed_call_is_explained_by_its_rule_and_its_statement(configured: Callable[[str], Path]) -> None:
    found = _explained(configured(ROLES), "--claim", "tenant=7", "get_customer", "id=1")

    assert (found["allowed"], found["rule"]) == (True, {"file": "policy.toml", "line": 6})
    assert "tenant = " in str(found["sql"])
    assert isinstance(found["parameters"], list)
    assert "7" in map(str, found["parameters"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        pytest.param(("--claim", "tenant=7", "get_secret", "id=1"), 4, id="hidden table"),
        pytest.param(("--claim", "tenant=7", "get_nothing", "id=1"), 4, id="no table"),
        pytest.param(("get_customer", "id=1"), 6, id="claim missing"),
        pytest.param(("--claim", "tenant=7", "list_customer", "columns=name"), 6, id="hidden column"),
        pytest.param(("aggregate_rows", "table=region", 'measures={"function": "count"}'), 7, id="aggregate"),
    ],
)
def test_denied_call_is_explained_without_a_statement(
    words: tuple[str, ...], line: int, configured: Callable[[str], Path]
) -> None:
    found = _explained(configured(ROLES), *words)

    assert (found["allowed"], found["sql"]) == (False, None)
    assert found["rule"] == {"file": "policy.toml", "line": line}


def test_explanation_says_how_a_role_gets_run_sql(configured: Callable[[str], Path]) -> None:
    granting = _explained(configured(ROLES), "run_sql", "sql=select 1")
    offering = run("explain", str(configured("[tools]\nsql = false")), "run_sql", "sql=select 1").stdout

    assert "has no tool run_sql. [roles.support] sql = true grants it" in str(granting["reason"])
    assert 'has no tool run_sql. [tools] sql = "auto" offers it if the database can confine it.' in offering


@pytest.mark.parametrize(
    ("folder", "target", "directory", "shown"),
    [
        pytest.param(".", "policy.toml", "sql", ("policy.toml", "sql"), id="current folder"),
        pytest.param(".", "./policy.toml", "./sql", ("./policy.toml", "sql"), id="with a dot"),
        pytest.param(".", "conf/policy.toml", "sql", ("conf/policy.toml", "conf/sql"), id="folder below"),
        pytest.param("conf", "policy.toml", "../sql", ("policy.toml", "../sql"), id="queries beside it"),
        pytest.param(
            "here", "../conf/policy.toml", "sql", ("../conf/policy.toml", "../conf/sql"), id="above"
        ),
        pytest.param(
            "here", "{}/conf/policy.toml", "sql", ("{}/conf/policy.toml", "{}/conf/sql"), id="absolute"
        ),
        pytest.param(
            ".", "conf/policy.toml", "{}/sql", ("conf/policy.toml", "{}/sql"), id="absolute queries"
        ),
    ],
)
def test_check_prints_paths_that_open_from_the_current_folder(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    target: str,
    directory: str,
    shown: tuple[str, str],
) -> None:
    target, directory, *shown_paths = (
        each.replace("{}", str(tmp_path)) for each in (target, directory, *shown)
    )
    for name in ("here", "conf"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    queries = Path(target).parent / directory
    queries.mkdir(parents=True)
    (queries / "bad.sql").write_text("-- name: bad\nselect nothing")
    text = (
        f'[database]\nurl = "{url}"\n[queries]\ndirectory = "{directory}"\n[roles.a]\ntables.custmer = true\n'
    )
    Path(target).write_text(text)
    result = run("check", target, "--json")
    files = [each["file"] for each in json.loads(result.stdout)["findings"] if each["level"] == "error"]
    broken = run("check", target).stdout

    assert files == sorted([f"{shown_paths[1]}/bad.sql", shown_paths[0]])
    assert f"{shown_paths[0]}:6: error: role a, tables.custmer" in broken
    assert [Path(file).is_file() for file in files] == [True, True]
    Path(target).write_text("[database\n")
    assert run("check", target).stderr.startswith(f"dbtools: {shown_paths[0]}:1: not TOML")


LIMITED = """
[limits]
max_rows = 50
[roles.support]
tables.customer = true
[roles.support.limits]
max_rows = 20
[roles.wide]
tables.customer = true
limits = { max_rows = 90 }
"""


@pytest.mark.parametrize("words", [("list_customer",), ("list_rows", "table=customer"), ("list_tables",)])
@pytest.mark.parametrize(
    ("role", "text", "line", "most"),
    [
        pytest.param("support", LIMITED, 9, 20, id="own limit"),
        pytest.param("wide", LIMITED, 5, 50, id="own limit above that of all"),
        pytest.param("support", LIMITED.replace("max_rows = 20", ""), 5, 50, id="limit of all"),
        pytest.param(
            "support", LIMITED.replace("max_rows", "max_cell"), 6, 200, id="limit that is not written"
        ),
    ],
)
def test_refused_limit_is_explained_by_its_own_line(
    configured: Callable[[str], Path], words: tuple[str, ...], role: str, text: str, line: int, most: int
) -> None:
    path = configured(text)
    result = run("explain", str(path), "--role", role, *words, "limit=201", "--json")
    found = json.loads(result.stdout)

    assert (found["allowed"], found["reason"]) == (False, f"limit must be at most {most}, not 201.")
    assert found["rule"] == {"file": "policy.toml", "line": line}


ODD = """
create table "evil\x1b[31m\rname" (id integer primary key, "co\x1b[2Jl\x9b\u202e" text);
insert into "evil\x1b[31m\rname" values (1, '\x1b[31m\r');
"""


@pytest.fixture
def odd(url_of: Callable[[str], str]) -> str:
    """Give the URL of a database with names that a terminal would obey."""
    return url_of(ODD)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("explain", "list_evil__31m_name"), id="allowed"),
        pytest.param(("explain", "list_evil__31m_name", "columns=nope"), id="column"),
        pytest.param(("explain", "list_rows", "table=evil"), id="table"),
        pytest.param(("explain", "list_evil__31m_name", "--json"), id="explained as JSON"),
        pytest.param(("call", "list_evil__31m_name"), id="answer"),
        pytest.param(("call", "list_evil__31m_name", "--json"), id="answer as JSON"),
        pytest.param(("call", "list_evil__31m_name", "columns=nope"), id="refused call"),
        pytest.param(("call", "describe_tables"), id="description"),
        pytest.param(("tools",), id="tools"),
        pytest.param(("check",), id="check"),
        pytest.param(("check", "--json"), id="check as JSON"),
    ],
)
def test_names_print_nothing_that_a_terminal_obeys(odd: str, words: tuple[str, ...]) -> None:
    command, *rest = words
    # With color=False, click would remove escape sequences, since there is no terminal.
    result = CliRunner().invoke(main, (command, odd, *rest), color=True)

    assert not set("\x1b\r\x9b\u202e") & set(result.output)
    assert "31m" in result.output or command == "check"


def test_call_is_answered_as_the_claims_say(configured: Callable[[str], Path]) -> None:
    path = str(configured(ROLES))
    answers = [
        json.loads(
            run(
                "call", path, "--role", "support", "--claim", f"tenant={tenant}", "list_customer", "--json"
            ).stdout
        )["rows"]
        for tenant in (7, 8, 9)
    ]
    denied = run("call", path, "--role", "support", "list_customer")

    assert answers == [[[1, 7, "a…@example.com", 1]], [[2, 8, "b…@example.com", 1]], []]
    assert (denied.exit_code, denied.stdout) == (1, "")


KEYS = """
[roles.a]
tables.customer = { exclude = ["id"] }
tables.region = { mask = { id = "null" } }
[roles.b]
tables.customer = { columns = ["id", "email"], mask = { name = "redact" } }
"""


def test_check_reports_keys_that_a_role_does_not_see(configured: Callable[[str], Path]) -> None:
    found = json.loads(run("check", str(configured(KEYS)), "--json").stdout)["findings"]

    assert [(each["code"], each["line"]) for each in found if each["code"] not in ("posture", "no_sql")] == [
        ("hidden_key", 5),
        ("hidden_key", 6),
    ]


BROKEN = """
[policy]
[roles.a]
tables.customer = { where = "tenant = 'x" }
tables.region = true
[roles.b]
inherits = ["c"]
tables."*" = true
[roles.d]
tables.customer = { mask = { email = "hash" } }
tables.region = { where = "name = :name" }
"""


def test_what_is_right_is_served_beside_what_is_wrong(configured: Callable[[str], Path]) -> None:
    path = str(configured(BROKEN))
    result = run("check", path, "--json")
    found = [each for each in json.loads(result.stdout)["findings"] if each["level"] == "error"]
    tools = {role: run("tools", path, "--role", role).stdout for role in "abd"}

    assert result.exit_code == 1
    assert [(each["code"], each["line"]) for each in found] == [
        ("bad_filter", 6),
        ("unknown_role", 9),
        ("no_hash_key", 12),
        ("bad_filter", 13),
    ]
    assert "list_region" in tools["a"]
    assert [role for role in "abd" if "customer" in tools[role]] == []
    assert [role for role in "bd" if "region" in tools[role]] == []


JOINED = """
[roles.support]
tables.customer = true
tables.region = { where = "name = :claims.region", mask = { id = "redact" } }
tables.secret = true
"""
JOINED_TWO = JOINED.replace(', mask = { id = "redact" }', "")


def test_table_at_the_end_of_a_path_is_explained_too(configured: Callable[[str], Path]) -> None:
    path = configured(JOINED_TWO)
    words = ("list_customer", 'columns=["region.name"]')
    denied = _explained(path, *words)
    allowed = _explained(path, "--claim", "region=north", *words)

    assert (denied["allowed"], denied["rule"]) == (False, {"file": "policy.toml", "line": 6})
    assert "claim region" in str(denied["reason"])
    assert allowed["allowed"] is True
    assert "the rows of region that pass its filter" in str(allowed["reason"])


def test_what_is_withheld_is_explained_by_what_is_wrong(configured: Callable[[str], Path]) -> None:
    found = _explained(configured(WRONG.replace("roles.a", "roles.support")), "get_secret", "id=1")

    assert found["allowed"] is False
    assert "tables.secret.where" in str(found["reason"])
