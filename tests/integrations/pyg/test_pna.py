"""PNAConv, whose statistics never lie side by side, beside PyG's."""

import dataclasses

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import aggr

import onehop
from onehop import thresholds
from onehop.compiler import trusted
from tests.integrations.pyg.compiled_layers import assert_compiled
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import HALF, fast, same, same_error, step

NODES, EDGES, WIDTH = 30, 150, 6
EDGE_INDEX = make_edges(NODES, NODES, EDGES)
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

    # The compiler takes it for torch's own.
    functions, names = trusted._of_torch()
    monkeypatch.setattr(trusted, "_of_torch", lambda: (functions | {noting}, names))
    monkeypatch.setattr(torch, "cat", noting)
    return widths


def test_statistics_are_not_joined(joined):
    layer, x, edges = pna(), torch.randn(NODES, WIDTH), EDGE_INDEX
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


# What is multiplied as PyG does.
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


@pytest.mark.parametrize("name", [*LAYERS, *OTHERS])
def test_outputs_and_gradients(name):
    assert_compiled((LAYERS | OTHERS)[name](), torch.randn(NODES, WIDTH), EDGE_INDEX)


def test_hooks_see_what_pyg_gives_them():
    layer, x, edges, seen = pna(), torch.randn(NODES, WIDTH), EDGE_INDEX, []
    layer.post_nns[0].register_forward_hook(lambda module, args, out: seen.append(args[0].shape))
    with onehop.patch():
        layer(x, edges)
    assert seen == [(NODES, 13 * WIDTH)]


@pytest.mark.parametrize("wrong", [torch.randn(NODES, WIDTH + 1), torch.randn(NODES, WIDTH).float()])
def test_errors_are_pygs(wrong):
    layer, edges = pna(), EDGE_INDEX
    same_error(lambda: layer(wrong, edges))


def test_float32_and_autocast():
    layer, x = pna().float(), torch.randn(NODES, WIDTH, dtype=torch.float32)
    fast(step(layer, x, EDGE_INDEX), rtol=1e-5, atol=1e-5)

    def lowered() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x, EDGE_INDEX)

    same(lowered, **HALF)


def test_no_edges():
    layer, x = pna(), torch.randn(NODES, WIDTH)
    same(lambda: layer(x, EDGE_INDEX[:, :0]))
