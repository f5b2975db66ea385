"""The configuration: what a file may contain, and errors that name the file and the key."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dbtools.answers.styles import Listing, Surface, Text
from dbtools.backends.sqlite.schema.relations import are_alike
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.claims import typed_claims
from dbtools.configured.declarations import with_declarations
from dbtools.configured.query_sources import query_files
from dbtools.configured.roles import roles_of
from dbtools.errors import ConfigurationError
from dbtools.policy.roles import Limits, Role
from dbtools.schema.catalog import Catalog, Selection
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings, TableSection, ToolsSection, load, settings_of
from tests.unit.shop import ID, PRODUCT, SALE, table

GOOD = """
[database]
url = "shop.db"
schemas = ["main"]
include = ["*"]
exclude = ["log_*"]
description = "The shop of ${OWNER}"

[tables.product]
description = "What we sell"
[tables.product.columns]
name = "in German"

[limits]
max_rows = 20
max_tokens = 5000
max_cell = 100
timeout = "2.5s"

[tools]
style = "typed"
budget = 500
pin = ["product"]

[results]
text = "csv"
"""


@pytest.fixture(autouse=True)
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the environment holds, and what it does not."""
    monkeypatch.setenv("OWNER", "Ada")
    monkeypatch.delenv("NOBODY", raising=False)


def _written(folder: Path, text: str) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_good_file_is_read_whole(tmp_path: Path) -> None:
    settings = load(_written(tmp_path, GOOD))

    assert settings.database.url.endswith(f":///{tmp_path / 'shop.db'}")
    assert settings.database.description == "The shop of Ada"
    assert settings.tables == {
        "product": TableSection(description="What we sell", columns={"name": "in German"})
    }
    assert roles_of(settings, lexis) == (
        Role(limits=Limits(max_rows=20, max_tokens=5_000, max_cell=100, timeout=2.5), sql=True),
    )
    assert settings.selection() == Selection(schemas=("main",), include=("*",), exclude=("log_*",))
    assert settings.results.text is Text.CSV
    assert settings.listing() == Listing(surface=Surface.TYPED, budget=500, pin=("product",))
    assert (settings.tools.style, settings.tools.budget) == ("typed", 500)


def test_everything_but_the_database_has_a_default(tmp_path: Path) -> None:
    settings = load(_written(tmp_path, '[database]\nurl = "shop.db"\n'))

    assert roles_of(settings, lexis) == (Role(sql=True),)
    assert settings.selection() == Selection()
    assert settings.results.text is Text.JSON
    assert settings.listing() == Listing(surface=Surface.AUTO, budget=10_000, pin=())
    assert settings.tables == {}


