"""What programs know of operators on a GPU before they run, by fake tensors of "cuda", which need none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import onehop
from onehop import Graph
from onehop.ops.arg_extremum import arg_extremum
from onehop.ops.library import Context, Operator

NODES, EDGES, HEADS, WIDTH = 9, 30, 2, 4
CUDA = torch.device("cuda:0")


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edge_index(
        torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(1)), NODES
    )


def _operands(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.ones(shape, dtype=dtype) for shape in shapes]


ROWS, HEADED, SCORES = (NODES, WIDTH), (NODES, HEADS, WIDTH), (NODES, HEADS)
# Shapes of operands, and the call of them.
CALLS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "sum": ((ROWS,), lambda g, x: onehop.aggregate(g, x)),
    "mean": ((ROWS, (EDGES,)), lambda g, x, w: onehop.aggregate(g, x, w, "mean")),
    "sum by heads": ((HEADED, (EDGES, HEADS)), lambda g, x, w: onehop.aggregate(g, x, w)),
    "scaled": (
        (ROWS, (NODES,), (NODES,)),
        lambda g, x, s, d: onehop.aggregate(g, x, src_scale=s, dst_scale=d),
    ),
    "max": ((ROWS, (EDGES,)), lambda g, x, w: onehop.aggregate(g, x, w, "max")),
    "max with one winner": ((ROWS, (EDGES,)), lambda g, x, w: arg_extremum(g, x, w)),
    "sddmm": ((HEADED, HEADED), lambda g, a, b: onehop.sddmm(g, a, b)),
    "edge_softmax": (((EDGES, HEADS),), lambda g, s: onehop.edge_softmax(g, s)),
    "gat": ((HEADED, SCORES, SCORES), lambda g, x, s, d: onehop.gat(g, x, s, d)),
    "gatv2": (
        (HEADED, HEADED, (HEADS, WIDTH), (EDGES, 3), (HEADS * WIDTH, 3)),
        lambda g, x, y, a, f, w: onehop.gatv2(g, x, y, a, edge=(f, w)),
    ),
    "attention": (
        (HEADED, HEADED, HEADED),
        lambda g, q, k, v: onehop.attention(g, q, k, v, dropout=0.5, seed=1, return_attention_weights=True),
    ),
}


def _looks(results: Any) -> list[tuple[Any, ...] | None]:
    many = results if isinstance(results, tuple) else (results,)
    return [None if each is None else (tuple(each.shape), each.dtype) for each in many]


def _devices(results: Any) -> set[torch.device]:
    many = results if isinstance(results, tuple) else (results,)
    return {each.device for each in many if each is not None}


def _gradients(operator: Operator[Any], call: Any, results: Any, graph: Graph) -> Any:
    """The gradients of one call of an operator, asked of it directly: autograd needs the device itself."""
    many = results if isinstance(results, tuple) else (results,)
    wanted = tuple(name for name, place in operator._places if call[place] is not None)
    kept, saved = operator.saved(call, results, wanted)
    context = Context(kept, saved, wanted, {name: getattr(call, name).shape for name in wanted}, graph)
    constant = {id(each) for each in operator.constant(call, many)}
    grads = [None if id(each) in constant or not each.numel() else torch.ones_like(each) for each in many]
    found = operator.gradients(context, *grads)
    return tuple(getattr(found, name) for name in wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_fake_results_and_gradients_are_those_of_the_cpu_on_the_device(name, dtype, graph, monkeypatch):
    if name == "max with one winner" and dtype.itemsize < 4:
        pytest.skip("it is for 32 and 64 bits")
    shapes, function = CALLS[name]
    calls: list[tuple[Operator[Any], Any]] = []
    run = Operator.__call__

    def noting(self: Operator[Any], call: Any, graph: Any = None) -> Any:
        recorded = self.recorded(call) if self.asks_more else call
        calls.append((self, recorded))
        return run(self, recorded, graph)

    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr(Operator, "__call__", noting)
        expected = function(graph, *_operands(dtype, *shapes))
    operator, call = calls[0]
    with torch.no_grad():
        results = operator(call, graph)
        wanted = _gradients(operator, call, results, graph)
        with FakeTensorMode():
            leaves = [torch.empty(shape, dtype=dtype, device=CUDA) for shape in shapes]
            found = function(graph, *leaves)
            on_device = call._replace(
                **{
                    field: torch.empty(value.shape, dtype=value.dtype, device=CUDA)
                    for field, value in call._asdict().items()
                    if isinstance(value, Tensor)
                }
            )
            fakes = operator(on_device, graph)
            gradients = _gradients(operator, on_device, fakes, graph)
    for ours, theirs in ((found, expected), (fakes, results), (gradients, wanted)):
        assert _looks(ours) == _looks(theirs)
        assert _devices(ours) == {CUDA}


def test_the_comparison_sees_another_device(graph):
    with torch.no_grad(), FakeTensorMode():
        assert _devices(onehop.aggregate(graph, torch.empty(ROWS))) == {torch.device("cpu")}


def test_an_operand_on_another_device_is_refused_before_it_runs(graph):
    with torch.no_grad(), FakeTensorMode():
        x, weight = torch.empty(ROWS, device=CUDA), torch.empty(EDGES)
        with pytest.raises(onehop.ArgumentError, match="weight: expected it on cuda:0"):
            onehop.aggregate(graph, x, weight)
