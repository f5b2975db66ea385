"""PostgreSQL URLs: the effect of each parameter, which are rejected, and raw characters in passwords."""

from pathlib import Path
from typing import Any

import pytest

from dbtools.backends import open_backend, resolved_url
from dbtools.backends.postgresql.connection.urls import PARAMETERS, SETTINGS, destination, without_password
from dbtools.backends.urls import OTHER_TOOLS
from dbtools.errors import ConfigurationError, DatabaseUnavailable

URL = "postgresql://ann@db.example.com/shop"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the files and variables of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for each in PARAMETERS.values():
        monkeypatch.delenv(each.variable, raising=False)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ann:x@db.example.com:5433/shop", "db.example.com:5433/shop as ann"),
        ("postgres://ann@db.example.com/shop", "db.example.com:5432/shop as ann"),
        ("postgresql+asyncpg://ann@[::1]:5433/shop", "[::1]:5433/shop as ann"),
        ("postgresql://ann@one:1,two/shop", "one:1,two:5432/shop as ann"),
        ("postgresql://ann@%2Frun%2Fpg/shop", "/run/pg:5432/shop as ann"),
        ("postgresql:///shop?host=db&port=7&user=ann%40x", "db:7/shop as ann@x"),
        ("postgresql://db:7/shop?user=ann@x", "db:7/shop as ann@x"),
        ("postgresql://ann@db", "db:5432/ann as ann"),
        ("postgresql://ann@/shop", "localhost:5432/shop as ann"),
    ],
)
def test_place_names_host_port_database_and_user(url: str, place: str) -> None:
    assert open_backend(url).place == place