def test_schema_of_the_file_accepts_it() -> None:
    schema = Settings.model_json_schema()
    Draft202012Validator.check_schema(schema)

    Draft202012Validator(schema).validate(tomllib.loads(GOOD))
    assert not Draft202012Validator(schema).is_valid({"limit": {}})
    assert not Draft202012Validator(schema).is_valid({"limits": {"max_rows": "many"}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[limit]\nmax_rows = 1", ["limit:", "Did you mean limits?"], id="unknown section"),
        ("[limits]\nmax_row = 1", ["limits.max_row:", "Did you mean max_rows?"]),
        ("[tables.product]\ndescripton = 'x'", ["tables.product.descripton:", "Did you mean description?"]),
        ("[limits]\nmax_rows = 'many'", ["limits.max_rows: must be an integer."]),
        pytest.param("[limits]\nmax_rows = 1.5", ["limits.max_rows:"], id="float for an integer"),
        pytest.param("[limits]\nmax_rows = true", ["limits.max_rows:"], id="boolean for an integer"),
        pytest.param("[limits]\nmax_rows = 0", ["limits.max_rows:"], id="too small"),
        pytest.param("[limits]\nmax_rows = 10001", ["limits.max_rows:"], id="too large"),
        pytest.param("[limits]\nmax_tokens = 499", ["limits.max_tokens:"], id="too few tokens"),
        pytest.param("[limits]\nmax_cell = -1", ["limits.max_cell:"], id="negative"),
        pytest.param("limits = 5", ["limits: must be { … }, not 5."], id="number for a section"),
        pytest.param("[auth]\ntokens = 'x'", ["auth.tokens: must be an array."], id="text for tokens"),
        pytest.param("[limits]\ntimeout = 'soon'", ["limits.timeout:", "10s"], id="duration in words"),
        pytest.param("[limits]\ntimeout = '10 d'", ["limits.timeout:", "10s"], id="unknown unit"),
        pytest.param("[limits]\ntimeout = '-1s'", ["limits.timeout:"], id="negative duration"),
        pytest.param("[limits]\ntimeout = 0", ["limits.timeout:"], id="no time"),
        pytest.param("[limits]\ntimeout = '61m'", ["limits.timeout:"], id="more than an hour"),
        pytest.param("[limits]\ntimeout = true", ["limits.timeout:"], id="boolean for a duration"),
        pytest.param("[limits]\ntimeout = nan", ["limits.timeout:"], id="nan for a duration"),
        pytest.param("[results]\ntext = 'xml'", ["results.text:"], id="unknown choice"),
        pytest.param("[tools]\nstyle = 'loud'", ["tools.style:"], id="unknown style"),
        pytest.param("[tools]\nstyle = 5", ["tools.style:"], id="number for a style"),
        ("[tools]\nsql = 'yes'", ['tools.sql: must be "auto", true or false.']),
        pytest.param("[tools]\nbudget = -1", ["tools.budget:"], id="negative budget"),
        pytest.param("[tools]\nbudget = true", ["tools.budget:"], id="boolean for a budget"),
        pytest.param("[tools]\nbudget = 'all'", ["tools.budget:"], id="text for a budget"),
        pytest.param("[tools]\npin = 'product'", ["tools.pin:"], id="text for a list of tables"),
        pytest.param("[tools]\npin = [1]", ["tools.pin.0:"], id="number for a table"),
        pytest.param("[tools]\npins = []", ["tools.pins:", "Did you mean pin?"], id="unknown key of tools"),
        pytest.param("[database]\nurl = 5", ["database.url:"], id="number for a text"),
        pytest.param("[database]\nschemas = 'main'", ["database.schemas:"], id="text for a list"),
        pytest.param("[database]\ninclude = [1]", ["database.include.0:"], id="number in a list"),
        pytest.param("[tables]\nproduct = 'x'", ["tables.product:"], id="text for a table"),
        pytest.param("[database]\nurl = '${NOBODY}'", ["database.url:", "'NOBODY'"], id="unset variable"),
        ("[database]\nexclude = ['a', 'x${NOBODY}']", ["database.exclude.1:", "'NOBODY'"]),
        ("[tables.a]\ndescription = '${}'", ["tables.a.description:", "''"]),
        pytest.param("[database]\nurl =\n", ["dbtools.toml:2: not TOML:"], id="no TOML"),
        ("[database]\nurl = t.db", ["dbtools.toml:2: not TOML:", "text in double quotes"]),
        pytest.param("[server]\nstrict = True", ["dbtools.toml:2:", "in lower case"], id="true of Python"),
        pytest.param("a = 1\na = 2\n", ["dbtools.toml:2: not TOML:"], id="key written twice"),
        pytest.param("[limits]", ["database", "url"], id="no database"),
        pytest.param(
            "[roles.a]\nqueries = ['gg', {name='g', accept_writes=true}]",
            ["dbtools.toml:2: roles.a.queries.1: must be a string.", "The name of a query grants it"],
            id="former key of a grant of queries",
        ),
        pytest.param(
            "[roles.a]\ntables.v = {accept_reads=true}",
            ["roles.a.tables.v.accept_reads: is no key any more.", "A rule that names a view grants it"],
            id="former key of a view",
        ),
        pytest.param(
            "[results]\nrows = 'objects'",
            ["results.rows: is no key any more.", "Rows are arrays, with one list of column names."],
            id="former key of results",
        ),
        pytest.param("[limits]\nrows = 5", ["limits.rows: unknown key.", "max_rows"], id="another key"),
        pytest.param(
            "[roles.a]\nqueries = [5]",
            ["roles.a.queries.0: must be a string, not 5."],
            id="number for a query",
        ),
        pytest.param(
            "[roles.a]\ntables.sales.orders = true",
            ["roles.a.tables.sales.orders: unknown key.", 'in quotes: tables."sales.orders". Keys'],
            id="schema without quotes in a grant",
        ),
        pytest.param(
            "[roles.a.tables.sales.orders]\nexclude = ['x']",
            ["roles.a.tables.sales.orders: unknown key.", 'in quotes: tables."sales.orders". Keys'],
            id="schema without quotes in the heading of a grant",
        ),
        pytest.param(
            "[tables.sales.orders]\ndescription = 'x'",
            ["tables.sales.orders: unknown key.", 'in quotes: tables."sales.orders". Keys'],
            id="schema without quotes in the heading of a table",
        ),
    ],
)
def test_complaint_names_the_file_and_the_key(tmp_path: Path, text: str, says: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(_written(tmp_path, text))

    assert raised.value.code == "configuration"
    assert [said for said in ("dbtools.toml:", *says) if said not in str(raised.value)] == []


def test_secret_of_the_environment_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")

    with pytest.raises(ConfigurationError) as raised:
        load(_written(tmp_path, "[limits]\nmax_rows = '${SECRET}'"))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["missing.toml", "folder.toml"])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.toml").mkdir()

    with pytest.raises(ConfigurationError) as raised:
        settings_of(str(tmp_path / name))
    assert name in raised.value.message


