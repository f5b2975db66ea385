"""Servers whose schema, configuration or queries change."""

from collections.abc import Iterator

import pytest

from tests.protocol.changing import Changing, open_changing
from tests.protocol.client import Message

DDL = """
create table customers (
    id integer primary key,
    name text not null,
    mood text check (mood in ('calm', 'cross'))
);
insert into customers (id, name, mood) values (1, 'Ada', 'calm'), (2, 'Bo', 'cross');
"""
OWN_DDL = {
    "sqlite": DDL,
    "postgresql": f"{DDL}; create type size as enum ('small'); create table hats (id integer, size size);",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    dialect: str = request.param
    return dialect


@pytest.fixture
def changing(dialect: str, request: pytest.FixtureRequest) -> Iterator[Changing]:
    with open_changing(dialect, OWN_DDL[dialect], request) as changing:
        yield changing


def columns_in(tools: dict[str, Message], name: str = "list_customers") -> list[str]:
    _, _, columns = tools[name]["description"].partition("Columns: ")
    return [each.split()[0] for each in columns.rstrip(".").split("; ")]
