"""Settings while their files change: only complete, valid files take effect."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools.answers.styles import Surface
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.query_sources import MOST_FILES
from dbtools.errors import ConfigurationError
from dbtools.service.reloading import CurrentSettings
from dbtools.settings import ToolsSection, load

WHOLE = """
[database]
url = "shop.db"
[queries]
directory = "queries"
[roles.support]
tables.people = { columns = ["id", "name"] }
"""


def _write(path: Path, text: str, *, age: float = 3600) -> None:
    path.write_text(text)
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    _write(tmp_path / "dbtools.toml", WHOLE)
    return tmp_path / "dbtools.toml"


@pytest.fixture
def current(path: Path) -> CurrentSettings:
    current = CurrentSettings(load(path), lexis, "support")
    current.read()
    return current


def test_file_being_written_is_read_when_it_is_whole(current: CurrentSettings, path: Path) -> None:
    before, stamp = current.settings, current.stamp()
    _write(path, WHOLE.partition("{")[0] + "true", age=0)
    current.read()
    fresh = current.settings

    assert fresh == before
    assert current.stamp() == stamp

    _write(path, f"{WHOLE}[limits]\nmax_rows = 7\n")
    assert current.stamp() != stamp
    current.read()
    assert current.settings.limits.max_rows == 7
    assert current.stamp() == current.stamp_of_read


def _claims(current: CurrentSettings) -> list[tuple[str | None, ...]]:
    bodies = [query.body for query in current.loaded_queries.queries]
    return [tuple(each.claim for each in body.parameters) for body in bodies]


def test_query_file_being_written_is_read_when_it_is_whole(current: CurrentSettings, path: Path) -> None:
    file = path.parent / "queries" / "mine.sql"
    _write(file, "select id from people", age=0)
    current.read()
    assert _claims(current) == []

    _write(file, "select id from people where owner = :claims.owner")
    current.read()
    assert _claims(current) == [("owner",)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('[database]\nurl = "shop.db"\n', "The role support no longer exists.", id="no roles"),
        pytest.param(WHOLE.replace("support", "sales"), "The role support no longer exists.", id="another"),
        pytest.param("[database\n", "not TOML", id="no TOML"),
        pytest.param(
            f'{WHOLE}[auth]\ntokens = [{{ sha256 = "{"0" * 64}", role = "support", nmae = "x" }}]',
            "unknown key",
            id="unknown key of a token",
        ),
        ('[database]\nurl = "shop.db"\n[roles]\n', "[roles] defines no role"),
    ],
)
def test_file_that_cannot_be_used_changes_nothing(
    text: str, problem: str, current: CurrentSettings, path: Path
) -> None:
    before = current.settings
    _write(path, text)
    current.read()

    (finding,) = current.findings
    refused = current.is_refused
    assert (current.settings, refused) == (before, True)
    assert problem in finding.message
    assert finding.source.file == "dbtools.toml"
    assert finding.source.line is not None
    assert finding.message.endswith("The previous configuration stays in force.")

    _write(path.parent / "queries" / "mine.sql", "select 1 as one")
    current.read()
    assert [*current.findings] == [finding]
    assert [query.name for query in current.loaded_queries.queries] == ["mine"]

    _write(path, WHOLE)
    current.read()
    refused = current.is_refused
    assert ([*current.findings], refused) == ([], False)


def test_each_mistake_in_the_file_is_a_finding(current: CurrentSettings, path: Path) -> None:
    _write(path, f"{WHOLE}[limit]\n[limits]\nmax_rows = 'lots'\n")
    current.read()

    lines = WHOLE.count("\n")
    assert [(each.source.line, each.message.split(".")[0]) for each in current.findings] == [
        (lines + 1, "limit: unknown key"),
        (lines + 3, "limits"),
    ]


class Failing:
    """The lexical rules of a database, of which none can be asked for while it is broken."""

    problem: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(lexis, name)

    def __hash__(self) -> int:
        """Find what has been made of the rules, or raise what a bug raises."""
        if self.problem:
            raise self.problem
        return hash(lexis)


@pytest.mark.parametrize(
    "problem",
    [
        ValueError("secret"),
        MemoryError("secret"),
        OSError(5, "secret"),
        RuntimeError("secret"),
        Exception("secret"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_bug_in_reading_the_files_is_reported_and_changes_nothing(
    problem: Exception, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules: Any = Failing()
    query = path.parent / "queries" / "mine.sql"
    _write(query, "-- description: One.\nselect 1 as one")
    current = CurrentSettings(load(path), rules)
    current.read()
    before = current.settings, current.loaded_queries
    rules.problem = problem
    _write(query, "-- description: Two.\nselect 2 as two, 'a' as b")
    current.read()

    (finding,) = current.findings
    refused = current.is_refused
    assert ((current.settings, current.loaded_queries), refused) == (before, True)
    assert finding.message.startswith(f"Internal error: {type(problem).__name__}.")
    assert [each.exc_info and each.exc_info[1] for each in caplog.records] == [problem]

    rules.problem = None
    _write(query, "-- description: Two.\nselect 2 as two")
    current.read()
    refused = current.is_refused
    assert ([*current.findings], refused) == ([], False)
    assert [each.description for each in current.loaded_queries.queries] == ["Two."]


def test_folder_in_which_there_is_too_much_changes_nothing(
    current: CurrentSettings, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = path.parent / "queries"
    _write(folder / "mine.sql", "select 1 as one")
    current.read()
    for number in range(MOST_FILES):
        (folder / f"{number}.txt").touch()
    then = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: then + 2_000_000_000)
    with pytest.raises(ConfigurationError, match=r"dbtools.toml:5: \[queries\] directory: more than"):
        current.read()

    assert [query.name for query in current.loaded_queries.queries] == ["mine"]


TOKEN = f'[auth]\ntokens = [{{ sha256 = "{"0" * 64}", role = "support" }}]\n'


def test_server_of_all_roles_never_stops_asking_who_calls(path: Path) -> None:
    _write(path, WHOLE + TOKEN)
    current = CurrentSettings(load(path), lexis)
    current.read()
    for text in (WHOLE, f"{WHOLE}[auth]\n", f"{WHOLE}[auth]\ntokens = []\n"):
        _write(path, text)
        current.read()

        (finding,) = current.findings
        assert current.settings.auth.tokens[0].role == "support"
        assert "[auth] is missing" in finding.message
        assert finding.message.endswith("The previous configuration stays in force.")


def test_server_that_has_begun_to_ask_who_calls_goes_on(path: Path) -> None:
    current = CurrentSettings(load(path), lexis)
    current.read()
    for text in (WHOLE + TOKEN, WHOLE):
        _write(path, text)
        current.read()

    assert current.settings.auth


def test_what_was_written_since_the_settings_were_read_is_in_force(path: Path) -> None:
    settings = load(path)
    _write(path, f"{WHOLE}[limits]\nmax_rows = 7\n")
    current = CurrentSettings(settings, lexis)
    current.read()

    assert current.settings.limits.max_rows == 7


def test_server_of_one_role_needs_no_tokens(current: CurrentSettings, path: Path) -> None:
    for text in (WHOLE + TOKEN, WHOLE):
        _write(path, text)
        current.read()

    assert (bool(current.settings.auth), current.findings) == (False, ())


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        pytest.param("shop.db", "other.db", "[database] url", id="database"),
        ("[queries]", 'description = "A shop."\n[queries]', "[database] description"),
        ("[queries]", '[limits]\nstorage = "redis://shop"\n[queries]', "[limits] storage"),
        pytest.param("[queries]", '[registry]\nurl = "kept.db"\n[queries]', "[registry] url", id="registry"),
        pytest.param("[queries]", '[log]\nfile = "calls.log"\n[queries]', "[log]", id="log"),
        pytest.param("[queries]", "[server]\nstrict = true\n[queries]", "[server]", id="server"),
    ],
)
def test_settings_read_at_start_are_reported_and_the_rest_is_in_force(
    old: str, new: str, place: str, current: CurrentSettings, path: Path
) -> None:
    generic = {"tools": ToolsSection(style=Surface.GENERIC)}
    expected = current.settings.model_copy(update=generic)
    _write(path, WHOLE.replace(old, new) + '[tools]\nstyle = "generic"\n')
    current.read()

    assert current.settings.model_dump() == expected.model_dump()
    assert [each.code for each in current.findings] == ["next_start"]
    assert current.findings[0].message == f"{place}: takes effect after a restart."


@pytest.fixture
def pipe(path: Path) -> Iterator[Path]:
    """Create a named pipe among the queries, which has no writer."""
    pipe = path.parent / "queries" / "pipe.sql"
    os.mkfifo(pipe)
    yield pipe
    # This releases a thread that reads from it.
    with suppress(OSError):
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        pipe.unlink()
        os.close(end)


async def test_pipe_among_the_queries_is_not_waited_for(current: CurrentSettings, pipe: Path) -> None:
    _write(pipe.with_name("mine.sql"), "select id from people")
    pipe.with_name("link.sql").symlink_to(pipe)

    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(current.read, abandon_on_cancel=True)

    assert [query.name for query in current.loaded_queries.queries] == ["mine"]
    assert current.findings == current.loaded_queries.findings == ()


async def test_pipe_is_no_configuration(pipe: Path) -> None:
    with anyio.fail_after(30), pytest.raises(ConfigurationError, match="not a regular file"):
        await anyio.to_thread.run_sync(load, pipe, abandon_on_cancel=True)
