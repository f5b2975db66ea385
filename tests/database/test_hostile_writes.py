"""A hostile role cannot extend its rights by writing, and learns nothing about what is hidden from it."""

from collections.abc import Mapping
from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask, ParameterName
from tests.database.role_callers import Grants, calling_as
from tests.database.shop import Serve
from tests.database.written_shop import Opens, refused, stored

ALL = GrantSection(insert=True, update=True, delete=True)
FAMILY = """
    create table parents (
        id integer primary key, region text not null default 'north', code text unique,
        parent_id integer references parents (id) on delete cascade
    );
    create table children (
        id integer primary key, parent_id integer references parents (id) on delete cascade, region text
    );
    create table guards (id integer primary key, parent_id integer references parents (id), region text);
    insert into parents values
        (1, 'north', 'a', null), (2, 'south', 'b', 1), (3, 'north', 'c', null), (4, 'south', 'd', null);
    insert into children values (1, 1, 'north'), (2, 1, 'south');
    insert into guards values (1, 3, 'south');
"""
REGION = "region = :claims.region"


def test_preview_counts_no_hidden_rows(opened: Opens, dialect: str) -> None:
    filtered = ALL.model_copy(update={"where": REGION})
    for parents, children in ((filtered, True), (True, GrantSection(where=REGION)), (filtered, False)):
        grants: Grants = {"parents": ALL if parents is True else parents, "children": children}
        with opened(dialect, grants, ddl=FAMILY) as (caller, _):
            note = str(caller.call("delete_parents", id=1, dry_run=True)["note"])

        assert "rows elsewhere" in note
        named = dialect == "postgresql" and children is True
        assert ("2 rows of children" in note) is named
        assert "parents" not in note or parents is True


def test_rows_that_refer_are_named_only_if_all_are_seen(opened: Opens, dialect: str) -> None:
    tables: list[tuple[Grants, bool]] = [
        ({"guards": True}, dialect == "postgresql"),
        ({"guards": GrantSection(where=REGION)}, False),
        ({"guards": GrantSection(exclude=("parent_id",))}, False),
        ({}, False),
    ]
    for others, named in tables:
        with opened(dialect, {"parents": ALL, **others}, ddl=FAMILY) as (caller, _):
            error = refused(caller, "delete_parents", id=3)

        assert error.code == "constraint"
        assert ("guards" in str(error)) is named
        assert "refer to this row" in str(error)


def test_changed_key_that_rows_refer_to_is_reported_as_such(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"parents": ALL}, ddl=FAMILY) as (caller, _):
        error = refused(caller, "update_parents", id=3, set={"id": 33})

    assert error.message == "Other rows refer to this row. Nothing was changed."


def test_unique_value_of_a_hidden_row_reads_like_that_of_a_visible_one(opened: Opens, dialect: str) -> None:
    grants: Grants = {"parents": ALL.model_copy(update={"where": REGION})}
    with opened(dialect, grants, ddl=FAMILY) as (caller, _):
        hidden = refused(caller, "insert_parents", rows=[{"id": 8, "code": "b"}])
        seen = refused(caller, "insert_parents", rows=[{"id": 8, "code": "a"}])
        key = refused(caller, "insert_parents", rows=[{"id": 2, "code": "z"}])

    assert (hidden.code, str(hidden)) == (seen.code, str(seen))
    assert str(key) == "parents already has a row with this id. Nothing was changed. Use another value."


def test_foreign_key_to_a_hidden_table_names_nothing(opened: Opens, dialect: str) -> None:
    grants: Grants = {"guards": ALL}
    with opened(dialect, grants, ddl=FAMILY) as (caller, _):
        error = refused(caller, "insert_guards", rows=[{"id": 8, "parent_id": 77}])

    named = {"postgresql": "parent_id refers", "sqlite": "A foreign key refers"}[dialect]
    assert str(error).startswith(f"{named} to no existing row. Nothing was changed.")
    assert "parents" not in str(error)
    assert "Check ." not in str(error)


