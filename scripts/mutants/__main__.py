"""Changes one line of the library at a time, and says which changes the tests do not notice.

``make mutants`` draws changes by seed, of lines that tests execute, spread over the modules as these lines
are. Against each it runs tests that execute the line until one fails. What takes too long is caught too. It
exits with 1 where less than 90 % are caught. docs/howto/run-the-mutants.md tells more.
"""

import argparse
import difflib
import sys
import time
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
from changes import Mutant
from choice import candidates, changes_the_program, chosen, draw
from recording import Recording, recording

# What is changed. DGL's patch is not: DGL has an environment of its own (make test-dgl).
CHANGED = ["ops", "reference/calls.py", "kernels/cpu", "plans", "backends/cpu.py", "integrations"]
CHANGED += ["distributed", "machines/ndp"]
CHANGED += [
    f"graph/{name}.py" for name in ("build", "edges", "graph", "identity", "self_loops", "statistics")
]
# What decides which messages are compiled.
CHANGED += [
    f"compiler/{name}.py"
    for name in ("bytecode", "counts", "functions", "guards", "history", "reading", "traces", "trusted")
]
LEFT_OUT = "integrations/dgl"
# The tests that ought to notice. Those that compile kernels or run PyG's own suite take minutes.
TESTS = [
    "ops/*",
    "kernels/*",
    "plans/*",
    "backends/*",
    "compiler/*",
    "attack/test_benign_messages.py",
    "integrations/*",
    "integrations/pyg/*",
    "integrations/torch/*",
    "distributed/*",
    "machines/ndp/*",
]
TESTS += [
    f"graph/test_{name}.py"
    for name in ("graph", "bad_input", "edges", "identity", "pieces", "reorder", "self_loops")
]
TESTS += [
    "graph/test_statistics.py",
    "graph/test_work_items.py",
    "tuner/test_store.py",
    "tuner/test_plan_axes.py",
    "tuner/test_products.py",
]
TOO_SLOW = {
    "distributed/test_memory.py",
    "distributed/test_two_hosts.py",
    "integrations/pyg/test_convergence.py",
    "integrations/pyg/test_host_suite.py",
    "ops/test_memory.py",
}
LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Result:
    """A mutant that was tried, and by which test it was caught: by all where no single one failed."""

    mutant: Mutant
    caught: bool
    by: list[str]
    seconds: float


def main() -> int:
    """Runs, prints, and returns the exit status."""
    parser = argparse.ArgumentParser(prog='make mutants ARGS="..."', description=__doc__.split("\n")[0])
    parser.add_argument("--number", type=int, default=220, help="how many mutants to draw (220)")
    parser.add_argument("--seed", type=int, default=0, help="other seeds draw other mutants (0)")
    parser.add_argument(
        "--module", action="append", help="a module or folder below src/onehop, such as ops; may be repeated"
    )
    parser.add_argument(
        "--tests", action="append", help="tests below tests/ that ought to notice, in place of the usual ones"
    )
    parser.add_argument("--line", type=int, help="all mutants of one line of the module, instead of a sample")
    options = parser.parse_args()

    accepted = tomllib.loads(Path(__file__).with_name("accepted.toml").read_text())
    constants = {warm.SOURCE / name: set(names) for name, names in accepted["performance"].items()}
    for each in accepted["survivor"]:
        if each["line"] not in (warm.SOURCE / each["module"]).read_text():
            raise SystemExit(
                f"accepted.toml: {each['module']} has no line {each['line']!r} any more; take it out"
            )
    warm.prepare()
    recorded = recording(test_files(options.tests or TESTS), say)
    if recorded.failed:
        say(f"skipped, or not passing while recorded, and so not used: {len(set(recorded.failed))} tests")
    found = candidates(modules(options.module or CHANGED), recorded, constants)
    if options.line is not None:
        found = {place: several for place, several in found.items() if place[1] == options.line}
        drawn = [mutant for several in found.values() for mutant in several if changes_the_program(mutant)]
    else:
        drawn = draw(found, options.number, options.seed)
    if not drawn:
        say("no test executes a line that could be changed there")
        return 1
    say(f"{len(drawn)} mutants, of {sum(map(len, found.values()))} on {len(found)} lines that tests execute")
    tried: list[Result] = []
    try:
        for number, mutant in enumerate(drawn):
            tried.append(attempt(mutant, recorded, f"{number + 1:4}/{len(drawn)}"))
    except KeyboardInterrupt:
        say(f"interrupted: {len(tried)} of {len(drawn)} mutants were tried")
    return report(verified(tried, recorded), accepted) if tried else 1


