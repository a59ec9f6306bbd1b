"""A program for every seed."""

from collections.abc import Sequence
from typing import Any

from tests.differential.generate import Chooser
from tests.differential.messages.forms import BASES, FORMS, FORWARDS, STAGES
from tests.differential.messages.program import SORTS, Part, Program
from tests.differential.messages.script import AGGREGATIONS, VALUES
from tests.differential.messages.steps import BACKWARDS, CALLS, CHANGES, LIVES

_COUNTS = ((0.1, 0), (0.7, 1), (0.2, 2))
_SIZES = (
    (0.35, ("medium", "ordinary")),
    (0.05, ("large", "ordinary")),
    (0.05, ("wide", "ordinary")),
    (0.2, ("medium", "blocks")),
    (0.25, ("small", "lifted")),
    (0.05, ("tiny", "lifted")),
    (0.05, ("small", "ordinary")),
    (0.03, ("around 512", "ordinary")),
    (0.02, ("around 1,024", "ordinary")),
    (0.02, ("around 4,096", "ordinary")),
    (0.02, ("around 131,072 numbers", "ordinary")),
)
_FORMS = tuple(each for each in FORMS if each != "plain")
_STAGES = ((0.88, "message"), (0.04, "update"), (0.04, "aggregate"), (0.03, "edge_update"), (0.01, "fused"))


def generate(seed: int) -> Program:
    """The program of a seed."""
    choose = Chooser(seed)
    parts = tuple(random_part(choose) for _ in range(choose.weighted(_COUNTS)))
    kinds = {SORTS[each.sort].kind for each in parts}
    special = "A2" in kinds and choose.happens(0.6)
    size, bounds = choose.weighted(_SIZES)
    base = choose.of(tuple(BASES)) if choose.happens(0.5) else "copy"
    if "B4" in kinds and choose.happens(0.4):
        size, bounds = "medium", "blocks"
    if bounds == "blocks" and "A2" not in kinds and choose.happens(0.7):
        base = "sorted"
    program = Program(
        steps=_steps(choose, kinds),
        parts=parts,
        base="copy" if special else base,
        form=choose.of(_FORMS) if choose.happens(0.35) else "plain",
        forward=choose.of(tuple(FORWARDS)) if choose.happens(0.2) else "plain",
        aggr=choose.of(AGGREGATIONS) if choose.happens(0.3) else "sum",
        size="one to one" if special else size,
        more_edges=choose.below(4),
        bounds="ordinary" if special else bounds,
        values="special" if special else _values(choose),
        dtype="float32" if choose.happens(0.3) else "float64",
        grad=choose.happens(0.85),
        others=choose.happens(0.6),
        early=choose.happens(0.5),
        seed=seed,
    )
    few = any(each.code(0).few for each in parts)
    changes: dict[str, Any] = {"size": "small", "bounds": "lifted"} if few else {}
    if program.values == "whole" and (program.base == "sorted" or program.aggr == "median"):
        changes["values"] = "normal"  # which of two equal numbers is the first has no rule
    # What PyG's own code hands to other steps has the versions and histories that this code gives it.
    stage = "message" if "B3" in kinds else choose.weighted(_STAGES)
    # Special numbers have no update, which may divide by a sum: the sign of a 0 depends on the order.
    if program.operands() <= set(STAGES[stage].operands) and not (special and stage == "update"):
        changes["stage"] = stage
    return type(program)(**{**vars(program), **changes})


def _values(choose: Chooser) -> str:
    return str(choose.of([each for each in VALUES if each != "special"])) if choose.happens(0.3) else "normal"


def random_part(choose: Chooser) -> Part:
    """One thing that a message does."""
    sort = choose.weighted([(each.share, name) for name, each in SORTS.items()])
    return Part(sort, tuple(choose.of(tuple(table)) for table in SORTS[sort].tables.values()))


def _steps(choose: Chooser, kinds: set[str]) -> tuple[str, ...]:
    """Some calls and what comes between them, most often what the kinds of faults need to be seen."""
    tables: list[tuple[float, Sequence[str]]] = [
        (2.0, ("call", "call three times")),
        (1.5, tuple(CALLS)),
        (2.0, ("backward", "weighted backward")),
        (1.0, tuple(BACKWARDS)),
        (1.0, tuple(LIVES)),
        (2.5 if "B4" in kinds else 0.0, tuple(CHANGES)),
        (2.0 if "B3" in kinds else 0.0, tuple(CALLS)),
    ]
    first = [choose.of(tuple(CALLS)) if choose.happens(0.25) else "call"]
    if "B4" in kinds:
        first.append(choose.of(tuple(CHANGES)))
    count = choose.weighted([(0.4, 2), (0.4, 3), (0.2, 4)]) - (len(first) - 1)
    return (*first, *(choose.of(choose.weighted(tables)) for _ in range(count)))
