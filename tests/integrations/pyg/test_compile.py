"""Patched layers in programs of torch.compile: the same numbers, from onehop's operators."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter
from torch._inductor import config as inductor_config
from torch_geometric import nn as gnn

import onehop
from onehop.graph.identity import CACHE
from onehop.integrations.pyg import reuse
from tests.integrations.same import assert_same, learned

NODES, EDGES = 20, 90

pytestmark = [
    # Autograd's own note on float64 gradients, and torch's on its deprecated settings.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*side effects happened:UserWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Programs:
    """A backend that runs programs operator by operator and remembers them."""

    def __init__(self) -> None:
        self.forward: list[str] = []
        self.backward: list[str] = []
        self.backend = aot_autograd(
            fw_compiler=self._noting(self.forward), bw_compiler=self._noting(self.backward)
        )

    def _noting(self, operators: list[str]) -> Callable[..., Any]:
        def compile_program(program: torch.fx.GraphModule, _: Any) -> Any:
            operators.extend(str(node.target) for node in program.graph.nodes if node.op == "call_function")
            return make_boxed_func(program.forward)

        return compile_program


@pytest.fixture
def programs() -> Programs:
    return Programs()


def make(layer: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return layer().double()


def numbers(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def step(call: Callable[..., Tensor], model: torch.nn.Module, *operands: Any) -> list[Any]:
    """Output and all gradients; operands are copied, the model is not."""
    leaves = [each.detach().clone().requires_grad_(each.is_floating_point()) for each in operands]
    torch.manual_seed(5)
    out, *grads = learned(call(*leaves), leaves, model)
    return [out.detach(), *grads]


LAYERS = {
    "GCN": lambda: gnn.GCNConv(6, 4),
    "GCN, widening": lambda: gnn.GCNConv(6, 30),
    "GCN, no loops": lambda: gnn.GCNConv(6, 4, add_self_loops=False),
    "GCN, backwards": lambda: gnn.GCNConv(6, 4, flow="target_to_source"),
    "GCN, not normalised": lambda: gnn.GCNConv(6, 4, normalize=False, bias=False),
    "GCN, max": lambda: gnn.GCNConv(6, 4, aggr="max"),
    "SAGE": lambda: gnn.SAGEConv(6, 4),
    "SAGE, widening": lambda: gnn.SAGEConv(6, 30, normalize=True),
    "SAGE, max": lambda: gnn.SAGEConv(6, 4, aggr="max", root_weight=False),
    "SAGE, min, projected": lambda: gnn.SAGEConv(6, 4, aggr="min", project=True),
    "GIN": lambda: gnn.GINConv(torch.nn.Linear(6, 4), train_eps=True),
    "GraphConv": lambda: gnn.GraphConv(6, 4, aggr="mean"),
    "GAT": lambda: gnn.GATConv(6, 4, heads=2),
    "GAT, no loops": lambda: gnn.GATConv(6, 4, heads=2, add_self_loops=False, concat=False, bias=False),
    "GATv2": lambda: gnn.GATv2Conv(6, 4, heads=2, share_weights=True),
    "GATv2, no loops": lambda: gnn.GATv2Conv(6, 4, heads=2, add_self_loops=False, residual=True),
    "LE": lambda: gnn.LEConv(6, 4),
    "Transformer": lambda: gnn.TransformerConv(6, 4, heads=2),
    "Transformer, beta": lambda: gnn.TransformerConv(6, 4, heads=2, beta=True, concat=False),
}


def has_ours(operators: list[str]) -> bool:
    return any(
        name.startswith("onehop.") and not name.startswith(("onehop.find", "onehop.looped"))
        for name in operators
    )


def assert_as_pygs(
    layer: torch.nn.Module, programs: Programs, *operands: Any, call: Callable[..., Any] = lambda run: run
) -> None:
    """Compares a compiled layer, or what ``call`` makes of it, with PyG's own code."""
    expected = step(call(layer), layer, *operands)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        assert_same(step(call(compiled), layer, *operands), expected)
    assert has_ours(programs.forward)
    assert has_ours(programs.backward)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_becomes_operators_of_ours(name, programs, x, edge_index):
    assert_as_pygs(make(LAYERS[name]), programs, x, edge_index)
    # What PyG's own code is made of.
    assert [each for each in programs.forward if "scatter" in each or "index" in each] == []


