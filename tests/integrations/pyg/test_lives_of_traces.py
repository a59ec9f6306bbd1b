"""Traces that are kept: how many are made, for which states of torch, and how long they live."""

import contextlib
import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter, Sequential, functional
from torch_geometric import nn as gnn
from torch_geometric.utils import softmax

import onehop
from onehop import thresholds
from onehop.compiler import trusted
from onehop.loading import DISTRIBUTED
from tests.integrations.pyg.test_kept_traces import CALLS
from tests.integrations.pyg.traced_layers import (
    EDGES,
    NODES,
    WIDTH,
    Own,
    assert_as_without,
    in_a_cell,
    layer_of,
    results,
    traces as traces,
)
from tests.integrations.same import same

pytestmark = pytest.mark.usefixtures("in_doubles")


CONTEXTS: dict[str, Callable[[], Any]] = {
    "plain": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("cpu"),
}


def test_contexts_in_turns(edge_index):
    layer, x = Own().float(), torch.randn(NODES, WIDTH).float()
    order = [*CONTEXTS, *reversed(CONTEXTS), *CONTEXTS]
    outs: dict[bool, list[Tensor]] = {False: [], True: []}
    for patched, found in outs.items():
        with onehop.patch() if patched else contextlib.nullcontext():
            for name in order:
                with CONTEXTS[name]():
                    found.append(layer(x, edge_index))
    for name, ours, theirs in zip(order, outs[True], outs[False], strict=True):
        assert ours.requires_grad == theirs.requires_grad
        close = {"rtol": 0.1, "atol": 0.1} if name == "autocast" else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(ours, theirs, **close)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float64)


def in_blocks() -> Any:
    return thresholds.changed(compiled_edges=1 << 20, cached_bytes=0)


STATES: dict[str, Callable[[], Any]] = {
    **CONTEXTS,
    "float32 by default": float32_by_default,
    "deterministic": deterministic,
    "in blocks": in_blocks,
    "wide features of edges": lambda: thresholds.changed(edge_columns=1),
}


