"""Signals on one graph, features [..., N, F]: results and gradients are those of PyG's static graphs."""

from typing import Any, Optional

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch.nn.functional import dropout, leaky_relu
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import onehop
from tests.integrations.same import fast, learned, reasons, refused, same, same_after, step

pytestmark = pytest.mark.usefixtures("in_doubles")

Given = Optional[Tensor]  # noqa: UP045, which PyG's inspector reads
Size = Optional[int]  # noqa: UP045
NODES, WIDTH, EDGES = 20, 4, 90
LEADING = [(3,), (2, 3), (1,), (2, 1, 3)]


class Own(MessagePassing):
    """A message of its own over both ends and, where it is given, a row of each edge."""

    def __init__(self, node_dim: int = -2, aggr: str = "sum", **options: Any) -> None:
        super().__init__(aggr=aggr, node_dim=node_dim, **options)
        self.lin = Linear(WIDTH, WIDTH)

    def forward(
        self, x: Any, edge_index: Tensor, edge_attr: Tensor | None = None, size: Any = None
    ) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, size=size)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Given) -> Tensor:
        out = self.lin(x_j).tanh() * x_i
        return out if edge_attr is None else out * edge_attr


class OneEnd(MessagePassing):
    """A message of the sources alone."""

    def forward(self, x: Any, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j.tanh()


class Attention(MessagePassing):
    """GATv2's attention with the dimension of the nodes by its name."""

    def __init__(self, node_dim: int = -2, p: float = 0.0) -> None:
        super().__init__(node_dim=node_dim)
        self.att, self.p = Parameter(torch.linspace(-1, 1, WIDTH)), p

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Given, size_i: Size) -> Tensor:
        score = (leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1, keepdim=True)
        weight = softmax(score, index, ptr, size_i, dim=self.node_dim)
        return dropout(weight, self.p, self.training) * x_j


