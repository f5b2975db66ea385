"""`dbtools registry` and `dbtools query`: what they print, what they refuse, and how they end."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.protocol.command_line import assert_one_complaint, run

DDL = """
create table thing (id integer primary key, name text);
insert into thing values (1, 'one'), (2, 'two');
"""
THINGS = """-- name: things
-- description: Things by their ids.
-- param ids: integer[]   Ids.
select id, name from thing where id in (:ids) order by id
"""
COUNT = """-- name: thing_count
-- description: How many there are.
-- returns: one
select count(*) as things from thing
"""
NAMELESS = "-- description: Names.\nselect name from thing order by name\n"


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Give the URL of a database without a registry, on each dialect."""
    return url_of(DDL)


@pytest.fixture
def registry(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give its URL once it has one; files of queries are in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "both.sql").write_text(THINGS + COUNT)
    (tmp_path / "names.sql").write_text(NAMELESS)
    assert run("registry", "upgrade", url).exit_code == 0
    return url


def test_upgrade_says_what_there_is(url: str) -> None:
    result = run("registry", "upgrade", url)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "The registry has version registry_0003 and 0 queries.\n"


def test_queries_of_a_file_are_saved_one_by_one_and_served_at_once(registry: str) -> None:
    saved = run("query", "add", registry, "both.sql", "names.sql")
    called = run("call", registry, "things", "ids=[2]", "--json")

    assert (saved.exit_code, saved.stderr) == (0, "")
    assert saved.stdout.splitlines() == ["things: version 1", "thing_count: version 1", "names: version 1"]
    assert json.loads(called.stdout)["rows"] == [[2, "two"]]
    assert run("query", "show", registry, "thing_count").stdout == COUNT
    assert run("query", "show", registry, "names").stdout == f"-- name: names\n{NAMELESS}"


def test_query_that_exceeds_the_budget_is_reported_with_what_it_replaces(registry: str) -> None:
    Path("dbtools.toml").write_text(f"[database]\nurl = '{registry}'\n[tools]\nsql = false\n")
    tokens = sum(each["tokens"] for each in json.loads(run("tools", "--json").stdout))
    with Path("dbtools.toml").open("a") as file:
        file.write(f"budget = {tokens}\n")

    added = run("query", "add", "both.sql")

    assert added.stderr.startswith(
        "dbtools: role default: list_tables, list_rows, get_row replace list_thing and 1 more: "
    )


def test_query_is_saved_even_if_a_strict_server_would_not_start(registry: str) -> None:
    # The login of PostgreSQL is a superuser.
    Path("dbtools.toml").write_text(f"[database]\nurl = '{registry}'\n[server]\nstrict = true\n")

    added = run("query", "add", "names.sql")

    assert (added.exit_code, added.stdout, added.stderr) == (0, "names: version 1\n", "")


def test_query_that_no_role_gets_from_this_registry_is_reported(registry: str) -> None:
    Path("dbtools.toml").write_text(f"[database]\nurl = '{registry}'\n[roles.default]\nqueries = ['*']\n")

    added = run("query", "add", "both.sql")

    assert (added.exit_code, added.stdout) == (0, "things: version 1\nthing_count: version 1\n")
    assert_one_complaint(added.stderr, "The queries are not served.")


def test_folder_of_queries_is_refused_with_the_names_of_its_files(registry: str) -> None:
    Path("queries").mkdir()

    assert_one_complaint(run("query", "add", "queries").stderr, "Name its files: queries/*.sql.")


def test_what_is_shown_can_be_added_again(registry: str) -> None:
    run("query", "add", registry, "both.sql")
    Path("shown.sql").write_text(run("query", "show", registry, "things").stdout)

    result = run("query", "add", registry, "shown.sql")

    assert (result.exit_code, result.stdout) == (0, "things: version 1\n")


