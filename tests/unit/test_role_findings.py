"""Mistakes in roles are reported with file and line, and withhold the tables that they concern."""

from dataclasses import replace

import pytest

from dbtools.configured.rules import with_valid_rules
from dbtools.findings import Kind, Source, finding
from dbtools.policy.roles import restrict
from dbtools.schema.catalog import Catalog, Table
from tests.unit.configured_roles import Roles, at, roles as roles
from tests.unit.shop import ID, PRODUCT, SALE, column, table

SHOP = Catalog(
    tables=(
        PRODUCT,
        SALE,
        table(ID, name="orders", schema="main"),
        table(ID, column("margin"), name="orders", schema="old"),
    ),
    default_schema="",
)


@pytest.mark.parametrize(
    ("grant", "code", "line", "says"),
    [
        ("tables.produkt = true", "unknown_table", 4, ["tables.produkt:", "product?"]),
        pytest.param("tables.Product = true", "unknown_table", 4, ["product?"], id="case of a table"),
        pytest.param("\ntables.'x_*' = true", "unknown_table", 5, ["tables.x_*:"], id="idle pattern"),
        pytest.param("tables.produkt = false", "unknown_table", 4, ["product?"], id="table to be hidden"),
        pytest.param(
            "tables.product = { columns = ['id', 'nam'] }",
            "unknown_column",
            4,
            ["product has no column 'nam'", "Did you mean name?"],
            id="column",
        ),
        pytest.param(
            "[roles.r.tables.sale]\n\nexclude = ['margin']",
            "unknown_column",
            4,
            ["sale has no column 'margin'", "day, total"],
            id="excluded column",
        ),
        pytest.param(
            "tables.sale = { mask = { Total = 'null' } }",
            "unknown_column",
            4,
            ["'Total'", "Did you mean total?"],
            id="masked column",
        ),
        ("tables.orders = true", "ambiguous_table", 4, ["main.orders, old.orders"]),
        pytest.param(
            "tables.'*.orders' = { exclude = ['margn'] }",
            "unknown_column",
            4,
            ["no table there has a column 'margn'", "Did you mean margin?"],
            id="column that no table of a pattern has",
        ),
    ],
)
def test_name_that_the_database_lacks_is_found_with_file_and_line(
    roles: Roles, grant: str, code: str, line: int, says: list[str]
) -> None:
    role = roles(f"[roles.r]\n{grant}\n")["r"]
    checked, (finding,) = with_valid_rules(SHOP, role)

    assert (finding.code, finding.level, finding.source) == (code, "error", at(line))
    assert str(finding).startswith(f"dbtools.toml:{line}: error: role r, tables.")
    assert [part for part in says if part not in finding.message] == []
    assert checked == replace(role, rules=tuple(replace(rule, grant=None) for rule in role.rules or ()))


@pytest.mark.parametrize(
    ("grant", "seen"),
    [
        ("false", (SALE,)),
        ("{ exclude = ['size'] }", (SALE,)),
        ("{ columns = ['id'] }", (SALE,)),
        ("{ where = '1 = 0' }", (SALE,)),
        ("{ mask = { size = 'null' } }", (SALE,)),
        ("{ aggregate = false }", (SALE,)),
        ("true", SHOP.tables),
    ],
)
def test_rule_that_narrows_an_unknown_table_withholds_what_patterns_grant(
    grant: str, seen: tuple[Table, ...], roles: Roles
) -> None:
    role = roles(f"[roles.r]\ntables.'*' = true\ntables.produkt = {grant}\ntables.sale = true\n")["r"]

    served, _ = with_valid_rules(SHOP, role)

    assert restrict(SHOP, served).tables == seen


def test_column_of_a_pattern_is_meant_in_any_case(roles: Roles) -> None:
    catalog = Catalog(tables=(table(ID, column("ssn"), name="a"), table(ID, column("SSN"), name="b")))

    served, findings = with_valid_rules(
        catalog, roles("[roles.r]\ntables.'*' = { exclude = ['ssn'] }\n")["r"]
    )

    assert ["'SSN' in b" in each.message for each in findings] == [True]
    assert restrict(catalog, served).tables == ()


