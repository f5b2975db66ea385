"""Roles of a configuration: their rules, parents and limits, and which are rejected, by file and key."""

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.roles import roles_of
from dbtools.configured.rules import with_valid_rules
from dbtools.errors import ConfigurationError
from dbtools.policy.roles import Grant, Limits, Role, Rule
from dbtools.schema.catalog import Catalog, RowFilter
from dbtools.schema.sql import Fragment, Parameter
from dbtools.settings import LimitsSection, Settings, load
from dbtools.settings.sections import RoleLimitsSection, RoleSection
from dbtools.values.types import Mask
from tests.unit.configured_roles import HEAD, Roles, at, roles as roles
from tests.unit.shop import SALE


def test_role_is_read_whole(roles: Roles) -> None:
    found = roles(
        """\
[roles.support]
tables."*" = false
tables.sale = true
tables.product = { columns = ["id", "name", "color"], exclude = ["color"], mask = { name = "partial" } }
tables.orders = { where = "region = :claims.region", aggregate = false }
[roles.support.limits]
max_rows = 5
timeout = "2s"
"""
    )

    condition = Fragment(pieces=("region = ", Parameter("claims.region")))
    assert found == {
        "support": Role(
            name="support",
            limits=Limits(max_rows=5, timeout=2.0),
            queries=(),
            source=at(3),
            rules=(
                Rule(pattern="*", grant=None, source=at(4)),
                Rule(pattern="sale", grant=Grant(), source=at(5)),
                Rule(
                    pattern="product",
                    grant=Grant(
                        columns=("id", "name", "color"), exclude=("color",), masks={"name": Mask.PARTIAL}
                    ),
                    source=at(6),
                ),
                Rule(
                    pattern="orders",
                    grant=Grant(filter=RowFilter(condition=condition), aggregate=False),
                    source=at(7),
                ),
            ),
        )
    }


@pytest.mark.parametrize("text", ["[roles.default]\n", "[roles.default]\ntables = {}\n"])
def test_role_without_tables_sees_nothing(roles: Roles, text: str) -> None:
    assert roles(text)["default"].rules == ()


def test_roles_without_default_have_none(roles: Roles) -> None:
    assert list(roles("[roles.b]\n[roles.a]\n")) == ["b", "a"]


def _patterns(role: Role) -> list[str]:
    return [rule.pattern for rule in role.rules or ()]


def test_own_rules_come_before_inherited_ones_and_limits_are_not_inherited(roles: Roles) -> None:
    found = roles(
        "[roles.child]\ninherits = ['b', 'a']\ntables.own = true\n"
        "[roles.a]\ntables.of_a = true\nlimits.max_rows = 1\n"
        "[roles.b]\ninherits = ['c']\ntables.of_b = true\n"
        "[roles.c]\ntables.of_c = true\n"
    )

    assert _patterns(found["child"]) == ["own", "of_b", "of_c", "of_a"]
    assert _patterns(found["b"]) == ["of_b", "of_c"]
    assert _patterns(found["a"]) == ["of_a"]
    assert found["child"].source == at(3)
    assert [rule.source for rule in found["child"].rules or ()] == [at(5), at(11), at(13), at(7)]
    assert (found["child"].limits.max_rows, found["a"].limits.max_rows) == (200, 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[roles.child]\ninherits = ['a', 'a']\n", id="named twice"),
        "[roles.child]\ninherits = ['b', 'c']\n[roles.b]\ninherits = ['a']\n[roles.c]\ninherits = ['a']\n",
    ],
)
def test_what_is_inherited_twice_counts_and_is_complained_of_once(roles: Roles, text: str) -> None:
    child = roles(f"{text}[roles.a]\ntables.sale = true\ntables.salez = true\n")["child"]
    _, findings = with_valid_rules(Catalog(tables=(SALE,)), child)

    assert _patterns(child) == ["sale", "salez"]
    assert [finding.code for finding in findings] == ["unknown_table"]


