"""Which faults the tests find. A commit in; for each of its mutants, whether a test fails and which.

    python -m tests.mutants map MAP                          which tests run which lines; needs coverage
    python -m tests.mutants run MAP RESULTS [--like BEFORE]  try mutants, or those of an earlier run
    python -m tests.mutants compare BEFORE AFTER             list what only the earlier run found

MAP and RESULTS have a line of JSON for each test file or mutant. An interrupted command goes on there.
Left out are benchmarks, clients of other projects, and the tests of the source itself.
"""

import argparse
import importlib
import json
import os
import re
import time
from ast import AsyncFunctionDef, FunctionDef, parse, walk
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.laboratory import LONGEST, Lab, open_lab
from tests.mutations import Mutant, chosen, mutants_of

UNUSED = ("benchmarks", "clients", "test_architecture.py", "test_style.py", "test_package.py")
#: Processes of dbtools that coverage cannot follow, and where they are asked.
WORKERS, ASKING = ("backends/sqlite/worker.py", "backends/postgresql/guard.py"), "backends/processes.py"
#: Seconds of processor time after which another process goes on; no mutant takes more than the last.
BATCHES = (2.0, 6.0, 20.0, 60.0, 150.0)
PASSED = (0, 5)  #: how pytest ends; the latter without a test
IMPORT = 0.3  #: seconds that a file takes before its first test
LEAST, TIMES = 120.0, 8.0  #: seconds, and times the known ones, after which a test is stuck


