"""Layers over few edges, of which no graph is made, against PyG.

test_contexts.py has every layer in every context, with thresholds as users have them.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn, utils
from torch_geometric.nn import conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import onehop
from onehop import thresholds
from onehop.ops.few import MOST_EDGES
from tests.integrations.pyg.layers import CASES, WIDTH
from tests.integrations.same import same, same_error, step

NODES = 12
# Layers of the table that take few edges.
LAYERS = """
    GCN; GCN improved; GCN without loops; GCN unnormalised; GCN backwards; SAGE mean; SAGE sum; SAGE max;
    SAGE min; SAGE project; Graph unweighted; Graph mean; GIN; SAGE backwards; TAG; SG; SSG; LG; APPNP; Cheb;
    GAT; GAT mean of heads; GAT without loops; GATv2; GATv2 shared; Transformer; Transformer beta
"""
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
each_layer = pytest.mark.parametrize("name", [name.strip() for name in LAYERS.split(";")])


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds as users have them: other tests have no few edges."""
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)


def some_edges(count: int, nodes: int = NODES, seed: int = 0) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


def features(nodes: int = NODES, dtype: torch.dtype = torch.float32) -> Tensor:
    # Some are equal, some are 0.
    return torch.randn(nodes, WIDTH, generator=torch.Generator().manual_seed(1)).round(decimals=1).to(dtype)


def layer_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return CASES[name].make()


def compare(layer: Any, *args: Any, errors: bool = False, **kwargs: Any) -> None:
    """Results and all gradients are PyG's, or its error if there may be one."""
    same(step(layer, *args, **kwargs), times=1, errors=errors, **CLOSE)


@each_layer
def test_values_and_gradients_without_a_graph(name: str) -> None:
    layer = layer_of(name)
    for count in (1, 30, 200, 600):
        compare(layer, features(), some_edges(count))
    onehop.clear_cache()
    with onehop.patch():
        assert "fast: " in str(onehop.explain(layer, features(), some_edges(600)))
        layer(features(), some_edges(600))
    assert not onehop.cache_info().entries


@each_layer
def test_numbers_of_nodes_that_are_none_are_pygs_errors(name: str) -> None:
    layer = layer_of(name)
    for row in (0, 1):
        edges = some_edges(30)
        edges[row, 3] = NODES
        same_error(lambda edges=edges: layer(features(), edges))


@pytest.mark.parametrize("name", ["GCN", "Graph unweighted", "TAG", "SG", "LG", "GCN improved"])
def test_weights_of_edges(name: str) -> None:
    weight = torch.rand(30, generator=torch.Generator().manual_seed(2))
    edges = some_edges(30)
    edges[:, :4] = edges[:1, :4]  # loops, of which one node has two
    edges[:, 1] = edges[:, 0]
    layer = layer_of(name)
    for given in (weight, -weight):
        compare(layer, features(), edges, given)
        compare(lambda x, given=given: layer(x, edges, given), features())


@pytest.mark.parametrize("name", ["SAGE mean", "SAGE max", "Graph unweighted", "GIN"])
def test_bipartite(name: str) -> None:
    edges = torch.stack([some_edges(30)[0], some_edges(30, 5)[1]])
    for size in (None, (NODES, 5), (NODES, 6)):
        compare(layer_of(name), (features(), features(5)), edges, size=size, errors=size == (NODES, 6))


@pytest.mark.parametrize("kind", [conv.GATConv, conv.GATv2Conv, conv.TransformerConv])
def test_bipartite_attention(kind: Any) -> None:
    edges = torch.stack([some_edges(30)[0], some_edges(30, 5)[1]])
    options = {} if kind is conv.TransformerConv else {"add_self_loops": False}
    compare(kind((WIDTH, WIDTH), 4, heads=2, **options), (features(), features(5)), edges)


@pytest.mark.parametrize("name", ["Graph unweighted", "GIN", "GCN unnormalised", "SAGE sum"])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_smallest_recorded_sums_run_torchs_operators(name: str, recorded: bool) -> None:
    # A bound of native code, with one edge less and one at it.
    layer, bound = layer_of(name), thresholds.ORDINARY.few_edges // 8
    for count, is_tiny in ((bound - 1, True), (bound, False)):
        x = features().requires_grad_(recorded)
        edges = some_edges(count)
        compare(layer, x, edges)
        with torch.set_grad_enabled(recorded), onehop.patch():
            reason = "so few edges" in str(onehop.explain(layer, x, edges))
            for _ in range(2):
                out = layer(x, edges)
        assert reason == (recorded and is_tiny)
        assert _has_node(out, "_SumBackward") == (recorded and not is_tiny)


