"""The choices of the CPU kernels."""

import re
from dataclasses import dataclass
from typing import Any, Self

from onehop.errors import ArgumentError
from onehop.plans.plan import MOST_COUNT, Plan

# Column numbers are padded by this many entries (Csr::kPadding), so that reading ahead stays inside.
MOST_PREFETCH = 64
# Vectors that the kernels hold at most (kMostVectors in csrc/kernels/blocks.hpp); fewer with AVX2.
MOST_REGISTER_BLOCK = 16
ORDERINGS = ("none", "degree", "rcm", "community", "metis")
STORAGES = ("same", "bfloat16")
INDICES = ("int32", "int16")
# Sources that an unsigned number of 16 bits can name (Csr::kMostNarrowCols).
MOST_NARROW_SOURCES = 1 << 16
PREFETCH_HINTS = ("L1", "L2")
# A field of earlier plans, by default 0. Kernels no longer have it: with any other value a plan cannot run.
REMOVED_FIELD = "hub_cache"
# A name becomes the name of a file.
_GENERATED = re.compile(r"[a-z0-9-]{0,200}")


@dataclass(frozen=True, slots=True)
class CpuPlan(Plan):
    """How the CPU kernels go over a graph.

    All plans give the same result, up to the rounding of rows that are cut at other places; ``storage`` alone
    may change it, and is chosen where the user allows loss only.

    Attributes:
        edges_per_item: Edges in a piece of work. Rows longer than this are cut, shorter ones never.
        prefetch: How many edges ahead a source row is asked for; 0 to 64.
        prefetch_hint: Into which cache: "L1", or "L2", which has room for more lines that are on their way.
            Of sums and means alone; all else asks for rows into the second cache.
        column_tile: Columns done in one pass over the graph; 0 means all of them.
        register_block: Most vectors of a row's columns that are summed at a time; 0 means as many as the
            registers hold.
        nontemporal: Write results past the caches, which saves reading their lines first; of use where they
            are larger than the caches. Applies to rows that are whole cache lines.
        threads: Most threads to use; 0 means torch's number.
        ordering: The order in which destinations are visited: "none" (as they come), "degree", "rcm",
            "community" or "metis" (:mod:`onehop.graph.orders`). Rows are written to where they belong, so
            neither features nor results are moved. Of aggregation alone.
        storage: What sources are read as: "same" (as they come), or "bfloat16", which halves the traffic
            of float32 and loses 16 bits of every number. Of sums and means alone.
        index: What the numbers of sources are read as: "int32", or "int16" (without a sign), possible up to
            65,536 sources. The graph then keeps a second copy of its columns, 2 bytes an edge. Of sums and
            means, and of max and min without weights; all else reads 32 bits.
        generated: Name of a kernel that was generated for one width and dtype, and is used for these; empty
            means the built-in kernels. Of aggregation alone. Made by ``onehop.tune(..., codegen=True)``.
    """

    edges_per_item: int = 4096
    prefetch: int = 16
    prefetch_hint: str = "L2"
    column_tile: int = 0
    register_block: int = 0
    nontemporal: bool = False
    threads: int = 0
    ordering: str = "none"
    storage: str = "same"
    index: str = "int32"
    generated: str = ""

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The plan with these fields; those that are omitted have their defaults.

        An earlier plan's ``hub_cache`` of 0, its default, is ignored.

        Raises:
            ArgumentError: ``values`` is not a dictionary, has a field that such plans do not have, or a value
                that they cannot have.
        """
        if isinstance(values, dict) and values.get(REMOVED_FIELD) == 0:
            values = {name: value for name, value in values.items() if name != REMOVED_FIELD}
        return super(CpuPlan, cls).from_dict(values)

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, least, most in (
            ("edges_per_item", 1, MOST_COUNT),
            ("prefetch", 0, MOST_PREFETCH),
            ("column_tile", 0, MOST_COUNT),
            ("register_block", 0, MOST_REGISTER_BLOCK),
            ("threads", 0, MOST_COUNT),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ArgumentError(f"plan: {name} must be an integer of at least {least}, not {value!r}.")
            if value > most:
                raise ArgumentError(f"plan: {name} must be at most {most}, not {value}.")
        if not isinstance(self.nontemporal, bool):
            raise ArgumentError(f"plan: nontemporal must be true or false, not {self.nontemporal!r}.")
        for name, choices in (
            ("prefetch_hint", PREFETCH_HINTS),
            ("ordering", ORDERINGS),
            ("storage", STORAGES),
            ("index", INDICES),
        ):
            if getattr(self, name) not in choices:
                raise ArgumentError(
                    f"plan: {name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}."
                )
        if not isinstance(self.generated, str) or not _GENERATED.fullmatch(self.generated):
            raise ArgumentError(
                f"plan: generated must be a kernel's name, of a-z, 0-9 and -, not {self.generated!r}."
            )