RAISING = {
    "sqlite": """
    create table tickets (id integer primary key, word text);
    create table canary (word text);
    insert into canary values ('CANARY');
    create trigger nosy before insert on tickets begin select raise(abort, 'CANARY said a trigger'); end;
    """,
    "postgresql": """
    create table tickets (id integer primary key, word text);
    create table canary (word text unique);
    insert into canary values ('CANARY');
    create function nosy() returns trigger language plpgsql as $$ begin
        if new.word = 'raise' then
            raise exception 'CANARY %', (select word from canary)
                using detail = 'CANARY', hint = 'CANARY', table = 'canary', column = 'word',
                    errcode = '23505', constraint = 'canary_word_key', schema = 'public';
        end if;
        insert into canary values ('CANARY');
        return new;
    end $$;
    create trigger nosy before insert on tickets for each row execute function nosy();
    """,
}


@pytest.mark.parametrize("word", ["raise", "insert"])
def test_error_of_a_trigger_says_nothing_of_what_is_hidden(word: str, opened: Opens, dialect: str) -> None:
    with opened(dialect, {"tickets": ALL}, ddl=RAISING[dialect]) as (caller, _):
        error = refused(caller, "insert_tickets", rows=[{"id": 1, "word": word}])

    assert error.code == "constraint"
    assert "canary" not in str(error).lower()
    assert "word" not in str(error)


def test_preview_does_not_count_what_other_callers_changed(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"parents": ALL, "children": ALL}, ddl=FAMILY) as (caller, _):
        caller.call("delete_parents", id=1)
        caller.call("insert_parents", rows=[{"id": at} for at in range(10, 20)])
        answer = caller.call("update_parents", id=3, set={"code": "e"}, dry_run=True)

    assert answer["note"] == "Dry run: nothing was changed."


DEFERRED = """
    create table owners (id integer primary key);
    create table things (
        id integer primary key, owner_id integer references owners (id) deferrable initially deferred
    );
"""


def test_deferred_constraint_is_checked_before_the_answer(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"things": ALL}, ddl=DEFERRED) as (caller, shop):
        error = refused(caller, "insert_things", rows=[{"id": 1, "owner_id": 5}])
        found = stored(shop, "select * from things")

    assert (error.code, found) == ("constraint", [])


def test_new_row_with_a_masked_key_is_accepted(opened: Opens, dialect: str) -> None:
    ddl = "create table logins (id integer primary key, name text not null)"
    section = GrantSection(insert=True, mask={"id": Mask.REDACT}, where="name <> 'root'", check="id < 100")
    with opened(dialect, {"logins": section}, ddl=ddl) as (caller, shop):
        answer = caller.call("insert_logins", rows=[{"id": 7, "name": "ann"}])
        denied = refused(caller, "insert_logins", rows=[{"id": 100, "name": "bea"}])
        found = stored(shop, "select * from logins")

    assert answer["rows"] == [["***", "ann"]]
    assert (denied.code, found) == ("denied", [(7, "ann")])


RECORDED = {
    "sqlite": """
    create table events (word text, number integer);
    create trigger numbered after insert on events begin
        update events set number = 7 where word = new.word; end;
    """,
    "postgresql": """
    create table events (word text, number integer);
    create function numbered() returns trigger language plpgsql as $$
        begin update events set number = 7 where word = new.word; return null; end
    $$;
    create trigger numbered after insert on events for each row execute function numbered();
    """,
}


def test_row_without_a_key_that_a_trigger_changes_is_stored(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"events": GrantSection(insert=True)}, ddl=RECORDED[dialect]) as (caller, shop):
        answer = caller.call("insert_events", rows=[{"word": "x"}])
        found = stored(shop, "select * from events")

    assert (answer["affected"], found) == (1, [("x", 7)])


PRESETS = """
    create table posts (
        id integer primary key, author text, score integer, body text, short varchar(3){more}
    );
    insert into posts (id, author) values (1, 'eve');
"""


def _declared(claims: Mapping[str, object]) -> Mapping[str, ParameterName]:
    """Declare arrays and objects among *claims*, which otherwise count as missing."""
    return {name: "json" for name, value in claims.items() if isinstance(value, list | dict)}