def test_inductor_runs_a_whole_model(x, edge_index, monkeypatch):
    # Its C++ is compiled in half the time: not optimised, and without vectors, which it would look for.
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = gnn.GCNConv(6, 8), torch.nn.BatchNorm1d(8)
            self.second = gnn.GATConv(8, 4, heads=2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)

    model = make(Net)
    expected = step(model, model, x, edge_index)
    with onehop.patch(), inductor_config.patch("aot_inductor.debug_compile", True):
        compiled = torch.compile(model, fullgraph=True)
        assert_same(step(compiled, model, x, edge_index), expected)
        other = edge_index.flip(1, 0).contiguous()
        found = step(compiled, model, x, other)
    assert_same(found, step(model, model, x, other))


@pytest.mark.parametrize("name", ["GCN", "SAGE", "GAT"])
def test_other_edges_are_looked_up_without_another_program(name, x, edge_index, edges):
    layer, counter = make(LAYERS[name]), CompileCounter()
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=counter)
        compiled(x, edge_index)
    for seed in range(3):
        given = edges(NODES, NODES, EDGES, seed)
        expected = layer(x, given)
        with onehop.patch():
            torch.testing.assert_close(compiled(x, given), expected)
            # The same tensor, written to.
            given[:, :50] = given[:, 40:].clone()
            found = compiled(x, given)
        torch.testing.assert_close(found, layer(x, given))
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", ["GCN", "SAGE", "GATv2", "Transformer"])
def test_sizes_may_change(name, edges):
    layer, counter = make(LAYERS[name]), CompileCounter()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for nodes, number in ((20, 90), (21, 80), (33, 200), (12, 70), (40, 41)):
        features, given = torch.randn(nodes, 6, dtype=torch.float64), edges(nodes, nodes, number, nodes)
        with onehop.patch():
            found = compiled(features, given)
        torch.testing.assert_close(found, layer(features, given))
    # One for the first sizes, and one for all others.
    assert counter.frame_count <= 2


@pytest.mark.parametrize(
    ("name", "differentiable"),
    [
        *((name, True) for name in ("GCN", "GCN, improved", "GCN, not normalised", "GCN, max", "GraphConv")),
        *((name, False) for name in ("GCN", "GCN, no loops", "GCN, max")),
    ],
)
def test_edge_weights(name, differentiable, programs, x, edge_index):
    improved = {"GCN, improved": lambda: gnn.GCNConv(6, 4, improved=True)}

    def call(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, e, w: run(x, e, w if differentiable else w.detach())

    assert_as_pygs(
        make((LAYERS | improved)[name]), programs, x, edge_index, numbers(EDGES).abs() + 0.1, call=call
    )


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: gnn.GATConv(6, 4, heads=2, edge_dim=3),
        lambda: gnn.GATConv(6, 4, heads=2, edge_dim=3, fill_value=0.5),
        lambda: gnn.GATConv(6, 4, heads=2, edge_dim=3, add_self_loops=False),
        lambda: gnn.GATv2Conv(6, 4, heads=2, edge_dim=3),
        lambda: gnn.GATv2Conv(6, 4, heads=2, edge_dim=3, add_self_loops=False),
        lambda: gnn.TransformerConv(6, 4, heads=2, edge_dim=3),
    ],
)
def test_edge_features(make_layer, programs, x, edge_index):
    assert_as_pygs(make(make_layer), programs, x, edge_index, numbers(EDGES, 3))


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: gnn.SAGEConv((6, 5), 4),
        lambda: gnn.GINConv(torch.nn.Linear(6, 4)),
        lambda: gnn.GraphConv((6, 5), 4),
        lambda: gnn.GATConv((6, 5), 4, heads=2, add_self_loops=False),
        lambda: gnn.GATConv((6, 5), 4, heads=2),
        lambda: gnn.GATv2Conv((6, 5), 4, heads=2, add_self_loops=False),
        lambda: gnn.TransformerConv((6, 5), 4, heads=2),
    ],
)
def test_bipartite_graphs(make_layer, programs, x, edges):
    layer, given = make(make_layer), edges(20, 11, 60)
    own = numbers(11, 6 if isinstance(layer, gnn.GINConv) else 5)
    given[0] = given[0] % 11  # a self loop is at a node of either kind
    assert_as_pygs(layer, programs, x, own, call=lambda run: lambda x, own: run((x, own), given))


