"""Whether a program does the same with and without the patch."""

import dataclasses

from tests.differential.compare import Difference, first_difference
from tests.differential.interpreter import run
from tests.differential.program import Program

_SHAKEN_RUNS = 3


def difference(program: Program) -> Difference | None:
    """Where the two runs of a program part; None if they do not.

    Numbers that are further apart than is usual are judged by the program itself: it runs a few times more
    without the patch, from operands that are a few roundings off, and what that changes is excused. Numbers
    of fewer bits that are off all the same are excused where the program agrees in float64: what should be 0
    is then the rounding of one run or the other. How exact 16 bits are is for the operators' own tests.
    """
    plain, patched = run(program, patched=False), run(program, patched=True)
    found = first_difference(program, plain, patched)
    if found is None or not any("numbers:" in line for line in found.what):
        return found
    shaken = [run(program, patched=False, shaken=seed) for seed in range(_SHAKEN_RUNS)]
    found = first_difference(program, plain, patched, shaken)
    if found is None or program.dtype == "float64" or not all("numbers:" in line for line in found.what):
        return found
    return found if difference(dataclasses.replace(program, dtype="float64")) is not None else None
