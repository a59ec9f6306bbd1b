"""Layers whose linear steps are somebody's own: whatever stands there is called, in its place."""

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn.dense.linear import Linear

from tests.integrations.same import SINGLE, fast, step

NARROW, WIDE = 5, 24
# The order that PyG has written down is the dearer one in each.
STEPS = {
    "GCN": (lambda: gnn.GCNConv(NARROW, WIDE), "lin", NARROW),
    "SAGE": (lambda: gnn.SAGEConv(WIDE, NARROW), "lin_l", WIDE),
    "SAGE root": (lambda: gnn.SAGEConv(WIDE, NARROW), "lin_r", WIDE),
    "Graph": (lambda: gnn.GraphConv(WIDE, NARROW), "lin_rel", WIDE),
    "Graph root": (lambda: gnn.GraphConv(WIDE, NARROW), "lin_root", WIDE),
    "SG": (lambda: gnn.SGConv(WIDE, NARROW, K=2), "lin", WIDE),
}


class Squared(Linear):
    """Looks like PyG's, and is not linear."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


def squared(step: Linear) -> Squared:
    own = Squared(step.in_channels, step.out_channels, bias=step.bias is not None)
    own.load_state_dict(step.state_dict())
    return own


def plain(step: Linear) -> torch.nn.Linear:
    own = torch.nn.Linear(step.in_channels, step.out_channels, bias=step.bias is not None)
    own.load_state_dict(step.state_dict())
    return own


def heard(step: Linear) -> Linear:
    step.register_forward_hook(lambda module, inputs, out: out + 1)
    return step


@pytest.mark.parametrize("replace", [squared, plain, heard], ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_ones_own_is_called(name, replace, edge_index):
    make, part, width = STEPS[name]
    torch.manual_seed(0)
    layer = make()
    setattr(layer, part, replace(getattr(layer, part)))
    x = torch.randn(20, width, generator=torch.Generator().manual_seed(1))
    fast(step(layer, x, edge_index), times=1, **SINGLE)
