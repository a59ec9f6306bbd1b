"""PNAConv, whose statistics never lie side by side, beside PyG's."""

import dataclasses

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import aggr

import onehop
from onehop import thresholds
from tests.integrations.pyg import compiled_layers
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH = 30, 150, 6
DEGREES = torch.tensor([2, 3, 4, 5, 4, 2, 1])
AGGREGATORS, SCALERS = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(autouse=True, params=[1, 4, 1 << 30], ids="of {} rows".format)
def _small(request, monkeypatch):
    """Every degree, some, or none has a product of its own."""
    bounds = dataclasses.replace(
        thresholds.now, cached_bytes=0, block_bytes=0, block_edges=8, compiled_edges=0,
        degree_rows=request.param,
    )  # fmt: skip
    monkeypatch.setattr(thresholds, "now", bounds)


def pna(aggregators=AGGREGATORS, scalers=SCALERS, **options):
    return gnn.PNAConv(WIDTH, 6, aggregators, scalers, DEGREES, **options)


LAYERS = {
    "plain": pna,
    "several steps": lambda: pna(post_layers=3, pre_layers=2),
    "towers": lambda: pna(towers=2, post_layers=2),
    "divided": lambda: pna(towers=3, divide_input=True),
    "all scales, learned": lambda: pna(
        ["var", "sum", "std"], ["inverse_linear", "linear", *SCALERS], train_norm=True
    ),
    "one of each": lambda: pna(["max"], ["identity"]),
    "a step of torch's": lambda: with_steps(torch.nn.Linear(WIDTH * 13, 6)),
    "a step without a bias": lambda: with_steps(torch.nn.Linear(WIDTH * 13, 6, bias=False)),
}


def with_steps(*steps, **options):
    layer = pna(**options)
    layer.post_nns[0] = torch.nn.Sequential(*steps)
    return layer


@pytest.fixture
def joined(monkeypatch):
    """Widths of what is concatenated along columns."""
    widths, cat = [], torch.cat

    def noting(tensors, dim=0, **kwargs):
        out = cat(tensors, dim, **kwargs)
        widths.append(out.size(-1) if out.dim() > 1 and out.size(0) == NODES else 0)
        return out

    monkeypatch.setattr(torch, "cat", noting)
    return widths


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients(name, gradients_of):
    x, edges = torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES)
    compiled_layers.assert_as_pygs(LAYERS[name](), compiled_layers.call_over(edges), {"x": x}, gradients_of)


def test_statistics_are_not_joined(joined):
    layer, x, edges = pna(), torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES)
    layer(x, edges)
    assert max(joined) == 13 * WIDTH
    joined.clear()
    with onehop.patch():
        layer(x, edges)
    assert max(joined, default=0) <= 2 * WIDTH


class Doubled(gnn.PNAConv):
    def update(self, inputs):
        return 2 * inputs


def changed(**options):
    layer = pna(**options)
    layer.aggr_module.aggr.aggrs[3].var_aggr.semi_grad = True
    return layer


OTHERS = {
    "half a gradient": changed,
    "softmax": lambda: pna(["softmax", "mean"]),
    "an update of its own": lambda: Doubled(WIDTH, 6, AGGREGATORS, SCALERS, DEGREES),
    "a step that is no linear one": lambda: with_steps(
        torch.nn.LayerNorm(WIDTH * 13), torch.nn.Linear(WIDTH * 13, 6)
    ),
    "added up": lambda: combined("sum"),
}


def combined(mode):
    layer = pna(scalers=["identity", "linear"])
    layer.aggr_module.aggr = aggr.MultiAggregation(AGGREGATORS, mode=mode)
    layer.post_nns[0] = torch.nn.Sequential(torch.nn.Linear(3 * WIDTH, 6))
    return layer


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_multiplied_as_pyg_does(name, gradients_of):
    x, edges = torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES)
    compiled_layers.assert_as_pygs(OTHERS[name](), compiled_layers.call_over(edges), {"x": x}, gradients_of)


def test_hooks_see_what_pyg_gives_them(gradients_of):
    layer, x, edges, seen = pna(), torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES), []
    layer.post_nns[0].register_forward_hook(lambda module, args, out: seen.append(args[0].shape))
    with onehop.patch():
        layer(x, edges)
    assert seen == [(NODES, 13 * WIDTH)]


@pytest.mark.parametrize(
    "wrong", [{"x": torch.randn(NODES, WIDTH + 1)}, {"x": torch.randn(NODES, WIDTH).float()}]
)
def test_errors_are_pygs(wrong):
    layer, edges = pna(), make_edges(NODES, NODES, EDGES)
    with pytest.raises(RuntimeError) as theirs:
        layer(wrong["x"], edges)
    with onehop.patch(), pytest.raises(RuntimeError) as ours:
        layer(wrong["x"], edges)
    assert str(ours.value) == str(theirs.value)


def test_other_dtypes_and_contexts():
    x, edges = torch.randn(NODES, WIDTH, dtype=torch.float32), make_edges(NODES, NODES, EDGES)
    layer = pna().float()
    with torch.autocast("cpu", torch.bfloat16):
        expected = layer(x, edges)
        with onehop.patch():
            torch.testing.assert_close(layer(x, edges), expected, rtol=0.05, atol=0.05)
    with onehop.patch(), torch.inference_mode():
        torch.testing.assert_close(layer(x, edges), layer(x, edges))
    expected = layer(x, edges)
    with onehop.patch():
        found = torch.utils.checkpoint.checkpoint(layer, x, edges, use_reentrant=False)
        torch.testing.assert_close(found, expected)
        found.sum().backward()


def test_no_edges():
    layer, x = pna(), torch.randn(NODES, WIDTH)
    none = torch.empty(2, 0, dtype=torch.int64)
    expected = layer(x, none)
    with onehop.patch():
        torch.testing.assert_close(layer(x, none), expected)
