"""Each rule of `test_architecture.py` finds a violation and accepts good code."""

from pathlib import Path

import pytest

from dbtools.backends import BACKENDS
from tests.test_architecture import (
    MAX_LINES_OF_FUNCTION,
    MAX_LINES_OF_MODULE,
    ROOT,
    RULES,
    TEST_RULES,
    Module,
    Rule,
    breaches_of,
    catches_what_it_knows,
    completes_nothing,
    cycle_in,
    has_a_floor,
    has_short_functions,
    imports_at_the_top,
    imports_lower_floors,
    imports_what_it_may,
    is_named_by_a_noun,
    is_pure,
    is_short,
    lists_names_in_init_only,
    patches_nothing_of_the_package,
    says_no_foreign_word,
    says_what_it_is,
    uses_nothing_private,
)

DOCUMENTED = '"""A module."""\n'
LONG_FUNCTION = "def _f():\n" + "    pass\n" * MAX_LINES_OF_FUNCTION
IMPORTED = "from dbtools.backends import pool\nfrom dbtools.backends.pool import Pool\n"
LONG_SENTENCE = 'def f():\n    """One\n\n    two\n    three."""\n'


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (has_a_floor, "attic.py", ""),
        (imports_lower_floors, "schema/catalog.py", "from dbtools.policy.roles import Role"),
        (imports_lower_floors, "queries.py", "import dbtools.statements.select.select"),
        (imports_lower_floors, "errors.py", "def f(): from dbtools import cli"),
        (imports_lower_floors, "tools/rows.py", "from dbtools.backends import BACKENDS"),
        (imports_lower_floors, "backends/one.py", "from ..tools import KINDS"),
        (imports_lower_floors, "__init__.py", "from dbtools import errors"),
        (imports_lower_floors, "cli.py", "from dbtools.__main__ import main"),
        (imports_what_it_may, "settings.py", "from mcp.server import Server"),
        (imports_what_it_may, "service.py", "import mcp_types"),
        (imports_what_it_may, "service/execution.py", "import asyncio"),
        (imports_what_it_may, "service/calls.py", "from asyncio import Event"),
        (imports_what_it_may, "tools/rows.py", "import anyio.abc"),
        (imports_what_it_may, "statements/select.py", "from sqlalchemy.ext import asyncio"),
        (imports_what_it_may, "database.py", "import asyncpg"),
        (imports_at_the_top, "service.py", "def f():\n    import json"),
        (imports_at_the_top, "server/stdio.py", "class C:\n    def f(self):\n        import json"),
        (is_pure, "answers/results.py", "async def render(): ..."),
        (is_pure, "tools/rows.py", "class C:\n    async def f(self): ..."),
        (says_no_foreign_word, "errors.py", "#: as in SQLite"),
        (says_no_foreign_word, "settings.py", "PostgreSQLSettings = 1"),
        (says_no_foreign_word, "tools/sqlite_rows.py", ""),
        (catches_what_it_knows, "service/execution.py", "try: f()\nexcept: pass"),
        (catches_what_it_knows, "watch.py", "try: f()\nexcept (OSError, Exception): raise"),
        (catches_what_it_knows, "backends/one.py", "try: f()\nexcept BaseException: g()"),
        (completes_nothing, "service/serving.py", "backend.recovers = True"),
        (completes_nothing, "tools/rows.py", "exc.hint = 'Write id.'"),
        (is_short, "errors.py", "pass\n" * (MAX_LINES_OF_MODULE + 1)),
        (has_short_functions, "errors.py", LONG_FUNCTION),
        (is_named_by_a_noun, "tools/helpers.py", ""),
        (is_named_by_a_noun, "backends/common/one.py", ""),
        (lists_names_in_init_only, "errors.py", "__all__ = ['f']"),
        (says_what_it_is, "errors.py", "x = 1"),
        (says_what_it_is, "errors.py", DOCUMENTED + "def f(): ..."),
        (says_what_it_is, "errors.py", DOCUMENTED + "class C:\n    '''A.'''\n    def f(self): ..."),
        (says_what_it_is, "errors.py", DOCUMENTED + LONG_SENTENCE),
        (uses_nothing_private, "test_a.py", "pool._idle"),
        (uses_nothing_private, "test_a.py", "Pool()._idle = []"),
        (uses_nothing_private, "test_a.py", "class C(Pool):\n    def f(self): super()._end()"),
        (patches_nothing_of_the_package, "test_a.py", f"{IMPORTED}monkeypatch.setattr(Pool, 'wait', f)"),
        (patches_nothing_of_the_package, "test_a.py", "monkeypatch.setattr('dbtools.pool.IDLE', 1)"),
        (patches_nothing_of_the_package, "test_a.py", "import dbtools\nm.setattr(dbtools.pool, 'IDLE', 1)"),
        (patches_nothing_of_the_package, "test_a.py", f"{IMPORTED}pool.IDLE = 1"),
    ],
)
def test_rule_notices_a_breach(rule: Rule, path: str, text: str) -> None:
    assert len(breaches_of(Module(path=path, text=text), (rule,))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("__init__.py", '__version__ = "1"\n__all__ = ["__version__"]'),
        ("policy/roles.py", "from dbtools import __version__, errors\nfrom dbtools.schema import load"),
        ("tools/rows.py", "from dbtools.tools.page import Page\nfrom . import page"),
        ("backends/sqlite.py", "import asyncio\nimport sqlite3\nfrom dbtools.statements.select import X"),
        ("server/stdio.py", "import asyncio\ntry: f()\nexcept Exception: pass"),
        ("server/running.py", "def _f():\n    from dbtools.server import http"),
        ("cli.py", "def _f():\n    import rich\n    from dbtools.server import serve"),
        ("__main__.py", "from dbtools.cli import main"),
        ("service/execution.py", "import anyio\ntry: f()\nexcept BaseException:\n    g()\n    raise"),
        ("errors.py", 'class C:\n    """A\n    B.\n    """\n    def _f(self): ...'),
    ],
)
def test_rules_let_good_code_pass(path: str, text: str) -> None:
    assert breaches_of(Module(path=path, text=DOCUMENTED + text), RULES) == []


