"""The conformance suite passes, both without its fixtures and with them."""

import json
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conformance_suite import RUNS, Verdict, entries, examine, fixture_server
from tests.clients.node import needs_node
from tests.protocol.client import ROOT
from tests.protocol.http_server import http_server

pytestmark = needs_node

FOLDER = Path(__file__).parent
#: What no server of dbtools passes, with fixtures or without, by version.
MISSING: Mapping[str, Collection[str]] = {
    # Arguments that headers repeat (x-mcp-header): no tool of dbtools has one, so nothing compares them.
    "2026-07-28": {"http-custom-header-server-validation"}
}


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A server that runs for all tests of this file."""

    url: str
    log: Path  #: what it says


@pytest.fixture(scope="module")
async def real_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Examined]:
    folder = tmp_path_factory.mktemp("real")
    shutil.copyfile(ROOT / "sample.db", path := folder / "sample.db")
    async with http_server(path, folder) as server:
        yield Examined(url=f"{server.url}/mcp", log=server.log)


@pytest.fixture(scope="module")
async def server_with_fixtures(
    tmp_path_factory: pytest.TempPathFactory, sqlite_database: Callable[[str], Path]
) -> AsyncIterator[Examined]:
    """Yield a server that has what the suite looks for."""
    log = tmp_path_factory.mktemp("fixtures") / "stderr.txt"
    path = sqlite_database("create table person (id integer primary key, name text not null);")
    async with fixture_server(path, log) as url:
        yield Examined(url=url, log=log)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_server_fails_only_where_a_fixture_is_missing(
    real_server: Examined, version: str, tmp_path: Path
) -> None:
    expected = FOLDER / f"conformance-{version}.yml"

    verdict = await examine(real_server.url, version, expected, tmp_path)

    _assert_as_expected(verdict, entries(expected), real_server.log)


@pytest.mark.parametrize("version", RUNS)
async def test_server_with_the_fixtures_fails_only_where_it_must(
    server_with_fixtures: Examined, version: str, tmp_path: Path
) -> None:
    missing = MISSING.get(version, ())
    expected = tmp_path / "expected.yml"
    expected.write_text(json.dumps({"server": list(missing)}))

    verdict = await examine(server_with_fixtures.url, version, expected, tmp_path)

    _assert_as_expected(verdict, missing, server_with_fixtures.log)


def _assert_as_expected(verdict: Verdict, expected: Collection[str], log: Path) -> None:
    __tracebackhide__ = True
    wrong = verdict.against(expected)
    assert not wrong, f"{wrong}\nThe server says:\n{log.read_text()[-2000:]}"
    assert verdict.status == 0, verdict.said
    assert verdict.scenarios, verdict.said
