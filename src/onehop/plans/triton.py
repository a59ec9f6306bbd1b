"""The choices of the GPU kernels."""

from dataclasses import dataclass
from typing import Literal

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan

VARIANTS = ("kernels", "torch_csr", "blocks")
ORDERINGS = ("none", "degree", "rcm", "community", "metis")
# What the compilers can take: powers of two, and no more than 32 warps (1024 threads).
_POWERS = {"rows_per_program": 1024, "block_edges": 1024, "block_features": 4096, "num_warps": 32}
# Programs count edges with 32 bits, and windows have 16 times as many columns.
_MOST_EDGES = 1 << 26
_RANGES = {"split_edges": (1, _MOST_EDGES), "short_edges": (0, _MOST_EDGES), "num_stages": (1, 8)}


@dataclass(frozen=True, slots=True)
class TritonPlan(Plan):
    """How the GPU kernels go over a graph.

    A tile is what a program reads at a time: some edges of some rows, times some columns. All plans give the
    same result, up to the rounding of sums that are added in another order.

    Attributes:
        split_edges: Rows longer than this are cut into even pieces of at most so many edges, a program each;
            a second pass adds up the pieces in their order.
        short_edges: Rows (and pieces) of at most so many edges are short. Several short rows of like length
            share a program, which takes one edge of each at a time. Others have a program of their own.
        rows_per_program: Short rows in a program. A power of two.
        block_edges: Edges that a longer row's program reads at a time. A power of two.
        block_features: Most columns of a program; wider rows take several. A power of two.
        num_warps: Groups of 32 (on AMD 64) threads in a program. A power of two.
        num_stages: How many tiles are under way at a time; 1 leaves the loop over edges as it is written.
        variant: "kernels" (onehop's own), or one of two others, each for some operands; all else takes the
            kernels.
            "torch_csr": sums and means through torch's sparse matrices (on NVIDIA's GPUs cuSPARSE's), which
            are kept in both directions; of float32 and float64 with one weight an edge or none, of 16 bits
            without weights where the result has 16 bits too. In which order torch adds is its own affair.
            "blocks": tensor cores over windows of 16 rows, in both directions; sums and means of 16-bit
            features with one weight an edge or none, and ``attention`` of 16-bit features with heads of at
            most 128 columns, where edges bring no features and no weights are asked for. A window is cut
            where it has more than 16 * ``split_edges`` columns, and ``block_edges`` (at least 16) of them
            are read at a time; ``short_edges``, ``rows_per_program`` and ``ordering`` say nothing here.
        ordering: The order in which rows become work: "none" (as they come), "degree", "rcm", "community" or
            "metis" (:mod:`onehop.graph.orders`). Rows whose programs run at the same time then share more
            of their sources. They are written to where they belong, so neither features nor results are
            moved. Of the kernels alone.
    """

    split_edges: int = 256
    short_edges: int = 16
    rows_per_program: int = 16
    block_edges: int = 16
    block_features: int = 64
    num_warps: int = 2
    num_stages: int = 1
    variant: str = "kernels"
    ordering: str = "none"

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, most in _POWERS.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most or value & (value - 1):
                raise ArgumentError(f"plan: {name} must be a power of two from 1 to {most}, not {value!r}.")
        for name, (least, largest) in _RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= largest:
                raise ArgumentError(
                    f"plan: {name} must be an integer from {least} to {largest}, not {value!r}."
                )
        for name, choices in (("variant", VARIANTS), ("ordering", ORDERINGS)):
            value = getattr(self, name)
            if value not in choices:
                raise ArgumentError(f"plan: {name} must be one of {', '.join(choices)}, not {value!r}.")

    @property
    def mapping(self) -> Literal["neighbour", "feature"]:
        """What the threads of a program share out.

        "feature": columns alone, with each row's edges taken one after the other, which is so where all rows
        are short; else "neighbour": the edges of longer rows too.
        """
        return "feature" if self.short_edges >= self.split_edges else "neighbour"
