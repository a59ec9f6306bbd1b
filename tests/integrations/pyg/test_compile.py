"""Patched layers in programs of torch.compile and torch.export: the same numbers, from onehop's operators."""

import copy
import gc
import logging
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
from torch_geometric.data import Data

import onehop
from onehop.graph.identity import CACHE
from onehop.integrations.pyg import reuse

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


def step(call: Callable[..., Tensor], model: torch.nn.Module, *operands: Tensor) -> list[Tensor]:
    """Output and all gradients."""
    model.zero_grad()
    leaves = [
        each.detach().clone().requires_grad_() if each.is_floating_point() else each for each in operands
    ]
    torch.manual_seed(5)
    out = call(*leaves)
    pulled = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(7))
    (out * pulled).sum().backward()
    grads = [each.grad for each in leaves if each.is_floating_point()]
    return [out.detach(), *grads, *(each.grad for each in model.parameters())]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


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


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_becomes_operators_of_ours(name, programs, x, edge_index):
    layer = make(LAYERS[name])
    expected = step(layer, layer, x, edge_index)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        assert_same(step(compiled, layer, x, edge_index), expected)
    assert has_ours(programs.forward)
    assert has_ours(programs.backward)
    # What PyG's own code is made of.
    theirs = [each for each in programs.forward if "scatter" in each or "index" in each]
    assert theirs == []


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
    layer = make((LAYERS | improved)[name])
    weight = torch.rand(EDGES, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1

    def call(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, e, w: run(x, e, w if differentiable else w.detach())

    def gradients(run: Callable[..., Tensor]) -> list[Tensor]:
        found = step(call(run), layer, x, edge_index, weight)
        return found if differentiable else [each for each in found if each is not None]

    expected = gradients(layer)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        assert_same(gradients(compiled), expected)
    assert has_ours(programs.forward)
    assert has_ours(programs.backward)


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
    layer = make(make_layer)
    features = torch.randn(EDGES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = step(layer, layer, x, edge_index, features)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        assert_same(step(compiled, layer, x, edge_index, features), expected)
    assert has_ours(programs.forward)


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
    own = torch.randn(11, 6 if isinstance(layer, gnn.GINConv) else 5, dtype=torch.float64)
    given[0] = given[0] % 11  # a self loop is at a node of either kind
    expected = step(lambda x, own: layer((x, own), given), layer, x, own)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        assert_same(step(lambda x, own: compiled((x, own), given), layer, x, own), expected)
    assert has_ours(programs.forward)


@pytest.mark.parametrize(
    ("name", "recomputed"), [("GAT", False), ("GATv2", False), ("Transformer", False), ("GATv2", True)]
)
def test_dropout_of_attention_is_drawn_by_torch(name, recomputed, programs, x, edges):
    layer = make(LAYERS[name])
    layer.dropout = 0.4
    # Without loops in the data there is a number for each edge, so that the draws are those of PyG.
    given = edges(NODES, NODES, EDGES)
    given = given[:, given[0] != given[1]].contiguous()
    expected = step(layer, layer, x, given)

    def call(x: Tensor, edge_index: Tensor) -> Tensor:
        if recomputed:
            return torch.utils.checkpoint.checkpoint(layer, x, edge_index, use_reentrant=False)
        return layer(x, edge_index)

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
def test_orders_are_the_layers_own_where_something_is_infinite(name, x, edge_index):
    layer = make(LAYERS[name])
    sends = torch.zeros(NODES, dtype=torch.bool)
    sends[edge_index[0]] = True
    x[~sends] = float("inf")
    x[3, 0] = float("nan")
    x[4, 1] = float("inf")
    expected = step(layer, layer, x, edge_index)
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        found = step(compiled, layer, x, edge_index)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


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


def test_what_is_left_to_pyg_is_in_the_log(x, edge_index, caplog):
    layer = make(lambda: gnn.ResGatedGraphConv(6, 4))
    expected = step(layer, layer, x, edge_index)
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert_same(step(compiled, layer, x, edge_index), expected)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 1
    assert "ResGatedGraphConv runs its framework's own code" in lines[0]
    assert "no blocks run in compiled programs" in lines[0]


def test_attention_weights_that_are_asked_for_are_pygs(x, edge_index, caplog):
    layer = make(lambda: gnn.TransformerConv(6, 4))
    expected = layer(x, edge_index, return_attention_weights=True)[1][1]
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, backend="aot_eager")
        found = compiled(x, edge_index, return_attention_weights=True)[1][1]
    torch.testing.assert_close(found, expected)
    assert ["attention weights are returned" in each.getMessage() for each in caplog.records] == [True]


CHANGES = {
    "aggregation": lambda layer: setattr(layer, "aggr_module", gnn.aggr.MaxAggregation()),
    "override": lambda layer: setattr(layer, "message", lambda x_j: x_j + 1),
    "override of the aggregation": lambda layer: setattr(
        layer.aggr_module, "forward", lambda x, *_, dim_size, **__: x.new_ones(dim_size, x.size(1))
    ),
    "override of the scores": lambda layer: setattr(
        layer, "edge_update", lambda alpha_j, **_: torch.ones_like(alpha_j)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_is_changed_is_compiled_anew(change, x, edge_index):
    layer = make(LAYERS["GAT" if change == "override of the scores" else "GIN"])
    with onehop.patch(), torch.no_grad():
        compiled = torch.compile(layer, backend="aot_eager")
        before = compiled(x, edge_index)
    CHANGES[change](layer)
    with onehop.patch(), torch.no_grad():
        found = compiled(x, edge_index)
    expected = layer(x, edge_index)
    assert not torch.equal(before, expected)
    torch.testing.assert_close(found, expected)


def test_operands_that_the_rule_refuses_are_left_to_pyg(x, edge_index, caplog):
    layer = make(lambda: gnn.GATConv(6, 4, edge_dim=3, add_self_loops=False))
    features = torch.randn(EDGES, 3)
    layer.lin_edge.float()
    expected = layer(x, edge_index, features)
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        found = compiled(x, edge_index, features)
    torch.testing.assert_close(found, expected)
    assert "of another dtype than the nodes'" in caplog.text


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.GCNConv(6, 8)
        self.second = gnn.GATConv(8, 4, heads=2)
        self.odd = gnn.ResGatedGraphConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.odd(self.second(self.first(x, edge_index).relu(), edge_index), edge_index)


@pytest.mark.parametrize("way", ["torch.compile", "a part", "module.compile"])
def test_explain_says_what_a_compiled_model_runs(way, x, edge_index):
    model = make(Net)
    if way == "torch.compile":
        compiled = torch.compile(model, backend="aot_eager")
    else:
        compiled = model
        if way == "a part":
            model.first = torch.compile(model.first, backend="aot_eager")
        else:
            model.first.compile(backend="aot_eager")
    rows = {row.name: row for row in onehop.explain(compiled, x, edge_index).layers}
    assert list(rows) == ["first", "second", "odd"]
    assert rows["first"].plan == "in a compiled program"
    assert rows["first"].form == "scaled source, scaled destination"
    whole = way == "torch.compile"
    assert (rows["second"].plan == "in a compiled program") is whole
    assert ("no blocks run in compiled programs" in (rows["odd"].reason or "")) is whole


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_run_on_other_graphs(strict, x, edge_index, edges):
    model = make(
        lambda: gnn.Sequential("x, e", [(gnn.GCNConv(6, 8), "x, e -> x"), (gnn.GATConv(8, 4), "x, e -> x")])
    )
    nodes, number = torch.export.Dim("nodes", min=4), torch.export.Dim("edges", min=4)
    with onehop.patch():
        program = torch.export.export(
            model, (x, edge_index), dynamic_shapes=({0: nodes}, {1: number}), strict=strict
        )
    operators = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert has_ours(operators)
    other, given = torch.randn(31, 6, dtype=torch.float64), edges(31, 31, 77)
    torch.testing.assert_close(program.module()(other, given), model(other, given))


def test_what_does_not_fit_raises(x, edge_index):
    layer = make(LAYERS["SAGE"])
    edge_index[0, 0] = NODES
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        with pytest.raises(onehop.errors.IndexRangeError, match="edge_index"):
            compiled(x, edge_index)


def test_data_objects(x, edge_index):
    layer = make(LAYERS["GCN"])
    data = Data(x=x, edge_index=edge_index)
    expected = layer(x, edge_index)
    with onehop.patch():
        compiled = torch.compile(lambda data: layer(data.x, data.edge_index), backend="aot_eager")
        torch.testing.assert_close(compiled(data), expected)


class _TwoCached(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.first, self.second = (gnn.GCNConv(6, 6, cached=True, **options) for _ in range(2))

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(
    "options", [{}, {"improved": True}, {"add_self_loops": False}, {"flow": "target_to_source"}], ids=str
)
def test_cached_layers_keep_the_edges_of_their_first_call_in_one_program(options):
    model, x = _TwoCached(**options), torch.randn(30, 6)
    edges, others = torch.randint(30, (2, 200)), torch.randint(30, (2, 150))
    theirs = copy.deepcopy(model)
    expected = [theirs(x, edges), theirs(x, others)]
    expected[0].square().sum().backward()
    with onehop.patch():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        found = [compiled(x, edges), compiled(x, others)]
        found[0].square().sum().backward()
    torch.testing.assert_close(found, expected)
    for ours, pyg in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, pyg.grad, rtol=1e-4, atol=1e-4)
    for kept, wanted in zip(model.first._cached_edge_index, theirs.first._cached_edge_index, strict=True):
        torch.testing.assert_close(kept, wanted)


@torch.no_grad()
def test_edges_that_a_layer_holds_are_used_whatever_it_says_now(x, edge_index):
    layer = make(lambda: gnn.GCNConv(6, 4, cached=True))
    layer(x, edge_index)
    layer.cached = False
    expected = layer(x, edge_index.flip(0))
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, edge_index.flip(0)), expected)


@torch.no_grad()
def test_an_empty_cache_is_told_of_where_it_ends_a_program(caplog):
    model, x, edges = _TwoCached(), torch.randn(30, 6), torch.randint(30, (2, 200))
    with onehop.patch(), caplog.at_level("INFO", logger="onehop"):
        found = torch.compile(model, backend="aot_eager")(x, edges)
    assert "call the model once before it is compiled" in caplog.text
    torch.testing.assert_close(found, copy.deepcopy(model)(x, edges))
