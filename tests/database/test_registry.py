"""Queries in a registry: their versions, which of them are served, and which registry is trusted."""

import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import anyio
import pytest

from dbtools import errors
from dbtools.alembic import upgrade
from dbtools.backends import read_registry
from dbtools.backends.records import OTHER_REVISION
from dbtools.records.registry import add, change, entry_of, read_entries
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings, load, settings_of
from tests.database.registries import DDL, Place, PostgresqlDatabase, place as place, registry as registry

THINGS = "-- name: things\n-- description: All things.\nselect id, name from thing order by id\n"
NAMES = "-- name: names\n-- description: Names.\nselect name from thing\n"
BROKEN = "-- name: broken\n-- description: Broken.\nselect nothing from thing\n"


def test_database_without_a_registry_has_none(place: Place) -> None:
    assert anyio.run(read_registry, place.url) is None
    with pytest.raises(errors.ConfigurationError, match="registry upgrade"):
        anyio.run(read_entries, place.url)


def test_version_before_is_kept_and_older_ones_go(registry: Place) -> None:
    texts = [THINGS.replace("All", each) for each in ("First", "Second", "Third")]
    for text in texts:
        anyio.run(add, registry.url, {"things": text})

    entry = anyio.run(entry_of, registry.url, "things")

    assert (entry.current.version, entry.current.text, entry.current.enabled) == (3, texts[2], True)
    assert entry.previous is not None
    assert (entry.previous.version, entry.previous.text) == (2, texts[1])
    assert registry.rows(f"select count(*) from {registry.table}") == [(2,)]


def test_same_text_is_no_new_version_and_is_enabled_again(registry: Place) -> None:
    for text in (THINGS.replace("All", "First"), THINGS, THINGS):
        anyio.run(add, registry.url, {"things": text})
    same = anyio.run(entry_of, registry.url, "things")
    anyio.run(change, registry.url, "things", "disable")
    disabled = anyio.run(entry_of, registry.url, "things")
    anyio.run(add, registry.url, {"things": THINGS})
    again = anyio.run(entry_of, registry.url, "things")

    assert (same.current.version, same.current.enabled) == (2, True)
    assert (disabled.current.version, disabled.current.enabled) == (2, False)
    assert (again.current.version, again.current.text, again.current.enabled) == (2, THINGS, True)
    assert again.previous is not None
    assert (again.previous.version, again.previous.text) == (1, THINGS.replace("All", "First"))


def test_disabled_one_is_not_served_until_it_is_enabled(registry: Place, tmp_path: Path) -> None:
    settings = settings_of(registry.url)
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})

    anyio.run(change, registry.url, "names", "disable")
    without = _served(settings)
    anyio.run(change, registry.url, "names", "enable")

    assert without == (["things"], [])
    assert _served(settings) == (["names", "things"], [])


def _served(settings: Settings) -> tuple[list[str], list[str]]:
    """Return the names of the queries that are served, and the messages for the operator."""

    async def view() -> tuple[list[str], list[str]]:
        toolbox, database = open_toolbox(settings)
        snapshot = await toolbox.snapshot()
        await database.close()
        found = next(iter(snapshot.views.values()))
        told = [each for each in tuple(map(str, found.problems)) if "`dbtools grants`" not in each]
        return [query.name for query in found.context.queries], told

    return anyio.run(view)


def test_removed_one_is_gone_with_its_versions(registry: Place) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    anyio.run(add, registry.url, {"things": THINGS.replace("All", "The")})

    anyio.run(change, registry.url, "things", "remove")

    assert registry.rows(f"select count(*) from {registry.table}") == [(0,)]
    for verb in ("remove", "enable", "disable"):
        with pytest.raises(errors.ConfigurationError, match="no query 'things'"):
            anyio.run(change, registry.url, "things", verb)


def test_registry_of_another_release_is_refused(registry: Place) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    registry.rows("update dbtools_version set version_num = 'registry_0999'")

    with pytest.raises(errors.ConfigurationError) as read:
        anyio.run(read_entries, registry.url)
    with pytest.raises(errors.ConfigurationError, match="cannot be upgraded") as upgraded:
        upgrade(registry.url)
    queries, told = _served(settings_of(registry.url))
    refused = "The registry has version 'registry_0999': this dbtools needs registry_0001."
    assert (read.value.message, read.value.hint, upgraded.value.hint) == (refused, *[OTHER_REVISION] * 2)
    assert (queries, told) == ([], [f"error: registry: {refused} {OTHER_REVISION}"])


def test_registry_of_another_release_can_be_created_again_as_its_refusal_says(registry: Place) -> None:
    registry.rows("update dbtools_version set version_num = 'registry_0999'")
    schema = registry.table.removesuffix("dbtools_query")
    for name in re.findall("dbtools_[a-z]+", OTHER_REVISION):
        registry.rows(f"drop table {schema if name != 'dbtools_version' else ''}{name}")
    upgrade(registry.url)

    assert anyio.run(read_entries, registry.url) == {}


