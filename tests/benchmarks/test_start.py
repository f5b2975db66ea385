"""How soon a server answers `tools/list` after its start."""

from collections.abc import Callable

import pytest

from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, bests
from tests.benchmarks.stdio_client import open_client, open_process

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

IMPORT_SDK = "import mcp.server.lowlevel; print(flush=True)"


async def test_first_answer_comes_before_the_sdk_would_be_imported(shop: Target, report: Report) -> None:
    async def list_tools() -> object:
        async with open_client("-m", "dbtools", "serve", shop.url) as client:
            return await client.request("tools/list", {})

    async def import_sdk() -> object:
        async with open_process("-c", IMPORT_SDK) as process:
            assert process.stdout is not None
            return await process.stdout.readline()

    found = await bests(ours=list_tools, floor=import_sdk, rounds=9)

    figure = report(
        found.figure("spawn to first tools/list answer", shop.dialect, floor_is="python, import of the SDK")
    )
    assert figure.ratio < 1
