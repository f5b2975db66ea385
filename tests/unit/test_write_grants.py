"""What a role may change follows from its grants; mistakes are reported with file and line."""

from collections.abc import Sequence

import pytest

from dbtools.answers.styles import Listing, Surface
from dbtools.configured.resolve import seen_by
from dbtools.configured.resolved import ResolvedRole
from dbtools.findings import Finding, WriteProblem
from dbtools.schema.catalog import UNKNOWN_TYPE, Catalog, Table, TableKind, Writes, identity_columns
from dbtools.tools import choose, define, listed_tools
from dbtools.tools.definition import ToolContext, ToolGroup, tokens_of, tool_content
from dbtools.values.types import Family
from tests.unit.configured_roles import Roles, at, roles as roles
from tests.unit.shop import ID, column, table

NUMBER = column("id", Family.INTEGER, nullable=False, assigned=True)
CUSTOMER = column("customer", Family.INTEGER)
STATUS = column("status", nullable=False, default="'new'", choices=("new", "paid"))
TOTAL = column("total", Family.DECIMAL, generated=True)
PLACE = column("place", Family.OBJECT)
OWNER = column("owner", nullable=False)
PAID = column("paid", Family.BOOLEAN)


def changeable(*columns: object, name: str, **more: object) -> Table:
    return table(*columns, name=name, identity=identity_columns([NUMBER]), **more)  # type: ignore[arg-type]


SHOP = Catalog(
    tables=(
        changeable(NUMBER, CUSTOMER, STATUS, TOTAL, PLACE, OWNER, PAID, name="orders"),
        changeable(NUMBER, column("text"), name="notes"),
        changeable(column("text"), name="keyless", key=()),
        table(ID, name="totals", kind=TableKind.VIEW),
        table(ID, name="parents"),
    )
)


def resolved(roles: Roles, text: str, catalog: Catalog = SHOP) -> ResolvedRole:
    """Return what the role r of the configuration *text* may do."""
    return seen_by(roles(f"[roles.r]\n{text}\n")["r"], catalog)


def writes_of(role: ResolvedRole, name: str) -> Writes:
    (found,) = (each for each in role.catalog.tables if each.name == name)
    assert found.writes is not None
    return found.writes


def named(columns: Sequence[object] | None) -> list[str] | None:
    return None if columns is None else [each.name for each in columns]  # type: ignore[attr-defined]


def changed(role: ResolvedRole) -> list[str]:
    """Return the names of the tables that *role* may change."""
    return [each.name for each in role.catalog.tables if each.writes is not None]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("insert = ['custmer', 'owner']", "there is no column 'custmer'. Did you mean customer?"),
        ("insert = ['total', 'customer', 'owner']", "orders: the database generates total."),
        ("update = ['place']", "update is withheld in orders: place has a composite type."),
        ("insert = ['customer', 'owner'], preset = { owner = 'me' }", "owner is preset, so callers cannot"),
        ("exclude = ['paid'], update = ['paid']", "the role does not see paid: preset it instead."),
        ("insert = ['customer']", "owner needs a value: add it to insert, or preset it."),
        ("exclude = ['owner'], insert = true", "owner needs a value: preset it."),
        ("update = true, preset_update = { paid = 'maybe' }", "paid is preset to 'maybe', but must be true"),
        ("update = ['paid'], preset_update = { status = 'gone' }", "status is preset to 'gone', but must"),
        ("update = ['paid'], preset_update = { owner = ':claim.sub' }", "owner is preset to ':claim.sub':"),
        ("update = true, preset_update = { ownr = 'me' }", "there is no column 'ownr'. Did you mean owner?"),
        ("update = true, preset_update = { total = 5 }", "the database generates total."),
        ("update = true, preset = { owner = 'me' }", "it is not granted, so presetting owner has no effect."),
        ("exclude = ['id'], update = true", "it has no key that the role sees unmasked."),
        ("mask = { id = 'hash' }, delete = true", "it has no key that the role sees unmasked."),
    ],
)
def test_grant_that_cannot_be_meant_is_found_with_file_and_line(roles: Roles, keys: str, says: str) -> None:
    hashing = "[policy]\nhash_key = 'a key of more than sixteen characters'\n"
    role = roles(f"{hashing}[roles.r]\ntables.orders = {{ {keys} }}\n")["r"]

    (finding,) = seen_by(role, SHOP).findings

    assert (finding.code, finding.level, finding.source) == ("bad_writes", "error", at(6))
    assert finding.message.startswith("role r, tables.orders: ")
    assert says in finding.message
    assert "?." not in finding.message


def test_what_is_right_is_granted_beside_what_is_wrong(roles: Roles) -> None:
    role = resolved(roles, "tables.orders = { insert = ['custmer'], update = ['paid'], delete = true }")

    writes = writes_of(role, "orders")

    assert (writes.insert, named(writes.update), writes.delete) == (None, ["paid"], True)


@pytest.mark.parametrize(
    ("name", "why"), [("totals", "dbtools changes no rows of a view"), ("parents", WriteProblem.UNCHANGEABLE)]
)
def test_what_has_no_rows_of_its_own_cannot_be_changed(roles: Roles, name: str, why: str) -> None:
    role = resolved(roles, f"tables.{name} = {{ insert = true, update = true, delete = true }}")

    (finding,) = role.findings
    assert f"tables.{name}: {name} cannot be changed: {why}" in finding.message
    assert changed(role) == []
    assert [each.name for each in role.catalog.tables] == [name]


