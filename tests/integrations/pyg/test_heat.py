"""HEATConv, whose linear steps are made before and behind the sum over edges, beside PyG's."""

import math

import pytest
import torch
from torch_geometric import nn as gnn

from onehop import thresholds
from tests.integrations.pyg.compiled_layers import (
    COMPILED,
    DIM,
    EDGE_INDEX,
    EDGES,
    NODES,
    WIDTH,
    compiled as compiled,
    numbers,
)
from tests.integrations.same import forms, refused, same, same_error, step

FORM = "W (source, features) * softmax for each head"

pytestmark = pytest.mark.usefixtures("in_doubles")


def types(count, of):
    return torch.randint(0, of, (count,), generator=torch.Generator().manual_seed(2))


def heat(**options):
    return gnn.HEATConv(WIDTH, 4, 3, 2, 5, DIM, 2, **options)


def inputs_of():
    """Features of nodes, edges, types of both, features of edges."""
    kinds = types(NODES, 3), types(EDGES, 2)
    return [numbers(NODES, WIDTH), EDGE_INDEX.clone(), *kinds, numbers(EDGES, DIM)]


def went(layer, inputs):
    """Compares outputs and gradients, and returns the form that ran."""
    return forms(same(step(layer, *inputs)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 3},
        {"heads": 2, "concat": False, "root_weight": False},
        {"heads": 2, "bias": False},
        {"heads": 2, "dropout": 0.4},
        {"aggr": "mean", "flow": "target_to_source", "heads": 2},
    ],
    ids=str,
)
def test_outputs_and_gradients(options):
    assert went(heat(**options), inputs_of()) == [FORM]


@pytest.mark.parametrize("where", [0, -1], ids=["nodes", "edges"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_compiled(number, where):
    inputs = inputs_of()
    inputs[where][3, 1] = number
    assert went(heat(heads=2), inputs) == [COMPILED]


@pytest.mark.parametrize("number", [1e3, 0.0])
def test_extreme_numbers(number):
    inputs = inputs_of()
    inputs[0][3, 1:4] = number
    inputs[0][-1] = number
    assert went(heat(heads=2), inputs) == [FORM]


def with_step():
    layer = heat()
    layer.lin = torch.nn.Sequential(layer.lin)
    return layer


class Doubled(gnn.HEATConv):
    def message(self, x_i, x_j, edge_type_emb, edge_attr, index, ptr, size_i):
        return 2 * super().message(x_i, x_j, edge_type_emb, edge_attr, index, ptr, size_i)


OTHERS = {
    "largest": lambda: heat(heads=2, aggr="max"),
    "replaced": with_step,
    "own message": lambda: Doubled(WIDTH, 4, 3, 2, 5, DIM, 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_is_compiled(name):
    assert went(OTHERS[name](), inputs_of()) == [COMPILED]


def test_hooks_and_few_edges_stay_with_pyg(monkeypatch):
    layer, inputs = heat(), inputs_of()
    layer.att.register_forward_hook(lambda module, args, out: 2 * out)
    refused(step(layer, *inputs), "hooks are registered on a module in it")
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    same(step(heat(), *inputs))


@pytest.mark.parametrize("wrong", ["type", "edge", "columns", "features"])
def test_errors_are_pygs(wrong):
    layer, inputs = heat(), inputs_of()
    if wrong == "edge":
        inputs[1][0, 4] = NODES
    else:
        attr = inputs[-1]
        inputs[-1] = {"columns": attr[:, 1:], "features": attr[1:], "type": attr.float()}[wrong]
    same_error(lambda: layer(*inputs))
