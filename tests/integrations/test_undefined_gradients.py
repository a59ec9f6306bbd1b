"""No gradient comes back for one that never came, as from torch's own operators: None, and no zeros."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric import nn

import onehop
from onehop import thresholds

EDGES = torch.randint(0, 30, (2, 200), generator=torch.Generator().manual_seed(1))


class _Stop(torch.autograd.Function):
    """Passes its operand on, and no gradient back."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


LAYERS = {
    "GCNConv": lambda: nn.GCNConv(8, 4),
    "GCNConv, widening": lambda: nn.GCNConv(8, 16),
    "SAGEConv": lambda: nn.SAGEConv(8, 4),
    "SAGEConv, max": lambda: nn.SAGEConv(8, 4, aggr="max"),
    "GraphConv, widening": lambda: nn.GraphConv(8, 16),
    "GATConv": lambda: nn.GATConv(8, 4, heads=2),
    "GATv2Conv": lambda: nn.GATv2Conv(8, 4, heads=2),
    "TransformerConv": lambda: nn.TransformerConv(8, 4, heads=2),
    "ResGatedGraphConv": lambda: nn.ResGatedGraphConv(8, 4),
    "SimpleConv": lambda: nn.SimpleConv(),
    "linear": lambda: lambda x, _: F.linear(x, torch.ones(4, 8)),
    "dropout": lambda: lambda x, _: F.dropout(x),
}


def _which(model, x):
    """Which operands get a gradient where none comes in, and where one does."""
    tensors = [x, *(model.parameters() if isinstance(model, torch.nn.Module) else ())]
    found = []
    for stop in (_Stop.apply, torch.clone):
        out = stop(model(x, EDGES)).sum() + 0 * x.sum()
        grads = torch.autograd.grad(out, tensors[1:], allow_unused=True) if len(tensors) > 1 else ()
        found.append([grad is not None for grad in grads])
        out = stop(model(x, EDGES))
        found.append(torch.autograd.grad(out.sum(), x, allow_unused=True)[0] is not None)
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_none_for_none(name):
    torch.manual_seed(2)
    model, x = LAYERS[name](), torch.randn(30, 8, requires_grad=True)
    expected = _which(model, x)
    assert expected[1] is False
    assert expected[3] is True
    with thresholds.lifted(), onehop.patch():
        assert _which(model, x) == expected


def test_the_backward_of_dropout_is_differentiated_without_a_gradient():
    x = torch.randn(40, 8, requires_grad=True)
    with thresholds.lifted(), onehop.patch():
        out = F.dropout(x)
        weights = torch.ones_like(out, requires_grad=True)
        (grad,) = torch.autograd.grad(out, x, weights, create_graph=True)
        assert torch.autograd.grad(
            _Stop.apply(grad).sum(), weights, allow_unused=True, retain_graph=True
        ) == (None,)
        again = torch.autograd.grad(grad.sum(), weights)[0]
    assert torch.equal(again, torch.where(out.detach() == 0, 0.0, 2.0))