@pytest.mark.parametrize("name", [name for name in STATES if name not in ("plain", "inference")])
def test_another_state_of_torch_leads_to_another_trace(name, edge_index, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for at, state in enumerate([STATES["plain"], STATES[name], STATES["plain"]]):
            with state():
                layer(x, edge_index)
            assert len(traces) == (1, 2, 2)[at]


def test_other_graphs_lead_to_other_traces(edges, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    many, few = edges(NODES, NODES, EDGES), edges(NODES, NODES, 10)
    expected = [layer(x, index) for index in (many, many[:, :0], few)]
    counts = []
    with onehop.patch():
        for at in (0, 1, 2, 0, 1, 2):
            torch.testing.assert_close(layer(x, (many, many[:, :0], few)[at]), expected[at])
            counts.append(len(traces))
        # Products for nodes are made where there are no more nodes than edges.
        assert counts == [1, 2, 3, 3, 3, 3]
        layer(torch.randn(2, NODES, WIDTH)[0], few)
        assert len(traces) == 3


# Layers of PyG, and whether they take features of edges.
LAYERS = {
    "ResGated": lambda: (gnn.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=3), True),
    "GINE": lambda: (gnn.GINEConv(Linear(WIDTH, 4), edge_dim=3), True),
    "CG": lambda: (gnn.CGConv(WIDTH, dim=3), True),
    "GEN": lambda: (gnn.GENConv(WIDTH, 4, edge_dim=3, learn_t=True), True),
    "GMM": lambda: (gnn.GMMConv(WIDTH, 4, dim=3, kernel_size=2), True),
    "NN": lambda: (gnn.NNConv(WIDTH, 4, Linear(3, 4 * WIDTH)), True),
    "PNA": lambda: (
        gnn.PNAConv(WIDTH, 4, ["mean", "std"], ["amplification"], torch.tensor([1, 9, 9])),
        False,
    ),
    "Edge": lambda: (
        gnn.EdgeConv(Sequential(Linear(2 * WIDTH, 4), torch.nn.Dropout(0.0), torch.nn.ELU())),
        False,
    ),
    "MLP": lambda: (gnn.EdgeConv(gnn.MLP([2 * WIDTH, 5, 4], norm="layer_norm")), False),
    "FeaSt": lambda: (gnn.FeaStConv(WIDTH, 4, heads=2), False),
    "FiLM": lambda: (gnn.FiLMConv(WIDTH, 4), False),
    "General": lambda: (gnn.GeneralConv(WIDTH, 4, attention=True), False),
    "SAGE std": lambda: (gnn.SAGEConv(WIDTH, 4, aggr="std"), False),
    "median": lambda: (gnn.SAGEConv(WIDTH, 4, aggr="median"), False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pyg_are_traced_once(name, edge_index, edges, traces):
    (layer, takes), x, counts = LAYERS[name](), torch.randn(NODES, WIDTH), []
    others = [torch.randn(EDGES, 3)] if takes else []

    def run(layer: Any) -> list[Any]:
        counts.clear()
        found = []
        for index in (edge_index, edge_index, edges(NODES, NODES, EDGES, seed=3)):
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.mul_(0.9)
            found.append(results(layer, x, index, *others))
            counts.append(len(traces))
        return found

    assert_as_without(layer, run)
    # Once graphs can be divided, a normalisation of PyG depends on the processes too, and no guard knows it.
    normalises = name == "MLP" and DISTRIBUTED.provided is not None
    assert counts == ([1, 2, 3] if normalises else [1, 1, 1])
    copied = pickle.loads(pickle.dumps(layer))
    assert vars(copied).keys() == vars(layer).keys()
    same(lambda: results(copied, x, edge_index, *others), times=1)


def message_of_edges(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: int) -> Tensor:
    scores = softmax((x_i * x_j).sum(-1, keepdim=True), index, ptr, size_i)
    return functional.dropout(scores, self.rate, self.training) * x_j


def test_dropout_draws_anew_and_follows_the_mode(edge_index, traces):
    layer, x = layer_of(message_of_edges), torch.randn(NODES, WIDTH)
    modes = [(True, 0.3), (True, 0.3), (False, 0.3), (True, 0.3), (True, 0.9), (False, 0.9)]

    def run(layer: Any) -> list[Any]:
        found = []
        for training, layer.rate in modes:
            layer.train(training)
            found.append(results(layer, x, edge_index))
        return found

    assert_as_without(layer, run)
    with onehop.patch():
        layer.train()
        outs = [layer(x, edge_index) for _ in range(3)]
    assert not any(torch.equal(outs[0], each) for each in outs[1:])
    assert len(traces) < len(modes) + len(outs)


def test_a_parameter_that_learns_again_in_blocks(edge_index):
    x = torch.randn(NODES, WIDTH)

    def run(layer: Any) -> list[Any]:
        found = []
        for needed in (False, True, False, True):
            layer.lin.weight.requires_grad_(needed)
            found.append(results(layer, x, edge_index))
        return found

    with in_blocks():
        assert_as_without(Own(), run)


def test_parameters_of_a_functional_call(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    others = {name: torch.rand_like(each) for name, each in layer.named_parameters()}
    same(lambda: [layer(x, edge_index), torch.func.functional_call(layer, others, (x, edge_index))])


def test_a_gradient_reaches_a_matrix_that_is_the_same_for_all_edges(edge_index):
    class Multiplying(gnn.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor, w: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, w=w)

        def message(self, x_j: Tensor, w: Tensor) -> Tensor:
            return x_j @ w

    layer, x, w = Multiplying(), torch.randn(NODES, WIDTH), torch.randn(WIDTH, 4, requires_grad=True)
    same(lambda: torch.autograd.grad(layer(x, edge_index, w).square().sum(), w))


def test_nothing_is_kept_alive(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    gc.disable()  # nothing is freed late, by the collector alone
    try:
        with onehop.patch():
            for _ in range(2):
                results(layer, x, edge_index)
                freed = [weakref.ref(layer.lin.weight), weakref.ref(layer.act), weakref.ref(layer.gate)]
                layer.lin.weight, layer.act = Parameter(torch.rand(WIDTH, WIDTH)), torch.nn.ReLU()
                layer.gate = in_a_cell(2.5)
                assert [each() for each in freed] == [None] * 3
            freed = [weakref.ref(layer), weakref.ref(layer.weight)]
            del layer
            assert [each() for each in freed] == [None] * 2
    finally:
        gc.enable()


def test_a_class_is_freed_with_its_layers(edge_index):
    names: dict[str, Any] = {"gnn": gnn, "Linear": Linear, "WIDTH": WIDTH}
    code = "class Freed(gnn.MessagePassing):\n"
    code += "    def __init__(self):\n        super().__init__()\n        self.lin = Linear(WIDTH, WIDTH)\n"
    code += "    def message(self, x_j):\n        return self.lin(x_j) * WIDTH\n"
    exec(code, names)
    names["layer"] = names["Freed"]()
    freed = weakref.ref(names["Freed"])
    with onehop.patch():
        for _ in range(2):
            names["layer"].propagate(edge_index, x=torch.randn(NODES, WIDTH))
    del names
    gc.collect()
    assert freed() is None


def by_a_step(self, x_j: Tensor) -> Tensor:
    return functional.linear(self.lin(x_j), self.lin.weight)


@pytest.mark.parametrize("patched", [False, True])
def test_functions_of_torch_are_known_under_the_patch_and_without(patched, edge_index, traces):
    trusted._of_torch.cache_clear()
    with onehop.patch() if patched else contextlib.nullcontext():
        assert trusted.is_of_tensors("relu")
    layer, x = layer_of(by_a_step), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(2):
            layer(x, edge_index)
    assert len(traces) == 1


def test_an_id_that_is_used_again_is_another_layer(edge_index, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        expected = layer(x, edge_index)
        of = type(layer).propagate.onehop_records[Own].own_message.traces._of
        other = copy.deepcopy(layer)
        of[id(other)] = of[id(layer)]
        torch.testing.assert_close(other(x, edge_index), expected)
        assert len(traces) == 2
        traces.clear()
        del layer, other
        gc.collect()
        assert not of


def test_threads_share_what_is_kept(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    e = torch.randn(EDGES, WIDTH)
    operands = [call(e) for call in CALLS.values()]
    expected = [layer(x, edge_index, *each) for each in operands]
    wrong: list[int] = []

    def call(first: int) -> None:
        for turn in range(30):
            at = (first + turn) % len(operands)
            out = layer(x, edge_index, *operands[at])
            if not torch.allclose(out, expected[at], rtol=1e-6, atol=1e-6):
                wrong.append(at)

    with onehop.patch():
        threads = [threading.Thread(target=call, args=(3 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_what_is_kept_is_bounded(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for number in range(40):
            layer(x, edge_index, None, float(number))
        records = type(layer).propagate.onehop_records
        assert sum(len(kept) for _, kept in records[Own].own_message.traces._of.values()) == 16
