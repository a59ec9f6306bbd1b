"""Messages that cannot run in blocks: each goes PyG's own way, with its sentence."""

import inspect
import itertools
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.utils import softmax

import onehop
from onehop.compiler.lines import without_line
from onehop.integrations.pyg.leave import FITS_CACHE, TOO_SMALL
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH = 20, 120, 6
THIS = Path(__file__).name
_numbers = itertools.count()


class Layer(gnn.MessagePassing):
    """What the messages below use."""

    def __init__(self, aggr: object = "sum") -> None:
        super().__init__(aggr=aggr)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.seen: list[object] = []


def sums(self, x_j: Tensor) -> Tensor:
    return x_j - x_j.sum(0)


def whole_sum(self, x_j: Tensor) -> Tensor:
    return x_j - x_j.mean()


def softmaxed(self, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
    return x_j * softmax(x_j, index, num_nodes=size_i)


def sorts(self, x_j: Tensor) -> Tensor:
    return x_j.sort(0)[0]


def shifts(self, x_j: Tensor) -> Tensor:
    return x_j.roll(1, 0)


def pairs(self, x_j: Tensor) -> Tensor:
    return (x_j @ x_j.t()) @ x_j


def picks(self, x_j: Tensor) -> Tensor:
    return x_j - x_j[0]


def counts(self, x_j: Tensor) -> Tensor:
    return x_j / x_j.size(0)


def numbers(self, x_j: Tensor) -> Tensor:
    return x_j * torch.arange(x_j.size(0)).view(-1, 1)


def squeezes(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(1).squeeze()


def reads(self, x_j: Tensor) -> Tensor:
    return x_j if bool(x_j[:, 0].max() > 0) else -x_j


def through_numpy(self, x_j: Tensor) -> Tensor:
    return torch.from_numpy(x_j.detach().numpy() * 2)


def listed(self, x_j: Tensor) -> Tensor:
    return x_j * x_j.tolist()[0][0]


def draws(self, x_j: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x_j, training=self.training)


def draws_apart(self, x_j: Tensor) -> Tensor:
    return x_j * torch.rand(x_j.size(1))


def normalises(self, x_j: Tensor) -> Tensor:
    return self.norm(x_j)


def writes(self, x_j: Tensor, e: Tensor) -> Tensor:
    e += 1
    return x_j * e


def stores(self, x_j: Tensor) -> Tensor:
    self.last = x_j
    return x_j * 2


def appends(self, x_j: Tensor) -> Tensor:
    self.seen.append(x_j)
    return x_j * 2


def hooks(self, x_j: Tensor) -> Tensor:
    if x_j.requires_grad:
        x_j.register_hook(lambda grad: grad / grad.norm())
    return x_j * 2


def two(self, x_j: Tensor) -> Tensor:
    return x_j.sum(0, keepdim=True).expand(x_j.size(0), -1)


def history(self, x_j: Tensor) -> Tensor:
    return x_j * self.made


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean()


def own_gradient(self, x_j: Tensor) -> Tensor:
    return Double.apply(x_j)


def fails(self, x_j: Tensor) -> Tensor:
    if x_j.size(0) < 100:
        raise ValueError("too few\nof many lines")
    return x_j


REASONS: list[tuple[Callable[..., Tensor], str]] = [
    (sums, "its message mixes edges in sum"),
    (whole_sum, "its message mixes edges in mean"),
    (softmaxed, "its message uses scatter_reduce_, which onehop does not know to keep edges apart"),
    (sorts, "its message mixes edges in sort"),
    (shifts, "its message mixes edges in roll"),
    (pairs, "its message mixes edges in mm"),
    (picks, "its message mixes edges in select"),
    (counts, "its message depends on the number of edges"),
    (
        numbers,
        "its message mixes edges in mul: it meets a tensor that does not come from the edges' operands",
    ),
    (squeezes, "its message mixes edges in squeeze: without a dimension it treats a single edge"),
    (reads, "its message mixes edges in max"),
    (through_numpy, "its message calls numpy of a tensor"),
    (listed, "its message calls tolist of a tensor"),
    (draws, "its message draws random numbers (bernoulli_)"),
    (draws_apart, "its message draws random numbers (rand)"),
    (normalises, "as normalisation by the batch does in training"),
    (writes, "its message writes to a tensor that is not its own (add_)"),
    (stores, "its message stores something on the layer (last)"),
    (appends, "its message stores something on the layer (an entry of a list, dictionary or set)"),
    (hooks, "its message calls register_hook of a tensor"),
    (two, "its message mixes edges in sum"),
    (history, "its message uses a tensor with a history of its own, which is no operand"),
    (own_gradient, "its message uses an autograd function of its own (DoubleBackward)"),
    (fails, "its message fails on a few of the edges (ValueError: too few)"),
]


def layer_of(message: Callable[..., Tensor], aggr: object = "sum") -> gnn.MessagePassing:
    # PyG looks the function up by its own name.
    function = types.FunctionType(message.__code__, message.__globals__, "message")
    function.__annotations__ = dict(message.__annotations__)

    class Mine(Layer):
        message = function

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.made = self.weight * 2
            return self.propagate(edge_index, x=x, e=torch.ones(edge_index.size(1), 1))

    # PyG renders one propagate for all classes of one name.
    Mine.__name__ = f"Mine{next(_numbers)}"
    return Mine(aggr)


@pytest.fixture
def reason_of(took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch)

    def run(layer: torch.nn.Module, edges: Tensor | None = None) -> str | None:
        x = torch.randn(NODES, WIDTH, requires_grad=True)
        with onehop.patch():
            (reason,) = took_fast_path(layer, x, make_edges(NODES, NODES, EDGES) if edges is None else edges)
        return reason

    return run


@pytest.mark.parametrize(("message", "reason"), REASONS, ids=[m.__name__ for m, _ in REASONS])
def test_messages(message, reason, reason_of):
    found = reason_of(layer_of(message))
    assert reason in found
    if message is not own_gradient:
        lines, first = inspect.getsourcelines(message)
        told = [f", in line {first + at} of {THIS} (`{line.strip()}`)" for at, line in enumerate(lines) if at]
        assert any(found.endswith(each) for each in told), found
        assert without_line(found).startswith("its message ")


@pytest.mark.parametrize("message", [stores, appends, normalises, draws], ids=lambda m: m.__name__)
def test_a_refusal_leaves_no_trace(message, monkeypatch):
    small_blocks.force(monkeypatch)
    edges, x = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH)
    results = []
    for patched in (False, True):
        layer = layer_of(message)
        torch.manual_seed(4)
        if patched:
            with onehop.patch():
                out = layer(x, edges)
        else:
            out = layer(x, edges)
        results.append((out, len(layer.seen), layer.norm.running_mean, int(layer.norm.num_batches_tracked)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_other_reasons(reason_of, monkeypatch, bounds):
    fine = layer_of(lambda self, x_j, e: x_j * e)
    assert reason_of(fine) is None
    hooked = layer_of(lambda self, x_j: self.norm(x_j))
    hooked.eval().norm.register_forward_hook(lambda *_: None)
    assert reason_of(hooked) == "hooks are registered on a module in it"
    hooked = layer_of(lambda self, x_j: x_j * self.weight)
    hooked.weight.register_hook(lambda grad: grad)
    assert reason_of(hooked).startswith(
        "its message uses a parameter on which a hook is registered, in line "
    )
    odd = layer_of(lambda self, x_j: x_j * 2, gnn.aggr.LSTMAggregation(WIDTH, WIDTH))
    order = make_edges(NODES, NODES, EDGES)
    order = order[:, order[1].argsort()]
    assert reason_of(odd, order) == "its aggregation is LSTMAggregation, which onehop does not know"
    inner = gnn.aggr.MultiAggregation(["sum", gnn.aggr.LSTMAggregation(WIDTH, WIDTH)])
    assert reason_of(layer_of(lambda self, x_j: x_j * 2, inner), order) == reason_of(odd, order)
    heads = {"in_channels": WIDTH, "out_channels": WIDTH, "num_heads": 1}
    several = gnn.aggr.MultiAggregation(["sum", "mean"], mode="attn", mode_kwargs=heads)
    mixed = layer_of(lambda self, x_j: x_j * 2, several)
    assert reason_of(mixed) == "its aggregations are combined in the mode attn"
    explained = layer_of(lambda self, x_j: x_j * 2)
    explained.register_message_forward_hook(lambda *_: None)
    assert reason_of(explained) == "message passing hooks are registered on it"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert reason_of(fine) is None
    # The bytes of the widest operand on all edges.
    bounds(cached_bytes=EDGES * WIDTH * 4)
    assert reason_of(fine) is None
    bounds(cached_bytes=EDGES * WIDTH * 4 + 1)
    assert reason_of(fine) == FITS_CACHE
    bounds(few_edges=2 * EDGES, few_work=1 << 20)
    assert reason_of(fine) == TOO_SMALL


def test_no_edges_and_wrong_edges_are_left_to_pyg(monkeypatch):
    small_blocks.force(monkeypatch)
    layer = layer_of(lambda self, x_j: x_j * 2)
    with onehop.patch():
        assert torch.equal(
            layer(torch.randn(4, WIDTH), torch.empty(2, 0, dtype=torch.long)), torch.zeros(4, WIDTH)
        )
        with pytest.raises(IndexError, match="larger than 3"):
            layer(torch.randn(4, WIDTH), torch.full((2, EDGES), 9))
