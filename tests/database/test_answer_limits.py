"""How large an answer may be, in rows, bytes and cells."""

from collections.abc import Mapping
from functools import partial

import pytest

from dbtools.answers.results import ResultSet
from dbtools.backends.compiled import CELLS_HELD
from dbtools.backends.runs import Run, RunContext
from dbtools.policy.roles import Caller
from dbtools.schema.uris import ROW_TEMPLATE
from dbtools.settings import LimitsSection
from dbtools.tools.resources import Completed
from tests.calls import statement_of
from tests.database.shop import ROLE, Serve, Shop, rows_of
from tests.database.slow_tables import code_of, shops as shops


def test_rows_are_limited_by_default_and_at_most(dialect: str, serve: Serve) -> None:
    ddl = "create table t (id int not null primary key);"
    numbers = ", ".join(f"({number})" for number in range(300))
    with serve(dialect, f"{ddl} insert into t values {numbers}", limits=LimitsSection(max_rows=120)) as shop:
        default = shop.page("t")
        most = shop.page("t", limit=120)

        assert code_of(lambda: shop.page("t", limit=121)) == "bad_argument"
        assert (default["row_count"], default["truncated"]) == (50, True)
        assert (most["row_count"], most["truncated"]) == (120, True)


@pytest.mark.parametrize(("stored", "more"), [(400, True), (300, False)])
def test_rows_that_may_be_long_are_weighed_as_they_come(stored: int, more: bool, serve: Serve) -> None:
    length = 100_000
    ddl = f"""create table t (id integer primary key, v text);
    insert into t select i, repeat('x', {length}) from generate_series(1, {stored}) as i"""
    longest = {"function": "max", "column": "v"}
    limits = LimitsSection(max_rows=1_000, max_cell=length)
    with serve("postgresql", ddl, limits=limits) as shop:
        page = _read(shop, "list_rows", {"table": "t", "limit": 1_000})
        groups = _read(
            shop, "aggregate_rows", {"table": "t", "group_by": ["id"], "measures": [longest], "limit": 1_000}
        )

    assert page.more is groups.more is more
    assert len(page.rows) == len(groups.rows)
    assert CELLS_HELD < len(page.rows) * length < 1.1 * CELLS_HELD if more else len(page.rows) == stored


def _read(shop: Shop, tool: str, arguments: Mapping[str, object]) -> ResultSet:
    """Return what the database answers to a call of *tool*, before the answer is cut to fit."""

    async def read() -> ResultSet:
        statement = statement_of((await shop.toolbox.view(ROLE)).tools[tool].bind(arguments))
        assert statement is not None
        runner = await shop.database.runner()
        context = RunContext(timeout=60)
        run = Run(runner.compile(statement.shape), statement.values, limit=statement.limit, context=context)
        return await runner.run(run)

    return shop.portal.call(read)


def test_answers_are_limited_in_bytes_and_go_on(dialect: str, serve: Serve) -> None:
    limits = LimitsSection(max_tokens=1_000, max_cell=500)
    ddl = "create table t (id int not null primary key, v text);"
    texts = ", ".join(f"({number}, '{'é' * (number * 7 % 700)}')" for number in range(60))
    with serve(dialect, f"{ddl} insert into t values {texts}", limits=limits) as shop:
        answers = []
        arguments: dict[str, object] = {}
        while True:
            answers.append(shop.call("list_t", arguments))
            if not answers[-1].truncated:
                break
            arguments = {"cursor": answers[-1].structured["next_cursor"]}

    assert [row[0] for answer in answers for row in rows_of(answer.structured)] == list(range(60))
    assert max(len(answer.text.encode()) for answer in answers) <= 3_000
    assert all(answer.rows for answer in answers)


@pytest.mark.parametrize("beginning", [b"\x89PNG\r\n\x1a\n", b"."])
def test_bytes_that_go_along_are_limited_as_well(beginning: bytes, dialect: str, serve: Serve) -> None:
    type = {"sqlite": "blob", "postgresql": "bytea"}
    ddl = f"create table t (id int not null primary key, v {type[dialect]});"
    with serve(dialect, ddl, limits=LimitsSection(max_tokens=500)) as shop:
        content = beginning + b"." * 90_000
        shop.bare.execute(f"insert into t values ({shop.places([1, content])})", 1, content)
        got = shop.call("get_t", {"id": 1})

    assert len(got.text) + sum(each.size for each in got.media) <= 1_500
    assert [link.uri for link in got.links] == ["dbtools://cell/t/1/v"]


def test_completions_are_limited_as_rows_are(dialect: str, serve: Serve) -> None:
    tables = "".join(f"create table t{number} (id int not null primary key);" for number in range(5))
    with serve(
        dialect, f"{tables} insert into t1 values (1), (2), (3);", limits=LimitsSection(max_rows=2)
    ) as shop:
        complete = partial(shop.portal.call, shop.toolbox.complete, Caller(), ROW_TEMPLATE)

        assert complete("table", "", {}) == Completed(values=("t0", "t1"), more=True)
        assert complete("key", "", {"table": "t1"}) == Completed(values=("1", "2"), more=True)


@pytest.mark.parametrize("length", [19, 20, 21, 399, 400, 401])
def test_long_cells_are_cut_with_their_length(length: int, dialect: str, serve: Serve) -> None:
    with serve(
        dialect, "create table t (id int not null primary key, v text)", limits=LimitsSection(max_cell=20)
    ) as shop:
        text = "🦉" * length
        shop.insert("t", [[1, text]])

        (cell,) = shop.rows("t")[0][1:]
        whole = shop.get("t", id=1)["v"]

    assert cell == (text if length <= 20 else f"{'🦉' * 20}… [{length} characters]")
    assert whole == text