def test_list_shows_name_version_state_and_description(registry: str) -> None:
    run("query", "add", registry, "both.sql")
    run("query", "disable", registry, "things")

    *_, first, second, count = run("query", "list", registry).stdout.splitlines()
    listed = json.loads(run("query", "list", registry, "--json").stdout)

    assert first.split(maxsplit=3) == ["thing_count", "1", "true", "How many there are."]
    assert second.split(maxsplit=3) == ["things", "1", "false", "Things by their ids."]
    assert count == "2 queries"
    assert [each.pop("changed_at")[-1] for each in listed] == ["Z", "Z"]
    assert listed == [
        {"name": "thing_count", "version": 1, "enabled": True, "description": "How many there are."},
        {"name": "things", "version": 1, "enabled": False, "description": "Things by their ids."},
    ]


def test_each_command_prints_json(registry: str) -> None:
    def printed(*words: str) -> object:
        result = run(*words, "--json")
        assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
        return json.loads(result.stdout)

    assert printed("query", "add", registry, "both.sql") == [
        {"name": "things", "version": 1},
        {"name": "thing_count", "version": 1},
    ]
    assert printed("query", "disable", registry, "things") == {"name": "things", "state": "disabled"}
    assert printed("query", "enable", registry, "things") == {"name": "things", "state": "enabled"}
    assert printed("query", "remove", registry, "things") == {"name": "things", "state": "removed"}
    assert printed("registry", "upgrade", registry) == {"version": "registry_0003", "query_count": 1}
    shown = printed("query", "show", registry, "thing_count")
    assert isinstance(shown, dict)
    assert shown.pop("changed_at")[-1] == "Z"
    assert shown == {"name": "thing_count", "version": 1, "enabled": True, "text": COUNT}


def test_version_before_can_be_shown(registry: str) -> None:
    run("query", "add", registry, "both.sql")
    unchanged = run("query", "show", registry, "things", "--previous")
    Path("both.sql").write_text(THINGS.replace("order by id", "order by name"))
    run("query", "add", registry, "both.sql")

    assert unchanged.exit_code == 2
    assert_one_complaint(unchanged.stderr, "no version before 1")
    assert run("query", "show", registry, "things", "--previous").stdout == THINGS
    assert "order by name" in run("query", "show", registry, "things").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("-- name: wrong\nselect nme from thing\n", "bad.sql:", id="column"),
        pytest.param("-- name: wrong\ndelete from thing\n", "bad.sql:", id="writes"),
        pytest.param("-- name: wrong\n-- titel: x\nselect 1 as a\n", "bad.sql:6: error:", id="header"),
        pytest.param("-- name: list_thing\nselect 1 as a\n", "a tool has this name", id="name of a tool"),
    ],
)
def test_file_with_a_mistake_is_refused_whole(registry: str, text: str, said: str) -> None:
    Path("bad.sql").write_text(THINGS + text)

    result = run("query", "add", registry, "names.sql", "bad.sql")

    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert result.stderr.endswith("dbtools: No query was saved.\n")


def test_file_that_is_no_text_is_refused_whole(registry: str) -> None:
    Path("latin.sql").write_bytes(b"select 'caf\xe9' as a")

    result = run("query", "add", registry, "names.sql", "latin.sql")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "latin.sql:1: error: the file is not UTF-8 text.\ndbtools: No query was saved.\n"
    )
    assert json.loads(run("query", "list", registry, "--json").stdout) == []


@pytest.mark.parametrize("verb", ["show", "remove", "enable", "disable"])
def test_unknown_query_ends_with_2_and_the_nearest_name(registry: str, verb: str) -> None:
    run("query", "add", registry, "both.sql")

    result = run("query", verb, registry, "thing")

    assert (result.exit_code, result.stdout) == (2, "")
    assert_one_complaint(result.stderr, "things")


