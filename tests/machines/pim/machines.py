"""Small machines, on which every choice of a plan matters even for small graphs."""

from onehop.machines.pim import PimConfig, upmem_v1a

# 37 cores in 4 ranks: one rank has ten, the others nine.
CORES, RANKS = 37, 4


def small() -> PimConfig:
    return upmem_v1a().with_(name="small", cores=CORES, ranks=RANKS)
