"""Layers' own messages on graphs too small for a plan: what PyG collects for them, and its errors."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from tests.integrations.pyg.layers import LAYERS, case_call, operands_of
from tests.integrations.pyg.small_steps import (
    EDGES,
    NODES,
    WIDTH,
    Everything,
    Rows,
    compare,
    numbers,
    ordinary as ordinary,
    ran as ran,
    some_edges,
    trained,
)
from tests.integrations.same import Raised, assert_same
from tests.pairs import pairwise

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
FORWARDS, BACKWARDS = "source_to_target", "target_to_source"


class OwnUpdate(gnn.MessagePassing):
    """An update of its own."""

    def forward(self, x: Tensor, edge_index: Tensor, w: Tensor) -> Any:
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_j: Tensor, w: Tensor) -> Tensor:
        return x_j * w + 1

    def update(self, inputs: Tensor, x: Tensor, x_i: Tensor, size_j: Rows, factor: float = 3.0) -> Any:
        return inputs * factor + x, x_i, size_j


class OwnSteps(OwnUpdate):
    """An aggregate of its own, too."""

    def aggregate(
        self, inputs: Tensor, index: Tensor, w: Tensor, x_i: Tensor, dim_size: Rows = None
    ) -> Tensor:
        return torch.zeros(dim_size or 0, WIDTH).index_add(0, index, inputs * w * x_i)


class ReturnsNone(gnn.MessagePassing):
    """A layer without a result, whose message counts."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        ReturnsNone.calls += 1
        return x_j

    def update(self, inputs: Tensor) -> Any:
        return None