NUMBER = st.integers(min_value=500, max_value=10_000)
NUMBERS = st.none() | NUMBER
LIMITS = st.builds(
    RoleLimitsSection,
    max_rows=NUMBERS,
    max_tokens=NUMBERS,
    max_cell=NUMBERS,
    timeout=st.none() | st.floats(min_value=0.1, max_value=3_600),
)


@given(
    wanted=LIMITS,
    most=st.builds(
        LimitsSection,
        max_rows=NUMBER,
        max_tokens=NUMBER,
        max_cell=NUMBER,
        timeout=st.floats(min_value=0.1, max_value=3_600),
    ),
)
def test_limits_of_a_role_are_its_own_and_never_higher_than_those_of_all(
    wanted: RoleLimitsSection, most: LimitsSection
) -> None:
    (role,) = roles_of(Settings(limits=most, roles={"support": RoleSection(limits=wanted)}), lexis)

    for name, highest in most.model_dump(exclude_none=True, exclude={"storage"}).items():
        own = getattr(wanted, name)
        assert getattr(role.limits, name) == (highest if own is None else min(own, highest))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[roles.r]\ntable.x = true", ["roles.r.table:", "tables"], id="unknown key of a role"),
        pytest.param("[policy]\nhashkey = 'x'", ["policy.hashkey:", "hash_key"], id="unknown key of policy"),
        pytest.param(
            "[roles.r]\ntables.x = 'all'",
            ["roles.r.tables.x: must be true, false or { … }."],
            id="text for a grant",
        ),
        pytest.param("[roles.r]\ntables = true", ["roles.r.tables:"], id="boolean for tables"),
        pytest.param("[roles]\nr = true", ["roles.r:", "must be { … }"], id="boolean for a role"),
        pytest.param(
            "[roles.r]\ntables.x = { columns = 'id' }",
            ["roles.r.tables.x.columns:", "must be an array"],
            id="text for columns",
        ),
        pytest.param(
            "[roles.r]\ntables.x = { mask = { a = 'blur' } }",
            ["roles.r.tables.x.mask.a:", "partial"],
            id="unknown mask",
        ),
        pytest.param(
            "[roles.r]\ntables.x = { aggregate = 'maybe' }",
            ["roles.r.tables.x.aggregate:"],
            id="text for aggregate",
        ),
        pytest.param("[roles.r]\ninherits = 'a'", ["roles.r.inherits:"], id="text for inherits"),
        pytest.param(
            "[roles.r]\ninherits = ['reader']\n[roles.readers]",
            ["role r, inherits:", "'reader'", "Did you mean readers?"],
            id="unknown parent",
        ),
        ("[roles.r]\ninherits = ['r']", ["role r, inherits:", "'r' inherits from itself."]),
        pytest.param(
            "[roles.a]\ninherits = ['b']\n[roles.b]\ninherits = ['c']\n[roles.c]\ninherits = ['a']",
            ["role c, inherits:", "'a' inherits from itself."],
            id="parents in a circle",
        ),
        pytest.param(
            "[roles.r]\ninherits = ['a']\n[roles.a]\ninherits = ['b']\n[roles.b]\ninherits = ['a']",
            ["role b, inherits:", "'a' inherits from itself."],
            id="circle above",
        ),
        pytest.param(
            "[roles.r]\ntables.x = { mask = { a = 'hash' } }",
            ["role r, tables.x.mask:", "[policy] hash_key"],
            id="hash without a key",
        ),
        pytest.param(
            "[policy]\nhash_key = '${EMPTY}'\n[roles.r]\ntables.x = { mask = { a = 'hash' } }",
            ["role r, tables.x.mask:", "[policy] hash_key"],
            id="hash with an empty key",
        ),
        ("[policy]\nhash_key = '${DBTOOLS_TEST_UNSET}'", ["policy.hash_key:"]),
    ],
)
def test_wrong_role_is_refused_by_file_and_key(
    roles: Roles, monkeypatch: pytest.MonkeyPatch, text: str, says: list[str]
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("DBTOOLS_TEST_UNSET", raising=False)
    complaint = _complaint_of(roles, text)

    assert re.match(r"dbtools.toml:\d+: ", complaint)
    assert [part for part in says if part not in complaint] == []


def _complaint_of(roles: Roles, text: str) -> str:
    """Return what is said of *text*: when it is read, or of a role in it, which then has nothing of it."""
    try:
        found = roles(text)
    except ConfigurationError as exc:
        return str(exc)
    withheld = [role for role in found.values() if role.problems]
    for role in withheld:
        assert all(rule.grant is None for rule in role.rules or ())
    return "\n".join(str(problem) for role in withheld for problem in role.problems)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        pytest.param("region = :region", "write :claims.region", id="parameter that is no claim"),
        pytest.param("region = :claims", ":claims must name a claim", id="claims without a name"),
        pytest.param("a = :claims.a and b = :b", "write :claims.b", id="another parameter beside a claim"),
        pytest.param("region = :claim.region", "write :claims.region.", id="claim without its s"),
        pytest.param("due > 2025-01-01", "single quotes, '2025-01-01'", id="date without quotes"),
        pytest.param("a = ?", "write :name", id="the database's own parameter"),
        pytest.param("a = 1; drop table x", "second statement", id="two statements"),
        pytest.param("a = 1; b = 2", "second statement", id="two conditions"),
        pytest.param("a = 1;", "must be a condition", id="semicolon"),
        pytest.param("a = 'x", "not closed", id="open quote"),
        pytest.param('\\"a = 1', "not closed", id="open name"),
        pytest.param("a = 1 /* and", "not closed", id="open comment"),
        pytest.param("(a = 1", "( is not closed", id="open bracket"),
        pytest.param("a = 1) or (1 = 1", ") closes nothing", id="brackets that leave the condition"),
        pytest.param("a = 1 -- )", None, id="comment at the end"),
        pytest.param("  ", "must be a condition", id="blanks"),
        pytest.param("-- all", "must be a condition", id="comment alone"),
        pytest.param("", "must be a condition", id="nothing"),
        pytest.param("${EMPTY}", "must be a condition", id="nothing from the environment"),
    ],
)
def test_condition_that_is_none_is_refused(
    roles: Roles, monkeypatch: pytest.MonkeyPatch, where: str, says: str | None
) -> None:
    monkeypatch.setenv("EMPTY", "")
    text = f'[roles.r]\ntables.x = {{ where = "{where}" }}\n'
    if says is None:
        assert roles(text)["r"].rules is not None
        return
    complaint = _complaint_of(roles, text)

    assert says in complaint
    assert complaint.startswith("dbtools.toml:4: error: role r, tables.x.where: ")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("name = ':region; ('", id="within quotes"),
        pytest.param("name = 'it''s'", id="doubled quote"),
        pytest.param("price > 1 -- :region ; )\n", id="within a comment"),
        pytest.param("exists (select 1 from sale s where s.id = id)", id="subquery"),
    ],
)
def test_what_stands_in_quotes_and_comments_is_no_parameter(tmp_path: Path, where: str) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'{HEAD}[roles.r.tables.x]\nwhere = """{where}"""\n', encoding="utf-8")
    (role,) = roles_of(load(path), lexis)

    assert role.rules is not None
    assert role.rules[0].grant == Grant(filter=RowFilter(condition=Fragment(pieces=(where,))))
    assert role.rules[0].source == at(3)


def test_roles_without_a_role_are_refused(roles: Roles) -> None:
    with pytest.raises(ConfigurationError, match=r"dbtools\.toml:3: \[roles\] defines no role"):
        roles("[roles]\n")


def test_whom_two_parents_inherit_from_decides_after_both(roles: Roles) -> None:
    text = """
    [roles.base]
    tables.orders = true
    [roles.wide]
    inherits = ["base"]
    [roles.narrow]
    inherits = ["base"]
    tables.orders = false
    [roles.child]
    inherits = ["wide", "narrow"]
    """
    rules = roles(text)["child"].rules or ()

    assert [rule.grant for rule in rules] == [None, Grant()]
