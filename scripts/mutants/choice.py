"""Which mutants may be drawn, and which tests are run against one."""

import ast
import functools
import hashlib
import itertools
from collections import Counter, defaultdict
from pathlib import Path

from changes import Mutant, mutants
from recording import Recording
from warm import SOURCE

# Tests and their seconds, at first and if those notice nothing.
MOST = ((40, 10.0), (300, 40.0))
# A test that takes more seconds comes after all others, or a few of these would leave no time for the rest.
SLOW = 2.0

# Operators whose mutants may execute a part of the statement that is skipped without the change.
SHORT_CIRCUITS = ("ReplaceAndWithOr", "ReplaceOrWithAnd")

Place = tuple[Path, int]


def candidates(
    paths: list[Path], recorded: Recording, constants: dict[Path, set[str]]
) -> dict[Place, list[Mutant]]:
    """The mutants of every line that tests execute. ``constants``, by module, are left as they are."""
    found: dict[Place, list[Mutant]] = defaultdict(list)
    for path in paths:
        left = _assigned(path, constants.get(path, set()))
        for mutant in mutants(path):
            if mutant.line not in left and executing(mutant, recorded):
                found[path, mutant.line].append(mutant)
    return found


def draw(found: dict[Place, list[Mutant]], number: int, seed: int) -> list[Mutant]:
    """One mutant each of lines drawn by chance. What is not Python, or the same program, is drawn again.

    Chance is a hash of the line, so that a change elsewhere leaves the others drawn: a test that is written
    for a survivor is put to use by the next run.
    """
    names = _names(found)
    drawn: list[Mutant] = []
    for place in sorted(found, key=lambda place: _hash(seed, names[place])):
        several = sorted(found[place], key=lambda each: _hash(seed, each.operator, _line(each)))
        drawn += itertools.islice(filter(changes_the_program, several), 1)
        if len(drawn) == number:
            break
    return sorted(drawn, key=lambda mutant: (mutant.path, mutant.line))


def _names(found: dict[Place, list[Mutant]]) -> dict[Place, str]:
    """By place, what tells its line from all others and does not change with its number."""
    names: dict[Place, str] = {}
    alike: Counter[tuple[Path, str]] = Counter()
    for path, line in sorted(found):
        text = path.read_text().splitlines()[line - 1].strip()
        names[path, line] = f"{path.relative_to(SOURCE)}, {alike[path, text]}: {text}"
        alike[path, text] += 1
    return names


def _line(mutant: Mutant) -> str:
    """Its line, as the mutant has it."""
    return mutant.text.splitlines()[mutant.line - 1]


def _hash(*parts: object) -> bytes:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).digest()


def changes_the_program(mutant: Mutant) -> bool:
    """Tells a mutant from a text that is not Python, and from one that means the same."""
    try:
        return ast.dump(ast.parse(mutant.text)) != ast.dump(_tree(mutant.path))
    except SyntaxError:
        return False


def executing(mutant: Mutant, recorded: Recording) -> set[str]:
    """The tests that execute a mutant's line.

    What runs when the module is imported is executed by all: then those tests count that run any function of
    the module, or, for the head of a function, that function. A condition of several lines counts as a whole
    where ``and`` or ``or`` changes: a test that ends at its first line may be the one that goes further then.
    """
    functions = [node for node in ast.walk(_tree(mutant.path)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno <= mutant.line <= (node.end_lineno or 0)]
    head = bool(around) and mutant.line < around[-1].body[0].lineno
    if not around or head or mutant.line in recorded.at_import.get(mutant.path, ()):
        bodies = around[-1:] if head else functions
        return set().union(*(recorded.of(mutant.path, n.body[0].lineno, n.end_lineno or 0) for n in bodies))
    statement = max(
        (
            node
            for node in ast.walk(around[-1])
            if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0)
        ),
        key=lambda node: node.lineno,
    )
    inner = getattr(statement, "body", None)
    last = inner[0].lineno - 1 if inner else statement.end_lineno or 0
    whole = recorded.of(mutant.path, statement.lineno, max(last, statement.lineno))
    if mutant.operator in SHORT_CIRCUITS:
        return whole
    return recorded.of(mutant.path, mutant.line, mutant.line) or whole


def chosen(mutant: Mutant, recorded: Recording) -> list[list[str]]:
    """The tests to run against a mutant, the most telling first, in two parts: a quick look and a long one.

    Tests of one function that execute the same lines of the module are alike, so one of each kind goes before
    a second of any; among these come first the tests of the same name, then those of the same folder, then
    fast ones. Slow tests come last.
    """
    tests, lines = executing(mutant, recorded), _lines(mutant.path, recorded)
    own = f"tests/{mutant.path.relative_to(SOURCE).parent}/test_{mutant.path.stem}"
    folder = own.rpartition("/")[0]
    rank: dict[str, int] = {}
    seen: Counter[tuple[str, frozenset[int]]] = Counter()
    for test in sorted(tests, key=lambda test: (recorded.seconds[test], test)):
        kind = test.partition("[")[0], lines[test]
        rank[test] = seen[kind]
        seen[kind] += 1

    def order(test: str) -> tuple[object, ...]:
        seconds = recorded.seconds[test]
        elsewhere = not test.startswith(own), not test.startswith(folder)
        return seconds > SLOW, rank[test], *elsewhere, seconds, test

    parts: list[list[str]] = []
    left = sorted(tests, key=order)
    for most, most_seconds in MOST:
        total = itertools.accumulate(recorded.seconds[test] for test in left)
        number = max(1, sum(seconds <= most_seconds for seconds in itertools.islice(total, most)))
        parts.append(left[:number])
        left = left[number:]
    return [part for part in parts if part]


@functools.cache
def _lines(path: Path, recorded: Recording) -> dict[str, frozenset[int]]:
    """By test, what it executes of a module."""
    found: dict[str, set[int]] = defaultdict(set)
    for line, tests in recorded.tests[path].items():
        for test in tests:
            found[test].add(line)
    return {test: frozenset(lines) for test, lines in found.items()}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _assigned(path: Path, names: set[str]) -> set[int]:
    """The lines on which a module gives these names their values; of a class, all fields' defaults."""
    nodes: list[ast.stmt] = []
    missing = set(names)
    for node in _tree(path).body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            missing.discard(node.name)
            nodes += [field for field in node.body if isinstance(field, ast.AnnAssign)]
        elif isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0]).strip("()")) in names:
            missing.discard(name)
            nodes.append(node)
    if missing:
        raise SystemExit(f"accepted.toml: {path} has no {', '.join(sorted(missing))} any more; take them out")
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or 0) + 1)}
