"""Configurations with unknown keys, wrong types and odd TOML are read, or rejected with file and line."""

import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from dbtools.backends.sqlite.syntax import lexis
from dbtools.errors import ConfigurationError
from dbtools.settings import Settings, load
from dbtools.settings.roles import roles_of

DATABASE = '[database]\nurl = "shop.db"\n'
HASH = "a" * 64
JWT = '[auth.jwt]\nissuer = "x"\naudience = "https://db.example.com/mcp"\n'
PLACE = re.compile(r"dbtools\.toml:[1-9]\d*: [^\n\x1b]*")

#: Values that few keys or none accept, as TOML.
ODD = (
    *("0", "-1", "true", "nan", "-inf", "1e400", "9" * 30, "9" * 4_300, "0x" + "f" * 5_000),
    *("[]", "[[]]", "[1]", "['x']", "[{}]", "[" * 200 + "]" * 200, "{}", "{ x = 1 }"),
    *("{ a = { a = { a = { a = 1 } } } }", "1979-05-27T07:32:00Z", "07:32:00", "'${NOBODY}'", "'${'"),
    *("''", "' '", "'/'", "'x'", "'x\\u0000'", '"\\u0000"', '"\\u001b[2J\\n"', "'''\nx\n'''"),
    *('"' + "x" * 5_000 + '"', '"' + "../" * 2_000 + '"', "'://'", "'postgresql://h:x/d'", "'1e9h'"),
)
NAMES = ('""', "nope", "x", '"a.b"', '"\\n\\u001b"', '"\\u0000"', '"*"', "a.b.c")
#: What no key makes TOML.
UNREADABLE = ("9" * 5_000, "[" * 5_000, "'x", "=")


def _keys(model: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key of *model*; R is the name of whatever an operator names."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        yield from _below(field.annotation, (*path, name))


def _below(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if hasattr(annotation, "model_fields"):
        yield from _keys(annotation, path)
    elif get_origin(annotation) is dict:
        yield (*path, "R")
        yield from _below(get_args(annotation)[1], (*path, "R"))
    elif get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from _below(each, path)


KEYS = sorted(set(_keys(Settings)))


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
    assert ("roles", "R", "queries", "accept_reads") in KEYS


@pytest.mark.parametrize("key", KEYS, ids=".".join)
def test_odd_value_of_each_key_is_read_or_refused_with_file_and_line(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    texts = {value: f"{'.'.join(key)} = {value}\n" for value in ODD}
    texts |= {name: f"{'.'.join((*key, name))} = 1\n" for name in NAMES}
    texts |= {f"[[{name}]]": f"[[{'.'.join(key)}]]\n{name} = 1\n" for name in ("x", NAMES[4])}
    database = DATABASE if key[0] != "database" else ""

    complaints = {odd: _read(tmp_path, text + database) for odd, text in texts.items()}
    assert {
        odd: told for odd, told in complaints.items() if told is not None and not PLACE.fullmatch(told)
    } == {}


@pytest.mark.parametrize("text", [*(f"x = {value}" for value in UNREADABLE), "é = 1", "[[é]]"])
def test_text_that_is_no_toml_is_refused_with_file_and_line(tmp_path: Path, text: str) -> None:
    complaint = _read(tmp_path, f"{DATABASE}{text}\n")

    assert complaint is not None
    assert PLACE.fullmatch(complaint)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param(
            f'[auth]\ntokens = [{{ sha256 = "{HASH}", role = "r", nmae = "x" }}]',
            4,
            "auth.tokens.0.nmae: unknown key. Did you mean name? Keys here: sha256, role, ",
            id="unknown key of a token",
        ),
        pytest.param(
            f'[[auth.tokens]]\nsha256 = "{HASH}"\nrole = "r"\n[[auth.tokens]]\nrole = "r"\nnmae = "x"',
            8,
            "auth.tokens.1.nmae: unknown key.",
            id="unknown key of a second token",
        ),
        pytest.param("[auth.jwt]\nissr = 'x'", 4, "Did you mean issuer?", id="unknown key of jwt"),
        pytest.param(
            f'{JWT}jwks = "keys\\u0000"', 6, "auth.jwt.jwks: no name, path or SQL", id="path that is none"
        ),
        pytest.param(
            f'[auth]\ntokens = [{{ sha256 = "{HASH}", role = "r", claims = {{ a = nan }} }}]',
            4,
            "auth.tokens.0.claims.a: must be a string, true, false or a finite number",
            id="claim that is no number",
        ),
        pytest.param(
            f'[server]\nsecret = "{"x" * 31}"',
            4,
            "server.secret: must have at least 32 characters.",
            id="short secret",
        ),
        pytest.param(f"[limits]\n\nmax_rows = {'9' * 5_000}", 1, "too many digits", id="too many digits"),
        pytest.param(f"[limits]\nmax_rows = 0x{'f' * 9_000}", 4, "limits.max_rows:", id="hexadecimal digits"),
        pytest.param(f"[limits]\n#\nmax_rows = {'[' * 5_000}", 1, "too many brackets", id="brackets"),
        pytest.param(f"[limits]\nmax_rows = {'{a=' * 3_000}", 1, "too many brackets", id="braces"),
        pytest.param(f"[{'.'.join('a' * 5_000)}]", 3, "more than 50 levels", id="levels of a header"),
        pytest.param("[queries]\ndirectory = [", 5, "not TOML:", id="end of the text"),
        pytest.param(
            "[registry]\nurl = 'mysql://h/d'", 4, "registry.url: Databases with URLs", id="registry"
        ),
        pytest.param("[limits]\ncalls_per_minute = 9999999999", 4, "limits.calls_per_minute:", id="huge"),
    ],
)
def test_known_faults_are_refused_where_they_are_written(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    complaint = _read(tmp_path, f"{DATABASE}{text}\n")

    assert (complaint or "").startswith(f"dbtools.toml:{line}: ")
    assert says in (complaint or "")


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
    st.tuples(st.sampled_from(KEYS), TEXTS).map(lambda line: f"{'.'.join(line[0])} = {line[1]}"),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(NAMES), TEXTS).map(
        lambda line: f"{'.'.join(line[0])}.{line[1]} = {line[2]}"
    ),
    st.sampled_from(KEYS).map(lambda key: f"[{'.'.join(key)}]"),
    st.sampled_from(KEYS).map(lambda key: f"[[{'.'.join(key)}]]"),
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
