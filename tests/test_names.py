"""Names in the source: a constant has one meaning, and a function is named for what it returns."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.test_architecture import Found, Function, Module, package_modules

#: Words that end a name like a participle or an adjective, but are nouns or verbs.
NOUNS = {
    *("binding", "finding", "listing", "ping", "setting", "spelling", "string", "warning"),
    *("table", "variable"),
}
#: Participles without -ed or -ing, and adjectives.
ADJECTIVES = {
    *("begun", "bound", "found", "given", "heard", "held", "kept", "known", "left", "lost", "meant", "seen"),
    *("shown", "sought", "stored", "taken", "told", "unknown", "written"),
    *("alike", "alone", "bare", "brief", "equal", "exact", "fresh", "full", "idle", "invalid", "partial"),
    *("plain", "same", "short", "single", "strict", "unique", "valid", "whole", "wrong"),
}
PREDICATES = ("is_", "are_", "has_", "may_", "can_")
UNNAMED = ("property", "cached_property", "contextmanager", "asynccontextmanager")  #: these need no noun
#: The verb comes first, or asyncio gives the name.
NAMED_OTHERWISE = {
    *("open_served", "change_chosen", "change_matching", "check_deleted", "render_pending", "set_enabled"),
    *("start_reading", "bind_having", "compile_whole", "prepare_bare", "eof_received"),
}
MEANINGS = 2  #: values that constants of one name have at most, across the package
#: Words that meant too many things, and must not come back as names.
FORMER = {
    *("UNREADABLE", "Lacking", "lacking", "Heard", "heard", "FreeRun", "FreeStatement", "View", "Plan"),
    *("guarded", "habits", "vetted", "used", "taken", "running", "known"),
}


def names_what_functions_return(module: Module) -> Found:
    for node in module.nodes:
        if isinstance(node, Function) and _returns_a_value(node) and _is_adjective(node.name.strip("_")):
            yield node.lineno, f"{node.name} needs a name that says what it returns"


def _is_adjective(name: str) -> bool:
    last = name.rpartition("_")[2]
    if name.startswith(PREDICATES) or name in NAMED_OTHERWISE or last in NOUNS:
        return False
    return last in ADJECTIVES or last.endswith(("ed", "ing", "able", "ible"))


def _returns_a_value(function: Function) -> bool:
    decorators = {re.split(r"\W", ast.unparse(node))[-1] for node in function.decorator_list}
    returns = function.returns is not None and ast.unparse(function.returns) != "None"
    return returns and decorators.isdisjoint(UNNAMED)


def constants_of(module: Module) -> Iterator[tuple[str, str]]:
    """Yield the names of the constants of *module*, each with the expression of its value."""
    tree = module.nodes[0]
    assert isinstance(tree, ast.Module)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, ast.unparse(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, ast.unparse(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (
                    (name.id, ast.unparse(value))
                    for name, value in zip(names, values, strict=False)
                    if isinstance(name, ast.Name)
                )
            case _:
                pass


def test_functions_are_named_for_what_they_return() -> None:
    breaches = [
        f"{module.path}:{line}: {message}"
        for module in package_modules()
        for line, message in names_what_functions_return(module)
    ]

    assert breaches == []


def test_constant_of_one_name_has_few_meanings() -> None:
    meanings: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for module in package_modules():
        for name, value in constants_of(module):
            if name.isupper() and len(name) > 1:
                meanings[name].setdefault(value, module.path)

    assert {name: places for name, places in meanings.items() if len(places) > MEANINGS} == {}


def test_words_that_meant_too_much_do_not_return() -> None:
    found = {
        (module.path, name)
        for module in package_modules()
        for name in (
            *(node.name for node in module.nodes if isinstance(node, Function | ast.ClassDef)),
            *(name for name, _ in constants_of(module)),
        )
        if name in FORMER
    }

    assert found == set()


@pytest.mark.parametrize(
    ("text", "is_breach"),
    [
        ("def _masked(cell: str) -> str: ...", True),
        ("class C:\n    async def readable(self) -> int: ...", True),
        ("def is_masked(cell: str) -> bool: ...", False),
        ("def _opened() -> None: ...", False),
        ("@property\ndef masked(self) -> str: ...", False),
        ("def listing(names: str) -> str: ...", False),
    ],
)
def test_rule_of_functions_notices_a_breach(text: str, is_breach: bool) -> None:
    found = list(names_what_functions_return(Module(path="tools/rows.py", text=text)))

    assert bool(found) == is_breach
