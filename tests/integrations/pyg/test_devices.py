"""Layers on another backend than the C++ one, and tensors of other devices; no GPU is needed.

Triton's interpreter takes CPU tensors, so that a patched model can train through the GPU's kernels here; in a
process of its own a device that is written in Python stands in for the GPU. The device "meta" stands in for
one that no backend takes, and for tensors that lie apart.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils import backend_registration
from torch_geometric import nn as gnn

import onehop
from onehop.backends import refusal
from onehop.graph import Graph
from onehop.graph.identity import CACHE
from onehop.integrations import reports
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.edges.kept import can_remember, graph_of
from onehop.kernels.triton import availability
from onehop.machines import pim
from onehop.plans import gpu_tuned
from tests.integrations.pyg.two_layers import LAYERS, Make, TwoLayers
from tests.integrations.same import Raised, outcome
from tests.processes import run_python

pytestmark = pytest.mark.usefixtures("interpreter")
needs_triton = pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them")

WIDTH, HIDDEN, CLASSES = 5, 4, 3


def model_of(make: Make) -> TwoLayers:
    return TwoLayers(make, WIDTH, HIDDEN, CLASSES)


@pytest.fixture
def x():
    return torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(5))


def step(model, x, edge_index, **weights):
    """One step of training: the loss, every gradient, and the parameters after it."""
    model, x = copy.deepcopy(model), x.clone().requires_grad_()
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.arange(x.size(0)) % CLASSES
    loss = cross_entropy(model(x, edge_index, **weights), labels)
    loss.backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    optimizer.step()
    return {"loss": loss.detach(), "x": x.grad, **gradients, "parameters": model.state_dict()}


def backends_of(model, *inputs, **kwargs):
    explained = onehop.explain(model, *inputs, **kwargs)
    assert all(row.fast for row in explained.layers), str(explained)
    return {row.backend for row in explained.layers}


@needs_triton
@pytest.mark.parametrize("name", LAYERS)
def test_a_patched_model_trains_on_the_gpu_kernels(name, x, edge_index):
    model = model_of(LAYERS[name])
    expected = step(model, x, edge_index)
    with onehop.patch(backend="triton"):
        found = step(model, x, edge_index)
        assert backends_of(model, x, edge_index) == {"triton"}
        assert "TritonPlan(" in str(onehop.explain(model, x, edge_index, verbose=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@needs_triton
def test_weights_and_dropout_take_the_gpu_kernels_too(x, edge_index):
    weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(1))
    weighted = model_of(LAYERS["GCN"])
    dropping = model_of(lambda i, o: gnn.GATConv(i, o, heads=2, concat=False, dropout=0.5))
    for model, operands in ((weighted, {"edge_weight": weight}), (dropping, {})):
        expected = step(model, x, edge_index, **operands)
        with onehop.patch(backend="triton"):
            found = step(model, x, edge_index, **operands)
            assert backends_of(model, x, edge_index, **operands) == {"triton"}
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@needs_triton
def test_explain_tells_what_a_gpu_plan_was_chosen_by(x, edge_index, own_cache, monkeypatch):
    monkeypatch.setattr(
        "onehop.tuner.gpu.target.seconds_of",
        lambda call, plan, device: 1e-3 if plan.num_warps == 8 else 2e-3,
    )
    monkeypatch.setattr("onehop.tuner.gpu.target.GpuTactics._runs", lambda self, call, plan: True)
    gpu_tuned.forget()
    layer = gnn.SAGEConv(WIDTH, 4)
    graph = Graph.from_edge_index(edge_index, 20)
    try:
        onehop.tune(graph, WIDTH, device="cuda", backward=False, budget_s=1e6)
        with onehop.patch(backend="triton", associate=False):
            told = str(onehop.explain(layer, x, edge_index, verbose=True))
    finally:
        gpu_tuned.forget()
    assert "on triton: TritonPlan(" in told
    assert "num_warps=8" in told
    assert f"tuned at width {WIDTH}, measured 1 ms, default plan 2 ms" in told


@needs_triton
def test_messages_in_blocks_stay_where_they_run(x, edge_index):
    model = gnn.PNAConv(WIDTH, 4, ["mean", "max"], ["identity"], deg=torch.ones(9, dtype=torch.long))
    with onehop.patch(backend="triton"):
        expected = copy.deepcopy(model)(x, edge_index)
        assert {row.backend for row in onehop.explain(model, x, edge_index).layers} <= {"cpu", ""}
    torch.testing.assert_close(model(x, edge_index), expected)


def test_the_specification_can_run_a_model(x, edge_index):
    model = model_of(LAYERS["GATv2"])
    expected = step(model, x, edge_index)
    with onehop.patch(backend="reference"):
        assert backends_of(model, x, edge_index) == {"reference"}
        torch.testing.assert_close(step(model, x, edge_index), expected, rtol=1e-4, atol=1e-6)
    assert backends_of(model, x, edge_index) == {"cpu"}


def test_a_backend_that_refuses_leaves_the_layer_to_pyg(x, edge_index, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = model_of(LAYERS["GCN"])
    expected = model(x, edge_index)
    with onehop.patch(backend="triton"):
        torch.testing.assert_close(model(x, edge_index), expected)
        told = str(onehop.explain(model, x, edge_index, verbose=True))
    assert "features of torch.float32 on cpu have no backend: needs" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "abacus"}, "'abacus' is unknown; there are cpu, triton"),
        ({"backend": "pim"}, "'pim' is a machine; give machine="),
        ({"backend": "cpu", "machine": pim.Machine()}, "give one of them"),
    ],
)
def test_backends_that_a_patch_cannot_have(arguments, message):
    with pytest.raises(onehop.ArgumentError, match=message):
        onehop.patch(**arguments)
    assert onehop.patched() == ()


def place(layer, x, edge_index):
    """Where the result is, or which error there is: torch lets "meta" meet the CPU in some operations."""
    found = outcome(lambda: layer(x, edge_index))
    return found.kind if isinstance(found, Raised) else found.device.type


@pytest.mark.parametrize("name", LAYERS)
def test_operands_on_two_devices_are_left_to_pyg(name, x, edge_index):
    layer, apart = LAYERS[name](WIDTH, 4), edge_index.to("meta")
    expected = place(layer, x, apart)
    with onehop.patch(), reports.recorded() as calls:
        assert place(layer, x, apart) == expected
    assert all("on meta" in call.reason for call in calls)
    assert calls or isinstance(expected, type)  # else PyG's own steps failed before


def test_a_device_without_a_backend_is_named(x, edge_index):
    layer = gnn.SAGEConv(WIDTH, 4).to("meta")
    with onehop.patch():
        told = str(onehop.explain(layer, x.to("meta"), edge_index.to("meta"), verbose=True))
    assert "on meta have no backend: cpu runs on CPU tensors, not on meta; triton" in told


def test_refusals_name_every_backend_that_was_asked():
    assert refusal("", torch.device("cpu"), torch.float32) is None
    assert refusal("cpu", torch.device("meta"), torch.float32) == "runs on CPU tensors, not on meta"
    with pytest.raises(onehop.ArgumentError, match="unknown"):
        refusal("abacus", torch.device("cpu"), torch.float32)


def test_what_reads_memory_by_address_steps_aside_on_other_devices(edge_index):
    with onehop.patch():
        x = torch.ones(1 << 10, 1 << 6)
        assert reuse.constant(x, None, 1 << 15)
        assert not reuse.constant(x.to("meta"), None, 1 << 15)
    assert can_remember(edge_index)
    assert not can_remember(edge_index.to("meta"))


def test_the_graph_of_an_edge_index_is_made_once(edge_index, monkeypatch):
    made = []
    build = Graph.from_edge_index
    monkeypatch.setattr(Graph, "from_edge_index", lambda *a, **k: made.append(1) or build(*a, **k))
    first = graph_of(edge_index, 20, 20, True)
    assert graph_of(edge_index, 20, 20, True) is first
    edge_index[0, 0] = 1
    assert graph_of(edge_index, 20, 20, True) is not first
    assert len(made) == 2
    assert CACHE.find(edge_index, ("graph", 20, 20, True)) is not None


@needs_triton
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch cannot have a device that is written in Python",
)
def test_models_train_with_tensors_on_another_device():
    """In a process of its own: see the program."""
    program = ["-m", "tests.integrations.pyg.train_on_another_device"]
    ran = run_python(program, cwd=Path(__file__).parents[3], timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "GCN: aggregate",
        "SAGE mean: aggregate",
        "SAGE max: extremum extremum_grad",
        "GAT: attention attention_grad",
        "GATv2: attention attention_grad",
        "Transformer: attention attention_grad",
        "weight: expected it on far:0 as the features are, got cpu.",
        "PyG reported the rest",
    ]
