"""The plan of the GPU kernels."""

from dataclasses import dataclass
from typing import Literal

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan, check_named

VARIANTS = ("kernels", "torch_csr")
ORDERINGS = ("none", "degree", "rcm", "community", "metis")
# Limits of the compilers: powers of two, and at most 32 warps (1024 threads).
_POWERS = {"rows_per_program": 1024, "block_edges": 1024, "block_features": 4096, "num_warps": 32}
# Programs count edges with 32 bits, with room for the tile after the last edge.
_MOST_EDGES = 1 << 26
_RANGES = {"split_edges": (1, _MOST_EDGES), "short_edges": (0, _MOST_EDGES), "num_stages": (1, 8)}


@dataclass(frozen=True, slots=True)
class TritonPlan(Plan):
    """Parameters of the GPU kernels.

    A tile is what a program reads at a time: some edges of some rows, times some columns. All plans give the
    same result, up to rounding in sums that are added in another order.

    Attributes:
        split_edges: Rows longer than this are split into even pieces of at most this many edges, with one
            program each; a second pass adds up the pieces in order.
        short_edges: Rows (and pieces) of at most this many edges are short. Several short rows of similar
            length share a program, which processes one edge of each row at a time. Longer rows have their own
            program.
        rows_per_program: Number of short rows in a program. A power of two.
        block_edges: Number of edges that a longer row's program reads at a time. A power of two.
        block_features: Maximum number of columns of a program; wider rows use several programs. A power of
            two.
        num_warps: Groups of 32 (on AMD 64) threads in a program. A power of two.
        num_stages: Number of tiles in flight; 1 disables software pipelining.
        variant: "kernels" (onehop's own) or "torch_csr": sums and means by torch's sparse matrices (cuSPARSE
            on NVIDIA GPUs), which are kept for both directions. They accept float32 and float64 with at most
            one weight per edge, and 16-bit dtypes without weights if the result has 16 bits too; all other
            operands use the kernels. Torch does not specify its order of addition.
        ordering: The order in which rows are processed: "none" (unchanged), "degree", "rcm", "community" or
            "metis" (:mod:`onehop.graph.orders`). Rows whose programs run at the same time then share more of
            their sources. Rows are written to their original places, so neither features nor results are
            moved. For the kernels only.

    Examples:
        >>> from onehop.plans import TritonPlan
        >>> plan = TritonPlan(num_warps=4)
        >>> plan.num_warps, plan.block_edges  # what is not given has its default
        (4, 16)
        >>> TritonPlan.from_json(plan.to_json()) == plan
        True
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
        """Check every field."""
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
            check_named(name, getattr(self, name), choices)

    @property
    def mapping(self) -> Literal["neighbour", "feature"]:
        """The part of the work that the threads of a program share.

        "feature" means columns only, with each row's edges processed one after the other; this is the case if
        all rows are short. "neighbour" means that threads also share the edges of longer rows.
        """
        return "feature" if self.short_edges >= self.split_edges else "neighbour"