@pytest.mark.parametrize(
    "text",
    [
        "self._idle = row._asdict()",
        "class C:\n    @classmethod\n    def f(cls): cls._g()",
        f"{IMPORTED}monkeypatch.setattr(time, 'monotonic', f)",
        f"{IMPORTED}monkeypatch.setattr(pool, 'EXPLANATION_TIMEOUT', 30)",
        f"{IMPORTED}other.IDLE = pool.IDLE",
    ],
)
def test_rules_of_tests_let_good_tests_pass(text: str) -> None:
    assert breaches_of(Module(path="test_a.py", text=text), TEST_RULES) == []


def test_ring_of_imports_is_noticed() -> None:
    modules = (
        Module(path="tools/__init__.py", text="from dbtools.tools.rows import list_rows"),
        Module(path="tools/rows.py", text="from dbtools.tools.page import Page"),
        Module(path="tools/page.py", text="from dbtools.tools import KINDS"),
    )

    assert set(cycle_in(modules)) == {"dbtools.tools", "dbtools.tools.rows", "dbtools.tools.page"}


def test_ring_of_rooms_is_noticed() -> None:
    modules = (
        Module(path="backends/one/reading/runner.py", text="from dbtools.backends.one.writing.a import A"),
        Module(path="backends/one/writing/a.py", text=""),
        Module(path="backends/one/writing/b.py", text="from dbtools.backends.one.reading.grammar import B"),
        Module(path="backends/one/reading/grammar.py", text=""),
    )

    assert set(cycle_in(modules)) == {"dbtools.backends.one.reading", "dbtools.backends.one.writing"}


def test_databases_have_the_same_rooms() -> None:
    folders = [Path(*package.split(".")) for package in sorted({*BACKENDS.values()})]
    rooms = [sorted(each.parent.name for each in (ROOT / folder).glob("*/__init__.py")) for folder in folders]

    assert rooms == [["connection", "queries", "reading", "run_sql", "schema", "writing"]] * len(rooms)