@pytest.mark.parametrize(
    ("column", "claim"),
    [
        pytest.param("author", None, id="missing"),
        pytest.param("author", ["ann", "bob"], id="list for a text"),
        pytest.param("author", {"name": "ann"}, id="object for a text"),
        pytest.param("score", "many", id="text for an integer"),
        pytest.param("score", "", id="empty for an integer"),
        pytest.param("score", 1.5, id="fraction for an integer"),
        pytest.param("score", True, id="boolean for an integer"),
        pytest.param("score", 2**63, id="too large"),
        pytest.param("author", "a\0b", id="no text"),
    ],
)
def test_claim_that_does_not_fit_its_preset_denies_the_call(
    column: str, claim: object, serve: Serve, dialect: str
) -> None:
    section = ALL.model_copy(
        update={"preset": {column: ":claims.sub"}, "preset_update": {column: ":claims.sub"}}
    )
    claims: dict[str, Any] = {} if claim is None else {"sub": claim}
    with (
        serve(dialect, PRESETS.format(more="")) as shop,
        calling_as(shop, {"posts": section}, claims, declared=_declared(claims)) as caller,
    ):
        before = stored(shop, "select * from posts")
        inserted = refused(caller, "insert_posts", rows=[{"id": 9}])
        updated = refused(caller, "update_posts", id=1, set={"body": "x"})
        after = stored(shop, "select * from posts")

    assert (inserted.code, updated.code) == ("denied", "denied")
    assert after == before


def test_claim_is_stored_as_a_value_of_its_column(serve: Serve, dialect: str) -> None:
    more = ", tags text[]" if dialect == "postgresql" else ""
    presets: dict[str, Any] = {"author": ":claims.sub", "score": ":claims.level"}
    presets |= {"tags": ":claims.tags"} if more else {}
    section = GrantSection(insert=True, update=True, preset=presets)
    claims: dict[str, Any] = {"sub": "", "level": "7", "tags": ["a", "b,c"]}
    with (
        serve(dialect, PRESETS.format(more=more)) as shop,
        calling_as(shop, {"posts": section}, claims, declared=_declared(claims)) as caller,
    ):
        caller.call("insert_posts", rows=[{"id": 9}])
        # What is preset in new rows is not among all the columns that callers may update.
        codes = {refused(caller, "update_posts", id=9, set={name: "x"}).code for name in presets}
        found = stored(shop, f"select {', '.join(presets)} from posts where id = 9")

    assert found == [("", 7, ["a", "b,c"])[: len(presets)]]
    assert codes == {"unknown_argument"}


def test_claim_that_is_too_long_changes_nothing(opened: Opens) -> None:
    section = GrantSection(insert=True, preset={"short": ":claims.sub"})
    with opened("postgresql", {"posts": section}, ddl=PRESETS.format(more=""), sub="x" * 5000) as (
        caller,
        shop,
    ):
        error = refused(caller, "insert_posts", rows=[{"id": 9}])
        found = stored(shop, "select count(*) from posts")

    assert (error.code, found) == ("bad_value", [(1,)])
    assert "claim of the caller" in str(error)


def test_array_cannot_be_preset_by_a_text(opened: Opens) -> None:
    section = GrantSection(insert=True, preset={"tags": "a"})
    with opened("postgresql", {"posts": section}, ddl=PRESETS.format(more=", tags text[]")) as (caller, _):
        problems, tools = caller.problems(), caller.tools()

    assert "tags is preset to 'a', but must be a claim, since it is an array" in str(problems)
    assert "insert_posts" not in tools


@pytest.mark.parametrize("preset", [":claims.sub ", "by :claims.sub", ":claim.sub", ":claims.a.b", ":sub"])
def test_preset_that_is_not_quite_a_claim_is_a_problem(preset: str, opened: Opens, dialect: str) -> None:
    section = GrantSection(insert=True, preset={"author": preset})
    with opened(dialect, {"posts": section}, ddl=PRESETS.format(more="")) as (caller, _):
        problems, tools = caller.problems(), caller.tools()

    assert "a claim is written :claims.name" in str(problems)
    assert "insert_posts" not in tools


