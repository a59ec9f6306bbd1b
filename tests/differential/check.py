"""Whether a program does the same with and without the patch."""

from tests.differential.compare import Difference, first_difference
from tests.differential.interpreter import run
from tests.differential.program import Program

_SHAKEN_RUNS = 3


def difference(program: Program) -> Difference | None:
    """Where the two runs of a program part; None if they do not.

    Numbers that are further apart than is usual are judged by the program itself: it runs a few times more
    without the patch, from operands that are a few roundings off, and what that changes is excused.
    """
    plain, patched = run(program, patched=False), run(program, patched=True)
    found = first_difference(program, plain, patched)
    if found is None or not any("numbers:" in line for line in found.what):
        return found
    shaken = [run(program, patched=False, shaken=seed) for seed in range(_SHAKEN_RUNS)]
    return first_difference(program, plain, patched, shaken)