def modules(names: list[str]) -> list[Path]:
    """The source of modules and folders."""
    places = [warm.SOURCE / name for name in names]
    found = [path for place in places for path in ([place] if place.suffix else sorted(place.rglob("*.py")))]
    return [path for path in found if not str(path.relative_to(warm.SOURCE)).startswith(LEFT_OUT)]


def test_files(patterns: list[str]) -> list[Path]:
    """Those of some patterns."""
    found = [path for pattern in patterns for path in sorted(Path("tests").glob(pattern))]
    slow = {Path("tests", name) for name in TOO_SLOW}
    return [path for path in found if path.match("test_*.py") and path not in slow]


def attempt(mutant: Mutant, recorded: Recording, number: str) -> Result:
    """Runs the tests of its line against a mutant."""
    before = time.monotonic()
    warm.FAILED.unlink(missing_ok=True)
    code = count = 0
    warm.write(mutant.path, mutant.text)
    try:
        for tests in chosen(mutant, recorded):
            count += len(tests)
            code = warm.run(
                ["-x", *tests], 20 + 3 * sum(recorded.seconds[test] for test in tests), warm.Failure()
            )
            if code:
                break
    finally:
        warm.restore(mutant.path)
    # Where no test failed, as when the module cannot be imported, all of them must pass without the change.
    by = [] if code <= 0 or code == warm.CAUGHT_BY_TIME else tests
    if warm.FAILED.exists():
        by = [warm.FAILED.read_text()]
    seconds = time.monotonic() - before
    outcome = {0: "SURVIVED", warm.CAUGHT_BY_TIME: "caught by time"}.get(code, "caught")
    where = f"{mutant.path.relative_to(warm.SOURCE)}:{mutant.line} {mutant.operator}"
    say(f"{number} {outcome:14} {seconds:5.1f} s, {count:3} tests  {where}")
    return Result(mutant, code != 0, by, seconds)


def verified(results: list[Result], recorded: Recording) -> list[Result]:
    """The results, with tests left out that fail although nothing is changed: such a test tells nothing."""
    while wrong := failing(sorted({test for result in results for test in result.by})):
        say(f"fails without a change, and is left out: {wrong}")
        recorded.leave_out(wrong)
        results = [attempt(each.mutant, recorded, "again") if wrong in each.by else each for each in results]
    return results


def failing(tests: list[str]) -> str | None:
    """The first of some tests that fails without a change."""
    say(f"verifying that {len(tests)} tests pass without a change")
    warm.FAILED.unlink(missing_ok=True)
    if not tests or warm.run(["-x", *tests], 1800, warm.Failure()) == 0:
        return None
    if not warm.FAILED.exists():
        raise SystemExit(f"these tests cannot be run: {(warm.BUILD / 'output.txt').read_text()}")
    return warm.FAILED.read_text()


def report(results: list[Result], accepted: dict[str, Any]) -> int:
    """Prints the table and the survivors."""
    by_module: dict[Path, list[bool]] = defaultdict(list)
    for result in results:
        by_module[result.mutant.path.relative_to(warm.SOURCE)].append(result.caught)
    say(f"\n{'module':48} mutants  caught  survived")
    for module, caught in sorted(by_module.items()):
        say(f"{module!s:48} {len(caught):7} {sum(caught):7} {len(caught) - sum(caught):9}")
    survivors = [result.mutant for result in results if not result.caught]
    for mutant in survivors:
        module = mutant.path.relative_to(warm.SOURCE)
        before, after = mutant.path.read_text().splitlines(), mutant.text.splitlines()
        diff = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
        say(f"\n{module} ({mutant.operator})\n" + "\n".join(diff))
        say(f"accepted: {reason(str(module), diff, accepted['survivor'])}")
    number = len(results) - len(survivors)
    share = number / len(results)
    minutes = sum(result.seconds for result in results) / 60
    say(f"\n{number} of {len(results)} caught: {share:.1%}, in {minutes:.0f} minutes")
    return 0 if share >= LEAST_SHARE else 1


def reason(module: str, diff: list[str], accepted: list[dict[str, str]]) -> str:
    """Why no test need notice a survivor."""
    lines = {line[0] + "".join(line[1:].split()) for line in diff}
    for each in accepted:
        change = {"-" + "".join(each["line"].split()), "+" + "".join(each["becomes"].split())}
        if each["module"] == module and change <= lines:
            return each["reason"]
    return "no: a test is missing"


def say(line: str) -> None:
    """At once, since a run takes long."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