def test_what_is_right_is_kept_beside_what_is_wrong(roles: Roles) -> None:
    role = roles("[roles.r]\ntables.sale = true\ntables.product = { exclude = ['cost', 'margin'] }\n")["r"]
    checked, findings = with_valid_rules(SHOP, role)

    assert [finding.code for finding in findings] == ["unknown_column", "unknown_column"]
    assert role.rules is not None
    assert checked.rules == (role.rules[0], replace(role.rules[1], grant=None))


@pytest.mark.parametrize(
    "text",
    ["tables.'*' = true", "tables.'*' = false", "tables.'old.orders' = true", "tables.'*.orders' = true"],
)
def test_role_without_a_mistake_stays_as_it_is(roles: Roles, text: str) -> None:
    role = roles(f"[roles.r]\n{text}\n")["r"]

    assert with_valid_rules(SHOP, role) == (role, ())


def test_star_means_no_table_of_an_empty_database_without_complaint(roles: Roles) -> None:
    role = roles("[roles.r]\ntables.'*' = true\n")["r"]

    assert with_valid_rules(Catalog(), role) == (role, ())


TWO_SCHEMAS = Catalog(
    tables=(
        table(ID, name="orders", schema="main"),
        table(ID, name="hr.orders", schema="main"),
        table(ID, name="orders", schema="hr"),
    ),
    default_schema="main",
)


@pytest.mark.parametrize(
    ("name", "unique"),
    [
        pytest.param("orders", 'main.orders, hr."orders"', id="bare name"),
        pytest.param("hr.orders", 'main.hr.orders, hr."orders"', id="qualified name"),
    ],
)
@pytest.mark.parametrize("grant", ["true", "false", "{ exclude = ['id'] }", "{ where = 'id > 1' }"])
def test_name_of_more_than_one_table_withholds_them_all(
    name: str, unique: str, grant: str, roles: Roles
) -> None:
    role = roles(f"[roles.r]\ntables.'*' = true\ntables.'{name}' = {grant}\n")["r"]

    served, findings = with_valid_rules(TWO_SCHEMAS, role)

    named = [each for each in TWO_SCHEMAS.tables if name in TWO_SCHEMAS.names_of(each)]
    assert [(each.code, each.level, each.source.line) for each in findings] == [
        ("ambiguous_table", "error", 5)
    ]
    assert unique in findings[0].message
    assert len(named) == 2
    assert not {each.schema + each.name for each in named} & {
        each.schema + each.name for each in restrict(TWO_SCHEMAS, served).tables
    }


@pytest.mark.parametrize("name", ["main.orders", "main.hr.orders", 'hr."orders"'])
def test_unique_name_refers_to_one_table(name: str, roles: Roles) -> None:
    role = roles(f"[roles.r]\ntables.'{name}' = true\n")["r"]

    assert with_valid_rules(TWO_SCHEMAS, role) == (role, ())
    assert len(restrict(TWO_SCHEMAS, role).tables) == 1


@pytest.mark.parametrize(("first", "second"), [("true", "false"), ("false", "true"), ("true", "true")])
def test_two_names_for_one_table_withhold_it(first: str, second: str, roles: Roles) -> None:
    catalog = Catalog(tables=(table(ID, name="customer", schema="sales"),), default_schema="main")
    text = f"[roles.r]\ntables.'*' = true\ntables.customer = {first}\ntables.'sales.customer' = {second}\n"

    served, findings = with_valid_rules(catalog, roles(text)["r"])

    assert [(each.code, each.source.line) for each in findings] == [
        ("ambiguous_table", 5),
        ("ambiguous_table", 6),
    ]
    assert restrict(catalog, served).tables == ()