@pytest.mark.parametrize("name", ["GAT", "GATv2", "Transformer"])
def test_dropout_of_attention_is_drawn_by_torch(name, programs, x, edges):
    layer = make(LAYERS[name])
    layer.dropout = 0.4
    # Without loops in the data there is a number for each edge, so that the draws are those of PyG.
    given = edges(NODES, NODES, EDGES)
    assert_as_pygs(layer, programs, x, given[:, given[0] != given[1]].contiguous())


def test_dropout_in_a_checkpoint(programs, x, edges):
    layer, given = make(LAYERS["GATv2"]), edges(NODES, NODES, EDGES)
    layer.dropout, given = 0.4, given[:, given[0] != given[1]].contiguous()
    expected = step(layer, layer, x, given)

    def call(x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(layer, x, edge_index, use_reentrant=False)

    with onehop.patch():
        compiled = torch.compile(call, fullgraph=True, backend=programs.backend)
        assert_same(step(compiled, layer, x, given), expected)
    assert has_ours(programs.forward)


def test_a_program_outlives_the_patch(x, edge_index):
    layer = make(LAYERS["GCN"])
    expected = step(layer, layer, x, edge_index)
    compiled = torch.compile(layer, backend="aot_eager")
    with onehop.patch():
        assert_same(step(compiled, layer, x, edge_index), expected)
    assert_same(step(compiled, layer, x, edge_index), expected)
    with onehop.patch():
        assert_same(step(compiled, layer, x, edge_index), expected)


def test_a_program_made_before_the_patch_stays_right(x, edge_index):
    layer = make(LAYERS["SAGE"])
    compiled = torch.compile(layer, backend="aot_eager")
    expected = step(compiled, layer, x, edge_index)
    with onehop.patch():
        assert_same(step(compiled, layer, x, edge_index), expected)


def test_the_backward_pass_needs_no_cache(x, edge_index):
    layer = make(LAYERS["GAT"])
    expected = step(layer, layer, x, edge_index)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")

        def call(x: Tensor, edge_index: Tensor) -> Tensor:
            out = compiled(x, edge_index.clone())
            onehop.clear_cache()
            gc.collect()
            return out

        assert_same(step(call, layer, x, edge_index), expected)


@pytest.mark.parametrize("name", ["GCN", "GCN, widening", "SAGE", "SAGE, widening"])
def test_orders_are_the_layers_own_where_something_is_infinite(name, programs, x, edge_index):
    sends = torch.zeros(NODES, dtype=torch.bool)
    sends[edge_index[0]] = True
    x[~sends] = float("inf")
    x[3, 0], x[4, 1] = float("nan"), float("inf")
    assert_as_pygs(make(LAYERS[name]), programs, x, edge_index)


@pytest.mark.parametrize("name", ["GCN", "GCN, widening", "SAGE"])
def test_aggregates_of_constant_features_are_kept(name, bounds, x, edge_index):
    bounds(kept_work=0)
    layer = make(LAYERS[name])

    def train(run: Callable[..., Tensor]) -> list[Tensor]:
        layer.zero_grad()
        run(x, edge_index).square().sum().backward()
        return [each.grad.clone() for each in layer.parameters()]

    expected = train(layer)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for _ in range(4):
            assert_same(train(compiled), expected)
        assert CACHE.find(x, reuse._AGGREGATES) is not None
        x.mul_(2)
        found = train(compiled)
    assert_same(found, train(layer))
