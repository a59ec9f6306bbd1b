"""RGATConv, whose matrices are those of the edges' types, against PyG."""

import copy
import math

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg.rules import relational
from tests.integrations.pyg import small_blocks
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
    """Outputs, weights, all gradients, and the next random number."""
    torch.manual_seed(3)
    out, (_, alpha) = layer(x, *edges, edge_attr, size=size, return_attention_weights=True)
    assert layer._alpha is None
    loss = (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() + alpha.square().sum()
    features = x if isinstance(x, tuple) else (x,)
    leaves = [t for t in (*features, edge_attr, *layer.parameters()) if t is not None and t.requires_grad]
    return [out, alpha, *torch.autograd.grad(loss, leaves, allow_unused=True), torch.rand(1)]


def assert_same(ours, theirs):
    assert [each is None for each in ours] == [each is None for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def compared(layer, took_fast_path, x, edges, edge_attr=None, size=None):
    expected = results(layer, x, edges, edge_attr, size)
    with onehop.patch():
        assert took_fast_path(layer, x, *edges, edge_attr, size=size) == [None]
        for _ in range(2):
            assert_same(results(layer, x, edges, edge_attr, size), expected)
        assert FORM in str(onehop.explain(layer, x, *edges, edge_attr, size=size))


@pairwise(mode=MODES, mod=MODS, mechanism=["within-relation", "across-relation"])
def test_outputs_weights_and_gradients(mode, mod, mechanism, edges, took_fast_path):
    layer = layer_of(mod=mod, attention_mechanism=mechanism, edge_dim=DIM, num_bases=2, **MODES[mode])
    x, edge_attr = torch.randn(NODES, WIDTH).requires_grad_(), torch.randn(EDGES, DIM).requires_grad_()
    compared(layer, took_fast_path, x, edges, edge_attr)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}, {"concat": False, "bias": False}], ids=str)
def test_plain_matrices(options, aggr, edges, took_fast_path):
    compared(
        layer_of(aggr=aggr, **options), took_fast_path, torch.randn(NODES, WIDTH).requires_grad_(), edges
    )


def test_bipartite(edges, took_fast_path):
    edge_index = torch.stack([edges[0][0] % 7, edges[0][1]])
    x = (torch.randn(7, WIDTH).requires_grad_(), torch.randn(NODES, WIDTH).requires_grad_())
    compared(layer_of(), took_fast_path, x, (edge_index, edges[1]), size=(7, NODES))


def test_edge_features_of_one_number(edges, took_fast_path):
    edge_attr = torch.randn(EDGES).requires_grad_()
    compared(layer_of(edge_dim=1), took_fast_path, torch.randn(NODES, WIDTH), edges, edge_attr)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e3])
def test_extreme_numbers(number, edges):
    layer, x = layer_of(edge_dim=DIM), torch.randn(NODES, WIDTH)
    x[3, 1:4] = number
    x[-1] = number
    edge_attr = torch.randn(EDGES, DIM)
    edge_attr[5] = number
    expected = layer(x, *edges, edge_attr)
    with onehop.patch():
        torch.testing.assert_close(layer(x, *edges, edge_attr), expected, equal_nan=True)


def test_pairs_are_made_once_and_changes_are_noticed(edges, monkeypatch):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    edge_index, edge_type = edges
    with onehop.patch():
        results(layer, x, edges)
        with monkeypatch.context() as patched:
            patched.setattr(relational, "pairs_of", lambda *_: pytest.fail("pairs were made again"))
            results(layer, x, edges)
        edge_type[::2] = 2
        ours = results(layer, x, edges)
        edge_index[0, ::3] = 1
        both = results(layer, x, edges)
        other = results(layer, x, (edge_index, edge_type.flip(0)))
    assert_same(both, results(layer, x, edges))
    assert_same(other, results(layer, x, (edge_index, edge_type.flip(0))))
    assert any(not torch.equal(*each) for each in zip(ours[:2], both[:2], strict=True))


def test_second_derivatives(edges):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()

    def second():
        out = layer(x, *edges)
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [x, layer.weight, layer.q])

    expected = second()
    with onehop.patch():
        for one, other in zip(second(), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_no_matrix_for_every_edge(edges):
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    sizes = []

    def note(tensor):
        sizes.append(tensor.numel())
        return tensor

    with onehop.patch(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x, *edges)
    pairs = (TYPES - 1) * NODES
    assert max(sizes) <= max(pairs * 8, EDGES * 2)
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
    # Its own message is to stand in then, and cannot.
    "update": (lambda: Mine(WIDTH, 4, TYPES, heads=2), {}, "takes ptr"),
    "hooks": (
        lambda: hooked(layer_of(edge_dim=DIM)),
        {"edge_attr": torch.ones(EDGES, DIM).double()},
        "lin_edge",
    ),
    "32 bits": (lambda: layer_of(), {"edge_type": torch.zeros(EDGES, dtype=torch.int32)}, "64 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, edges, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    make, given, text = REFUSED[name]
    layer, x = make(), torch.randn(NODES, WIDTH)
    given = {"edge_index": edges[0], "edge_type": edges[1], **given}
    expected = layer(x, **given)
    with onehop.patch():
        (reason,) = took_fast_path(layer, x, **given)
        assert text in reason
        torch.testing.assert_close(layer(x, **given), expected)


def test_autocast_is_pygs(edges, took_fast_path):
    layer, x = layer_of().float(), torch.randn(NODES, WIDTH).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = layer(x, *edges)
        with onehop.patch():
            (reason,) = took_fast_path(layer, x, *edges)
            assert reason == "autocast decides on the dtypes of its scores"
            torch.testing.assert_close(layer(x, *edges), expected)


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
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whatever PyG raises
        layer(x, edge_index, edge_type)
    with onehop.patch(), pytest.raises(theirs.type) as ours:
        layer(x, edge_index, edge_type)
    assert str(ours.value) == str(theirs.value)


def test_few_edges_are_pygs(edges, took_fast_path, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer, x = layer_of(), torch.randn(NODES, WIDTH).requires_grad_()
    expected = results(layer, x, edges)
    with onehop.patch():
        assert took_fast_path(layer, x, *edges) != [None]
        for one, other in zip(results(layer, x, edges), expected, strict=True):
            assert one is other is None or torch.equal(one, other)


def test_no_edges():
    layer, x = layer_of(), torch.randn(NODES, WIDTH)
    empty = torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    expected = layer(x, *empty)
    with onehop.patch():
        torch.testing.assert_close(layer(x, *empty), expected)


def test_copies_and_inference(edges):
    layer, x = layer_of(dropout=0.5).eval(), torch.randn(NODES, WIDTH)
    expected = layer(x, *edges)
    with onehop.patch(), torch.inference_mode():
        torch.testing.assert_close(copy.deepcopy(layer)(x, *edges), expected)