class Heads(MessagePassing):
    """A weight for each signal, edge and head."""

    def __init__(self) -> None:
        super().__init__(node_dim=-3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, WIDTH // 2))
        weight = heads.sum(-1).index_select(-2, edge_index[0]).sigmoid()
        return self.propagate(edge_index, x=(heads, heads), weight=weight).flatten(-2)

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.unsqueeze(-1) * x_j


WEIGHT = torch.rand(EDGES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ROWS = torch.rand(EDGES, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
LAYERS: dict[str, tuple[Any, Any]] = {
    "GCNConv": (lambda: gnn.GCNConv(WIDTH, 5), lambda m, x, e: m(x, e)),
    "GCNConv, weights": (lambda: gnn.GCNConv(WIDTH, 5), lambda m, x, e: m(x, e, WEIGHT)),
    "SAGEConv, mean": (lambda: gnn.SAGEConv(WIDTH, 5), lambda m, x, e: m(x, e)),
    "SAGEConv, max": (lambda: gnn.SAGEConv(WIDTH, 5, aggr="max"), lambda m, x, e: m(x, e)),
    "GraphConv": (lambda: gnn.GraphConv(WIDTH, 5, aggr="min"), lambda m, x, e: m(x, e, WEIGHT)),
    "ChebConv": (lambda: gnn.ChebConv(WIDTH, 5, 3), lambda m, x, e: m(x, e)),
    "LEConv": (lambda: gnn.LEConv(WIDTH, 5), lambda m, x, e: m(x, e, WEIGHT)),
    "GINEConv": (lambda: gnn.GINEConv(Linear(WIDTH, 5)), lambda m, x, e: m(x, e, ROWS)),
    "backwards": (
        lambda: gnn.GraphConv(WIDTH, 5, flow="target_to_source"),
        lambda m, x, e: m(x, e, WEIGHT),
    ),
    "own": (Own, lambda m, x, e: m(x, e)),
    "own, rows of edges": (lambda: Own(aggr="max"), lambda m, x, e: m(x, e, ROWS)),
    "own, rows of signals": (
        Own,
        lambda m, x, e: m(x, e, ROWS * torch.arange(x[..., 0, 0].numel()).view(*x.shape[:-2], 1, 1)),
    ),
    "own, one end the same": (Own, lambda m, x, e: m((x, x.flatten(0, -3)[0]), e)),
    "own, backwards": (lambda: Own(flow="target_to_source"), lambda m, x, e: m(x, e)),
    "own, bipartite": (Own, lambda m, x, e: m((x, x[..., :19, :]), e, size=(NODES, 19))),
    "attention": (Attention, lambda m, x, e: m(x, e)),
    "heads": (Heads, lambda m, x, e: m(x, e)),
}


@pytest.mark.parametrize("leading", LEADING[:2], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_results_and_gradients_are_pygs(name, leading, edge_index):
    make, call = LAYERS[name]
    model, x = make(), torch.randn(*leading, NODES, WIDTH)
    fast(step(call, model, x, edge_index))
    with onehop.patch():
        assert call(model, x, edge_index).is_contiguous()


@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("kind", [Own, Attention])
def test_a_dimension_counted_from_the_front(kind, leading, edge_index):
    model = kind(node_dim=len(leading))
    fast(step(model, torch.randn(*leading, NODES, WIDTH), edge_index))
    assert model.node_dim == len(leading)


def test_one_layer_with_and_without_signals(edge_index):
    class ByRank(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:
            return x_j.exp() if x_j.dim() == 2 else x_j.sin()

    model, x = ByRank(), torch.randn(3, NODES, WIDTH)
    with onehop.patch():
        for given in (x[0], x, x[0], x):
            wanted = given.exp() if given.dim() == 2 else given.sin()
            expected = torch.zeros_like(given).index_add(-2, edge_index[1], wanted[..., edge_index[0], :])
            torch.testing.assert_close(model(given, edge_index), expected)


MIXING = {
    "a mean over signals": (lambda x_j: x_j - x_j.mean(0), "mixes edges in mean"),
    "the first dimension's size": (lambda x_j: x_j * x_j.size(0), "depends on the number of edges"),
    "a question about the first dimension": (
        lambda x_j: x_j * (x_j.size(0) > 9),
        "looks at the number of edges",
    ),
    "a sum over the edges of a signal": (lambda x_j: x_j - x_j.sum(-2, keepdim=True), "mixes edges in sum"),
    "an order of signals": (lambda x_j: x_j.flip(0), "mixes edges in flip"),
    "the number of dimensions": (lambda x_j: x_j * x_j.dim(), "in front of that of the nodes"),
}


@pytest.mark.parametrize(("message", "reason"), MIXING.values(), ids=MIXING)
def test_messages_that_look_at_signals_are_left_to_pyg(message, reason, edge_index):
    class Mixing(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:
            return message(x_j)

    model, x = Mixing(), torch.zeros(3, NODES, WIDTH)
    x[1] = torch.randn(NODES, WIDTH)
    refused(lambda: model(x, edge_index), reason)


def test_dropout_draws_as_pyg_does(edge_index):
    fast(step(Attention(p=0.5), torch.randn(2, 3, NODES, WIDTH), edge_index))


def test_the_trial_leaves_the_generator_alone(edge_index):
    with onehop.patch():
        state = torch.get_rng_state()
        Own()(torch.randn(3, NODES, WIDTH, generator=torch.Generator()), edge_index)
        after = torch.get_rng_state()
    torch.set_rng_state(state)
    Own()
    assert torch.equal(torch.get_rng_state(), after)


def test_edges_that_are_written_to(edge_index):
    model, x = gnn.GraphConv(WIDTH, 5), torch.randn(3, NODES, WIDTH)
    same_after(lambda: model(x, edge_index), lambda: edge_index[0, :9].fill_(7))


def test_results_may_be_written_to(edge_index):
    model, x = gnn.GraphConv(WIDTH, WIDTH), torch.randn(3, NODES, WIDTH, requires_grad=True)
    model.lin_rel = torch.nn.Identity()
    same(lambda: learned(model(x, edge_index).mul_(2), x))


OTHERWISE = {
    "no signals": lambda m, e: m(torch.randn(0, NODES, WIDTH), e),
    "no edges": lambda m, e: m(torch.randn(3, NODES, WIDTH), e[:, :0]),
    "dimensions that differ": lambda m, e: m(
        (torch.randn(3, NODES, WIDTH), torch.randn(2, 1, NODES, WIDTH)), e
    ),
    "a number out of range": lambda m, e: m(torch.randn(3, 5, WIDTH), e),
    "a negative number": lambda m, e: m(torch.randn(3, NODES, WIDTH), e - 1),
    "a size that differs": lambda m, e: m(torch.randn(3, NODES, WIDTH), e, size=(NODES, 5)),
    "rows of other edges": lambda m, e: m(torch.randn(3, NODES, WIDTH), e, ROWS[:50]),
    "a dimension that there is not": lambda m, e: m(torch.randn(NODES), e),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_all_else_is_pygs(name, edge_index):
    model = Own()
    assert None not in reasons(same(lambda: OTHERWISE[name](model, edge_index), errors=True))


@pytest.mark.usefixtures("ordinary_bounds")
def test_explain_counts_signals(edge_index):
    model, x = gnn.GCNConv(WIDTH, 5), torch.randn(2, 3, NODES, WIDTH)
    with onehop.patch():
        assert "6 signals" in str(onehop.explain(model, x, edge_index))


def test_few_nodes_of_many_signals():
    edge_index = torch.tensor([[0, 1, 2, 0, 1], [1, 2, 0, 0, 0]])
    same(step(gnn.SAGEConv(2, 3), torch.randn(1000, 3, 2), edge_index))


@pytest.mark.parametrize("leading", [((), (2,)), ((2,), ()), ((2,), (3,)), ((2,), (2,))])
def test_an_end_that_is_not_read_gives_the_result_no_dimension(leading, edge_index):
    layer = OneEnd()
    x = tuple(torch.randn(*sizes, NODES, WIDTH) for sizes in leading)
    assert layer(x, edge_index).shape == (*leading[0], NODES, WIDTH)
    same(lambda: layer(x, edge_index))


@pytest.mark.parametrize("aggr", ["sum", "min", "max"])
def test_a_result_without_a_gradient_is_no_view(aggr):
    layer, x, edges = gnn.SimpleConv(aggr=aggr), torch.randn(2, 5, 3), torch.tensor([[0, 1], [2, 2]])
    with onehop.patch():
        assert not layer(x, edges)._is_view()
