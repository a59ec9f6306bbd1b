"""Which mutants may be drawn, and which tests are run against one."""

import ast
import functools
import random
from collections import defaultdict
from pathlib import Path

from changes import Mutant, mutants
from recording import Recording

MOST_TESTS = 40
MOST_SECONDS = 20.0

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
    """One mutant each of lines drawn by chance. What is not Python, or the same program, is drawn again."""
    chance = random.Random(seed)
    lines = sorted(found)
    chance.shuffle(lines)
    drawn: list[Mutant] = []
    for place in lines:
        several = found[place]
        chance.shuffle(several)
        drawn += [mutant for mutant in several if changes_the_program(mutant)][:1]
        if len(drawn) == number:
            break
    return sorted(drawn, key=lambda mutant: (mutant.path, mutant.line))


def changes_the_program(mutant: Mutant) -> bool:
    """Tells a mutant from a text that is not Python, and from one that means the same."""
    try:
        return ast.dump(ast.parse(mutant.text)) != ast.dump(_tree(mutant.path))
    except SyntaxError:
        return False


def executing(mutant: Mutant, recorded: Recording) -> set[str]:
    """The tests that execute a mutant's line.

    What runs when the module is imported is executed by all: then those tests count that run the function
    whose head it is in, or, of a class or a module, any function of the module.
    """
    functions = [node for node in ast.walk(_tree(mutant.path)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno <= mutant.line <= (node.end_lineno or 0)]
    if not around or mutant.line < around[-1].body[0].lineno:
        bodies = around[-1:] or functions
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
    exactly = recorded.of(mutant.path, mutant.line, mutant.line)
    return exactly or recorded.of(mutant.path, statement.lineno, max(last, statement.lineno))


def chosen(tests: set[str], seconds: dict[str, float], folder: str) -> list[str]:
    """Of many tests the fastest of each function before its others, and those of ``folder`` before others."""
    rank: dict[str, int] = {}
    seen: dict[str, int] = defaultdict(int)
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        function = test.partition("[")[0]
        rank[test] = seen[function]
        seen[function] += 1
    kept: list[str] = []
    total = 0.0
    for test in sorted(
        tests, key=lambda test: (rank[test], not test.startswith(folder), seconds[test], test)
    ):
        total += seconds[test]
        if kept and (total > MOST_SECONDS or len(kept) == MOST_TESTS):
            break
        kept.append(test)
    return sorted(kept, key=lambda test: (seconds[test], test))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _assigned(path: Path, names: set[str]) -> set[int]:
    """The lines on which a module gives these names their values."""
    found: set[int] = set()
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()") in names:
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found
