"""The rules of the source: which module may import which, sizes, and what tests may not use.

A rule takes a module and gives what breaks it. Most rules are rows of the tables below.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
PACKAGE = "dbtools"

#: Ground first. A part imports from lower floors, from its neighbours on its own, and from itself.
FLOORS = (
    {"__init__"},
    {"errors", "telemetry"},
    {"values"},
    {"schema", "findings"},
    {"policy", "expressions", "queries"},
    {"statements"},
    {"answers"},
    {"tools", "backends"},
    {"settings", "alembic"},
    {"configured", "records"},
    {"service"},
    {"server"},
    {"cli"},
    {"__main__"},
)
FLOOR = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
STRANGERS = {"tools", "backends"}  #: neighbours that do not know each other
PURE = {part for part in FLOOR if FLOOR[part] <= FLOOR["tools"]} - {"backends"}  #: never awaits
IMPURE = tuple(sorted(FLOOR.keys() - PURE))

#: Who may import what. Names stand for themselves and all below; `*` for any letters.
IMPORTERS: Mapping[str, tuple[str, ...]] = {
    "aiosqlite": ("backends",),
    "anyio": IMPURE,
    "asyncio": ("backends", "cli", "server"),
    "asyncpg": ("backends",),
    "mcp": (),  # the oracle of the tests
    "mcp_types": (),
    "sqlalchemy.ext.asyncio": IMPURE,
    "sqlite3": ("backends",),
}
#: Where a word may occur: in code, text, comments and names of files.
WORDS: Mapping[str, tuple[str, ...]] = {"postgresql": ("backends",), "sqlite": ("backends",)}
LATE_IMPORTERS = (
    *("cli", "__main__", "server.http.identity", "server.calls", "server.running"),
    *("backends.sqlite.__init__", "backends.postgresql.__init__"),
)
#: What is complete when it is made, so that only its own class assigns it.
COMPLETE = ("backend.*", "*.hint", "*.message", "*.temporary", "*.declined")
BLANKET_CATCHERS = ("cli", "server", "service.reloading", "service.toolbox")
#: Classes and aliases of types whose name is in several modules: each database implements the port's.
SHARED_NAMES = {"Backend"}
VAGUE_NAMES = {"utils", "helpers", "common", "misc", "base", "manager"}
#: Private attributes that tests use: those of named tuples, and of other packages that offer no other way.
PRIVATE_USES = ("*._asdict", "*._fields", "*._make", "*._replace", "os._exit", "context.session._connection")
#: What tests replace in the package, because calls must not depend on how busy the machine is.
PATCHES = {"EXPLANATION_TIMEOUT"}
MAX_LINES_OF_MODULE = 400
MAX_LINES_OF_FUNCTION = 50
MAX_LINES_OF_SENTENCE = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class Module:
    """A file of the package."""

    path: str  #: below the package, such as `tools/rows.py`
    text: str

    @property
    def name(self) -> str:
        """Return the dotted name below the package, such as `tools.rows` or `tools.__init__`."""
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def part(self) -> str:
        """Return the part of the house it belongs to."""
        return self.name.split(".")[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return every node of the syntax tree, the module first."""
        return tuple(ast.walk(ast.parse(self.text)))

    @cached_property
    def imports(self) -> tuple[tuple[int, str], ...]:
        """Return the line and the full dotted name of everything that is imported."""
        return tuple(chain.from_iterable(self._imports_of(node) for node in self.nodes))

    @property
    def type_names(self) -> Iterator[str]:
        """Yield the names of the classes and of the aliases of types."""
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name
            if isinstance(node, ast.Assign) and isinstance(name := node.targets[0], ast.Name):
                yield from re.findall(r"^_?[A-Z]\w*[a-z]\w*$", name.id)

    def _imports_of(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = f"{PACKAGE}.{self.name}".rpartition(".")[0]
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)

    def is_among(self, names: tuple[str, ...]) -> bool:
        """Tell whether one of *names* stands for this module."""
        return any(_stands_for(name, self.name) for name in names)


Found = Iterator[tuple[int, str]]  #: a line, and what is wrong there
Rule = Callable[[Module], Found]


def _stands_for(name: str, dotted: str) -> bool:
    return fnmatchcase(dotted, name) or fnmatchcase(dotted, f"{name}.*")


def has_a_floor(module: Module) -> Found:
    if module.part not in FLOOR:
        yield 1, f"{module.part} has no floor yet: give it one in FLOORS"


