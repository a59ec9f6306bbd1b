"""HANConv and HGTConv, whose messages hold the softmax, against PyG."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import HANConv, HGTConv

import onehop
from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.integrations.pyg.leave import TOO_SMALL
from tests.integrations.pyg.typed_nodes import edges_of, features_of

WIDTH, OUT, HEADS = 6, 8, 2
NODES = {"paper": 20, "author": 14, "venue": 5}
TYPES = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "written by", "author"),
    ("venue", "holds", "paper"),
]
METADATA = (list(NODES), TYPES)
LAYERS = {
    "HAN": lambda **options: HANConv(WIDTH, OUT, METADATA, heads=HEADS, **options),
    "HGT": lambda **options: HGTConv(WIDTH, OUT, METADATA, heads=HEADS, **options),
}


pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def x() -> dict[str, Tensor]:
    return features_of(NODES, WIDTH)


@pytest.fixture
def edges() -> dict[tuple[str, str, str], Tensor]:
    """Some types have few edges or none, and the last papers none at all."""
    return edges_of(NODES, dict(zip(TYPES, (60, 90, 3, 0), strict=True)))


def results(layer: Any, x: dict[str, Tensor], edges: dict[Any, Tensor], seed: int = 3) -> list[Any]:
    """Outputs of all types, and the gradients to every leaf."""
    torch.manual_seed(seed)
    outs = [out for out in layer(x, edges).values() if out is not None]
    loss = sum((out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() for out in outs)
    leaves = [*x.values(), *layer.parameters()]
    return [*outs, *torch.autograd.grad(loss, leaves, allow_unused=True), torch.rand(1)]


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    assert [each is None for each in ours] == [each is None for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}], ids=["plain", "dropout"])
@pytest.mark.parametrize("kind", LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(kind, options, x, edges, took_fast_path):
    if kind == "HGT" and options:
        pytest.skip("HGTConv has no dropout")
    layer = LAYERS[kind](**options)
    expected = results(layer, x, edges)
    with onehop.patch():
        served = took_fast_path(layer, x, edges)
        # An edge type without edges is PyG's.
        assert served.count(None) >= (3 if kind == "HAN" else 1)
        for _ in range(3):
            assert_same(results(layer, x, edges), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", LAYERS)
def test_other_dtypes(kind, dtype, x, edges):
    layer = LAYERS[kind]().to(dtype)
    x = {name: each.detach().to(dtype) for name, each in x.items()}
    expected = layer(x, edges)
    with onehop.patch():
        ours = layer(x, edges)
    for name, out in expected.items():
        tolerance = 5e-2 if dtype is torch.bfloat16 else 1e-5
        assert (ours[name] is None) == (out is None)
        if out is None:
            continue
        assert ours[name].dtype is out.dtype
        torch.testing.assert_close(ours[name], out, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("ordinary_bounds")
def test_edges_are_joined_once(x, edges, monkeypatch):
    layers = [LAYERS["HGT"](), LAYERS["HGT"]()]
    with onehop.patch():
        for layer in layers:
            layer(x, edges)
        known = onehop.cache_info()
        monkeypatch.setattr(CACHE, "store", lambda *_: pytest.fail("the edges were joined again"))
        for layer in layers:
            layer(x, edges)
        assert onehop.cache_info().entries == known.entries


@pytest.mark.parametrize("change", ["in place", "data", "another tensor", "another type"])
def test_changed_edges_are_noticed(change, x, edges):
    layer = LAYERS["HGT"]()
    with onehop.patch():
        layer(x, edges)
        cites = edges[TYPES[1]]
        if change == "in place":
            cites[0] = 7
        elif change == "data":
            cites.data[0] = 7
        elif change == "another tensor":
            edges[TYPES[1]] = cites.flip(1).roll(3, 1)
        else:
            edges = {key: each for key, each in edges.items() if key != TYPES[0]}
        ours = results(layer, x, edges)
    assert_same(ours, results(layer, x, edges))


def test_two_dicts_with_a_common_tensor_take_turns(x, edges):
    layer, other = LAYERS["HGT"](), {**edges, TYPES[1]: edges[TYPES[1]].roll(1, 1)[:, :50]}
    expected = [results(layer, x, each) for each in (edges, other)]
    with onehop.patch():
        for _ in range(3):
            for each, theirs in zip((edges, other), expected, strict=True):
                assert_same(results(layer, x, each), theirs)


@pytest.mark.parametrize("kind", LAYERS)
def test_few_edges_are_left_to_pyg(kind, x, edges, took_fast_path, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer = LAYERS[kind]()
    theirs = results(layer, x, edges)
    with onehop.patch():
        assert set(took_fast_path(layer, x, edges)) == {TOO_SMALL}
        for one, other in zip(results(layer, x, edges), theirs, strict=True):
            assert one is other is None or torch.equal(one, other)
        assert TOO_SMALL in str(onehop.explain(layer, x, edges, verbose=True))
    assert onehop.cache_info().entries == 0


@pytest.mark.parametrize("kind", LAYERS)
def test_contexts(kind, x, edges):
    layer = LAYERS[kind]()
    with torch.inference_mode():
        expected = layer(x, edges)["paper"]
    gradient = results(layer, x, edges)
    with onehop.patch():
        with torch.inference_mode():
            torch.testing.assert_close(layer(x, edges)["paper"], expected)
        assert_same(results(layer, x, edges), gradient)

        def loss(paper: Tensor) -> Tensor:
            return layer({**x, "paper": paper}, edges)["paper"].square().sum()

        ours = torch.func.grad(loss)(x["paper"])
    torch.testing.assert_close(ours, torch.func.grad(loss)(x["paper"]))


@pytest.mark.parametrize("kind", LAYERS)
def test_errors_are_those_of_pyg(kind, x, edges):
    layer = LAYERS[kind]()
    edges[TYPES[1]][0, 5] = 10_000
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        layer(x, edges)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, edges)
    assert str(ours.value) == str(theirs.value)
