"""The databases that are measured, made once a session, and the table of figures at the end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.benchmarks import databases
from tests.benchmarks.contest import Figure, table

FIGURES = pytest.StashKey[list[Figure]]()


@dataclass(frozen=True, kw_only=True)
class Target:
    """A database that is measured."""

    dialect: str
    url: str


Build = Callable[[str, str], Target]  #: the scripts for SQLite and PostgreSQL in, one database out


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """Yield a factory of databases of one dialect."""
    if request.param == "sqlite":
        make: Callable[[str], Path] = request.getfixturevalue("sqlite_database")
        yield lambda script, _: Target(dialect="SQLite", url=f"sqlite:///{make(script)}")
        return
    lend: Callable[[str], AbstractContextManager[str]] = request.getfixturevalue("postgresql_database")
    with ExitStack() as stack:
        yield lambda _, script: Target(dialect="PostgreSQL", url=stack.enter_context(lend(script)))


@pytest.fixture(scope="session")
def shop(build: Build) -> Target:
    """Return a database of 10,000 customers and 200,000 orders."""
    return build(databases.sqlite_shop(), databases.postgresql_shop())


@pytest.fixture(scope="session")
def wide(build: Build) -> Target:
    """Return a database of 1,000 tables of 20 columns."""
    return build(databases.sqlite_wide(), databases.postgresql_wide())


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[Figure], Figure]:
    """Return a function that keeps a figure for the table and returns it."""
    figures = pytestconfig.stash.setdefault(FIGURES, [])

    def keep(figure: Figure) -> Figure:
        figures.append(figure)
        return figure

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("benchmarks")
        for line in table(figures):
            terminalreporter.write_line(line)