def test_broken_query_is_withdrawn_with_its_place_and_the_rest_is_served(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "broken": BROKEN, "headless": "-- title x\nselect 1"})

    queries, told = _served(settings_of(registry.url))

    assert queries == ["things"]
    assert [each.partition(": ")[0] for each in told] == ["registry/broken:3", "registry/headless:1"]
    assert "query broken is withdrawn" in told[0]


def test_text_of_another_name_is_not_served(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"secret": THINGS})

    queries, told = _served(settings_of(registry.url))

    assert queries == []
    assert told == [
        "registry/secret:1: error: query 'secret': the registry has other queries under this name."
    ]


def _configured(folder: Path, text: str) -> Settings:
    (folder / "dbtools.toml").write_text(text)
    return load(folder / "dbtools.toml")


def test_files_win_over_the_registry(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text("select 1 as one")
    text = f'[database]\nurl = "{registry.url}"\n[queries]\ndirectory = "queries"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == ["names", "things"]
    problem = "the name is already used at queries/things.sql:1."
    assert told == [f"registry/things:1: warning: query things is not served: {problem}"]


def test_file_that_cannot_be_used_still_wins(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text("-- bogus: x\nselect 1 as one")
    (tmp_path / "queries" / "names.sql").write_bytes(b"select '\xe9' as e")
    text = f'[database]\nurl = "{registry.url}"\n[queries]\ndirectory = "queries"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == []
    assert [each.partition(": ")[0] for each in told] == [
        *("queries/names.sql:1", "queries/things.sql:1", "registry/names:1", "registry/things:1")
    ]


ROLE = '[roles.reader]\ntables."*" = true\nqueries = ["*"]\n'


def test_registry_that_is_not_named_is_not_trusted_where_there_are_roles(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    database = f'[database]\nurl = "{registry.url}"\n'

    found = _served(_configured(tmp_path, database + ROLE))
    named = _served(_configured(tmp_path, f'{database}[registry]\nurl = "{registry.url}"\n{ROLE}'))

    assert found == ([], [])
    assert named == (["things"], [])


def test_registry_that_is_not_named_does_not_count_where_tables_are_left_out(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    database = f'[database]\nurl = "{registry.url}"\nexclude = ["thing"]\n'

    found = _served(_configured(tmp_path, database))
    named = _served(_configured(tmp_path, f'{database}[registry]\nurl = "{registry.url}"\n'))

    assert found == ([], [])
    assert named == (["things"], [])


def test_registry_may_be_in_another_database(place: Place, tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path / 'registry.db'}")
    anyio.run(add, f"sqlite:///{tmp_path / 'registry.db'}", {"things": THINGS})

    found = _served(
        _configured(tmp_path, f'[database]\nurl = "{place.url}"\n[registry]\nurl = "registry.db"\n')
    )

    assert found == (["things"], [])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("missing.db", "does not exist", id="missing"),
        pytest.param("postgresql://somebody:sekret@127.0.0.1:1/shop", "cannot be reached", id="unreachable"),
    ],
)
def test_registry_that_cannot_be_reached_keeps_nothing_else_from_being_served(
    place: Place, tmp_path: Path, url: str, said: str
) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text(THINGS)
    text = f'[database]\nurl = "{place.url}"\n[queries]\ndirectory = "queries"\n[registry]\nurl = "{url}"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == ["things"]
    assert len(told) == 1
    assert told[0].startswith("dbtools.toml:6: error: [registry] url: ")
    assert said in told[0]


def test_registry_that_does_not_answer_holds_nothing_up_for_long(place: Place, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody@127.0.0.1:{silent.getsockname()[1]}/shop"
        text = f'[database]\nurl = "{place.url}"\n[registry]\nurl = "{url}"\n'
        _, told = _served(_configured(tmp_path, text))

    problem = "[registry] url: The registry does not answer within 3 seconds."
    assert told == [f"dbtools.toml:4: error: {problem}"]


def test_named_database_without_a_registry_is_reported(place: Place, tmp_path: Path) -> None:
    text = f'[database]\nurl = "{place.url}"\n[registry]\nurl = "{place.url}"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == []
    assert told[0].startswith("dbtools.toml:4: error: [registry] url: The database has no registry.")


def test_login_that_may_not_read_the_registry_is_served_without_it(
    postgresql_database: PostgresqlDatabase,
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    tmp_path: Path,
) -> None:
    with (
        postgresql_database(DDL) as url,
        postgresql_login(url, "grant select on all tables in schema public to {}") as reader,
    ):
        upgrade(url)
        anyio.run(add, url, {"things": THINGS})
        queries, told = _served(settings_of(reader))
        with pytest.raises(errors.DatabaseUnavailable, match="may not read the registry"):
            anyio.run(add, reader, {"things": THINGS})

        assert queries == []
    assert "warning: registry: The login may not read the registry." in told


def test_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "create trigger t before insert on dbtools_query begin select raise(abort, 'no'); end"
        )

    with pytest.raises(errors.DatabaseUnavailable, match="cannot be written"):
        anyio.run(add, f"sqlite:///{path}", {"things": THINGS})
