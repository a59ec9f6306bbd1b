"""Layers that reduce their messages themselves and return them, patched and unpatched."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Sequential, SiLU
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

import onehop
from tests.integrations.pyg.compiled_layers import compiled as compiled, numbers
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import fast, reasons, same, twice
from tests.pairs import pairwise

NODES, EDGES, WIDTH = 20, 130, 6


class Block(MessagePassing):
    """A step of a mesh or weather model: messages of both ends and the edge, which are kept and added up."""

    def __init__(self, bias: bool = True, norm: bool = True, width: int = WIDTH, **options: object) -> None:
        super().__init__(**options)
        steps = [Linear(3 * width, width, bias), SiLU(), Linear(width, width, bias)]
        self.mlp = Sequential(*steps, *[LayerNorm(width)] * norm)

    def forward(self, x, edge_attr, edge_index, size=None):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, size=size)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.mlp(torch.cat([x_i, x_j, edge_attr], 1)) + edge_attr

    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int) -> tuple[Tensor, Tensor]:
        return scatter(edges, index, 0, dim_size, "sum"), edges


class WithBothNumbers(Block):
    def aggregate(self, edges: Tensor, edge_index: Tensor, dim_size: int):
        return scatter(edges, edge_index[1], 0, dim_size, "sum"), edges


class Unpacking(Block):
    def aggregate(self, edges: Tensor, edge_index: Tensor, size_i: int):
        _, target = edge_index
        return [edges, scatter(edges, target, 0, size_i), edges]


class OfEdgesAlone(Block):
    def aggregate(self, edges: Tensor) -> Tensor:
        return edges


class OfSumsAlone(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int) -> tuple[Tensor]:
        return (super().aggregate(edges, index, dim_size)[0],)


class ByTheParent(Block):
    def aggregate(self, edges: Tensor, index: Tensor, ptr: OptTensor, dim_size: int):
        return MessagePassing.aggregate(self, edges, index, ptr, dim_size), edges


class Updating(Block):
    def update(self, found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        out, edges = found
        return out + 1, edges * 2


class InPlaceBefore(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        edges += 1
        return scatter(edges, index, 0, dim_size, "sum"), edges


FAST = [Block, WithBothNumbers, Unpacking, OfEdgesAlone, OfSumsAlone, ByTheParent, Updating, InPlaceBefore]


class InPlaceAfter(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        out = scatter(edges, index, 0, dim_size, "sum")
        edges += 1
        return out, edges


class Three(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        return scatter(edges, index, 0, dim_size, "sum"), edges, edges.relu()


class Twice(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        return scatter(edges, index, 0, dim_size, "sum"), edges, edges.clone()


class Scaled(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        return scatter(edges, index, 0, dim_size, "sum") * 2, edges


class OverSources(Block):
    def aggregate(self, edges: Tensor, edge_index: Tensor, dim_size: int):
        return scatter(edges, edge_index[0], 0, dim_size, "sum"), edges


class WithNumber(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        return scatter(edges, index, 0, dim_size, "sum"), dim_size


class Unchanged(Block):
    def message(self, x_i: Tensor, edge_attr: Tensor) -> Tensor:
        return edge_attr


class Sorted(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        return scatter(edges, index, 0, dim_size, "sum"), edges.sort(0).values


class Storing(Block):
    def aggregate(self, edges: Tensor, index: Tensor, dim_size: int):
        self.kept = edges
        return scatter(edges, index, 0, dim_size, "sum"), edges


LEFT = [
    (InPlaceAfter, "its message is returned in another form than it is added up"),
    (Three, "its message is returned in another form than it is added up"),
    (Twice, "its message is returned twice"),
    (Scaled, "its message is reduced to something else than a sum"),
    (OverSources, "its message uses scatter_add_, which onehop does not know to keep edges apart"),
    (WithNumber, "its aggregate returns something else than messages and their sums"),
    (Unchanged, "its message is an operand of the edges itself"),
    (Sorted, "its class overrides aggregate, and its message mixes edges in sort"),
    (Storing, "its message stores something outside its local variables"),
]


def tensors_in(found):
    return [found] if isinstance(found, Tensor) else [each for each in found if isinstance(each, Tensor)]


def results_of(layer, edge_index, sizes=None, dtype=torch.float64, learns_edges=True, width=WIDTH):
    """The results of a layer and all gradients, on fresh copies."""
    layer, generator = copy.deepcopy(layer).to(dtype), torch.Generator().manual_seed(1)

    def rows(count, requires_grad=True):
        made = torch.randn(count, width, generator=generator, dtype=torch.float64).to(dtype)
        return made.requires_grad_(requires_grad)

    x = rows(NODES) if sizes is None else tuple(map(rows, sizes))
    attributes = rows(edge_index.size(1), learns_edges)
    found = layer(x, attributes, edge_index)
    outs = tensors_in(found)
    unique = list({id(out): out for out in outs}.values())
    pulls = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(dtype) for out in unique]
    torch.autograd.backward(unique, pulls)
    leaves = [*([x] if sizes is None else x), attributes, *layer.parameters()]
    return found, [*outs, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def compare(layer, edge_index, expects=None, tolerance=1e-10, **options):
    expected, _ = results_of(layer, edge_index, **options)
    calls = same(lambda: results_of(layer, edge_index, **options)[1], rtol=tolerance, atol=tolerance, times=1)
    (reason,) = reasons(calls)
    if expects is None:
        assert reason is None
    else:
        assert expects in reason
    with onehop.patch():
        found, _ = results_of(layer, edge_index, **options)
    assert type(found) is type(expected)
    alike = [
        [one is other for one in tensors_in(each) for other in tensors_in(each)] for each in (found, expected)
    ]
    assert alike[0] == alike[1]


@pytest.mark.parametrize("kind", FAST)
def test_results_are_pygs(kind):
    compare(kind(), make_edges(NODES, NODES, EDGES))


@pytest.mark.parametrize("aggr", [None, "max", "median"])
def test_the_aggregation_module_does_not_count(aggr):
    compare(Block(aggr=aggr), make_edges(NODES, NODES, EDGES))


@pytest.mark.parametrize(("kind", "reason"), LEFT, ids=[kind.__name__ for kind, _ in LEFT])
def test_what_is_left_to_pyg(kind, reason):
    compare(kind(), make_edges(NODES, NODES, EDGES), expects=reason)


@pairwise(
    bias=[True, False],
    norm=[True, False],
    learns_edges=[True, False],
    dtype=[torch.float32, torch.float64],
    flow=["source_to_target", "target_to_source"],
    width=[1, 6, 32],
)
def test_options(bias, norm, learns_edges, dtype, flow, width):
    # Some nodes have no edges, and all edges are there twice.
    edge_index = make_edges(NODES - 5, NODES - 5, EDGES).repeat(1, 2)
    compare(
        Block(bias, norm, width, flow=flow),
        edge_index,
        tolerance=1e-3 if dtype is torch.float32 else 1e-10,
        dtype=dtype,
        learns_edges=learns_edges,
        width=width,
    )


@pytest.mark.parametrize("sizes", [(NODES, 7), (7, NODES)])
@pytest.mark.parametrize("kind", [Block, WithBothNumbers])
def test_two_kinds_of_nodes(sizes, kind):
    compare(kind(), make_edges(*sizes, EDGES), sizes=sizes)


def test_the_first_row_of_edge_index_receives_in_the_other_flow():
    layer = OverSources(flow="target_to_source")
    compare(layer, make_edges(NODES, NODES, EDGES))


def test_a_result_may_be_written_to():
    class Writing(Block):
        def forward(self, x, edge_attr, edge_index):
            out, edges = super().forward(x, edge_attr, edge_index)
            edges += 1
            return out.mul_(2), edges

    compare(Writing(), make_edges(NODES, NODES, EDGES))


def test_the_second_gradient_is_pygs():
    layer, edge_index = Block().double(), make_edges(NODES, NODES, EDGES)
    x, attributes = numbers(NODES, WIDTH).requires_grad_(), numbers(EDGES, WIDTH)

    def second():
        out, edges = layer(x, attributes, edge_index)
        return twice(torch.cat([out, edges]), x, layer)

    fast(second)


def _hooked(layer):
    layer.register_aggregate_forward_hook(lambda *_: None)


def _hooked_inside(layer):
    layer.mlp[0].register_forward_hook(lambda *_: None)


def _explained(layer):
    layer._explain = True


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_hooked, "message passing hooks are registered on it"),
        (_hooked_inside, "hooks are registered on a module in it"),
        (_explained, "an explainer is at work on it"),
    ],
)
def test_hooks_and_explainers_are_pygs(change, sentence, took_fast_path):
    layer = Block()
    change(layer)
    x, attributes = torch.randn(NODES, WIDTH), torch.randn(EDGES, WIDTH)
    with onehop.patch():
        assert took_fast_path(layer, x, attributes, make_edges(NODES, NODES, EDGES)) == [sentence]


def test_a_changed_aggregate_is_found_out(monkeypatch):
    layer, edge_index = Block(), make_edges(NODES, NODES, EDGES)
    compare(layer, edge_index)
    monkeypatch.setattr(Block, "aggregate", InPlaceBefore.aggregate)
    compare(layer, edge_index)
    monkeypatch.setattr(Block, "aggregate", InPlaceAfter.aggregate)
    compare(layer, edge_index, expects="is returned in another form")


def test_nothing_of_edges_times_width_is_kept_but_the_edges():
    width, edge_index = 64, make_edges(NODES, NODES, 5000)
    layer, x = Block(width=width), torch.randn(NODES, width, requires_grad=True)
    attributes, kept = torch.randn(5000, width, requires_grad=True), []

    def note(tensor):
        kept.append(tensor)
        return tensor

    with onehop.patch(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x, attributes, edge_index)
    large = {tensor.data_ptr() for tensor in kept if tensor.numel() >= attributes.numel()}
    assert large == {attributes.data_ptr()}
