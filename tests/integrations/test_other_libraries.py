"""Functions of torch and PyG that another library has replaced, before the patch or after it.

What is in the function's place runs, for large calls as for small ones, in whatever order both are taken
back.
"""

import functools
import sys

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.utils as utils
from torch_geometric import nn as gnn
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv import gat_conv, gcn_conv
from torch_geometric.nn.dense.linear import Linear

import onehop
from onehop import thresholds
from onehop.integrations.rows import is_own
from onehop.integrations.torch import scatters

NODES = 30


def doubled(out):
    if isinstance(out, tuple):
        return tuple(map(doubled, out))
    return out * 2 if isinstance(out, torch.Tensor) and out.is_floating_point() else out


def plain(theirs):
    return lambda *args, **kwargs: doubled(theirs(*args, **kwargs))


def wrapped(theirs):
    return functools.wraps(theirs)(plain(theirs))


class Callable:
    """A replacement that is no function."""

    def __init__(self, theirs):
        self.theirs = theirs

    def __call__(self, *args, **kwargs):
        return doubled(self.theirs(*args, **kwargs))


FUNCTIONS = {
    "gcn_norm": (gcn_conv, "gcn_norm"),
    "softmax": (utils, "softmax"),
    "softmax of GATConv": (gat_conv, "softmax"),
    "linear": (F, "linear"),
    "dropout": (torch._VF, "dropout"),
    "torch.index_select": (torch, "index_select"),
    "torch.gather": (torch, "gather"),
}
METHODS = {
    f"{kind.__name__}.{name}": (kind, name)
    for kind, names in {
        torch.Tensor: ("__getitem__", "index_select", "index_add", "index_add_", "scatter_add_"),
        gnn.GCNConv: ("forward", "message", "propagate", "aggregate"),
        gnn.SAGEConv: ("forward", "message"),
        gnn.GATConv: ("forward", "message", "edge_update"),
        gnn.MessagePassing: ("aggregate",),
        Linear: ("forward",),
        SumAggregation: ("forward",),
        MeanAggregation: ("forward",),
    }.items()
    for name in names
}


@pytest.fixture
def outcomes():
    """Sums of what functions and layers give."""
    torch.manual_seed(0)
    x, weight, edge_index = torch.randn(NODES, 8), torch.randn(6, 8), torch.randint(NODES, (2, 90))
    index = edge_index[0]
    layers = [gnn.GCNConv(8, 4), gnn.SAGEConv(8, 4), gnn.GATConv(8, 4, heads=2), gnn.GraphConv(8, 4)]

    def run():
        zeros = torch.zeros_like(x)
        return [
            *(layer(x, edge_index) for layer in layers),
            utils.softmax(x[:, 0], index[:NODES]),
            F.linear(x, weight),
            F.dropout(torch.ones(40, 40), 0.5),
            torch.index_select(x, 0, index),
            x.index_select(0, index),
            x[index],
            torch.gather(x, 0, index[:, None].expand(-1, 8)),
            x.index_add(0, index, x[index]),
            zeros.index_add_(0, index, x[index]),
            zeros.scatter_add_(0, index[:, None].expand(-1, 8), x[index]),
        ]

    def sums(with_layers=True):
        torch.manual_seed(1)
        with torch.no_grad():
            return [float(each.double().sum()) for each in run()[0 if with_layers else len(layers) :]]

    with thresholds.lifted():
        yield sums
    onehop.unpatch()


CASES = [
    *((name, how) for how in (plain, wrapped, Callable) for name in FUNCTIONS),
    *((name, how) for how in (plain, wrapped) for name in METHODS),
]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_what_is_in_the_place_of_a_function_runs(name, how, outcomes):
    owner, attribute = {**FUNCTIONS, **METHODS}[name]
    # Layers on the fast path gather and scatter without torch's functions of tensors.
    found = functools.partial(outcomes, with_layers=owner not in (torch.Tensor, torch._VF))
    close = functools.partial(pytest.approx, rel=1e-4, abs=1e-4)
    own = attribute in vars(owner)
    theirs, before = getattr(owner, attribute), found()
    try:
        # Before the patch.
        setattr(owner, attribute, how(theirs))
        expected = found()
        with onehop.patch():
            assert found() == close(expected)
            setattr(owner, attribute, theirs)
            assert found() == close(before)
        assert getattr(owner, attribute) == theirs
        # After it, over ours: and ours ends first.
        handle = onehop.patch()
        ours = getattr(owner, attribute)
        setattr(owner, attribute, how(ours))
        assert found() == close(expected)
        handle.remove()
        assert found() == close(expected)
        with onehop.patch():
            assert found() == close(expected)
        setattr(owner, attribute, ours)
        assert found() == close(before)
        # Ours was put back: the next patch finds what it stands for, and restores it.
        with onehop.patch():
            assert found() == close(before)
        assert getattr(owner, attribute) == theirs
        # After it, and theirs ends first.
        with onehop.patch():
            ours = getattr(owner, attribute)
            setattr(owner, attribute, how(ours))
            assert found() == close(expected)
            setattr(owner, attribute, ours)
            assert found() == close(before)
        assert getattr(owner, attribute) == theirs
    finally:
        setattr(owner, attribute, theirs)
        if not own:
            delattr(owner, attribute)
    assert found() == close(before)
    assert before != expected


@torch.no_grad()
@pytest.mark.parametrize("kind", [gnn.GATConv, gnn.GATv2Conv, gnn.TransformerConv])
def test_what_is_in_the_place_of_the_softmax_of_attention_runs_in_programs(kind, monkeypatch):
    torch.manual_seed(0)
    layer, x, edge_index = kind(8, 4), torch.randn(NODES, 8), torch.randint(NODES, (2, 90))
    module = sys.modules[kind.__module__]
    before = layer(x, edge_index)
    monkeypatch.setattr(module, "softmax", plain(module.softmax))
    expected = layer(x, edge_index)
    assert not torch.allclose(before, expected)
    with onehop.patch():
        compiled = torch.compile(layer, backend="eager")
        torch.testing.assert_close(compiled(x, edge_index), expected)


def test_pygs_function_in_the_place_of_torchs_may_stand_over_another(monkeypatch, outcomes):
    """PyG replaces torch.index_select when it is imported, which may come after another library."""
    if not isinstance(torch.index_select, type(plain)):
        pytest.skip("this PyG does not replace torch.index_select")
    monkeypatch.setitem(
        torch.index_select.__globals__, "_old_index_select", plain(torch._C._VariableFunctions.index_select)
    )
    expected = outcomes()
    with onehop.patch():
        assert outcomes() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_function_is_a_hosts_own_by_its_code_and_by_what_it_reads():
    theirs = utils.coalesce
    assert is_own(theirs)
    assert is_own(torch.relu)
    assert not is_own(wrapped(theirs))
    assert not is_own(scatters._suits)
    assert not is_own(functools.partial(theirs))
    moved = type(theirs)(theirs.__code__, {**theirs.__globals__}, theirs.__name__)
    assert not is_own(moved)
    moved = type(theirs)(plain(theirs).__code__, theirs.__globals__, "plain", None, plain(theirs).__closure__)
    assert not is_own(moved)
    with onehop.patch():
        assert is_own(utils.coalesce)
        assert not is_own(wrapped(utils.coalesce))
