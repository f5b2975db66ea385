"""The closed set of findings: every sentence is used, with data for all its places."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from dbtools.findings import FindingCode, Kind, Level, Source, finding, withdrawn

PACKAGE = Path(__file__).parents[2] / "dbtools"
FIELDS = {"role", "subject"}  #: of a finding, whether or not its sentence has a place for them


def calls() -> Iterator[tuple[str, list[Kind], ast.Call]]:
    """Yield each call that names kinds of findings in its first argument, with its place and these kinds."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and (kinds := named_in(node.args[0])):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", kinds, node


def named_in(node: ast.AST) -> list[Kind]:
    return [
        Kind[each.attr]
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "Kind"
    ]


def places_of(kind: Kind) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(kind.text) if name}


def test_every_code_has_a_sentence() -> None:
    assert {kind.code for kind in Kind} == set(FindingCode)


def test_every_sentence_is_used() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]

    assert {kind for tree in trees for kind in named_in(tree)} == set(Kind)


def test_no_other_module_words_a_finding() -> None:
    words = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"
    ]

    assert words == ["findings/values.py"]


def test_no_stage_gives_data_that_its_sentence_has_no_place_for() -> None:
    idle = {
        place: unknown
        for place, kinds, call in calls()
        if (
            unknown := {each.arg for each in call.keywords if each.arg} - FIELDS.union(*map(places_of, kinds))
        )
    }

    assert idle == {}


def test_stages_fill_every_place_of_their_sentences() -> None:
    direct = [
        (place, kinds, {each.arg for each in call.keywords})
        for place, kinds, call in calls()
        if ast.unparse(call.func) in ("finding", "Unusable")
    ]
    empty = {
        place: missing
        for place, kinds, given in direct
        if None not in given and (missing := set().union(*map(places_of, kinds)) - given)
    }

    assert len(direct) > 50
    assert empty == {}


def test_finding_is_worded_with_its_data() -> None:
    found = finding(Kind.INHERITS_TOO_DEEP, Source(file="a.toml", line=3), role="r", most=50)

    assert (found.code, found.level, found.role) == ("unknown_role", "error", "r")
    assert str(found) == "a.toml:3: error: role r, inherits: more than 50 roles inherit from each other."


@pytest.mark.parametrize("level", [Level.ERROR, Level.WARNING])
def test_stage_decides_on_a_level_that_the_sentence_leaves_open(level: Level) -> None:
    fixed = finding(Kind.BAD_LOG, Source(), level, problem="It is full.")

    assert finding(Kind.POSTURE, Source(), level, fact="It may write.", remedy="").level == level
    assert fixed.level == "error"


def test_withdrawn_query_keeps_the_code_of_its_problem() -> None:
    problem = finding(Kind.QUERY_UNCHECKED, Source(), problem="It is locked.")
    place = Source(file="q.sql", line=1)

    of_all, of_one = withdrawn(problem, "q", place), withdrawn(problem, "q", place, "r")

    assert (str(of_all), of_all.code) == (
        "q.sql:1: error: query q is withdrawn: It is locked.",
        "unchecked",
    )
    assert (str(of_one), of_one.role, of_one.subject) == (
        "q.sql:1: error: role r, queries: q is withdrawn: It is locked.",
        "r",
        "q",
    )
