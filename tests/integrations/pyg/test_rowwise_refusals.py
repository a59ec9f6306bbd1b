"""Messages that cannot run in blocks: each goes PyG's own way, with its sentence."""

import linecache
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.utils import softmax

from onehop.compiler.lines import without_line
from onehop.integrations.pyg.leave import FITS_CACHE, TOO_SMALL
from tests.integrations.pyg import own_messages, small_blocks
from tests.integrations.pyg.compiled_layers import EDGE_INDEX, EDGES, NODES, WIDTH
from tests.integrations.same import reasons, same, same_error


@pytest.fixture(autouse=True)
def _blocks(monkeypatch):
    small_blocks.force(monkeypatch)


class Layer(gnn.MessagePassing):
    """What the messages below use."""

    def __init__(self, aggr: object = "sum") -> None:
        super().__init__(aggr=aggr)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.seen: list[object] = []


def layer_of(message: Callable[..., Tensor], aggr: object = "sum") -> gnn.MessagePassing:
    function = own_messages.as_message(message)

    class Mine(Layer):
        message = function

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.made = self.weight * 2
            return self.propagate(edge_index, x=x, e=torch.ones(edge_index.size(1), 1))

    return own_messages.renamed(Mine)(aggr)


def reason_of(layer: torch.nn.Module, edges: Tensor = EDGE_INDEX) -> str | None:
    """Compares the layer with PyG's, and returns why PyG's own code ran, or None."""
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    (reason,) = reasons(same(lambda: layer(x, edges), rtol=1e-5, atol=1e-5, times=1))
    return reason


def writes(self, x_j, e):
    e += 1
    return x_j * e


def stores(self, x_j):
    self.last = x_j
    return x_j * 2


def appends(self, x_j):
    self.seen.append(x_j)
    return x_j * 2


def hooks(self, x_j):
    x_j.register_hook(lambda grad: grad / grad.norm())
    return x_j * 2


def fails(self, x_j):
    return x_j + torch.ones(EDGES).view(x_j.size(0), 1)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean()


UNKNOWN = "of which onehop cannot tell that it only computes"
REASONS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "sums": (lambda self, x_j: x_j - x_j.sum(0), "its message mixes edges in sum"),
    "whole sum": (lambda self, x_j: x_j - x_j.mean(), "its message mixes edges in mean"),
    "softmaxed": (
        lambda self, x_j, index, size_i: x_j * softmax(x_j, index, num_nodes=size_i),
        "its message uses scatter_reduce_, which onehop does not know to keep edges apart",
    ),
    "sorts": (lambda self, x_j: x_j.sort(0)[0], "its message mixes edges in sort"),
    "shifts": (lambda self, x_j: x_j.roll(1, 0), "its message mixes edges in roll"),
    "pairs": (lambda self, x_j: (x_j @ x_j.t()) @ x_j, "its message mixes edges in mm"),
    "picks": (lambda self, x_j: x_j - x_j[0], "its message mixes edges in select"),
    "counts": (lambda self, x_j: x_j / x_j.size(0), "its message depends on the number of edges"),
    "numbers": (
        lambda self, x_j: x_j * torch.arange(x_j.size(0)).view(-1, 1),
        "its message mixes edges in mul: it meets a tensor that does not come from the edges' operands",
    ),
    "squeezes": (
        lambda self, x_j: x_j.unsqueeze(1).squeeze(),
        "its message mixes edges in squeeze: without a dimension it treats a single edge",
    ),
    "reads": (lambda self, x_j: x_j if bool(x_j[:, 0].max() > 0) else -x_j, "its message mixes edges in max"),
    "through numpy": (
        lambda self, x_j: torch.from_numpy(x_j.detach().numpy() * 2),
        f"its message uses torch.from_numpy, {UNKNOWN}",
    ),
    "listed": (lambda self, x_j: x_j * x_j.tolist()[0][0], f"its message uses tolist, {UNKNOWN}"),
    "draws": (
        lambda self, x_j: torch.nn.functional.dropout(x_j, training=self.training),
        "its message draws random numbers (bernoulli_)",
    ),
    "draws apart": (
        lambda self, x_j: x_j * torch.rand(x_j.size(1)),
        "its message draws random numbers (rand)",
    ),
    "normalises": (lambda self, x_j: self.norm(x_j), "as normalisation by the batch does in training"),
    "writes": (writes, "its message writes to a tensor that is not its own (add_)"),
    "stores": (stores, "its message stores something outside its local variables"),
    "appends": (appends, f"its message uses append, {UNKNOWN}"),
    "hooks": (hooks, f"its message uses register_hook, {UNKNOWN}"),
    "two": (
        lambda self, x_j: x_j.sum(0, keepdim=True).expand(x_j.size(0), -1),
        "its message mixes edges in sum",
    ),
    "history": (
        lambda self, x_j: x_j * self.made,
        "its message uses a tensor with a history of its own, which is no operand",
    ),
    "own gradient": (
        lambda self, x_j: Double.apply(x_j),
        f"its message uses Double.apply, {UNKNOWN}",
    ),
    "fails": (fails, "its message fails on a few of the edges (RuntimeError: shape '[7, 1]' is invalid"),
}


