"""A small machine, on which every choice of a plan matters even for small graphs; and plans on it."""

from typing import Any

from hypothesis import strategies as st

from onehop.machines.pim import PimConfig, PimPlan, upmem_v1a

# 37 cores in 4 ranks: one rank has ten, the others nine.
CORES, RANKS = 37, 4


def small() -> PimConfig:
    return upmem_v1a().with_(name="small", cores=CORES, ranks=RANKS)


def plans(grids: list[tuple[int, int]], most_tasklets: int, **others: Any) -> st.SearchStrategy[PimPlan]:
    """Plans of these grids in every format and balance; others: strategies of further fields."""
    fields = {
        "format": st.sampled_from(["csr", "coo"]),
        "core_balance": st.sampled_from(["row", "edge"]),
        "thread_balance": st.sampled_from(["row", "edge"]),
        "column_cut": st.sampled_from(["equal", "edge"]),
        "tasklets": st.integers(1, most_tasklets),
        **others,
    }
    return st.builds(
        lambda grid, **values: PimPlan(sp=grid[0], ds=grid[1], **values), st.sampled_from(grids), **fields
    )