@pytest.mark.parametrize("name", ["Graph unweighted", "GIN", "SAGE sum"])
def test_the_smallest_sums_have_the_same_bits_with_a_recorded_gradient(name: str) -> None:
    # A reentrant checkpoint runs a layer without a gradient first.
    layer = layer_of(name)
    with onehop.patch():
        for count in (1, 30, 500):
            edges = some_edges(count)
            with torch.no_grad():
                first = layer(features(), edges)
            assert torch.equal(layer(features().requires_grad_(), edges), first)


def _has_node(out: Tensor, name: str) -> bool:
    """Whether a backward pass would call a node of this name."""
    nodes = [out.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            if name == node.name():
                return True
            nodes += [each for each, _ in node.next_functions]
    return False


def test_sizes_at_the_bounds() -> None:
    """One edge less than few, as many, and one more, at the width at which work decides, and at any width."""
    bounds = thresholds.now
    few = bounds.few_edges
    for count in (few // 32, few // 4, few, MOST_EDGES, bounds.few_work // WIDTH):
        for edges in (count - 1, count, count + 1):
            for name in ("GCN", "SAGE mean", "SAGE max", "GAT", "GATv2", "AGNN"):
                compare(layer_of(name), features(200), some_edges(edges, 200))


def test_more_nodes_than_edges() -> None:
    for name in ("GCN", "SAGE mean", "GAT"):
        compare(layer_of(name), features(MOST_EDGES + 1), some_edges(20, MOST_EDGES + 1))


@pytest.mark.parametrize("layout", ["rows", "columns", "every other", "int32", "a pair"])
def test_layouts_of_edges(layout: str) -> None:
    edges: Any = some_edges(30)
    edges = {
        "rows": edges,
        "columns": edges.t().contiguous().t(),
        "every other": edges.repeat_interleave(2, 1)[:, ::2],
        "int32": edges.int(),
        "a pair": edges[:, :0],
    }[layout]
    for name in ("GCN", "SAGE mean", "GAT", "Transformer"):
        compare(layer_of(name), features(), edges)


@pytest.mark.parametrize("count", [0, 1, 30])
def test_loops_and_norms_are_pygs(count: int) -> None:
    edges = some_edges(count)
    weight = torch.rand(count)
    calls: list[Callable[[], Any]] = [
        lambda: utils.add_self_loops(edges, num_nodes=NODES)[0],
        lambda: utils.remove_self_loops(edges)[0],
        lambda: utils.add_self_loops(edges)[0],
        lambda: utils.remove_self_loops(edges, weight),
        lambda: gcn_norm(edges, None, NODES),
        lambda: gcn_norm(edges, weight, NODES),
        lambda: gcn_norm(edges, weight, NODES, improved=True),
        lambda: gcn_norm(edges, None, NODES, add_self_loops=False, flow="target_to_source"),
        lambda: gcn_norm(edges, weight, NODES, add_self_loops=False),
        lambda: gcn_norm(edges, None, NODES, dtype=torch.float64),
        lambda: gcn_norm(edges, None, NODES, dtype=torch.bfloat16),
    ]
    for call in calls:
        expected = call()
        with onehop.patch():
            found = call()
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()


def test_whole_models_are_pygs() -> None:
    for make in (nn.GCN, nn.GraphSAGE, nn.GIN, nn.GAT):
        torch.manual_seed(0)
        model = make(WIDTH, 8, num_layers=3)
        compare(model, features(), some_edges(40))


@pytest.mark.parametrize("name", ["SAGE mean", "Graph unweighted"])
def test_weights_that_are_no_parameters_and_steps_that_are_missing(name: str) -> None:
    layer: Any = layer_of(name)
    linear, root = ("lin_l", "lin_r") if name == "SAGE mean" else ("lin_rel", "lin_root")
    weight = getattr(layer, linear).weight.detach() * 2
    del getattr(layer, linear).weight
    getattr(layer, linear).weight = weight
    compare(layer, features(), some_edges(30))
    delattr(layer, root)
    with onehop.patch(), pytest.raises(AttributeError, match=root):
        layer(features(), some_edges(30))