@pytest.mark.parametrize(
    ("written", "seconds"),
    [('"10s"', 10), ('"500ms"', 0.5), ('"2m"', 120), ('"1.5 s"', 1.5), ('"3"', 3), ("4", 4)],
)
def test_duration_is_read_as_seconds(tmp_path: Path, written: str, seconds: float) -> None:
    path = _written(tmp_path, f'[database]\nurl = "shop.db"\n[limits]\ntimeout = {written}')

    assert load(path).limits.timeout == seconds


def test_relative_paths_begin_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    _written(folder, '[database]\nurl = "data/shop.db"')
    monkeypatch.chdir(tmp_path)

    assert settings_of("etc/dbtools.toml").database.url.endswith(f"{folder / 'data/shop.db'}")


def test_files_of_queries_end_in_sql_in_any_case(tmp_path: Path) -> None:
    for name in ("b.SQL", "a.sql", "below/c.Sql", "d.sql.bak", "sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert query_files(tmp_path) == [tmp_path / name for name in ("a.sql", "b.SQL", "below/c.Sql")]


def test_target_is_a_file_a_url_or_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.db").touch()
    _written(tmp_path, '[database]\nurl = "shop.db"')
    monkeypatch.chdir(tmp_path)
    url = settings_of("dbtools.toml").database.url

    assert url.endswith(str(tmp_path / "shop.db"))
    assert settings_of("shop.db").database.url == "sqlite:///shop.db"
    assert settings_of(None).database.url == url
    assert settings_of(url).database.url == url


@pytest.mark.parametrize("target", [None, "missing.db"])
def test_target_that_is_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as raised:
        settings_of(target)

    assert raised.value.hint


TWO_TABLES = "create table product (id integer); create table sale (id integer);"


@pytest.mark.parametrize(
    ("pin", "says"),
    [("products", ["[tools] pin", "'products'", "Did you mean product?"]), ("", ["[tools] pin", "''"])],
)
async def test_unknown_pinned_table_is_reported(
    sqlite_database: Callable[[str], Path], pin: str, says: list[str]
) -> None:
    settings = settings_of(str(sqlite_database(TWO_TABLES)))
    toolbox, database = open_toolbox(settings.model_copy(update={"tools": ToolsSection(pin=(pin,))}))

    view = await toolbox.view("default")
    await database.close()
    assert [said for said in says if said not in " ".join(map(str, view.problems))] == []
    assert "list_product" in view.tools


SHOP = Catalog(tables=(PRODUCT, SALE))


def test_descriptions_replace_comments() -> None:
    sections = {
        "Product": TableSection(description="What we sell", columns={"name": "in German", "id": ""}),
        "sale": TableSection(columns={"day": "of the sale"}),
    }

    catalog, _ = with_declarations(SHOP, Settings(tables=sections), are_alike)
    product, sale = catalog.tables
    comments = {column.name: column.comment for column in product.columns}
    priced = Settings(tables={"product": TableSection(columns={"price": "in euros"})})
    kept, _ = with_declarations(SHOP, priced, are_alike)[0].tables

    assert (product.comment, sale.comment) == ("What we sell", "")
    assert (comments["name"], comments["id"], comments["price"]) == ("in German", "", "")
    assert [column.comment for column in sale.columns] == ["of the sale", ""]
    assert product.keys == PRODUCT.keys
    assert (kept.comment, kept.columns[1].comment) == (PRODUCT.comment, PRODUCT.columns[1].comment)
    assert kept.column_by_name["price"].comment == "in euros"
    assert with_declarations(SHOP, Settings(), are_alike) == (SHOP, ())


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"products": TableSection()}, ["'products'", "Did you mean product?"]),
        ({"product": TableSection(columns={"nam": "x"})}, ["product", "'nam'", "Did you mean name?"]),
        ({"twin": TableSection()}, ["'twin'", "x.twin", "y.twin"]),
    ],
)
def test_description_of_an_unknown_name_is_reported(
    sections: dict[str, TableSection], says: list[str]
) -> None:
    twins = [table(ID, schema=schema, name="twin") for schema in ("x", "y")]
    catalog, settings = Catalog(tables=(*SHOP.tables, *twins)), Settings(tables=sections)

    served, (finding,) = with_declarations(catalog, settings, are_alike)

    assert served == catalog
    assert [said for said in says if said not in str(finding)] == []