def test_pattern_grants_what_fits_and_warns_once_for_each_reason(roles: Roles) -> None:
    role = resolved(roles, "tables.'*' = { insert = true, update = true, delete = true }")

    assert [(each.level, each.message.removeprefix("role r, tables.*: ")) for each in role.findings] == [
        ("warning", "update is withheld in keyless: it has no key that the role sees unmasked."),
        ("warning", "delete is withheld in keyless: it has no key that the role sees unmasked."),
        ("warning", "totals cannot be changed: dbtools changes no rows of a view."),
        ("warning", f"parents cannot be changed: {WriteProblem.UNCHANGEABLE}."),
    ]
    assert changed(role) == ["orders", "notes", "keyless"]
    assert named(writes_of(role, "keyless").insert) == ["text"]


def test_all_columns_are_those_that_the_role_sees_and_can_write(roles: Roles) -> None:
    role = resolved(
        roles,
        "tables.orders = { exclude = ['paid'], mask = { owner = 'redact' }, insert = true, update = true, "
        "preset = { customer = ':claims.customer' } }",
    )

    writes = writes_of(role, "orders")

    assert role.findings == ()
    assert named(writes.insert) == ["id", "status", "owner"]
    assert named(writes.update) == ["id", "status", "owner"]
    assert writes.insert is not None
    assert writes.insert[-1] == OWNER
    assert [(each.column.name, each.claim) for each in writes.insert_presets] == [("customer", "customer")]


def test_column_that_the_login_cannot_read_has_no_known_type(roles: Roles) -> None:
    (orders, *_) = SHOP.tables
    catalog = Catalog(tables=(orders,), unreadable={orders.location: ("secret",)})
    text = "tables.orders = { update = ['paid'], preset_update = { secret = 'x' } }"

    role = resolved(roles, text, catalog)

    (finding,) = (each for each in role.findings if each.code == "bad_writes")
    assert "the login may not select secret, so its type is unknown" in finding.message
    assert catalog.whole.tables[0].column_by_name["secret"].type is UNKNOWN_TYPE
    assert changed(role) == []


@pytest.mark.parametrize("key", ["check = 'id > 1'", "preset = { paid = true }", "max_affected = 5"])
def test_option_without_a_grant_is_an_error(roles: Roles, key: str) -> None:
    role = roles(f"[roles.r]\ntables.orders = {{ {key} }}\n")["r"]

    (finding,) = role.problems

    assert (finding.code, finding.source) == ("bad_writes", at(4))
    assert f"tables.orders.{key.partition(' ')[0]}" in finding.message
    assert "grant insert, update or delete" in finding.message


def test_grants_are_inherited_and_an_own_rule_replaces_them(roles: Roles) -> None:
    text = (
        "[roles.clerk]\ntables.orders = { update = ['paid'] }\ntables.notes = { delete = true }\n"
        "[roles.r]\ninherits = ['clerk']\ntables.notes = true\n"
    )
    role = seen_by(roles(text)["r"], SHOP)

    assert changed(role) == ["orders"]
    assert named(writes_of(role, "orders").update) == ["paid"]


def test_without_roles_every_table_may_be_changed_if_the_database_is_writable(roles: Roles) -> None:
    role = roles("writable = true\n")["default"]

    assert changed(seen_by(role, SHOP)) == ["orders", "notes", "keyless"]
    assert changed(seen_by(roles("")["default"], SHOP)) == []


def test_findings_about_one_table_name_it(roles: Roles) -> None:
    role = resolved(roles, "tables.orders = { insert = ['custmer'] }")

    subjects: list[Finding] = list(role.findings)

    assert {each.subject for each in subjects} == {"orders"}


WRITING = "tables.notes = { insert = true, update = true, delete = true }"
TYPED = ["insert_notes", "update_notes", "delete_notes"]
GENERIC = ["insert_rows", "update_rows", "delete_rows"]


def test_tools_that_write_are_listed_together_while_they_fit_into_the_budget(roles: Roles) -> None:
    catalog = resolved(roles, WRITING).catalog
    tools = define(ToolContext(catalog=catalog))
    cost = sum(
        tokens_of(tool_content(each.definition))
        for each in tools.values()
        if each.surface is not Surface.GENERIC
    )

    def written(budget: int) -> list[str]:
        listing = Listing(budget=budget)
        shown = listed_tools(listing, choose(listing, tools), tools, catalog)
        return [each.name for each in shown if each.group is ToolGroup.WRITES]

    assert sorted(written(cost)) == sorted(TYPED)
    assert sorted(written(cost - 1)) == sorted(GENERIC)


def test_insert_that_never_updates_destroys_nothing(roles: Roles) -> None:
    role = resolved(roles, "tables.notes = { insert = true }")
    (tool,) = (
        each for each in define(ToolContext(catalog=role.catalog)).values() if each.name == "insert_notes"
    )
    schema = tool.definition.input_schema["properties"]
    assert isinstance(schema, dict)

    assert tool.definition.annotations["destructiveHint"] is False
    assert schema["on_conflict"] == {
        "type": "string",
        "enum": ["error", "ignore"],
        "default": "error",
        "description": "if a row has the same id",
    }
    assert "conflict_key" not in schema


def test_annotations_say_what_a_change_may_do(roles: Roles) -> None:
    catalog = resolved(roles, WRITING).catalog
    tools = define(ToolContext(catalog=catalog))
    annotations = {name: tools[name].definition.annotations for name in (*TYPED, *GENERIC)}
    hints = {name: (of["destructiveHint"], of["idempotentHint"]) for name, of in annotations.items()}

    # An upsert may overwrite a row. After a change of chosen rows, others may meet the same conditions.
    assert hints == {name: (True, name in TYPED[1:]) for name in hints}
    assert not any(of["readOnlyHint"] for of in annotations.values())
