"""URLs of SQLite files: spellings of other tools, odd names, and options that would make answers wrong."""

from pathlib import Path

import pytest

from dbtools.backends import open_backend, resolved_url
from dbtools.backends.sqlite.connection.files import location_of
from dbtools.backends.sqlite.connection.urls import URI_OPTIONS
from dbtools.backends.urls import OTHER_TOOLS
from dbtools.errors import ConfigurationError, DatabaseUnavailable
from dbtools.schema.catalog import Selection
from dbtools.service.serving import open_database
from dbtools.settings import load, settings_of

NAMES = ("shop.db", "a b.db", "100%.db", "100%25.db", "a#b?c.db", "file:x.db", "~x.db", "ä.db", "~/kept.db")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("shop.db", "shop.db"),
        ("~/shop.db", "shop.db"),
        ("100%.db", "100%.db"),
        ("100%25.db", "100%25.db"),
        ("a#b?c.db", "a#b?c.db"),
        ("~x.db", "~x.db"),
        ("~/kept.db", "~/kept.db"),
        ("sqlite:///~/kept.db", "~/kept.db"),
        ("file:~/kept.db?mode=ro", "~/kept.db"),
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:///~/shop.db", "shop.db"),
        ("sqlite:///./shop.db", "shop.db"),
        ("sqlite:////{home}/shop.db", "shop.db"),
        ("sqlite+pysqlite:///shop.db", "shop.db"),
        ("sqlite:///file:shop.db?uri=true&mode=ro", "shop.db"),
        ("sqlite:///a b.db", "a b.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///100%.db", "100%.db"),
        ("sqlite:///100%25.db", "100%.db"),
        ("sqlite:///100%2525.db", "100%25.db"),
        ("file:shop.db", "shop.db"),
        ("file:./shop.db", "shop.db"),
        ("file:shop.db?mode=ro", "shop.db"),
        ("file:~/shop.db", "shop.db"),
        ("file:a%20b.db", "a b.db"),
        ("file:{home}/shop.db", "shop.db"),
        ("file://{home}/shop.db", "shop.db"),
        ("file://localhost{home}/shop.db", "shop.db"),
        ("sqlite:///%C3%A4.db", "ä.db"),
    ],
)
def test_every_spelling_names_the_same_file_as_a_target_and_in_a_configuration(
    home: Path, written: str, name: str
) -> None:
    url = written.replace("{home}", str(home))
    (home / "dbtools.toml").write_text(f"[database]\nurl = '{url}'\n")
    targets = [settings_of(url).database.url, load(home / "dbtools.toml").database.url]

    assert {location_of(each).path.resolve() for each in targets} == {home / name}


@pytest.mark.parametrize(
    ("written", "path"),
    [("~/queries", "queries"), ("~/kept.db", "~/kept.db"), ("~x.db", "~x.db"), ("~/~x.db", "~x.db")],
)
def test_tilde_means_the_home_in_each_path_of_a_configuration_unless_such_a_file_exists(
    home: Path, written: str, path: str
) -> None:
    (home / "dbtools.toml").write_text(f"""
[database]
url = "shop.db"
[queries]
directory = "{written}"
[log]
file = "{written}"
""")
    settings = load(home / "dbtools.toml")

    assert [settings.queries.directory, settings.log.file] == [str(home / path)] * 2


def test_relative_path_starts_in_the_folder_of_the_configuration(home: Path) -> None:
    for url in ("sqlite:///shop.db?mode=ro", "file:shop.db?mode=ro", "file:./shop.db"):
        assert location_of(resolved_url(url, home / "below")).path == home / "below" / "shop.db"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        *(
            (option, "")
            for option in ("mode=ro", "mode=rw", "cache=private", "nolock=0", "immutable=0", "psow=1")
        ),
        ("immutable=1", ""),
        ("mode=memory", "creates none"),
        ("mode=rwc", "creates none"),
        ("cache=shared", "have not committed"),
        ("nolock=1", "may be wrong"),
        ("vfs=unix-none", "Remove the option"),
        ("immutable=maybe", "It takes one of: 1, true"),
        ("immutabel=1", "Did you mean immutable?"),
        ("key=secret", "unknown parameter"),
        *((f"{name}=1", "Remove it.") for name in sorted(OTHER_TOOLS)),
    ],
)
def test_option_of_a_url_has_an_effect_or_is_refused(option: str, says: str) -> None:
    for url in (f"sqlite:///shop.db?{option}", f"file:shop.db?{option}"):
        try:
            open_backend(url)
            found = ""
        except ConfigurationError as exc:
            found = str(exc)
        assert (says in found) if says else (found == "")


def test_every_option_of_sqlite_is_decided() -> None:
    """https://sqlite.org/uri.html#recognized_query_parameters lists them."""
    own = {"uri"}
    assert URI_OPTIONS.keys() - own == {"cache", "immutable", "mode", "nolock", "psow", "vfs"}


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:////", "file:", "file:///", "file://other/shop.db"]
)
def test_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no database file"):
        open_backend(url)


@pytest.mark.parametrize(
    "target", ["missing.db", "~/missing.db", "./missing.db", "file:missing.db", "sqlite:///missing.db"]
)
async def test_missing_file_is_missing(target: str) -> None:
    with pytest.raises((ConfigurationError, DatabaseUnavailable), match=r"no file|does not exist") as raised:
        await open_database(settings_of(target)).introspect(Selection())
    assert "no folder" not in str(raised.value)
