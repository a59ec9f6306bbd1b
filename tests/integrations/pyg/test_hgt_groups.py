"""HGTConv, whose rows of relations are made a group at a time, against PyG."""

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations.pyg import hgt
from tests.integrations.pyg.test_hgt import COUNTS, HEADS, NODES, OUT, TYPES, assert_same, make, results
from tests.integrations.pyg.typed_nodes import edges_of, features_of

WIDTH = 6

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(params=[1, 45], ids="{} rows".format)
def layer(request, bounds):
    """A layer, with groups of one relation each, or of one to two."""
    bounds(few_edges=0, few_work=0, rows_a_node=0, block_edges=request.param)
    return make()


@pytest.fixture
def x() -> dict[str, Tensor]:
    return features_of(NODES, WIDTH)


@pytest.fixture
def edges() -> dict[tuple[str, str, str], Tensor]:
    return edges_of(NODES, COUNTS)


def in_groups(layer, x, edges) -> bool:
    return hgt._GROUPED in str(onehop.explain(layer, x, edges, verbose=True))


def test_outputs_and_gradients_are_those_of_pyg(layer, x, edges):
    expected = results(layer, x, edges)
    with onehop.patch():
        assert in_groups(layer, x, edges)
        for _ in range(3):
            assert_same(results(layer, x, edges), expected)


@pytest.mark.parametrize("heads", [1, 8])
def test_other_heads(heads, bounds, x, edges):
    bounds(few_edges=0, few_work=0, rows_a_node=0, block_edges=1)
    layer = make(heads=heads)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert in_groups(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_features_without_gradients(layer, x, edges):
    x = {name: each.detach() for name, each in x.items()}
    for each in (layer.k_rel.weight, *layer.p_rel.values()):
        each.requires_grad_(False)

    def found() -> list[Tensor]:
        out = layer(x, edges)["paper"]
        learned = [each for each in layer.parameters() if each.requires_grad]
        parts = torch.autograd.grad(out.square().sum(), learned, allow_unused=True, materialize_grads=True)
        return [out.detach(), *parts]

    expected = found()
    with onehop.patch():
        for ours, theirs in zip(found(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, edges)["paper"], expected[0])
        with torch.inference_mode():
            torch.testing.assert_close(layer(x, edges)["paper"].clone(), expected[0])


def test_second_derivatives(layer, x, edges):
    def second() -> list[Tensor]:
        loss = layer(x, edges)["paper"].pow(3).sum()
        first = torch.autograd.grad(loss, [x["author"], layer.k_rel.weight], create_graph=True)
        return list(
            torch.autograd.grad(sum(each.square().sum() for each in first), [layer.v_rel.weight, x["paper"]])
        )

    expected = second()
    with onehop.patch():
        for ours, theirs in zip(second(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_batched_gradients(layer, x, edges):
    pulled = torch.randn(3, NODES["paper"], OUT)

    def found() -> tuple[Tensor, ...]:
        out = layer(x, edges)["paper"]
        return torch.autograd.grad(out, [x["author"], layer.k_rel.weight], pulled, is_grads_batched=True)

    out = layer(x, edges)["paper"]
    singly = [
        torch.autograd.grad(out, [x["author"], layer.k_rel.weight], each, retain_graph=True)
        for each in pulled
    ]
    with onehop.patch():
        for ours, theirs in zip(found(), zip(*singly, strict=True), strict=True):
            torch.testing.assert_close(ours, torch.stack(theirs))


def test_rows_of_relations_are_not_kept(bounds):
    """What autograd keeps is as large as nodes, or as numbers of edges and heads."""
    bounds(few_edges=0, few_work=0, rows_a_node=1)
    kinds = [("paper", f"relation {number}", "paper") for number in range(6)]
    layer = make(metadata=(["paper"], kinds))
    x = {"paper": torch.randn(100, WIDTH, requires_grad=True)}
    edges = {kind: torch.randint(100, (2, 40)) for kind in kinds}
    sizes: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with onehop.patch(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x, edges)
    assert max(sizes) <= 100 * 3 * OUT
    assert 240 * HEADS in sizes


def test_types_of_edges_and_their_order(layer, x, edges):
    del edges[TYPES[1]]
    expected = results(layer, x, edges)
    with onehop.patch():
        assert_same(results(layer, x, edges), expected)
