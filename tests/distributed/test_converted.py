"""Models that are converted for a part of a divided graph, on a graph of one process or on none."""

import copy
import inspect
import pickle
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

import onehop
from onehop import ArgumentError, distributed
from onehop.distributed import DistributedGraph, alone, convert, converted
from onehop.distributed.converted import Processes, may_be_divided, processes_of

pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def graph() -> DistributedGraph:
    return DistributedGraph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 4, method="greedy")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What this process holds of graphs over several processes; the test appends."""
    graphs: list[object] = []
    monkeypatch.setattr(converted, "held_graphs", graphs)
    return graphs


class Model(nn.Module):
    """A module of each kind; notes what it finds while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = gnn.GCNConv(3, 3), gnn.BatchNorm(3)
        self.found: list[Processes | None] = []

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.found.append(converted._now.get())
        with alone():
            self.found.append(converted._now.get())
        return self.norm(self.conv(x, edge_index))


def test_what_a_model_has_stays(graph: DistributedGraph) -> None:
    model = Model().eval()
    model.norm.register_forward_hook(hook := lambda *_: None)
    before = copy.copy(vars(model))
    state, parameters = model.state_dict(), list(model.parameters())
    assert convert(model, graph) is model
    assert {name: each for name, each in vars(model).items() if name != "forward"} == before
    assert list(model.norm._forward_hooks.values()) == [hook]
    assert all(ours is theirs for ours, theirs in zip(model.parameters(), parameters, strict=True))
    assert model.state_dict().keys() == state.keys()
    assert inspect.signature(model.forward) == inspect.signature(Model().forward)
    assert not any(module.training for module in model.modules())
    # What runs inside of a layer alone is left as it is, for its messages to be compiled.
    assert [name for name, each in model.named_modules() if "forward" in vars(each)] == [
        "", "conv", "norm", "norm.module",
    ]  # fmt: skip


def test_the_processes_are_known_while_the_model_runs_alone(graph: DistributedGraph) -> None:
    model, x = Model(), torch.ones(4, 3)
    with onehop.patch():
        model(x, graph.edge_index)
        convert(convert(model, graph), graph)(x, graph.edge_index)
    assert model.found == [None, converted._ALONE, Processes(None, 1), converted._ALONE]
    assert converted._now.get() is None
    with pytest.raises(ValueError, match="too many"):
        convert(Raising(), graph)()
    assert converted._now.get() is None


class Raising(nn.Module):
    def forward(self) -> None:
        raise ValueError("too many")


def test_inside_of_alone_a_model_is_alone(graph: DistributedGraph) -> None:
    model = convert(Model(), graph)
    with onehop.patch(), alone():
        model(torch.ones(4, 3), graph.edge_index)
    assert model.found == [converted._ALONE] * 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_converted_and_their_own(copied, graph: DistributedGraph) -> None:
    model = convert(Model(), graph)
    other = copied(model)
    with torch.no_grad():
        other.conv.lin.weight.zero_()
    with onehop.patch():
        out = other.eval()(torch.ones(4, 3), graph.edge_index)
    assert model.training
    assert not out.any()
    assert other.found == [Processes(None, 1), converted._ALONE]
    assert model.found == []


def test_a_forward_that_was_set_on_a_module_runs(graph: DistributedGraph) -> None:
    model = nn.Linear(2, 2)
    model.forward = lambda x: x + 1
    for _ in range(2):
        convert(model, graph)
        assert model(torch.zeros(1)) == 1


def test_models_go_when_they_are_not_referenced_any_longer(graph: DistributedGraph) -> None:
    model = convert(nn.Sequential(nn.Linear(2, 2)), graph)
    gone = weakref.ref(model)
    del model
    import gc

    gc.collect()
    assert gone() is None


def test_without_processes_a_converted_model_is_its_own(
    graph: DistributedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = convert(nn.BatchNorm1d(3), graph)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    x = torch.randn(5, 3)
    with onehop.patch():
        assert torch.equal(model(x), nn.BatchNorm1d(3)(x))


def test_graphs_of_several_types() -> None:
    relation = ("a", "to", "b")
    graph = distributed.DistributedHeteroGraph.from_edge_index_dict(
        {relation: torch.tensor([[0, 1], [1, 0]])}, {"a": 2, "b": 2}, method="greedy"
    )
    assert vars(convert(nn.ReLU(), graph))["forward"].group is graph.relations[relation].group


def test_others_are_refused(graph: DistributedGraph) -> None:
    with pytest.raises(ArgumentError, match=r"model: expected a torch\.nn\.Module, got function"):
        convert(lambda x: x, graph)
    with pytest.raises(ArgumentError, match=r"graph: expected a DistributedGraph or .*, got LocalEdges"):
        convert(nn.ReLU(), graph.edge_index)


def test_rows_may_be_a_part_while_one_is_held(held: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not may_be_divided()
    held.append("a graph")
    assert may_be_divided()
    with pytest.raises(ArgumentError, match=r"it needs .* onehop\.distributed\.convert\(model, graph"):
        processes_of("it")
    with alone():
        with alone():
            assert not may_be_divided()
        assert not may_be_divided()
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    assert not may_be_divided()