def test_removed_query_is_gone(registry: str) -> None:
    run("query", "add", registry, "both.sql")

    result = run("query", "remove", registry, "things")

    assert (result.exit_code, result.stdout) == (0, "things: removed\n")
    assert [each["name"] for each in json.loads(run("query", "list", registry, "--json").stdout)] == [
        "thing_count"
    ]


def test_disabled_query_is_no_tool_until_it_is_enabled(registry: str) -> None:
    run("query", "add", registry, "both.sql")

    run("query", "disable", registry, "things")
    disabled = run("call", registry, "things", "ids=[1]")
    run("query", "enable", registry, "things")

    assert disabled.exit_code == 2
    assert run("call", registry, "things", "ids=[1]").exit_code == 0


@pytest.mark.parametrize(
    "words", [("list",), ("show", "x"), ("remove", "x"), ("enable", "x"), ("disable", "x"), ("add", "a.sql")]
)
def test_target_without_a_registry_ends_with_2_and_what_makes_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sql").write_text("select 1 as a")

    result = run("query", words[0], url, *words[1:])

    assert (result.exit_code, result.stdout) == (2, "")
    assert_one_complaint(result.stderr, "dbtools registry upgrade URL")


def test_configuration_leads_to_the_registry_that_it_names(url: str, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    configuration.write_text(f'[database]\nurl = "{url}"\n[registry]\nurl = "registry.db"\n')
    (tmp_path / "both.sql").write_text(THINGS)
    run("registry", "upgrade", f"sqlite:///{tmp_path / 'registry.db'}")

    saved = run("query", "add", str(configuration), str(tmp_path / "both.sql"))

    assert (saved.exit_code, saved.stdout) == (0, "things: version 1\n")
    assert run("query", "show", str(tmp_path / "registry.db"), "things").stdout == THINGS
    assert run("call", str(configuration), "things", "ids=[1]").exit_code == 0
    assert run("query", "list", url).exit_code == 2


UNREACHED = [
    pytest.param("missing.db", "missing.db: The database file does not exist.", id="no file"),
    pytest.param("postgresql://ann@127.0.0.1:1/x", "127.0.0.1:1/x as ann: The server", id="no server"),
    pytest.param("empty.db", "[registry] url: The database has no registry.", id="no registry"),
]


@pytest.mark.parametrize(("place", "says"), UNREACHED)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("tools", "--json"), id="tools"),
        pytest.param(("call", "describe_tables", "--json"), id="call"),
        pytest.param(("explain", "describe_tables", "--json"), id="explain"),
    ],
)
def test_registry_that_cannot_be_reached_is_told_on_stderr(
    url: str, tmp_path: Path, words: tuple[str, ...], place: str, says: str
) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[registry]\nurl = "{place}"\n')
    command, *rest = words
    result = run(command, str(path), *rest)

    assert (result.exit_code, bool(json.loads(result.stdout))) == (0, True)
    assert result.stderr.count("\n") == 1
    assert "dbtools.toml:4: error: [registry] url: " in result.stderr
    assert says in result.stderr


def test_first_file_of_queries_is_no_target(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dbtools.toml").write_text(f'[database]\nurl = "{registry}"\n')

    result = run("query", "add", "both.sql")

    assert (result.exit_code, result.stdout) == (0, "things: version 1\nthing_count: version 1\n")


@pytest.mark.parametrize(
    "words",
    [
        ("add",),
        ("add", "missing.sql"),
        ("show",),
        ("show", "a", "b", "c"),
        ("list", "missing.db"),
        ("liste",),
    ],
)
def test_wrong_usage_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run("query", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize(
    "url", ["sqlite:////nowhere/at/all.db", "postgresql://somebody:sekret@127.0.0.1:1/shop", "mysql://x/y"]
)
def test_database_that_cannot_be_upgraded_ends_with_2(url: str) -> None:
    result = run("registry", "upgrade", url)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "sekret" not in result.stderr
    assert result.stderr.startswith("dbtools: ")