def test_place_takes_the_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOST", "db"), ("PORT", "7"), ("USER", "ann"), ("DATABASE", "shop")):
        monkeypatch.setenv(f"PG{name}", value)

    assert open_backend("postgresql://").place == "db:7/shop as ann"
    assert open_backend("postgresql://bob@other/").place == "other:7/shop as bob"


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("connect_timeout=3", "timeout", 3.0),
        ("connect_timeout=0", "timeout", 10.0),
        ("", "timeout", 10.0),
        ("target_session_attrs=read-only", "target_session_attrs", "read-only"),
        (
            "sslnegotiation=direct&sslmode=require",
            "dsn",
            "postgresql:///?sslmode=require&sslnegotiation=direct",
        ),
        ("sslnegotiation=direct&sslrootcert=system", "direct_tls", True),
        ("krbsrvname=pg", "krbsrvname", "pg"),
        ("passfile=/x", "passfile", "/x"),
        ("sslmode=verify-ca&sslrootcert=", "dsn", None),
        ("ssl=false", "dsn", "postgresql:///?sslmode=disable"),
        ("ssl=true", "dsn", "postgresql:///?sslmode=require"),
        ("ssl=true&sslmode=disable", "dsn", "postgresql:///?sslmode=disable"),
    ],
)
def test_parameter_reaches_the_driver(query: str, name: str, value: Any) -> None:
    found = destination(f"{URL}?{query}")
    if value is None:
        with pytest.raises(DatabaseUnavailable, match="sslrootcert=FILE"):
            found.arguments()
        return

    assert found.arguments()[name] == value


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        ("options=-c%20statement_timeout%3D5s", {"statement_timeout": "5s"}),
        ("options=-cwork_mem%3D1MB+--search-path%3Dx", {"work_mem": "1MB", "search_path": "x"}),
        ("options=-c%20a.b%3Dtwo%5C%20words", {"a.b": "two words"}),
        ("options=endpoint%3Dep-cool", {"options": "endpoint=ep-cool"}),
        ("options=reference%3Dx%20-c%20role%3Dreader", {"options": "reference=x", "role": "reader"}),
        ("schema=my%20shop", {"search_path": '"my shop"'}),
        ("application_name=app", {"application_name": "app"}),
        ("pgbouncer=true&channel_binding=prefer&gssencmode=prefer&sslsni=1&client_encoding=utf8", {}),
    ],
)
def test_settings_are_those_of_dbtools_and_of_the_url(query: str, settings: dict[str, str]) -> None:
    assert destination(f"{URL}?{query}").settings == {**SETTINGS, **settings}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmod=require", "sslmod: unknown parameter of the database's URL. Did you mean sslmode?"),
        ("conect_timeout=3", "Did you mean connect_timeout?"),
        ("work_mem=3", "A setting of the server goes in options="),
        ("sslmode=verify_full", "Did you mean verify-full"),
        ("target_session_attrs=reader", "read-write, read-only, primary"),
        ("channel_binding=require", "channel_binding=require in the database's URL: asyncpg, the driver,"),
        ("gssencmode=require", "does not support GSSAPI"),
        ("require_auth=scram-sha-256", "does not support this"),
        ("sslsni=0", "always sends the name"),
        ("client_encoding=latin1", "reads UTF-8"),
        ("connect_timeout=soon", "a whole number"),
        ("keepalives_idle=30", "keepalives_idle: unknown parameter"),
        ("statement_timeout=5s", "A setting of the server goes in options="),
        ("options=-c%20timezone%3DUTC", "dbtools sets timezone itself"),
        ("options=-B%209", "is not a setting"),
        ("options=-c%20a%27b%3D1", "is not a setting"),
        ("sslrootcert=system&sslmode=require", "requires sslmode=verify-full"),
        ("sslnegotiation=direct", "requires sslmode=require"),
        ("sslrootcert=system&sslcrl=x", "takes no sslcrl"),
        ("hostaddr=10.0.0.1", "takes the address as host"),
        ("service=shop", "reads no service files"),
        ("port=1,2", "one for each host"),
        ("port=x", "is not a port number"),
        ("port=70000", "is not a port number"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(query: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_backend(f"{URL}?{query}")

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("login", "raw"),
    [
        ("ann:pw@se", "@"),
        ("ann@x:pwse", "@"),
        ("ann:pw/se", "/"),
        ("ann:12/pwse", "/"),
        ("ann:12/pw=se", "/"),
        ("ann:pw?se", "?"),
        ("ann:12?pw=se", "?"),
        ("ann:pw#se", "#"),
        ("ann:pw%se", "%"),
        ("ann:pw[se", "["),
    ],
)
def test_raw_character_in_the_password_is_refused_without_quoting_it(login: str, raw: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_backend(f"postgresql://{login}@db.example.com/shop")

    assert f"{raw} as %{ord(raw):X}" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_shared_url_has_no_password_and_files_by_their_full_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGAPPNAME", "app")
    shared = without_password(f"{URL}?password=a%40b&sslpassword=c&sslrootcert=ca.pem&sslmode=require")

    assert shared == (
        f"{URL}?sslrootcert={tmp_path}/ca.pem&sslmode=require",
        {"PGAPPNAME": "app", "PGPASSWORD": "a@b", "PGSSLPASSWORD": "c"},
    )
    assert without_password("postgresql:///shop?host=/tmp")[0] == "postgresql:///shop?host=/tmp"
    assert without_password(f"{URL}?sslrootcert=system") == (
        f"{URL}?sslrootcert=system",
        {"PGAPPNAME": "app"},
    )


def test_files_in_a_configuration_are_below_its_folder(tmp_path: Path) -> None:
    query = "sslmode=require&sslrootcert=ca.pem&sslcert=/full.pem"

    assert resolved_url(f"{URL}?{query}", tmp_path) == (
        f"{URL}?sslmode=require&sslrootcert={tmp_path}/ca.pem&sslcert=/full.pem"
    )
    assert resolved_url(URL, tmp_path) == URL


@pytest.mark.parametrize("state", ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"])
def test_url_whose_answers_may_be_old_says_so(state: str) -> None:
    warnings = destination(f"{URL}?target_session_attrs={state}").warnings

    assert [state in each for each in warnings] == [True] * state.endswith("standby")
    assert destination(URL).warnings == ()


@pytest.mark.parametrize("name", sorted(OTHER_TOOLS))
def test_parameter_of_another_tool_is_refused_as_that(name: str) -> None:
    assert name not in PARAMETERS
    with pytest.raises(ConfigurationError, match="parameter of another tool") as raised:
        destination(f"{URL}?{name}=1")
    assert raised.value.hint == "Remove it."
