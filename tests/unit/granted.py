"""Roles for tests, and what they see of a catalog."""

from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.schema.catalog import Catalog, RowFilter, Table
from dbtools.schema.sql import Fragment, Parameter
from tests.unit.shop import SHOP

FILTER = RowFilter(condition=Fragment(pieces=("id = ", Parameter("claims.tenant"))))


def role_of(*rules: Rule) -> Role:
    return Role(name="support", rules=rules)


def granted_to(catalog: Catalog, **grants: Grant | None) -> Catalog:
    return restrict(catalog, role_of(*(Rule(pattern=name, grant=grant) for name, grant in grants.items())))


def the(name: str, grant: Grant, of: Catalog = SHOP) -> Table:
    """Return what *grant* leaves of the table *name*, beside everything else."""
    seen = restrict(of, role_of(Rule(pattern=name, grant=grant), Rule(pattern="*", grant=Grant())))
    (found,) = (each for each in seen.tables if each.name == name)
    return found
