"""Small faults to put into a source file. Its text in; mutants out, each with the text that has the fault.

Left out are docstrings, annotations, imports, assertions and logging. A mutant is found again after edits
elsewhere: its key names the function and the text of the line, not the line's number.
"""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, pairwise

COMPARISONS = {
    ast.Lt: (b"<", b"<="),
    ast.LtE: (b"<=", b"<"),
    ast.Gt: (b">", b">="),
    ast.GtE: (b">=", b">"),
    ast.Eq: (b"==", b"!="),
    ast.NotEq: (b"!=", b"=="),
    ast.Is: (b"is", b"is not"),
    ast.IsNot: (b"is not", b"is"),
    ast.In: (b"in", b"not in"),
    ast.NotIn: (b"not in", b"in"),
}
WORDS = {ast.And: (b"and", b"or"), ast.Or: (b"or", b"and")}
SQL = re.compile(
    rb"\bselect\s.*\b(from|where)\b|\b(where|and|on)\s.* [=<>]+ |\bexists \(|\bis (not )?null\b", re.S
)
IN_SQL = (
    (rb"\bnot ", b""),
    (rb"\band\b", b"or"),
    (rb"\bor\b", b"and"),
    (rb"(?<=[\w) ])<(?=[ \w(:$])", b"<="),
    (rb"(?<=[ \w)])>(?=[ \w(:$])", b">="),
    (rb"<=", b"<"),
    (rb"(?<!->)>=", b">"),
    (rb"<>", b"="),
    (rb"(?<=\w) = ", b" <> "),
)
LOGGING = re.compile(rb"(logger|logging|warnings)\.")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
KEPT = ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr | ast.Global | ast.Nonlocal


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A file with a fault."""

    key: str  #: module, function, text of the line, what replaces what, and which of several alike
    kind: str
    module: str  #: below the package
    lines: range  #: of its statement, or of the head of a compound one; empty outside of functions
    name: str  #: what its statement outside of functions defines
    span: tuple[int, int]  #: what is replaced
    text: bytes

    def applied(self, source: bytes) -> bytes:
        """Return *source* with the fault."""
        start, end = self.span
        return source[:start] + self.text + source[end:]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a node is."""

    function: str = ""
    name: str = ""
    lines: range = range(0)


Edit = tuple[str, int, int, bytes]  #: its kind, what it replaces, and by what


def chosen(sources: Mapping[str, bytes], *, count: int, seed: int) -> list[Mutant]:
    """Return about *count* mutants of *sources*: of each module as its length demands, at least one."""
    lines = sum(source.count(b"\n") for source in sources.values())
    picked: list[Mutant] = []
    for module, source in sorted(sources.items()):
        share = max(1, round(count * source.count(b"\n") / lines))
        varied = _varied(mutants_of(module, source), random.Random(f"{seed} {module}"))
        plain = ast.dump(ast.parse(source))
        picked += islice((each for each in varied if _tree(each.applied(source)) not in ("", plain)), share)
    random.Random(seed).shuffle(picked)
    return picked


def _tree(source: bytes) -> str:
    """Return the syntax tree of *source*, or nothing if it is no program."""
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return ""


def _varied(mutants: list[Mutant], dice: random.Random) -> list[Mutant]:
    """Return *mutants* in a random order in which the kinds take turns."""
    kinds = defaultdict(list)
    for mutant in dice.sample(mutants, len(mutants)):
        kinds[mutant.kind].append(mutant)
    order = {id(each): (turn, dice.random()) for its in kinds.values() for turn, each in enumerate(its)}
    return sorted(mutants, key=lambda each: order[id(each)])


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """Return every mutant of the *source* of *module*."""
    return list(_Mutator(module, source).mutants())