@pytest.mark.parametrize(
    ("declared", "given", "typed"),
    [
        pytest.param("boolean", "true", {"x": True}, id="true as a text"),
        pytest.param("boolean", "false", {"x": False}, id="false as a text"),
        pytest.param("boolean", True, {"x": True}, id="true"),
        pytest.param("boolean", "maybe", {}, id="no boolean"),
        pytest.param("integer", "42", {"x": "42"}, id="number as a text"),
        pytest.param("integer", 42, {"x": 42}, id="number"),
        pytest.param("integer", "42x", {}, id="no number"),
        pytest.param("integer", True, {}, id="a boolean is no number"),
        pytest.param("text", "a", {"x": "a"}, id="text"),
        pytest.param("text", ["a"], {}, id="a list is no text"),
        pytest.param("text", {"a": 1}, {}, id="an object is no text"),
        pytest.param("text", None, {}, id="nothing"),
    ],
)
def test_claim_is_a_value_of_its_type_or_missing(declared: str, given: object, typed: object) -> None:
    settings = Settings.model_validate({"policy": {"claims": {"x": declared}}})

    assert typed_claims(settings, {"x": given}) == typed


def test_claim_without_a_type_stays_as_it_is_where_it_is_one_value() -> None:
    claims = {"text": "a", "number": 1, "truth": False, "array": ["a"], "none": [], "object": {"a": 1}}

    assert typed_claims(Settings(), claims) == {"text": "a", "number": 1, "truth": False}