def imports_lower_floors(module: Module) -> Found:
    for line, name in module.imports:
        package, _, rest = name.partition(".")
        part = rest.split(".")[0] if rest.split(".")[0] in FLOOR else "__init__"
        if package != PACKAGE or part == module.part or module.part not in FLOOR:
            continue
        if FLOOR[part] > FLOOR[module.part] or {part, module.part} == STRANGERS:
            yield line, f"imports {name}, which is not on a lower floor"


def imports_what_it_may(module: Module) -> Found:
    for line, name in module.imports:
        for imported, importers in IMPORTERS.items():
            if _stands_for(imported, name) and not module.is_among(importers):
                yield line, f"imports {name}, which only {', '.join(importers)} may"


def imports_at_the_top(module: Module) -> Found:
    if module.is_among(LATE_IMPORTERS):
        return
    for function in _functions(module):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node.lineno, f"{function.name} imports late"


def is_pure(module: Module) -> Found:
    if module.part not in PURE:
        return
    for node in module.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, f"{module.part} is of the pure wing, which does not await"


def says_no_foreign_word(module: Module) -> Found:
    for word, places in WORDS.items():
        if module.is_among(places):
            continue
        for number, line in enumerate([module.path, *module.text.splitlines()]):
            if word in line.lower():
                yield max(number, 1), f"says {word!r}, which only {', '.join(places)} may"


def catches_what_it_knows(module: Module) -> Found:
    if module.is_among(BLANKET_CATCHERS):
        return
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and _is_blanket(node):
            yield node.lineno, f"catches everything, which only {', '.join(BLANKET_CATCHERS)} may"