def test_an_aggregation_that_is_overridden_runs():
    layer = layer_of(lambda self, x_j: x_j * 2)
    own = layer.aggr_module.forward
    layer.aggr_module.forward = lambda *args, **kwargs: own(*args, **kwargs) + 1
    assert reason_of(layer) == "its aggregation module is overridden"


@pytest.mark.parametrize("name", REASONS)
def test_messages(name):
    message, reason = REASONS[name]
    found = reason_of(layer_of(message))
    assert reason in found
    file, code = message.__code__.co_filename, message.__code__
    told = re.search(r", in line (\d+) of (\S+) \(`(.*)`\)$", found)
    assert told is not None, found
    assert file.endswith(told[2])
    assert told[3] == linecache.getline(file, int(told[1])).strip()
    assert int(told[1]) in {line for *_, line in code.co_lines()}
    assert without_line(found).startswith("its message ")


@pytest.mark.parametrize("name", ["stores", "appends", "normalises", "draws"])
def test_a_refusal_leaves_no_trace(name):
    x = torch.randn(NODES, WIDTH)

    def run() -> list[object]:
        layer = layer_of(REASONS[name][0])
        out = layer(x, EDGE_INDEX)
        return [out, len(layer.seen), layer.norm.running_mean, layer.norm.num_batches_tracked]

    same(run, rtol=1e-5, atol=1e-5)


def _hooked(module_or_tensor: str) -> torch.nn.Module:
    if module_or_tensor == "module":
        layer = layer_of(lambda self, x_j: self.norm(x_j))
        layer.eval().norm.register_forward_hook(lambda *_: None)
    elif module_or_tensor == "tensor":
        layer = layer_of(lambda self, x_j: x_j * self.weight)
        layer.weight.register_hook(lambda grad: grad)
    else:
        layer = layer_of(lambda self, x_j: x_j * 2)
        layer.register_message_forward_hook(lambda *_: None)
    return layer


SORTED = EDGE_INDEX[:, EDGE_INDEX[1].argsort()]
HEADS = {"in_channels": WIDTH, "out_channels": WIDTH, "num_heads": 1}
LSTM = "its aggregation is LSTMAggregation, which onehop does not know"
OTHERS: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "module": (lambda: _hooked("module"), "hooks are registered on a module in it"),
    "tensor": (
        lambda: _hooked("tensor"),
        "its message uses a parameter on which a hook is registered, in line ",
    ),
    "message": (lambda: _hooked("message"), "message passing hooks are registered on it"),
    "LSTM": (lambda: layer_of(lambda self, x_j: x_j * 2, gnn.aggr.LSTMAggregation(WIDTH, WIDTH)), LSTM),
    "LSTM inside": (
        lambda: layer_of(
            lambda self, x_j: x_j * 2,
            gnn.aggr.MultiAggregation(["sum", gnn.aggr.LSTMAggregation(WIDTH, WIDTH)]),
        ),
        LSTM,
    ),
    "attention over aggregations": (
        lambda: layer_of(
            lambda self, x_j: x_j * 2,
            gnn.aggr.MultiAggregation(["sum", "mean"], mode="attn", mode_kwargs=HEADS),
        ),
        "its aggregations are combined in the mode attn",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_reasons(name):
    make, sentence = OTHERS[name]
    assert reason_of(make(), SORTED).startswith(sentence)


def test_sizes(bounds):
    fine = layer_of(lambda self, x_j, e: x_j * e)
    assert reason_of(fine) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert reason_of(fine) is None
    # The bytes of the widest operand on all edges.
    bounds(cached_bytes=EDGES * WIDTH * 4)
    assert reason_of(fine) is None
    bounds(cached_bytes=EDGES * WIDTH * 4 + 1)
    assert reason_of(fine) == FITS_CACHE
    bounds(few_edges=2 * EDGES, few_work=1 << 20)
    assert reason_of(fine) == TOO_SMALL


def test_no_edges_and_wrong_edges_are_left_to_pyg():
    layer, x = layer_of(lambda self, x_j: x_j * 2), torch.randn(4, WIDTH)
    same(lambda: layer(x, EDGE_INDEX[:, :0]))
    same_error(lambda: layer(x, torch.full((2, EDGES), 9)))
