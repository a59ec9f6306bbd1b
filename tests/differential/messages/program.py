"""A program: plain data that says which text a layer has, and what is done with it."""

from dataclasses import dataclass

from tests.differential.messages import (
    benign,
    effects,
    errors,
    gradients,
    modes,
    operations,
    script,
    sizes,
    states,
    surroundings,
)
from tests.differential.messages.code import Code, Sort
from tests.differential.program import Spec

SORTS: dict[str, Sort] = {
    **sizes.SORTS,
    **effects.SORTS,
    **surroundings.SORTS,
    **modes.SORTS,
    **states.SORTS,
    **gradients.SORTS,
    **operations.SORTS,
    **errors.SORTS,
    **benign.SORTS,
}
"""What a message may do, by name."""


@dataclass(frozen=True, repr=False)
class Part(Spec):
    """One thing that a message does."""

    sort: str  # a key of SORTS
    words: tuple[str, ...]  # of each table of the sort, a key

    def code(self, number: int) -> Code:
        """Its code, as the part of this number."""
        return SORTS[self.sort].code(self.words, number)


@dataclass(frozen=True, repr=False)
class Program(Spec):
    """A layer, and what is done with it; every word is a key of a table."""

    steps: tuple[str, ...] = ("call",)  # what is done: keys of STEPS
    parts: tuple[Part, ...] = ()  # what its message does, one after the other
    base: str = "copy"  # what the message starts from: a key of BASES
    form: str = "plain"  # how it is written down: a key of FORMS
    stage: str = "message"  # which function of the layer it is: a key of STAGES
    forward: str = "plain"  # how it is propagated: a key of FORWARDS
    aggr: str = "sum"  # how the messages are reduced
    size: str = "medium"  # how large the graph is: a key of SIZES
    more_edges: int = 0  # edges beside those of the size
    bounds: str = "ordinary"  # which thresholds hold: a key of BOUNDS
    values: str = "normal"  # which numbers the features are: a key of VALUES
    dtype: str = "float64"  # of features and parameters
    grad: bool = True  # whether the features need a gradient
    others: bool = True  # whether the other operands do
    early: bool = True  # whether the layer is made before the patch
    seed: int = 0  # of numbers, edges and chance

    def kinds(self) -> tuple[str, ...]:
        """The kinds of faults that its parts look for."""
        return tuple(SORTS[each.sort].kind for each in self.parts)

    def text(self) -> str:
        """It as a script."""
        return script.text_of(self)

    def listed(self) -> str:
        """It as a script that runs by itself in a checkout, and compares."""
        return script.whole(self)

    def operands(self) -> set[str]:
        """What the code of the parts and the base reads."""
        return script.operands_in("\n".join(each.code(0).body for each in self.parts))
