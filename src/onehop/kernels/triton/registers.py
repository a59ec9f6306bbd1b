"""How many registers the attention kernels may take."""

from typing import Any

import torch

from onehop.kernels.triton.launch import options
from onehop.plans.triton import TritonPlan

# Of one of NVIDIA's multiprocessors; with 128 a thread, 16 warps fit.
_REGISTERS = 65_536
_MOST = 128
_WARP = 32


def bounded(plan: TritonPlan) -> dict[str, Any]:
    """What the compiler is told: as for other kernels, and the most registers of a thread.

    Left to itself, NVIDIA's assembler spills a register or two to come down to 32 or 48, where more would do
    no harm. AMD's compiler takes no such bound.
    """
    if torch.version.hip is not None:
        return options(plan)
    return {**options(plan), "maxnreg": min(_MOST, _REGISTERS // (_WARP * plan.num_warps))}