@pytest.mark.parametrize("narrow", ["false", "{ where = 'id > 1' }", "{ exclude = ['id'] }"])
def test_denial_that_a_longer_pattern_overrides_is_reported(narrow: str, roles: Roles) -> None:
    catalog = Catalog(tables=(table(ID, name="hr_pay"), table(ID, name="orders")))
    text = f"[roles.r]\ntables.'*' = false\ntables.'hr_*' = {narrow}\ntables.'*r_pay' = true\n"

    _, findings = with_valid_rules(catalog, roles(text)["r"])

    assert [(each.code, each.level, each.source.line) for each in findings] == [("overridden", "warning", 5)]


@pytest.mark.parametrize(("default", "told"), [("false", []), ("{ where = 'id > 1' }", ["overridden"])])
def test_filter_of_all_that_a_longer_pattern_overrides_is_reported(
    default: str, told: list[str], roles: Roles
) -> None:
    catalog = Catalog(tables=(table(ID, name="hr_pay"), table(ID, name="orders")))
    text = f"[roles.r]\ntables.'*' = {default}\ntables.'hr_*' = true\n"

    _, findings = with_valid_rules(catalog, roles(text)["r"])

    assert [each.code for each in findings] == told


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("tables.'a[1]' = true", [], id="name of two tables"),
        pytest.param("tables.'main.a[1]' = true", ["main.a[1]", "main.a1"], id="name and pattern"),
        pytest.param("tables.'*' = true\ntables.'hr.a[1]' = false", ["main.a[1]", "main.a1"], id="denial"),
        pytest.param("tables.'a[1]' = true\ntables.'main.a[1]' = false", [], id="two names"),
        pytest.param("tables.'*' = true\ntables.'a[1x]' = false", ["main.a[1]", "hr.a[1]"], id="pattern"),
    ],
)
def test_pattern_that_is_the_name_of_a_table_means_both(text: str, seen: list[str], roles: Roles) -> None:
    """A new table with this name changes nothing for the others."""
    places = (("main", "a[1]"), ("hr", "a[1]"), ("main", "a1"))
    catalog = Catalog(
        tables=tuple(table(ID, name=name, schema=schema) for schema, name in places), default_schema="main"
    )

    served, _ = with_valid_rules(catalog, roles(f"[roles.r]\n{text}\n")["r"])

    assert [catalog.full_name(each) for each in restrict(catalog, served).tables] == seen


def test_denial_that_a_name_overrides_is_meant(roles: Roles) -> None:
    catalog = Catalog(tables=(table(ID, name="hr_pay"), table(ID, name="hr_staff")))
    role = roles("[roles.r]\ntables.'hr_*' = false\ntables.hr_pay = true\n")["r"]

    assert with_valid_rules(catalog, role) == (role, ())


def test_finding_without_a_file_is_its_message() -> None:
    assert str(finding(Kind.CATALOG_WARNING, problem="so it is")) == "warning: so it is"
    assert str(finding(Kind.BAD_LOG, Source(file="f.toml"), problem="so it is")) == (
        "f.toml:1: error: so it is"
    )


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ('settings = { "app.x" = ":claim.region" }', "written :claims.name"),
        ('settings = { "app.x" = "region :claims.region" }', "the whole value"),
        ('settings = { search_path = ":claims.region" }', "a dot in its name"),
        ('settings = { Role = "admin" }', "write set_role"),
    ],
)
def test_setting_that_cannot_be_meant_withholds_all(roles: Roles, section: str, says: str) -> None:
    (role,) = roles(f'[roles.r]\n{section}\ntables."*" = true').values()

    assert role.rules == ()
    assert says in str(role.problems[0])
    assert role.problems[0].source == at(4)


def test_limit_above_the_common_one_is_reported(roles: Roles) -> None:
    (role,) = roles("[limits]\nmax_rows = 5\n[roles.r]\n[roles.r.limits]\nmax_rows = 50").values()

    assert role.limits.max_rows == 5
    assert [(each.code, each.level, each.source) for each in role.problems] == [
        ("higher_limit", "warning", at(7))
    ]
