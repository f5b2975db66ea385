"""Every case in `tests/cases` gets the answer in its file."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal
from pydantic import ValidationError

from tests.database.cases import (
    DIALECTS,
    FOLDER,
    Case,
    Dialect,
    Outcome,
    Served,
    expected,
    load,
    parse,
    rewritten,
    serve,
)
from tests.database.shop import ROLE
from tests.provider_rules import broken_rules

FILES = {path: load(path) for path in sorted(FOLDER.glob("*.toml"))}


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Callable[[Path, Dialect], Served]]:
    """Yield the database of each file and dialect, made when it is first asked for."""
    portal: BlockingPortal = request.getfixturevalue("portal")
    with ExitStack() as stack:

        @cache
        def served(path: Path, dialect: Dialect) -> Served:
            server = partial(request.getfixturevalue, "postgresql_server")
            return stack.enter_context(serve(FILES[path], dialect, server, portal))

        yield served


@pytest.mark.parametrize(
    ("path", "case", "dialect"),
    [
        pytest.param(path, case, dialect, id=f"{path.stem}-{case.name}-{dialect}")
        for path, file in FILES.items()
        for case in file.cases
        for dialect in case.dialects
    ],
)
def test_call_has_the_outcome_that_its_case_states(
    served: Callable[[Path, Dialect], Served], path: Path, case: Case, dialect: Dialect
) -> None:
    outcome = served(path, dialect).outcome(case)

    assert str(outcome) == str(expected(case, dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_providers_of_models_accept_all_tools_of_the_database(
    served: Callable[[Path, Dialect], Served], portal: BlockingPortal, path: Path, dialect: Dialect
) -> None:
    if not any(dialect in case.dialects for case in FILES[path].cases):
        pytest.skip("another database")
    tools = portal.call(served(path, dialect).toolbox.view, ROLE).tools

    assert {name: how for name, tool in tools.items() if (how := broken_rules(tool.definition))} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_names_of_cases_in_a_file_differ(path: Path) -> None:
    names = [case.name for case in FILES[path].cases]

    assert names == list(dict.fromkeys(names))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("schema = ''\nscheme = ''\n[[cases]]\nname = 'x'\ntool = 'y'", id="of a file"),
        pytest.param("schema.mysql = ''\n[[cases]]\nname = 'x'\ntool = 'y'", id="of dialects"),
        pytest.param("schema = ''\n[[cases]]\nname = 'x'\ntool = 'y'\nstructred = '{}'", id="of a case"),
    ],
)
def test_unknown_key_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        parse(text)


def test_rewriting_keeps_what_is_written_by_hand() -> None:
    text = (
        "# About.\nschema = 'x'\n\n# Why.\n[[cases]]\nname = 'x'\ntool = 'y'\nsql.sqlite = '''\n"
        "old\n'''\nerror = 'old'\n\n# Because.\n[[cases]]\nname = 'z'\ntool = 'y'\n"
    )

    once = rewritten(text, [{"sqlite": Outcome(sql="new")}, {}])

    assert once == text.replace("sql.sqlite = '''\nold\n'''\nerror = 'old'", 'sql.sqlite = "new"')
