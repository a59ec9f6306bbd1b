"""The linear steps of layers over few edges."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear

from onehop.compiler.modules import has_global_hooks
from onehop.integrations.pyg.stages import aggregated_over_few
from onehop.integrations.rows import is_own
from onehop.integrations.torch.products import THEIRS

FORWARD = Linear.forward if is_own(Linear.forward) else None
"""PyG's linear step; None if another library has replaced it."""


def rooted_over_few(
    layer: Any, linear: str, root: str, edge_index: Any, operands: dict[str, Any]
) -> Tensor | None:
    """Computes (A X) W^T + b + T V^T in the layer's own order; None if PyG's code has to run.

    It calls torch's functions instead of the modules, because calling a module takes as long as the sums.

    Args:
        layer: The layer, whose aggregator is a plain reduction.
        linear: The name of the linear step of the aggregated features.
        root: The name of the linear step of the destinations' own features T; empty for none.
        edge_index: [2, E], few edges.
        operands: The operands of ``propagate`` by name; "x" is a pair.
    """
    modules, target = layer._modules, operands["x"][1]
    lin, lin_root, adds_root = modules.get(linear), modules.get(root), bool(root) and target is not None
    if (
        _calls_more(lin)
        or (adds_root and _calls_more(lin_root))
        or F.linear is not THEIRS
        or has_global_hooks()
    ):
        return None
    reduced = aggregated_over_few(layer, edge_index, operands)
    if reduced is None:
        return None
    # The parameters are read by name, because a program may have replaced them by tensors.
    out: Tensor = torch._C._nn.linear(reduced, lin.weight, lin.bias)
    if not adds_root:
        return out
    assert lin_root is not None
    return out + torch._C._nn.linear(target, lin_root.weight, lin_root.bias)


def _calls_more(lin: Any) -> bool:
    """Return whether a call of a module does more than multiply by its weight and add its bias."""
    if type(lin) is not Linear:
        return True
    state = lin.__dict__
    return bool(
        Linear.forward is not FORWARD
        or "forward" in state
        or state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
    )
