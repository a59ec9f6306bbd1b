"""MACE as a framework that can be patched."""

from typing import Any

import torch
from e3nn.o3 import TensorProduct
from mace.modules.blocks import InteractionBlock
from mace.modules.symmetric_contraction import SymmetricContraction
from mace.tools.scatter import scatter_sum
from torch import Tensor

from onehop.integrations import reports
from onehop.integrations.equivariant.contractions import contracted
from onehop.integrations.equivariant.products import NAME, check_context, summed
from onehop.integrations.rows import Function, Leave, Row, replacing
from onehop.integrations.session import MACE, Framework, Settings


class Mace(Framework):
    """MACE, whose blocks call one function for product and sum where their attribute ``conv_fusion`` exists.

    MACE sets it for other libraries' kernels. The patch gives the blocks' class this attribute, and e3nn's
    ``TensorProduct`` the argument that the blocks then pass: the edges. Blocks of releases before 0.3.14 do
    not read it, and compute what they did.
    """

    name = MACE

    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table; no setting changes them."""
        return [
            Row(InteractionBlock, "conv_fusion", _Fused(), None, inherited=True),
            replacing(TensorProduct, "forward", _of_mace, traced=_unfused),
            replacing(SymmetricContraction, "forward", contracted),
        ]


class _Fused:
    """An attribute that a block of MACE has if product and sum can run as one; no data descriptor.

    A block that was made for another library's kernels has its own attribute, which Python finds first.
    """

    def __get__(self, block: Any, kind: type) -> Any:
        """Return the name of the kernels; raises AttributeError if the block's own code has to run."""
        if block is None:
            return self
        product = block.conv_tp
        # TorchScript compiles the block's own code.
        if not torch.compiler.is_compiling() and not isinstance(product, torch.jit.ScriptModule):
            try:
                check_context(product, TensorProduct, NAME)
                return "onehop"
            except Leave as why:
                reports.refuse(product, why.sentence)
        raise AttributeError("conv_fusion")


def _of_mace(
    theirs: Function, product: Any, x: Any, y: Any, weight: Any = None, edge_index: Any = None
) -> Tensor | None:
    """Run product and sum, if a block of MACE calls; e3nn's own function runs for all other callers."""
    if edge_index is None:
        return None
    try:
        return summed(product, product, x, y, weight, edge_index[0], edge_index[1])
    except Leave as why:
        reports.refuse(product, why.sentence)
        return _unfused(theirs, product, x, y, weight, edge_index)


def _unfused(
    theirs: Function, product: Any, x: Any, y: Any, weight: Any = None, edge_index: Any = None
) -> Tensor | None:
    """Run what a block of MACE runs without the attribute: the product of each edge, then the sum."""
    if edge_index is None:
        return None
    messages = theirs(product, x[edge_index[0]], y, weight)
    total: Tensor = scatter_sum(src=messages, index=edge_index[1], dim=0, dim_size=x.shape[0])
    return total