def _is_blanket(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    raises_again = handler.body[-1:] and ast.unparse(handler.body[-1]) == "raise"
    return "Exception" in caught or ("BaseException" in caught and not raises_again)


def completes_nothing(module: Module) -> Found:
    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            continue
        written = ast.unparse(node)
        is_own = module.name == "errors" or _root(node) == "self"
        if not is_own and any(fnmatchcase(written, each) for each in COMPLETE):
            yield node.lineno, f"assigns {written}, which is complete when it is made"


def is_short(module: Module) -> Found:
    lines = len(module.text.splitlines())
    if lines > MAX_LINES_OF_MODULE:
        yield lines, f"has {lines} lines; {MAX_LINES_OF_MODULE} may pass"


def has_short_functions(module: Module) -> Found:
    for function in _functions(module):
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > MAX_LINES_OF_FUNCTION:
            yield function.lineno, f"{function.name} has {lines} lines"


def is_named_by_a_noun(module: Module) -> Found:
    for name in VAGUE_NAMES.intersection(module.name.split(".")):
        yield 1, f"is named {name!r}, which says nothing"


def lists_names_in_init_only(module: Module) -> Found:
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id == "__all__" and "__init__" not in module.name:
            yield node.lineno, "__all__ belongs into __init__.py"


def says_what_it_is(module: Module) -> Found:
    tree = module.nodes[0]
    assert isinstance(tree, ast.Module)
    if not ast.get_docstring(tree):
        yield 1, "has no docstring"
    for definition in _public_definitions(tree):
        if not _opens_with_a_sentence(ast.get_docstring(definition) or ""):
            yield (
                definition.lineno,
                f"{definition.name} has no docstring whose first sentence ends by line "
                f"{MAX_LINES_OF_SENTENCE}",
            )


def _opens_with_a_sentence(docstring: str) -> bool:
    opening = "\n".join(docstring.splitlines()[:MAX_LINES_OF_SENTENCE])
    return bool(re.search(r"[.!?](\s|$)", opening))


def _public_definitions(scope: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    for node in scope.body:
        if isinstance(node, Definition) and not (node.name.startswith("_") or _is_overload(node)):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node)


def _is_overload(definition: Definition) -> bool:
    return any(ast.unparse(node).endswith("overload") for node in definition.decorator_list)


def uses_nothing_private(module: Module) -> Found:
    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or not re.match("_[^_]", node.attr):
            continue
        written = ast.unparse(node)
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not is_own and not any(fnmatchcase(written, each) for each in PRIVATE_USES):
            yield node.lineno, f"uses {written}, which is private"


def patches_nothing_of_the_package(module: Module) -> Found:
    ours = set(_names_from_package(module))
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root(node) in ours:
            yield node.lineno, f"replaces {ast.unparse(node)}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".setattr"):
            target, name = node.args[0], ast.unparse(node.args[1]).strip("'")
            is_named = isinstance(target, ast.Constant) and str(target.value).startswith(f"{PACKAGE}.")
            if is_named or (_root(target) in ours and name not in PATCHES):
                yield node.lineno, f"replaces {name} of {ast.unparse(target)}"


def _root(node: ast.AST) -> str:
    """Return the name with which *node* begins, such as `pool` of `pool.Pool.size`."""
    return re.split(r"\W", ast.unparse(node), maxsplit=1)[0]


def _names_from_package(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and _stands_for(PACKAGE, node.module or ""):
            yield from (alias.asname or alias.name for alias in node.names)
        if isinstance(node, ast.Import):
            yield from (alias.asname or PACKAGE for alias in node.names if _stands_for(PACKAGE, alias.name))


def _functions(module: Module) -> Iterator[Function]:
    return (node for node in module.nodes if isinstance(node, Function))


RULES: tuple[Rule, ...] = (
    has_a_floor,
    imports_lower_floors,
    imports_what_it_may,
    imports_at_the_top,
    is_pure,
    says_no_foreign_word,
    catches_what_it_knows,
    completes_nothing,
    is_short,
    has_short_functions,
    is_named_by_a_noun,
    lists_names_in_init_only,
    says_what_it_is,
)
TEST_RULES: tuple[Rule, ...] = (is_short, uses_nothing_private, patches_nothing_of_the_package)


@cache
def package_modules() -> tuple[Module, ...]:
    """Return the files of the package, each parsed once."""
    return tuple(_module(path, ROOT / PACKAGE) for path in sorted((ROOT / PACKAGE).rglob("*.py")))


def _module(path: Path, folder: Path) -> Module:
    return Module(path=path.relative_to(folder).as_posix(), text=path.read_text(encoding="utf-8"))


def breaches_of(module: Module, rules: tuple[Rule, ...]) -> list[str]:
    found = sorted({place for rule in rules for place in rule(module)})
    return [f"{module.path}:{line}: {message}" for line, message in found]


def cycle_in(modules: tuple[Module, ...]) -> list[str]:
    """Return the names of modules, or of rooms in one folder, that import each other in a ring."""
    imports = {f"{PACKAGE}.{module.name}".removesuffix(".__init__"): module.imports for module in modules}
    graph = defaultdict[str, set[str]](set)
    for importer, found in imports.items():
        for imported in {_nearest(name, imports.keys()) for _, name in found} - {""}:
            graph[importer].add(imported)
            ours, theirs = _rooms_of(importer, imported)
            graph[ours].add(theirs)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        ring: list[str] = exc.args[1]
        return ring
    return []


def _rooms_of(importer: str, imported: str) -> tuple[str, str]:
    """Return the rooms of two modules in the folder that has both, or the modules if one holds the other."""
    ours, theirs = importer.split("."), imported.split(".")
    for depth, (own, their) in enumerate(zip(ours, theirs, strict=False), 1):
        if own != their:
            return ".".join(ours[:depth]), ".".join(theirs[:depth])
    return importer, imported


def _nearest(name: str, names: Collection[str]) -> str:
    """Return which of *names* the import of *name* loads, or nothing."""
    return name if name in names or not name else _nearest(name.rpartition(".")[0], names)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_package_keeps_the_rule(rule: Rule) -> None:
    breaches = [f"{PACKAGE}/{each}" for module in package_modules() for each in breaches_of(module, (rule,))]

    assert breaches == [], "\n".join(breaches)


def test_no_two_modules_give_a_type_the_same_name() -> None:
    modules_of = Counter(name for module in package_modules() for name in {*module.type_names})

    assert {name for name, count in modules_of.items() if count > 1} == SHARED_NAMES


def test_contributing_lists_the_floors() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = page.partition("lowest first:\n\n```text\n")[2].partition("```")[0]

    floors = [set(re.findall(r"\w+", floor)) for floor in listed.split("<")]

    assert floors == [floor for floor in FLOORS if not floor & {"__init__", "__main__"}]


def test_tests_keep_the_rules() -> None:
    files = [_module(path, TESTS) for path in (*TESTS.glob("*.py"), *TESTS.glob("*/*.py"))]
    breaches = [f"tests/{each}" for file in files for each in breaches_of(file, TEST_RULES)]

    assert breaches == [], "\n".join(breaches)


def test_no_modules_import_each_other_in_a_ring() -> None:
    assert cycle_in(package_modules()) == []
