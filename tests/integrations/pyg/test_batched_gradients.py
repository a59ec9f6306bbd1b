"""Batched gradients of patched layers: PyG's own numbers, by both of torch's ways."""

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch_geometric import nn as gnn

import onehop
from onehop.integrations.pyg.associations.product import prefix_product, product
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.contexts import batch
from tests.integrations.pyg.layers import LAYERS, WIDTH, case_call, operands_of
from tests.integrations.pyg.test_rowwise_convs import AGGREGATIONS
from tests.pairs import pairwise

EXACT = {"rtol": 1e-9, "atol": 1e-11}
BATCH = 3
# Layers whose whole Jacobians and Hessians are compared; test_contexts.py has batches of every layer's.
WHOLE = """
    GCN; GCN weighted; SAGE mean; SAGE max; GIN; GIN max; GAT; GAT edges dropout; GATv2; Transformer;
    Transformer edges; Simple sum; Simple max; AGNN; FA; SG; TAG; Cheb; Graph mean; Graph min; SuperGAT MX
"""
# Nodes and edges of their graphs.
SMALL = (4, 12)
BLOCKS = ["GINE", "CG", "PNA", "PNA towers", "GEN softmax", "Mine mean", "Mine max"]

Layer = tuple[torch.nn.Module, Callable[..., Tensor], dict[str, Tensor]]


def layer_of(name: str, nodes: int = 20, edges: int = 90) -> Layer:
    case = LAYERS[name]
    torch.manual_seed(0)
    call = case_call(case, make_edges(nodes, nodes, edges))

    def seeded(model: torch.nn.Module, **operands: Tensor) -> Tensor:
        """With the same dropout each time."""
        torch.manual_seed(3)
        return call(model, **operands)

    operands = {
        key: value[: edges if key.startswith("edge") else nodes]
        for key, value in operands_of(case, torch.float64).items()
    }
    torch.manual_seed(0)
    return case.make().double(), seeded, operands


def compare_gradients(layer: Layer, way: str) -> None:
    expected = batch("one by one", *layer)
    with onehop.patch():
        found = batch(way, *layer)
    assert any(grad is not None for grad in found)
    torch.testing.assert_close(found, expected, **EXACT)


def compare_whole(layer: Layer, took_fast_path: Callable) -> None:
    """Jacobians and Hessians, vectorized and not, and PyG's."""
    model, with_names, operands = layer
    inputs = tuple(operands.values())

    def call(*tensors: Tensor) -> Tensor:
        return with_names(model, **dict(zip(operands, tensors, strict=True)))

    def bent(*tensors: Tensor) -> Tensor:
        out = call(*tensors)
        return (out.sin() * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum()

    def whole(**options: bool) -> list[Tensor]:
        return [*jacobian(call, inputs, **options), *itertools.chain(*hessian(bent, inputs, **options))]

    theirs = whole()
    with onehop.patch():
        assert set(took_fast_path(call, *inputs)) == {None}
        torch.testing.assert_close(whole(), theirs, **EXACT)
        torch.testing.assert_close(whole(vectorize=True), theirs, **EXACT)


ways = pytest.mark.parametrize("way", ["older", "newer"])


@ways
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_gradients_of_aggregations_in_blocks(name, way, monkeypatch):
    small_blocks.force(monkeypatch)
    model = gnn.SimpleConv(aggr=copy.deepcopy(AGGREGATIONS[name])).double()
    torch.manual_seed(0)
    x, edges = torch.randn(20, WIDTH).double().exp(), make_edges(20, 20, 120)
    compare_gradients((model, lambda model, x: model(x, edges), {"x": x}), way)


@pytest.mark.parametrize("name", [name.strip() for name in WHOLE.split(";")])
def test_jacobians_and_hessians(name, took_fast_path):
    compare_whole(layer_of(name, *SMALL), took_fast_path)


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
@pytest.mark.parametrize("name", BLOCKS)
def test_jacobians_and_hessians_in_blocks(name, compiled, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=compiled)
    compare_whole(layer_of(name, *SMALL), took_fast_path)


@ways
@pairwise(step=["product", "prefix_product"], bias=["none", "row", "rows"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_linear_steps(way, bias, again, step, bounds):
    bounds(product_block_rows=4)
    shapes = [(37, 5), (3, 5)] + ([(14, 4), (3, 4)] if step == "prefix_product" else [])
    if bias != "none":
        shapes.append((3,) if bias == "row" or step == "prefix_product" else (37, 3))
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    pulled = torch.randn(BATCH, 37, 3, generator=generator, dtype=torch.float64).requires_grad_()
    given = leaves if bias != "none" else [*leaves, None]
    out = (prefix_product if step == "prefix_product" else product)(*given)
    x, weight, *rest = leaves
    expected = x @ weight.t() + (rest[-1] if bias != "none" else 0)
    if step == "prefix_product":
        expected = expected + torch.nn.functional.pad(rest[0] @ rest[1].t(), (0, 0, 0, 37 - 14))

    def of(result: Tensor, way: str) -> list[Tensor]:
        def grad(v: Tensor, **kwargs: bool) -> tuple[Tensor, ...]:
            return torch.autograd.grad(result, leaves, v, create_graph=again, retain_graph=True, **kwargs)

        if way == "one by one":
            found = [torch.stack(parts) for parts in zip(*map(grad, pulled), strict=True)]
        else:
            found = list(grad(pulled, is_grads_batched=True) if way == "older" else torch.vmap(grad)(pulled))
        if not again:
            return found
        total = sum(part.square().sum() for part in found)
        inputs = [*leaves, pulled]
        return list(torch.autograd.grad(total, inputs, materialize_grads=True))

    for ours, theirs in zip(of(out, way), of(expected, "one by one"), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("layer", [gnn.GCNConv, gnn.SAGEConv, gnn.GATConv, gnn.TransformerConv])
def test_graphs_without_edges_and_a_batch_of_none(layer):
    model = layer(6, 4).double()
    x = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    with onehop.patch():
        for edges in (make_edges(20, 20, 90), torch.empty(2, 0, dtype=torch.long)):
            found = jacobian(lambda x, e=edges: model(x, e), x, vectorize=True)
            with onehop.patch().paused():
                theirs = jacobian(lambda x, e=edges: model(x, e), x)
            torch.testing.assert_close(found, theirs, **EXACT)
            out = model(x, edges)
            grad = torch.vmap(lambda v, out=out: torch.autograd.grad(out, x, v, retain_graph=True)[0])
            assert grad(out.new_zeros(0, *out.shape)).shape == (0, 20, 6)