class _Mutator:
    def __init__(self, module: str, source: bytes) -> None:
        self._module, self._source, self._tree = module, source, ast.parse(source)
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield the mutants in the order of the text."""
        alike: dict[str, int] = defaultdict(int)
        for place, (kind, start, end, text) in self._visit(self._tree, _Place()):
            line = self._line_at(start)
            was = " ".join(self._source[start:end].decode().split())[:60]
            key = f"{self._module}:{place.function}: {line} [{was} -> {text.decode()[:60]}]"
            alike[key] += 1
            yield Mutant(
                key=f"{key} #{alike[key]}",
                kind=kind,
                module=self._module,
                lines=place.lines,
                name=place.name,
                span=(start, end),
                text=text,
            )

    def _line_at(self, offset: int) -> str:
        start = self._source.rfind(b"\n", 0, offset) + 1
        return self._source[start:].partition(b"\n")[0].strip().decode()

    def _visit(self, node: ast.AST, place: _Place) -> Iterator[tuple[_Place, Edit]]:
        if isinstance(node, KEPT) or (isinstance(node, ast.stmt) and self._is_kept(node)):
            return
        if isinstance(node, ast.stmt):
            place = _narrowed(node, place)
        yield from ((place, edit) for edit in self._edits(node))
        for name, value in ast.iter_fields(node):
            is_dataclass = name == "decorator_list" and isinstance(node, ast.ClassDef)
            if name not in ("annotation", "returns") and not is_dataclass:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self._visit(child, place)

    def _is_kept(self, node: ast.stmt) -> bool:
        text = self._text(node)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_docstring or bool(LOGGING.match(text)) or text.startswith((b"if TYPE_CHECKING", b"__all__"))

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        yield from self._of_operators(node)
        yield from self._of_values(node)
        yield from self._of_statements(node)

    def _of_operators(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                operands = (node.left, *node.comparators)
                for operator, left, right in zip(node.ops, operands, node.comparators, strict=False):
                    yield from self._between("comparison", left, right, COMPARISONS[type(operator)])
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    yield from self._between("and, or", left, right, WORDS[type(node.op)])
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._span(node)
                yield "not", start, start + len(b"not "), b""
            case ast.Call(func=ast.Name(id="min" | "max" as name)):
                yield "min, max", *self._span(node.func), {"min": b"max", "max": b"min"}[name]
            case _:
                pass

    def _of_values(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Constant(value=bool()):
                yield "boolean", *self._span(node), str(not node.value).encode()
            case ast.Constant(value=int() as number):
                yield from (("number", *self._span(node), b"%d" % each) for each in (number + 1, number - 1))
            case ast.Constant(value=str()) if SQL.search(self._text(node)):
                yield from self._in_sql(*self._span(node))
            case ast.arguments():
                for default in filter(None, (*node.defaults, *node.kw_defaults)):
                    yield "default", *self._span(default), b"None"
            case _:
                pass

    def _of_statements(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                yield from self._negated(node.test)
            case ast.comprehension():
                yield from chain.from_iterable(map(self._negated, node.ifs))
            case ast.Return(value=ast.expr()):
                yield "return", *self._span(node), b"return None"
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Delete():
                yield "statement", *self._span(node), b"pass"
            case _:
                pass

    def _negated(self, test: ast.expr) -> Iterator[Edit]:
        if not isinstance(test, ast.UnaryOp | ast.Constant) and not (
            isinstance(test, ast.Compare) and len(test.ops) == 1
        ):
            yield "condition", *self._span(test), b"(not (" + self._text(test) + b"))"

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, words: tuple[bytes, bytes]
    ) -> Iterator[Edit]:
        start, end = self._span(left)[1], self._span(right)[0]
        found = self._source.find(words[0], start, end)
        if found >= 0:
            yield kind, found, found + len(words[0]), words[1]

    def _in_sql(self, start: int, end: int) -> Iterator[Edit]:
        for pattern, text in IN_SQL:
            for found in re.finditer(pattern, self._source[start:end]):
                yield "SQL", start + found.start(), start + found.end(), text

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> bytes:
        start, end = self._span(node)
        return self._source[start:end]


def _narrowed(node: ast.stmt, place: _Place) -> _Place:
    """Return where the statement *node* in *place* is."""
    if isinstance(node, FUNCTIONS):
        inner = f"{place.function}.{node.name}".lstrip(".")
        return _Place(function=inner, lines=range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    if isinstance(node, ast.ClassDef):
        return _Place(function=f"{place.function}.{node.name}".lstrip("."), name=node.name)
    if not place.lines:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        return _Place(function=place.function, name=names[0] if names else place.name)
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else node.end_lineno or 0
    return _Place(function=place.function, lines=range(node.lineno, max(end, node.lineno) + 1))