class Raises(gnn.MessagePassing):
    """An error in the midst of a message, whose calls are counted."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor, error: Any) -> Tensor:
        return self.propagate(edge_index, x=x, error=error)

    def message(self, x_j: Tensor, error: Any) -> Any:
        Raises.calls += 1
        if isinstance(error, BaseException):
            raise error
        return error(x_j)


@pytest.mark.parametrize("recording", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("name", LAYERS)
def test_all_layers(name: str, recording: bool) -> None:
    torch.manual_seed(1)
    case = LAYERS[name]
    model, edge_index = case.make(), some_edges(20, 90)
    call, operands = case_call(case, edge_index), operands_of(case, torch.float32)
    leaves = [*operands.values(), *model.parameters()] if recording else []
    for leaf in leaves:
        leaf.requires_grad_()

    def run() -> Any:
        torch.manual_seed(2)
        with torch.set_grad_enabled(recording):
            out = call(model, **operands)
        weight = numbers(*out.shape, seed=9)
        return out, torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True) if recording else ()

    expected = run()
    with onehop.patch():
        for _ in range(3):
            assert_same(run(), expected, **CLOSE)


AGGREGATIONS: list[Any] = ["sum", "mean", "max", "mul", "median", "std", ["sum", "max"], ["mean", "var"]]


@pairwise()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("aggr", AGGREGATIONS, ids=str)
def test_everything_that_is_collected(aggr: Any, flow: str, dtype: torch.dtype, ran: list[str]) -> None:
    layer = Everything(aggr=aggr, flow=flow)
    x, z, attr = (
        numbers(NODES, WIDTH, dtype=dtype),
        numbers(NODES, WIDTH, seed=1, dtype=dtype),
        numbers(EDGES, 1, dtype=dtype),
    )
    # Other aggregators take so long that PyG's checks do not matter.
    is_plain = aggr in ("sum", "mean", "max")
    compare(lambda: layer(x, some_edges(), z, attr), Everything)
    assert bool(ran) == is_plain
    for each in (x, z, attr):
        each.requires_grad_()
    del ran[:]
    compare(trained(layer, x, some_edges(), z, attr), Everything)
    assert bool(ran) == is_plain


OTHER_DTYPES = [torch.int64, torch.int32, torch.complex64, torch.float16]


@pytest.mark.parametrize("dtype", OTHER_DTYPES, ids=str)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_other_numbers(aggr: str, dtype: torch.dtype) -> None:
    x = (10 * numbers(NODES, WIDTH)).to(dtype)
    compare(lambda: Everything(aggr=aggr)(x, some_edges()))


PAIRS = {
    "a pair": lambda x, y: (x, y),
    "a list": lambda x, y: [x, y],
    "a pair without the second": lambda x, y: (x, None),
    "a pair without the first": lambda x, y: (None, y),
    "three": lambda x, y: (x, y, x),
    "a number": lambda x, y: 3.0,
    "None": lambda x, y: None,
    "a vector": lambda x, y: x[:, 0],
    "three dimensions": lambda x, y: x.view(NODES, 2, 2),
    "turned": lambda x, y: numbers(WIDTH, NODES).t(),
    "a gap": lambda x, y: numbers(NODES, 2 * WIDTH)[:, ::2],
    "a parameter": lambda x, y: torch.nn.Parameter(x),
    "negated": lambda x, y: torch._neg_view(x),
    "zeros without memory": lambda x, y: torch._efficientzerotensor((NODES, WIDTH)),
    "sparse": lambda x, y: x.to_sparse(),
    "meta": lambda x, y: x.to("meta"),
}
SIZES = [
    None,
    (NODES, NODES),
    (NODES, 5),
    (None, NODES),
    (NODES + 4, None),
    [NODES, NODES],
    (NODES,),
    torch.Size([NODES, NODES]),
    "no",
]


@pairwise()
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("name", PAIRS)
def test_operands_and_sizes(name: str, flow: str, size: Any) -> None:
    edge_index = some_edges().clamp(max=4)
    layer = Everything(flow=flow)
    compare(
        lambda: layer(PAIRS[name](numbers(NODES, WIDTH), numbers(5, WIDTH)), edge_index, size=size),
        Everything,
    )


@pairwise()
@pytest.mark.parametrize("dim", [0, -2, 1, -1, -3, 5])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_dimensions(aggr: str, dims: int, dim: int) -> None:
    layer = Everything(aggr=aggr, node_dim=dim)
    x = numbers(*[NODES] * dims).requires_grad_()
    compare(trained(layer, x, some_edges()), Everything)
    compare(lambda: layer(x.detach(), some_edges()), Everything)


EDGE_INDICES = {
    "a source that is none": lambda e: e.index_fill(1, torch.tensor([5]), NODES),
    "a target that is none": lambda e: torch.stack([e[0], e[1].index_fill(0, torch.tensor([5]), NODES + 1)]),
    "negative": lambda e: torch.stack([e[0], e[1] - 1]),
    "no edges": lambda e: e[:, :0],
    "int32": lambda e: e.int(),
    "floats": lambda e: e.float(),
    "three rows": lambda e: torch.cat([e, e[:1]]),
    "a vector": lambda e: e[0],
    "turned": lambda e: e.t().contiguous().t(),
    "every second": lambda e: e.repeat_interleave(2, 1)[:, ::2],
    "sparse": lambda e: torch.sparse_coo_tensor(e, torch.ones(EDGES), (NODES, NODES)).coalesce(),
    "meta": lambda e: e.to("meta"),
    "a list": lambda e: e.tolist(),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "median"])
@pytest.mark.parametrize("name", EDGE_INDICES)
def test_edge_indices(name: str, aggr: str) -> None:
    layer, edge_index = Everything(aggr=aggr), EDGE_INDICES[name](some_edges())
    x = numbers(NODES, WIDTH)
    compare(lambda: layer(x, edge_index), Everything)
    compare(trained(layer, x.clone().requires_grad_(), edge_index), Everything)


class TargetsAlone(gnn.MessagePassing):
    """Gathers nothing at the targets, so that a target that is none is met in the sum."""

    def forward(self, x: Tensor, edge_index: Tensor, rows: Any = None) -> Tensor:
        return self.propagate(edge_index, x=x, size=None if rows is None else (NODES, rows))

    def message(self, x_j: Tensor) -> Tensor:
        Everything.calls += 1
        return x_j * 2


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "add"])
def test_a_target_that_is_no_row_of_the_result(aggr: str, recording: bool) -> None:
    layer, x = TargetsAlone(aggr=aggr), numbers(NODES, WIDTH).requires_grad_(recording)
    error = compare(trained(layer, x, some_edges(), 3), Everything)
    assert isinstance(error, Raised)
    compare(trained(layer, (x, None), some_edges(), 12), Everything)


class BothEnds(gnn.MessagePassing):
    """Two operands that are no pair: one of the sources, one of the targets."""

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, y=y)

    def message(self, x_j: Tensor, y_i: Tensor) -> Tensor:
        return x_j * y_i


@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_operands_of_one_end_each(aggr: str, flow: str, ran: list[str]) -> None:
    layer, ends = BothEnds(aggr=aggr, flow=flow), torch.tensor([[0, 6, 2, 2, 5], [4, 3, 0, 2, 4]])
    edge_index = ends if flow == FORWARDS else ends.flip(0)
    assert isinstance(compare(lambda: layer(numbers(NODES, WIDTH), numbers(5, WIDTH), edge_index)), Tensor)
    assert ran
    compare(lambda: layer(numbers(NODES, WIDTH), numbers(5, WIDTH), edge_index.flip(0)))


def test_other_operands() -> None:
    layer, x = BothEnds(), numbers(NODES, WIDTH)
    error = compare(lambda: layer.propagate(some_edges(), x=x, y=x, more=x))
    assert isinstance(error, Raised)
    assert isinstance(compare(lambda: layer.propagate(some_edges(), x=x)), Raised)
    compare(lambda: layer.propagate(some_edges(), x, x))


def test_steps_of_its_own(ran: list[str]) -> None:
    x, w = numbers(NODES, WIDTH).requires_grad_(), numbers(EDGES, 1).requires_grad_()
    compare(lambda: OwnUpdate()(x, some_edges(), w))
    assert ran == ["OwnUpdate"] * 3
    compare(lambda: OwnSteps()(x, some_edges(), w))
    assert ran == ["OwnUpdate"] * 3


def test_a_layer_without_a_result_runs_once(ran: list[str]) -> None:
    layer = ReturnsNone()
    assert compare(lambda: layer(numbers(NODES, WIDTH), some_edges()), ReturnsNone) is None
    assert ran


MESSAGES = {
    "an index error": IndexError("mine"),
    "a runtime error": RuntimeError("mine"),
    "a value error": ValueError("mine"),
    "another": KeyError("mine"),
    "a list": lambda x: [x, x],
    "a pair": lambda x: (x, x),
    "no tensor": lambda x: 3.0,
    "nothing": lambda x: None,
    "fewer rows": lambda x: x[1:],
    "more rows": lambda x: torch.cat([x, x]),
    "a number": lambda x: x.sum(),
    "a vector": lambda x: x[:, 0],
    "booleans": lambda x: x > 0,
    "an expanded one": lambda x: x[:, :1].expand(-1, 3),
    "the operand itself": lambda x: x,
}


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", MESSAGES)
def test_errors_and_results_of_messages(name: str, aggr: str) -> None:
    layer, x = Raises(aggr=aggr), numbers(NODES, WIDTH)
    compare(lambda: layer(x, some_edges(), MESSAGES[name]), Raises)
    compare(trained(layer, x.clone().requires_grad_(), some_edges(), MESSAGES[name]), Raises)
