"""The plan of the CPU kernels."""

import re
from dataclasses import dataclass
from typing import Any, Self

from onehop.errors import ArgumentError
from onehop.plans.plan import MOST_COUNT, Plan, check_flag, check_least, check_named

# Column numbers are padded by this many entries (Csr::kPadding), so prefetching stays in bounds.
MOST_PREFETCH = 64
# Maximum number of vectors that the kernels hold (kMostVectors in csrc/kernels/blocks.hpp); fewer with AVX2.
MOST_REGISTER_BLOCK = 16
ORDERINGS = ("none", "degree", "rcm", "community", "metis")
STORAGES = ("same", "bfloat16")
PREFETCH_HINTS = ("L1", "L2")
# Fields of earlier plans. Kernels no longer have the first, whose default was 0; a plan with any other value
# cannot run. The second, the width of the column numbers, changed no result.
REMOVED_FIELD, _IGNORED_FIELD = "hub_cache", "index"
# The name is used as a file name.
_GENERATED = re.compile(r"[a-z0-9-]{0,200}")


@dataclass(frozen=True, slots=True)
class CpuPlan(Plan):
    """Parameters of the CPU kernels.

    All plans give the same result, up to rounding in rows that are cut at other places. Only ``storage`` may
    change the result, and it is chosen only if the user allows loss.

    Attributes:
        edges_per_item: Number of edges in a work item. Longer rows are cut; shorter rows are never cut.
        prefetch: Number of edges by which source rows are prefetched ahead; 0 to 64.
        prefetch_hint: Target cache of prefetches: "L1", or "L2", which has room for more outstanding lines.
            For sums and means only; all other operations prefetch into L2.
        column_tile: Number of columns processed in one pass over the graph; 0 means all columns.
        register_block: Maximum number of vectors of a row's columns that are summed at a time; 0 means as
            many as the registers hold.
        nontemporal: Whether to write results with non-temporal stores, which avoids reading their cache lines
            first. It pays off if the results are larger than the caches, and applies to rows of whole cache
            lines.
        threads: Maximum number of threads; 0 means torch's number.
        ordering: The order in which destinations are visited: "none" (unchanged), "degree", "rcm",
            "community" or "metis" (:mod:`onehop.graph.orders`). Rows are written to their original places, so
            neither features nor results are moved. For aggregation only.
        storage: Dtype in which sources are read: "same" (unchanged), or "bfloat16", which halves the traffic
            of float32 and loses 16 bits of every number. For sums and means only.
        generated: Name of a generated kernel that is used for its width and dtype; empty means the built-in
            kernels. For aggregation only. Made by ``onehop.tune(..., codegen=True)``.

    Examples:
        >>> from onehop.plans import CpuPlan
        >>> plan = CpuPlan(edges_per_item=1024, prefetch=32)
        >>> plan.prefetch, plan.column_tile  # what is not given has its default
        (32, 0)
        >>> CpuPlan.from_json(plan.to_json()) == plan
        True
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
    generated: str = ""

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Return the plan with these fields; omitted fields have their defaults.

        In an earlier plan, ``index``, and ``hub_cache`` if it is 0 (its default), are ignored.

        Raises:
            ArgumentError: ``values`` is not a dictionary, has an unknown field, or an invalid value.
        """
        if isinstance(values, dict):
            removed = {_IGNORED_FIELD, REMOVED_FIELD if values.get(REMOVED_FIELD) == 0 else ""}
            values = {name: value for name, value in values.items() if name not in removed}
        return super(CpuPlan, cls).from_dict(values)

    def __post_init__(self) -> None:
        """Check every field."""
        for name, least, most in (
            ("edges_per_item", 1, MOST_COUNT),
            ("prefetch", 0, MOST_PREFETCH),
            ("column_tile", 0, MOST_COUNT),
            ("register_block", 0, MOST_REGISTER_BLOCK),
            ("threads", 0, MOST_COUNT),
        ):
            value = getattr(self, name)
            check_least(name, value, least)
            if value > most:
                raise ArgumentError(f"plan: {name} must be at most {most}, not {value}.")
        check_flag("nontemporal", self.nontemporal)
        for name, choices in (
            ("prefetch_hint", PREFETCH_HINTS),
            ("ordering", ORDERINGS),
            ("storage", STORAGES),
        ):
            check_named(name, getattr(self, name), choices)
        if not isinstance(self.generated, str) or not _GENERATED.fullmatch(self.generated):
            raise ArgumentError(
                f"plan: generated must be a kernel's name, of a-z, 0-9 and -, not {self.generated!r}."
            )