class Recording:
    """Records which lines each test runs, and which ones its file, through fixtures and processes."""

    def __init__(self, folder: Path) -> None:
        os.environ["COVERAGE_PROCESS_START"] = str(folder / "coveragerc")
        coverage: Any = importlib.import_module("coverage")
        self._coverage = coverage.Coverage(
            data_file=str(folder / "lines" / "main"),
            branch=True,
            concurrency=["thread"],
            config_file=False,
            messages=False,
            source=[str(folder / "tree" / "dbtools")],
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def make_map(lab: Lab, path: Path, only: str) -> None:
    """Write which lines each test runs to *path*, and beside it the branches that the tests take."""
    coverage: Any = importlib.import_module("coverage")
    branches = coverage.CoverageData(f"{path}.coverage")
    branches.read()
    done = {each["file"] for each in _read(path)}
    tests = sorted((lab.original / "tests").rglob("test_*.py"))
    for file in (each.relative_to(lab.original).as_posix() for each in tests):
        if file in done or only not in file or any(name in Path(file).parts for name in UNUSED):
            continue
        lab.serve()
        lab.renew()
        started = time.monotonic()
        # Fewer examples run nearly the same lines.
        told = lab.test([file, "--hypothesis-profile=quick"], LONGEST, lambda: Recording(lab.folder))
        seconds: dict[str, float] = defaultdict(float)
        for each in told:
            if each.what in ("took", "failed") and "::" in each.test:
                seconds[each.test] += each.figure or 0
        lines: dict[str, dict[str, str]] = defaultdict(dict)
        for data in (coverage.CoverageData(str(each)) for each in (lab.folder / "lines").iterdir()):
            data.read()
            for name, module, bits in _lines_in(data, lab.tree / "dbtools"):
                lines[name][module] = f"{bits | int(lines[name].get(module, '0'), 16):x}"
            measured = {each: data.arcs(each) or [] for each in data.measured_files()}
            branches.add_arcs(
                {str(Path(each).relative_to(lab.tree)): arcs for each, arcs in measured.items()}
            )
        failed = sorted({each.test for each in told if each.what == "failed"})
        took, ended = time.monotonic() - started, told[-1].figure
        _append(path, file=file, took=took, ended=ended, failed=failed, tests=seconds, lines=lines)


def _lines_in(data: Any, package: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each test, or nothing for its file, with a module of *package* and the lines it runs, as bits."""
    for file in data.measured_files():
        lines: dict[str, int] = defaultdict(int)
        for number, names in data.contexts_by_lineno(file).items():
            for name in names if number > 0 else ():
                lines[name] |= 1 << number
        yield from ((name, Path(file).relative_to(package).as_posix(), bits) for name, bits in lines.items())


class Map:
    """Which tests run which lines of the *sources*."""

    def __init__(self, path: Path, sources: dict[str, bytes]) -> None:
        self.seconds: dict[str, float] = {}  #: of processor time
        self._tests: dict[str, frozenset[str]] = {}
        self._lines: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        for each in _read(path):
            self.seconds |= each["tests"]
            self._tests[each["file"]] = frozenset(each["tests"])
            for name, modules in each["lines"].items():
                for module, bits in modules.items():
                    self._lines[module].append((each["file"], name, int(bits, 16)))
        self._texts = {module: source.decode().splitlines() for module, source in sources.items()}
        self._bodies = {module: _bodies(source) for module, source in sources.items()}
        self._asking = {ASKING: _bodies(sources[ASKING], "ask")}
        self._asked = _imported(sources, WORKERS)

    def batches_for(self, mutant: Mutant) -> tuple[list[list[str]], int]:
        """Return batches of tests that can find *mutant*, fastest files first, and how many are left out."""
        names = self._running(self._places(mutant))
        if mutant.module in self._asked:
            for file, more in self._running(self._asking).items():
                names[file] |= more
        costs = {file: IMPORT + sum(self.seconds[each] for each in its) for file, its in names.items()}
        batches: list[list[str]] = [[] for _ in BATCHES]
        total, left = 0.0, 0
        for file, cost in sorted(costs.items(), key=lambda each: each[1]):
            total += cost
            if total > BATCHES[-1]:
                left += len(names[file])
            else:
                batches[bisect_left(BATCHES, total)] += sorted(names[file])
        return [each for each in batches if each], left

    def _places(self, mutant: Mutant) -> dict[str, int]:
        """Return the lines whose tests can find *mutant*: those of functions that name a constant."""
        if mutant.lines:
            return {mutant.module: sum(1 << number for number in mutant.lines)}
        naming = re.compile(rf"\b{mutant.name or '(?!)'}\b")
        places = {
            module: self._bodies[module]
            & sum(1 << number for number, text in enumerate(lines, 1) if naming.search(text))
            for module, lines in self._texts.items()
        }
        return places if any(places.values()) else {mutant.module: self._bodies[mutant.module] or -1}

    def _running(self, places: dict[str, int]) -> dict[str, set[str]]:
        """Return the tests of each file that run one of the lines at *places*."""
        names: dict[str, set[str]] = defaultdict(set)
        for module, lines in places.items():
            for file, name, bits in self._lines[module]:
                if bits & lines:
                    names[file] |= {name} if name else self._tests[file]
        return names


def _bodies(source: bytes, name: str = "") -> int:
    """Return the lines in functions of *source*, or in those with the *name*, as bits."""
    bits = 0
    for node in walk(parse(source)):
        if isinstance(node, FunctionDef | AsyncFunctionDef) and name in ("", node.name):
            bits |= sum(1 << number for number in range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return bits


def _imported(sources: dict[str, bytes], modules: Sequence[str]) -> set[str]:
    """Return *modules* and what they import, except what the server imports as well."""
    found = {*modules}
    for module in modules:
        names = re.findall(r"^from dbtools\.(backends\.[\w.]+) import", sources[module].decode(), re.M)
        found |= {f"{name.replace('.', '/')}.py" for name in names} & {*sources}
    return found if found == {*modules} else _imported(sources, sorted(found))


def run(lab: Lab, map_: Map, mutants: dict[str, Mutant | None], results: Path) -> None:
    """Try *mutants*, and append to *results* which test found each."""
    fit: set[str] = set()
    unfit: set[str] = set()
    done = {each["mutant"] for each in _read(results)}
    for key, mutant in mutants.items():
        if key in done:
            continue
        if mutant is None:
            _append(results, mutant=key, found=None, how="gone")
            continue
        started, tried, verdict = time.monotonic(), 0, None
        batches, left = map_.batches_for(mutant)
        lab.renew(mutant)
        for tests in batches:
            tried += len(tests)
            lab.serve()
            if verdict := _verdict(lab, mutant, tests, map_.seconds, fit, unfit):
                break
        how, by = verdict or ("passed" if tried else "no test", "")
        took = round(time.monotonic() - started, 1)
        _append(results, mutant=key, found=bool(verdict), how=how, by=by, tried=tried, left=left, took=took)


def _verdict(
    lab: Lab, mutant: Mutant, tests: list[str], seconds: dict[str, float], fit: set[str], unfit: set[str]
) -> tuple[str, str] | None:
    """Return how one of *tests* finds *mutant*, and which; not one that fails without it as well."""
    while failure := _failure(lab, [test for test in tests if test not in unfit], seconds):
        suspects = [test for test in tests if test.startswith(failure[1])]  # all of a file, or of the batch
        if fit.issuperset(suspects):
            return failure
        lab.renew()
        unchanged = _failure(lab, suspects, seconds)
        lab.renew(mutant)
        if unchanged is None:
            fit.update(suspects)
            return failure
        unfit.update([test for test in suspects if test.startswith(unchanged[1])] or suspects)
    return None


def _failure(lab: Lab, tests: list[str], seconds: dict[str, float]) -> tuple[str, str] | None:
    """Return how one of *tests* fails, and which if it is known."""
    if not tests:
        return None
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    patience = LEAST + TIMES * max(seconds[test] for test in tests)
    told = lab.test(["-x", *files], patience, tests=frozenset(tests))
    if failed := next((each.test for each in told if each.what == "failed"), None):
        return "failed", failed
    if told[-1].figure in PASSED:
        return None
    running = next((each.test for each in reversed(told) if each.what == "runs"), "")
    return ("timeout" if told[-1].figure is None else f"status {told[-1].figure:.0f}"), running


def compare(before: Path, after: Path) -> None:
    """Print which mutants only the run *before* found."""
    then, now = ({each["mutant"]: each for each in _read(path)} for path in (before, after))
    lost = [key for key, each in then.items() if each["found"] and now.get(key, {}).get("found") is False]
    for key in lost:
        print(f"{key}\n    {then[key]['how']}: {then[key]['by']}")  # noqa: T201
    gone = sum(each["found"] is None for each in now.values())
    counts = [sum(bool(each["found"]) for each in run.values()) for run in (then, now)]
    print(f"found: {counts[0]} of {len(then)} before, {counts[1]} of {len(now)} after")  # noqa: T201
    print(f"only before: {len(lost)}; no longer in the source: {gone}; not tried: {len({*then} - {*now})}")  # noqa: T201


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, **values: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


def main() -> None:
    """Read the words of the command line, and do what they say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("map", "run", "compare"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--like", type=Path, help="the results of an earlier run")
    parser.add_argument("--only", default="", help="what the paths of the files to map contain")
    words = parser.parse_args()
    paths = [path.absolute() for path in words.paths]
    if words.command == "compare":
        compare(*paths)
        return
    with open_lab(words.commit) as lab:
        if words.command == "map":
            make_map(lab, paths[0], words.only)
        else:
            lab.compile()
            run(lab, Map(paths[0], lab.sources), _mutants(lab, words), paths[1])


def _mutants(lab: Lab, words: argparse.Namespace) -> dict[str, Mutant | None]:
    """Return the mutants to try by their keys; nothing for those that the source has no longer."""
    if words.like is None:
        return {each.key: each for each in chosen(lab.sources, count=words.count, seed=words.seed)}
    every = {each.key: each for module, source in lab.sources.items() for each in mutants_of(module, source)}
    return {each["mutant"]: every.get(each["mutant"]) for each in _read(words.like)}


if __name__ == "__main__":
    main()
