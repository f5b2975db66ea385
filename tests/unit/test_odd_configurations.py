"""Configurations with unknown keys, wrong types and odd TOML are read, or rejected with file and line."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.roles import roles_of
from dbtools.errors import ConfigurationError
from dbtools.settings import Settings, load
from tests.odd_settings import KEYS, NAMES, ODD

DATABASE = '[database]\nurl = "shop.db"\n'
HASH = "a" * 64
JWT = '[auth.jwt]\nissuer = "x"\naudience = "https://db.example.com/mcp"\n'
PLACED = r"dbtools\.toml:[1-9]\d*: [^\n\x1b]*"
PLACE = re.compile(rf"{PLACED}(\n{PLACED})*")

#: Words of pydantic, which do not describe TOML, and its names of types; or no words at all.
LIBRARY = re.compile(r"[Ii]nput|should|unable|valid (?!JSON)|tuple|dictionary|literal|instance|must be [,.]")

#: What no key makes TOML.
UNREADABLE = ("9" * 5_000, "[" * 5_000, "'x", "=")


#: Paths of keys, and some that are wrong: a key of a section at the top, or a section that no server has.
PLACES = (*KEYS, *((path[-1],) for path in KEYS), *((name,) for name in (*NAMES, "sources", "databas")))


def _read(folder: Path, text: str) -> str | None:
    """Return the complaint of *text*, None where it is read; whatever else is raised is a fault."""
    path = folder / "dbtools.toml"
    path.write_text(text, encoding="utf-8")
    try:
        roles_of(load(path), lexis)
    except ConfigurationError as exc:
        return str(exc)
    return None


def test_keys_are_those_of_all_sections() -> None:
    assert {path[0] for path in KEYS} == set(Settings.model_fields)
    assert ("auth", "tokens", "sha256") in KEYS
    assert ("roles", "R", "tables", "R", "mask", "R") in KEYS


@pytest.mark.parametrize("value", ["1", "'x'", "{ x = 1 }", "true", "[[1]]"])
@pytest.mark.parametrize("name", ["nope", "url", "sources", '""', '"a.b"'])
def test_unknown_key_at_the_top_is_refused_with_file_and_line(tmp_path: Path, name: str, value: str) -> None:
    texts = (f"\n{name} = {value}\n{DATABASE}", f"\n[{name}]\nx = {value}\n{DATABASE}")
    complaints = [_read(tmp_path, text) for text in (*texts, f"\n[[{name}]]\nx = {value}\n{DATABASE}")]

    begin = f"dbtools.toml:2: {name.strip(chr(34))}: unknown key. "
    assert [(told or "").startswith(begin) for told in complaints] == [True] * 3
    assert all("Keys here: database, tables, " in (told or "") for told in complaints)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("url = 'shop.db'", "It belongs under [database]."),
        ("max_rows = 9", "It belongs under [limits]."),
        ("description = 'x'", "It belongs under [database]."),
        ("[claims]\nx = 'text'", "It belongs under [policy]."),
    ],
)
def test_key_that_a_section_has_is_sent_there(tmp_path: Path, text: str, hint: str) -> None:
    assert f"unknown key. {hint} Keys here: " in (_read(tmp_path, f"{text}\n") or "")


@pytest.mark.parametrize("key", KEYS, ids=".".join)
def test_odd_value_of_each_key_is_read_or_refused_with_file_and_line(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    texts = {value: f"{'.'.join(key)} = {value}\n" for value in (*ODD, "'lots'", "1.5", "10000000000")}
    texts |= {name: f"{'.'.join((*key, name))} = 1\n" for name in NAMES}
    texts |= {f"[[{name}]]": f"[[{'.'.join(key)}]]\n{name} = 1\n" for name in ("x", NAMES[4])}
    database = DATABASE if key[0] != "database" else ""

    complaints = {odd: _read(tmp_path, text + database) for odd, text in texts.items()}
    told = {odd: each for odd, each in complaints.items() if each is not None}
    assert {odd: each for odd, each in told.items() if not PLACE.fullmatch(each)} == {}
    assert {odd: each for odd, each in told.items() if odd not in NAMES and LIBRARY.search(each)} == {}


@pytest.mark.parametrize("text", [*(f"x = {value}" for value in UNREADABLE), "é = 1", "[[é]]"])
def test_text_that_is_no_toml_is_refused_with_file_and_line(tmp_path: Path, text: str) -> None:
    complaint = _read(tmp_path, f"{DATABASE}{text}\n")

    assert complaint is not None
    assert PLACE.fullmatch(complaint)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (f'[auth]\ntokens = [{{ sha256 = "{HASH}", role = "r", nmae = "x" }}]', 4, "auth.tokens.0.nmae:"),
        pytest.param(
            f'[[auth.tokens]]\nsha256 = "{HASH}"\nrole = "r"\n[[auth.tokens]]\nrole = "r"\nnmae = "x"',
            8,
            "auth.tokens.1.nmae: unknown key.",
            id="unknown key of a second token",
        ),
        pytest.param("[auth.jwt]\nissr = 'x'", 4, "Did you mean issuer?", id="unknown key of jwt"),
        (f'{JWT}jwks = "keys\\u0000"', 6, "auth.jwt.jwks: no name, path or SQL"),
        pytest.param(
            f'[auth]\ntokens = [{{ sha256 = "{HASH}", role = "r", claims = {{ a = nan }} }}]',
            4,
            "auth.tokens.0.claims.a: must be a string, true, false or a finite number",
            id="claim that is no number",
        ),
        (f'[server]\nsecret = "{"x" * 31}"', 4, "server.secret: must have at least 32 characters."),
        pytest.param(f"[limits]\n\nmax_rows = {'9' * 5_000}", 5, "too many digits", id="too many digits"),
        pytest.param(f"[limits]\nmax_rows = 0x{'f' * 9_000}", 4, "limits.max_rows:", id="hexadecimal digits"),
        pytest.param(f"[limits]\n#\nmax_rows = {'[' * 5_000}", 5, "too many brackets", id="brackets"),
        pytest.param(f"[limits]\nmax_rows = {'{a=' * 3_000}", 4, "too many brackets", id="braces"),
        pytest.param(f"[{'.'.join('a' * 5_000)}]", 3, "more than 50 levels", id="levels of a header"),
        pytest.param("[queries]\ndirectory = [", 5, "not TOML:", id="end of the text"),
        ("[registry]\nurl = 'mysql://h/d'", 4, "registry.url: Databases with URLs"),
        pytest.param("[limits]\ncalls_per_minute = 9999999999", 4, "limits.calls_per_minute:", id="huge"),
    ],
)
def test_known_faults_are_refused_where_they_are_written(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    complaint = _read(tmp_path, f"{DATABASE}{text}\n")

    told = [each for each in (complaint or "").splitlines() if each.startswith(f"dbtools.toml:{line}: ")]
    assert [says in each for each in told].count(True) == 1


def test_all_mistakes_are_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """[database]
url = "${NOBODY}"
readonly = true
[limit]
max_rows = 1
[limits]
max_rows = "lots"
timeout = 0
[roles.default]
table.tickets = true
tables.notes = { excludes = ["body"], insert = 5, mask = { title = "blur" } }
quries = ["*"]
queries = [true]
[auth.jwt]
issr = "https://id.example.com/"
audience = []
jwks = "keys\\u0000.json"
[tools]
sql = "yes"
"""

    told = [each.split(": ")[:2] for each in (_read(tmp_path, text) or "").splitlines()]
    assert [(int(place.removeprefix("dbtools.toml:")), key) for place, key in told] == [
        (2, "database.url"),
        (3, "database.readonly"),
        (4, "limit"),
        (7, "limits.max_rows"),
        (8, "limits.timeout"),
        (10, "roles.default.table"),
        (11, "roles.default.tables.notes.mask.title"),
        (11, "roles.default.tables.notes.insert"),
        (11, "roles.default.tables.notes.excludes"),
        (12, "roles.default.quries"),
        (13, "roles.default.queries.0"),
        (14, "auth.jwt.issuer"),
        (15, "auth.jwt.issr"),
        (16, "auth.jwt.audience"),
        (17, "auth.jwt.jwks"),
        (19, "tools.sql"),
    ]


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql://h:port/d", "sqlite://", "sqlite:///x%00y", "://"]
)
def test_url_that_names_no_database_is_refused_with_file_and_line(tmp_path: Path, url: str) -> None:
    assert (_read(tmp_path, f'[database]\nurl = "{url}"\n') or "").startswith(
        "dbtools.toml:2: database.url: "
    )


def test_bytes_that_are_no_text_are_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_bytes(DATABASE.encode() + b"[limits]\n# \xff\n")

    with pytest.raises(ConfigurationError, match=r"^dbtools.toml:4: not TOML"):
        load(path)


TEXTS = st.recursive(
    st.sampled_from((*ODD, *UNREADABLE)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(
            lambda items: "{ " + ", ".join(f"{key} = {value}" for key, value in items.items()) + " }"
        ),
    ),
    max_leaves=5,
)
LINES = st.one_of(
    st.tuples(st.sampled_from(PLACES), TEXTS).map(lambda line: f"{'.'.join(line[0])} = {line[1]}"),
    st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), TEXTS).map(
        lambda line: f"{'.'.join(line[0])}.{line[1]} = {line[2]}"
    ),
    st.sampled_from(PLACES).map(lambda key: f"[{'.'.join(key)}]"),
    st.sampled_from(PLACES).map(lambda key: f"[[{'.'.join(key)}]]"),
    st.text(max_size=20),
)


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, max_size=6))
def test_any_file_is_read_or_refused_with_file_and_line(tmp_path: Path, lines: list[str]) -> None:
    text = "\n".join((*lines, DATABASE)).encode("utf-8", "replace").decode()

    complaint = _read(tmp_path, text)
    assert complaint is None or PLACE.fullmatch(complaint)


@pytest.mark.parametrize(
    "inherits",
    [
        pytest.param({f"r{number}": [f"r{number + 1}"] * 2 for number in range(40)}, id="each parent twice"),
        pytest.param({f"r{number}": [f"r{number + 1}"] for number in range(2_000)}, id="long line"),
    ],
)
def test_roles_that_inherit_through_many_are_settled(
    tmp_path: Path, inherits: Mapping[str, list[str]]
) -> None:
    names = dict.fromkeys(each for role, parents in inherits.items() for each in (role, *parents))
    sections = (f"[roles.{name}]\ninherits = {inherits.get(name, [])}\n" for name in names)

    assert _read(tmp_path, DATABASE + "".join(sections)) is None
