"""HEATConv, whose linear steps are made before and behind the sum over edges, beside PyG's."""

import math

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations import reports
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH, OUT, DIM, FORM = 20, 120, 6, 4, 3, "W (source, features) * softmax for each head"

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    monkeypatch.setattr(thresholds, "now", thresholds.dataclasses.replace(thresholds.now, few_edges=0))


def types(count, of):
    return torch.randint(0, of, (count,), generator=torch.Generator().manual_seed(2))


def heat(**options):
    return gnn.HEATConv(WIDTH, OUT, 3, 2, 5, DIM, 2, **options)


def call(model, x, edge_attr, edges=None):
    edges = make_edges(NODES, NODES, EDGES) if edges is None else edges
    return model(x, edges, types(NODES, 3), types(edges.size(1), 2), edge_attr)


def inputs_of():
    return {"x": torch.randn(NODES, WIDTH), "edge_attr": torch.randn(EDGES, DIM)}


def assert_as_pygs(layer, inputs, gradients_of, form=FORM):
    expected = gradients_of(layer, call, **inputs)
    with onehop.patch():
        with reports.recorded() as rows:
            call(layer, **inputs)
        assert [row.form for row in rows] == [form]
        found = gradients_of(layer, call, **inputs)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=1e-9, atol=1e-10, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


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
def test_outputs_and_gradients(options, gradients_of):
    assert_as_pygs(heat(**options), inputs_of(), gradients_of)


@pytest.mark.parametrize("where", ["x", "edge_attr"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_compiled(number, where, gradients_of):
    inputs = inputs_of()
    inputs[where][3, 1] = number
    assert_as_pygs(heat(heads=2), inputs, gradients_of, "its message, compiled")


@pytest.mark.parametrize("number", [1e3, 0.0])
def test_extreme_numbers(number, gradients_of):
    inputs = inputs_of()
    inputs["x"][3, 1:4] = number
    inputs["x"][-1] = number
    assert_as_pygs(heat(heads=2), inputs, gradients_of)


def with_hook():
    layer = heat()
    layer.att.register_forward_hook(lambda module, args, out: 2 * out)
    return layer


def with_step():
    layer = heat()
    layer.lin = torch.nn.Sequential(layer.lin)
    return layer


class Doubled(gnn.HEATConv):
    def message(self, x_i, x_j, edge_type_emb, edge_attr, index, ptr, size_i):
        return 2 * super().message(x_i, x_j, edge_type_emb, edge_attr, index, ptr, size_i)


OTHERS = {
    "largest": (lambda: heat(heads=2, aggr="max"), "its message, compiled"),
    "replaced": (with_step, "its message, compiled"),
    "own message": (lambda: Doubled(WIDTH, OUT, 3, 2, 5, DIM, 2), "its message, compiled"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_is_compiled(name, gradients_of):
    make, form = OTHERS[name]
    assert_as_pygs(make(), inputs_of(), gradients_of, form)


def test_hooks_and_few_edges_stay_with_pyg(monkeypatch, took_fast_path):
    layer, inputs = with_hook(), inputs_of()
    expected = call(layer, **inputs)
    with onehop.patch():
        assert took_fast_path(call, layer, **inputs) == ["hooks are registered on a module in it"]
        torch.testing.assert_close(call(layer, **inputs), expected)
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer = heat()
    expected = call(layer, **inputs)
    with onehop.patch():
        assert torch.equal(call(layer, **inputs), expected)


@pytest.mark.parametrize("wrong", ["type", "edge", "columns", "features"])
def test_errors_are_pygs(wrong):
    layer, inputs, edges = heat(), inputs_of(), make_edges(NODES, NODES, EDGES)
    if wrong == "edge":
        edges[0, 4] = NODES
    elif wrong == "columns":
        inputs["edge_attr"] = inputs["edge_attr"][:, 1:]
    elif wrong == "features":
        inputs["edge_attr"] = inputs["edge_attr"][1:]
    else:
        inputs["edge_attr"] = inputs["edge_attr"].float()
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        call(layer, **inputs, edges=edges)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        call(layer, **inputs, edges=edges)
    assert str(ours.value) == str(theirs.value)


def test_second_derivatives():
    layer, inputs = heat(heads=2), inputs_of()
    x = inputs["x"].requires_grad_()
    found = []
    for patched in (False, True):
        with onehop.patch() if patched else torch.enable_grad():
            (grad,) = torch.autograd.grad(call(layer, **inputs).tanh().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(grad.square().sum(), layer.lin.weight)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-9)
