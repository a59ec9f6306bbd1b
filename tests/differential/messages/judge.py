"""Two runs of a program, side by side."""

import dataclasses
import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import torch

from tests.differential.compare import Difference
from tests.differential.messages.program import Part, Program
from tests.differential.messages.run import Observation, run
from tests.differential.observe import Seen

_WRITTEN = "has been modified by an inplace operation"
_OTHER_DTYPE = ("must have the same dtype", "expected scalar type")
# Words of programs that compute with fewer bits than their dtype has, and how far rounding may carry them.
_COARSE = {
    "autocast": 5e-2,
    "bfloat16": 5e-2,
    "autocast dtype": 5e-2,
    "half": 1e-2,
    "float": 1e-4,
    "layer float": 1e-4,
}
_ADDRESS = re.compile("0x[0-9a-f]+")  # of an object, in an error's text
_RELATIVE = {"float64": 1e-9, "float32": 1e-4}
# Of numbers that are compared one by one, as they may be infinite or large beside each other.
_SINGLE = {"float64": (1e-7, 1e-10), "float32": (1e-4, 1e-5)}
# Of a deviation near 0, which is the root of what rounding leaves.
_OF_DEVIATIONS = {"float64": 1e-6, "float32": 1e-2}
# Smaller tensors count as this large: what should be 0 is what differences of such numbers leave.
_SMALLEST = 0.1
# How far rounding may carry numbers of float32 where float64's are alike.
_ROUNDED = 1e-2
_WRITING = {"features in place", "parameters in place", "SGD", "AdamW"}
# States that are written to past torch's version counter, which no backward pass notices, PyG's or ours.
_UNTRACKED = {"array under a tensor", "buffer by data", "buffer by numpy", "parameter by data"}


def difference(program: Program) -> Difference | None:
    """Where the two runs of a program part; None if they do not.

    What float32 rounds otherwise, float64 does not: a small difference counts where both have one.
    """
    found = _difference(program, program.text())
    if found is None or program.dtype != "float32" or _difference(program, program.text(), _ROUNDED):
        return found
    return difference(dataclasses.replace(program, dtype="float64")) and found


def _difference(program: Program, text: str, least: float = 0.0) -> Difference | None:
    """The same of a text. Numbers part from a relative difference of ``least`` on at least."""
    plain, patched = run(text, patched=False), run(text, patched=True)
    for number, (one, other) in enumerate(zip(plain, patched, strict=True)):
        what = _differences(program, one, other, least)
        if what:
            return None if _excused(program, one, other) else Difference(number, one.step, tuple(what))
    return None


def alone(program: Program) -> None:
    """Runs it without the patch."""
    run(program.text(), patched=False)


def tell(path: str) -> None:
    """Prints how the two runs of a script differ, which :meth:`Program.listed` wrote."""
    spec = importlib.util.spec_from_file_location("script", path)
    assert spec is not None
    text = Path(path).read_text()
    program = eval(text.split('"""')[1], {"Program": Program, "Part": Part})
    print(_difference(program, text) or "Both runs are the same.")  # noqa: T201


def _excused(program: Program, plain: Observation, patched: Observation) -> bool:
    """Whether the runs may part here.

    The patch keeps features and parameters, where PyG keeps copies of them, one row an edge, or nothing. It
    raises, loudly, where they were written to before the backward pass. Where such a write is not tracked,
    PyG's backward pass reads some of what was written, and ours some.
    """
    words = {word for part in program.parts for word in part.words}
    told = plain.message + patched.message
    if "layer float" in program.steps and any(each in told for each in _OTHER_DTYPE):
        return True  # its parameters have other data in the backward pass: such a write is not tracked
    if {"layer_norm", "gelu"} & words and program.values == "special" and program.dtype == "float32":
        # Of a variance beyond float32, and of gelu(inf), torch's vectors give other than its single numbers.
        return True
    if (
        program.aggr in ("max", "min")
        and program.forward == "twice"
        and any("divided" in each for each in words)
    ):
        return True  # by a zero: which of 0 and -0 is the larger depends on torch's threads
    if program.aggr == "median" and "half" in words:
        return True  # of numbers that float16 makes equal, the gradient is that of any
    if _UNTRACKED & words and any("backward" in step or "grad" in step for step in program.steps):
        return True
    writes = _WRITING & set(program.steps) or "parameter in place" in words
    return plain.error is None and _WRITTEN in patched.message and bool(writes)


def _differences(program: Program, plain: Observation, patched: Observation, least: float) -> list[str]:
    written = _WRITTEN in plain.message and _WRITTEN in patched.message  # each names a tensor of its own
    messages = [_ADDRESS.sub("0x", each.message) for each in (plain, patched)]
    if (plain.error, messages[0]) != (patched.error, messages[1]) and not written:
        told = f"without the patch {_told(plain)}; with it {_told(patched)}"
        return [f"error: {told}"]
    found = []
    for here, there, which in ((plain, patched, "without"), (patched, plain, "with")):
        names = sorted(here.facts.keys() - there.facts.keys())
        found += [f"there {which} the patch alone: {name}" for name in names]
    for name in plain.facts.keys() & patched.facts.keys():
        found += _compared(program, name, plain.facts[name], patched.facts[name], least)
    return sorted(found)


def _told(seen: Observation) -> str:
    return "nothing is raised" if seen.error is None else f"{seen.error}({seen.message[:160]})"


def _compared(program: Program, name: str, one: Any, other: Any, least: float) -> list[str]:
    allowed = max(_allowed(program), least)
    if isinstance(one, Seen) and isinstance(other, Seen):
        facts = [
            f"{fact}: of {name} {value} without the patch, {other.facts.get(fact)} with it"
            for fact, value in one.facts.items()
            if other.facts.get(fact) != value
        ]
        return facts or _far(program, name, one.value, other.value, allowed)
    if isinstance(one, float) and isinstance(other, float):
        near = one == other or math.isclose(one, other, rel_tol=allowed, abs_tol=1e-12)
        same = near or (math.isnan(one) and math.isnan(other))
        return [] if same else [f"number: {name} is {one} without the patch, {other} with it"]
    same = one == other
    return (
        [] if same else [f"state: {name} is {str(one)[-200:]} without the patch, {str(other)[-200:]} with it"]
    )


def _allowed(program: Program) -> float:
    words = {word for part in program.parts for word in part.words} | set(program.steps)
    own = _OF_DEVIATIONS if program.aggr == "std" else _RELATIVE
    return max([own[program.dtype], *(_COARSE[word] for word in words & _COARSE.keys())])


def _far(program: Program, name: str, one: Any, other: Any, relative: float) -> list[str]:
    """How far two tensors of the same shape are apart, if too far."""
    if not (one.is_floating_point() or one.is_complex()):
        return [] if torch.equal(one, other) else [f"numbers: of {name}, whole numbers differ"]
    want, got = (torch.view_as_real(each) if each.is_complex() else each.double() for each in (one, other))
    finite = want[want.isfinite()]
    absolute = relative * max(float(finite.abs().max()) if finite.numel() else 0.0, _SMALLEST)
    if program.values == "special" and relative == _RELATIVE[program.dtype]:
        relative, absolute = _SINGLE[program.dtype]
    wrong = ~torch.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True)
    if not bool(wrong.any()):
        return []
    few = ", ".join(
        f"{float(a):.5g} and {float(b):.5g}" for a, b in zip(want[wrong][:3], got[wrong][:3], strict=True)
    )
    return [f"numbers: of {name}, {int(wrong.sum())} of {want.numel()} differ: {few} with the patch"]
