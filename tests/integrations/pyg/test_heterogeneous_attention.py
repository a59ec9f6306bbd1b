"""HANConv, whose message holds the softmax, and what it has in common with HGTConv (test_hgt.py)."""

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
from tests.integrations.same import HALF, SINGLE, learned, reasons, refused, same, same_error

WIDTH, OUT, HEADS = 6, 8, 2
NODES = {"paper": 20, "author": 14, "venue": 5}
TYPES = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "written by", "author"),
    ("venue", "holds", "paper"),
]
METADATA = (list(NODES), TYPES)

pytestmark = pytest.mark.usefixtures("in_doubles")


def han(**options: Any) -> HANConv:
    return HANConv(WIDTH, OUT, METADATA, heads=HEADS, **options)


@pytest.fixture
def x() -> dict[str, Tensor]:
    return features_of(NODES, WIDTH)


@pytest.fixture
def edges() -> dict[tuple[str, str, str], Tensor]:
    """Some types have few edges or none, and the last papers none at all."""
    return edges_of(NODES, dict(zip(TYPES, (60, 90, 3, 0), strict=True)))


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}], ids=["plain", "dropout"])
def test_outputs_and_gradients_are_those_of_pyg(options, x, edges):
    layer = han(**options)
    calls = same(lambda: learned(layer(x, edges), x, layer))
    # An edge type without edges is PyG's.
    assert reasons(calls).count(None) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype, x, edges):
    layer = han().to(dtype)
    x = {name: each.detach().to(dtype) for name, each in x.items()}
    same(lambda: layer(x, edges), **(HALF if dtype is torch.bfloat16 else SINGLE))


@pytest.mark.usefixtures("ordinary_bounds")
def test_edges_of_all_types_are_joined_once(x, edges, monkeypatch):
    layers = [HGTConv(WIDTH, OUT, METADATA, heads=HEADS) for _ in range(2)]
    with onehop.patch():
        for layer in layers:
            layer(x, edges)
        known = onehop.cache_info()
        monkeypatch.setattr(CACHE, "store", lambda *_: pytest.fail("the edges were joined again"))
        for layer in layers:
            layer(x, edges)
        assert onehop.cache_info().entries == known.entries


@pytest.mark.parametrize("kind", [HANConv, HGTConv])
def test_few_edges_are_left_to_pyg(kind, x, edges, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer = kind(WIDTH, OUT, METADATA, heads=HEADS)
    refused(lambda: learned(layer(x, edges), x, layer), TOO_SMALL)
    with onehop.patch():
        assert TOO_SMALL in str(onehop.explain(layer, x, edges, verbose=True))
    assert onehop.cache_info().entries == 0


def test_errors_are_those_of_pyg(x, edges):
    layer = han()
    edges[TYPES[1]][0, 5] = 10_000
    same_error(lambda: layer(x, edges))
