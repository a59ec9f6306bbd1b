"""Register limits of the attention kernels."""

from typing import Any

import torch

from onehop.kernels.triton.launch import options
from onehop.plans.triton import TritonPlan

# Registers of one NVIDIA multiprocessor; with 128 a thread, 16 warps fit.
_REGISTERS = 65_536
_MOST = 128
_WARP = 32


def bounded(plan: TritonPlan) -> dict[str, Any]:
    """Compiler options: those of the other kernels, and the most registers of a thread.

    By default, NVIDIA's assembler spills a register or two to reach 32 or 48, although more would not hurt.
    AMD's compiler has no such option.
    """
    if torch.version.hip is not None:
        return options(plan)
    return {**options(plan), "maxnreg": min(_MOST, _REGISTERS // (_WARP * plan.num_warps))}
