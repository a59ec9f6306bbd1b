"""PyG's own tests of its loaders and samplers, with onehop's sampler underneath.

    python tests/integrations/pyg/host_samplers.py --source pytorch_geometric

runs those tests of a checkout of PyG's source that want a sampler, with or without pyg-lib, prints what was
skipped and why, and ends with 1 if one failed. docs/howto/run-pygs-tests.md says more.
"""

import argparse
import ast
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from host_comparison import PASSED, SKIPPED, Run
from host_suite import SuiteError, checkout, run_tests

FOLDERS = ("test/loader", "test/sampler")
EXCLUSIONS: dict[str, str] = {
    "test/loader/test_mixin.py": (
        "its workers want more threads and cores than there may be, and the end of those that fail "
        "interrupts pytest in whatever it does next"
    ),
}
"""What is not run, each with the reason why."""


def reason(detail: str) -> str:
    """Why a test was skipped: pytest says it as (file, line, text)."""
    try:
        return str(ast.literal_eval(detail)[-1]).removeprefix("Skipped: ")
    except (ValueError, SyntaxError, IndexError, TypeError):
        return detail.strip().splitlines()[-1] if detail.strip() else "no reason given"


def summary(run: Run, exclusions: Mapping[str, str]) -> str:
    """The counts, what was skipped and why, and what failed."""
    skipped = Counter(reason(each.detail) for each in run.endings.values() if each.result == SKIPPED)
    failed = [test for test, each in run.endings.items() if each.result not in (PASSED, SKIPPED)]
    lines = [f"{run.count(PASSED)} passed, {run.count(SKIPPED)} skipped, {len(failed)} failed"]
    lines += [f"skipped, {count}: {why}" for why, count in skipped.most_common()]
    lines += [f"not run: {name}: {why}" for name, why in exclusions.items()]
    lines += [f"\nFAILED: {test} ({run.endings[test].result})\n{run.endings[test].detail}" for test in failed]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tests", nargs="*", default=FOLDERS, help=f"default: {' '.join(FOLDERS)}")
    parser.add_argument("--source", default=os.environ.get("ONEHOP_PYG_SOURCE"), help="the checkout of PyG")
    given = parser.parse_args(arguments)
    if not given.source:
        parser.error("name a checkout of PyG's source, with --source or ONEHOP_PYG_SOURCE")
    try:
        options = ["--onehop-sampler", *(f"--deselect={name}" for name in EXCLUSIONS)]
        run = run_tests(checkout(given.source), given.tests, patched=True, options=options)
    except SuiteError as error:
        parser.exit(2, f"{error}\n")
    print(summary(run, EXCLUSIONS))
    return 1 if run.others else 0


if __name__ == "__main__":
    sys.exit(main())