BOMBS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "rows": ("insert_posts", {"rows": [{"id": at} for at in range(100_000)]}),
    "more rows than granted": ("insert_posts", {"rows": [{"id": at} for at in range(101)]}),
    "rows in a text": ("insert_posts", {"rows": "[" * 100_000}),
    "values": ("insert_posts", {"rows": [{"id": at, "body": "x", "score": 1} for at in range(20_000)]}),
    "columns": ("insert_posts", {"rows": [{f"c{at}": 1 for at in range(20_000)}]}),
    "characters": ("update_posts", {"id": 1, "set": {"body": "x" * 1_000_001}}),
    "number": ("update_posts", {"id": 1, "set": {"score": 10**5000}}),
    "digits": ("update_posts", {"id": 1, "set": {"score": "9" * 100_000}}),
    "exponent": ("update_posts", {"id": 1, "set": {"score": "1e100000"}}),
    "expected": (
        "update_posts",
        {"id": 1, "set": {"score": 1}, "expected": {f"c{at}": 1 for at in range(30_000)}},
    ),
    "depth": ("update_posts", {"id": 1, "set": {"body": None, "score": [[[[[[[[[[[1]]]]]]]]]]]}}),
    "key": ("update_posts", {"id": {"id": 1}, "set": {"score": 1}}),
    "no rows": ("insert_posts", {"rows": []}),
    "no values": ("update_posts", {"id": 1, "set": {}}),
    "no key": ("update_posts", {"set": {"score": 1}}),
    "list of lists": ("insert_posts", {"rows": [[1, 2]]}),
    "null row": ("insert_posts", {"rows": [None]}),
    "null": ("insert_posts", {"rows": None}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_call_that_asks_too_much_is_refused(bomb: str, opened: Opens, dialect: str) -> None:
    tool, arguments = BOMBS[bomb]
    with opened(dialect, {"posts": ALL}, ddl=PRESETS.format(more="")) as (caller, shop):
        before = stored(shop, "select * from posts")
        error = refused(caller, tool, **arguments)
        after = stored(shop, "select * from posts")

    assert error.code in ("bad_argument", "bad_value", "too_many_rows", "unknown_argument")
    assert len(str(error)) < 2_000
    assert after == before


@pytest.mark.parametrize(
    "value", ["[" + "1," * 30_000 + "1]", "[" * 40 + "]" * 40, "[" * 400_000], ids=["items", "depth", "open"]
)
def test_array_in_a_text_is_bounded_like_any_other(value: str, opened: Opens) -> None:
    with opened("postgresql", {"posts": ALL}, ddl=PRESETS.format(more=", marks integer[]")) as (caller, shop):
        error = refused(caller, "update_posts", id=1, set={"marks": value})
        found = stored(shop, "select marks from posts")

    assert (error.code in ("bad_argument", "bad_value"), found) == (True, [(None,)])


@pytest.mark.parametrize(("where", "locks"), [("1000 / id > 0", False), ("id > 0", True)])
def test_filter_that_may_raise_locks_no_other_row(where: str, locks: bool, opened: Opens) -> None:
    section = ALL.model_copy(update={"where": where})
    with opened("postgresql", {"posts": section}, ddl=PRESETS.format(more="")) as (caller, _):
        view = caller.portal.call(caller.toolbox.view, caller.role)
        bound: Any = view.tools["update_posts"].bind({"id": 1, "set": {"body": "x"}})
        ((write, _),) = bound.transaction.writes
        plan = caller.portal.call(caller.database.writer).compile(write)

    assert plan.before is not None
    assert ("for update" in plan.before.sql) is locks


RAISING_CHECK = """
    create table ratios (id integer primary key, divisor bigint not null);
    insert into ratios values (1, 1), (9, 0);
    create function divides(bigint) returns boolean language plpgsql cost 0.0001
        set search_path = pg_catalog
        as $$ begin return 10 / $1 > 0; end $$;
    analyze ratios;
"""


def test_check_is_evaluated_on_no_other_row(opened: Opens) -> None:
    section = ALL.model_copy(update={"check": "divides(divisor)"})
    with opened("postgresql", {"ratios": section}, ddl=RAISING_CHECK) as (caller, shop):
        caller.call("update_ratios", id=1, set={"divisor": 2})
        caller.call("insert_ratios", rows=[{"id": 2, "divisor": 3}])
        unreadable = refused(caller, "update_ratios", id=1, set={"divisor": 0})
        found = stored(shop, "select * from ratios order by id")

    assert unreadable.code == "bad_value"
    assert found == [(1, 2), (2, 3), (9, 0)]
