"""Roles of a `dbtools.toml`: text in, roles and findings out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.roles import roles_of
from dbtools.findings import Source
from dbtools.policy.roles import Role
from dbtools.settings import load

HEAD = '[database]\nurl = "shop.db"\n'  #: two lines
Roles = Callable[[str], dict[str, Role]]


@pytest.fixture
def roles(tmp_path: Path) -> Roles:
    def read(text: str) -> dict[str, Role]:
        path = tmp_path / "dbtools.toml"
        path.write_text(HEAD + text, encoding="utf-8")
        return {role.name: role for role in roles_of(load(path), lexis)}

    return read


def at(line: int) -> Source:
    return Source(file="dbtools.toml", line=line)
