"""RGATConv, whose matrices are those of the edges' types, against PyG."""

import math

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg.rules import relational
from tests.integrations.pyg import small_blocks
from tests.integrations.same import (
    fast,
    learned,
    refused,
    same,
    same_after,
    same_error,
    saved_sizes,
)
from tests.pairs import pairwise

NODES, EDGES, TYPES, WIDTH, DIM = 20, 130, 4, 6, 3
FORM = "source W of its type * softmax for each head"
ADDITIVE, PRODUCTS = "additive-self-attention", "multiplicative-self-attention"
MODES = {
    "additive": {"attention_mode": ADDITIVE},
    "products": {"attention_mode": PRODUCTS},
    "products of two": {"attention_mode": PRODUCTS, "dim": 2},
}
MODS = [None, "additive", "scaled", "f-additive", "f-scaled"]

pytestmark = pytest.mark.usefixtures("in_doubles")


def layer_of(**options):
    layer = gnn.RGATConv(WIDTH, 4, TYPES, heads=2, **options)
    torch.nn.init.normal_(layer.l2)  # which PyG leaves as the memory was
    return layer


@pytest.fixture
def edges():
    """Edges and types; the last type and the last node have none."""
    edge_index = torch.randint(NODES - 1, (2, EDGES))
    edge_index[1, ::4] = 3
    return edge_index, torch.randint(TYPES - 1, (EDGES,))


def results(layer, x, edges, edge_attr=None, size=None):
    """Outputs, weights, and all gradients."""
    out, (_, alpha) = layer(x, *edges, edge_attr, size=size, return_attention_weights=True)
    assert layer._alpha is None
    return learned([out, alpha], x, edge_attr, layer)


def compared(layer, x, edges, edge_attr=None, size=None):
    fast(lambda: results(layer, x, edges, edge_attr, size))
    with onehop.patch():
        assert FORM in str(onehop.explain(layer, x, *edges, edge_attr, size=size))


@pairwise(mode=MODES, mod=MODS, mechanism=["within-relation", "across-relation"])
def test_outputs_weights_and_gradients(mode, mod, mechanism, edges):
    layer = layer_of(mod=mod, attention_mechanism=mechanism, edge_dim=DIM, num_bases=2, **MODES[mode])
    x, edge_attr = torch.randn(NODES, WIDTH).requires_grad_(), torch.randn(EDGES, DIM).requires_grad_()
    compared(layer, x, edges, edge_attr)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}, {"concat": False, "bias": False}], ids=str)
def test_plain_matrices(options, aggr, edges):
    compared(layer_of(aggr=aggr, **options), torch.randn(NODES, WIDTH).requires_grad_(), edges)


def test_bipartite(edges):
    edge_index = torch.stack([edges[0][0] % 7, edges[0][1]])
    x = (torch.randn(7, WIDTH).requires_grad_(), torch.randn(NODES, WIDTH).requires_grad_())
    compared(layer_of(), x, (edge_index, edges[1]), size=(7, NODES))


def test_edge_features_of_one_number(edges):
    compared(layer_of(edge_dim=1), torch.randn(NODES, WIDTH), edges, torch.randn(EDGES).requires_grad_())


def test_weights_that_are_zero_stay_so(edges):
    """PyG adds 1 to weights above 0 alone, with mod="f-additive"."""
    layer, x = layer_of(mod="f-additive"), 1e4 * torch.randn(NODES, WIDTH)
    _, (_, alpha) = layer(x, *edges, return_attention_weights=True)
    assert ((alpha == 0).any(), (alpha > 0).any()) == (True, True)
    compared(layer, x.requires_grad_(), edges)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e3])
def test_extreme_numbers(number, edges):
    layer, x, edge_attr = layer_of(edge_dim=DIM), torch.randn(NODES, WIDTH), torch.randn(EDGES, DIM)
    x[3, 1:4] = number
    x[-1] = number
    edge_attr[5] = number
    same(lambda: layer(x, *edges, edge_attr), rtol=1e-7)


@pytest.mark.parametrize("of", ["nodes", "edges"])
def test_products_that_overflow_in_another_order(of, edges):
    """A matrix times q is infinite, but not the features times the matrix, times q."""
    layer, x, edge_attr = layer_of(edge_dim=DIM), torch.randn(NODES, WIDTH), torch.randn(EDGES, DIM)
    small, *large = (
        (x, layer.weight, layer.q) if of == "nodes" else (edge_attr, layer.lin_edge.weight, layer.e)
    )
    with torch.no_grad():
        small *= 1e-300
        for each in large:
            each *= 1e160
    out = layer(x, *edges, edge_attr)
    assert out.isfinite().all()
    same(lambda: layer(x, *edges, edge_attr), rtol=1e-7)


def test_pairs_are_made_once(edges, monkeypatch):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    with onehop.patch():
        results(layer, x, edges)
        monkeypatch.setattr(relational, "pairs_of", lambda *_: pytest.fail("pairs were made again"))
        results(layer, x, edges)


@pytest.mark.parametrize("change", ["types", "edges"])
def test_changes_are_noticed(change, edges):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    before = results(layer, x, edges)[0]
    written = edges[1][::2] if change == "types" else edges[0][0, ::3]
    same_after(lambda: results(layer, x, edges), lambda: written.fill_(2))
    same(lambda: [results(layer, x, each) for each in (edges, (edges[0], edges[1].flip(0)))])
    assert not torch.equal(before[0], results(layer, x, edges)[0][0])


def test_no_matrix_for_every_edge(edges):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    with onehop.patch(), saved_sizes() as sizes:
        layer(x, *edges)
    assert max(sizes) <= max((TYPES - 1) * NODES * 8, EDGES * 2)
    assert max(sizes) < EDGES * 8


class Mine(gnn.RGATConv):
    def update(self, aggr_out):
        return super().update(aggr_out) + 1


def hooked(layer):
    layer.lin_edge.register_forward_hook(lambda module, inputs, out: out + 1)
    return layer


REFUSED = {
    "blocks": (lambda: layer_of(num_blocks=2), {}, "block-diagonal"),
    "max": (lambda: layer_of(aggr="max"), {}, "by sum and mean alone"),
    "backwards": (lambda: layer_of(flow="target_to_source"), {}, "target_to_source"),
    # Its message would have to be compiled then, and keeps its weights.
    "update": (lambda: Mine(WIDTH, 4, TYPES, heads=2), {}, "stores something"),
    "hooks": (
        lambda: hooked(layer_of(edge_dim=DIM)),
        {"edge_attr": torch.ones(EDGES, DIM).double()},
        "lin_edge",
    ),
    "32 bits": (lambda: layer_of(), {"edge_type": torch.zeros(EDGES, dtype=torch.int32)}, "64 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, edges, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    make, given, text = REFUSED[name]
    layer, x = make(), torch.randn(NODES, WIDTH)
    given = {"edge_index": edges[0], "edge_type": edges[1], **given}
    refused(lambda: layer(x, **given), text)


def test_autocast_is_pygs(edges):
    layer, x = layer_of().float(), torch.randn(NODES, WIDTH).float()

    def lowered():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x, *edges)

    refused(lowered, "autocast decides on the dtypes of its scores")


@pytest.mark.parametrize("wrong", ["type", "node", "no types", "widths"])
def test_errors_are_pygs(wrong, edges):
    layer, x = layer_of(), torch.randn(NODES, WIDTH)
    edge_index, edge_type = (each.clone() for each in edges)
    if wrong == "type":
        edge_type[5] = TYPES
    elif wrong == "node":
        edge_index[0, 5] = NODES
    elif wrong == "no types":
        edge_type = None
    else:
        x = x[:, 1:]
    same_error(lambda: layer(x, edge_index, edge_type))


def test_few_edges_are_pygs(edges, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    refused(lambda: results(layer, x, edges), "")


def test_no_edges():
    layer, x = layer_of(), torch.randn(NODES, WIDTH)
    same(lambda: layer(x, torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)))
