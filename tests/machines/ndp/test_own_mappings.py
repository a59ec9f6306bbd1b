"""Mappings of users: times and results beside GraNDe's own, and what they are told when they lose bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import ArgumentError, reference
from onehop.machines.ndp import Machine, Mapping, NdpConfig, NdpPlan, Sample, Topology, mappings, run_model
from onehop.machines.ndp.mapping import Pods, owners
from onehop.plans.ndp import MAPPINGS
from tests.machines.ndp.graphs import random_graph
from tests.registries import as_before

TOPOLOGY = Topology(2, 4, 2)
CONFIG = NdpConfig("two channels of four DIMMs", TOPOLOGY)


@pytest.fixture(autouse=True)
def _registered_before() -> Iterator[None]:
    with as_before():
        yield


def own(size=lambda topology: topology.ranks_per_channel, **methods):
    """A registered mapping with these methods, by its name."""
    parts = {name: staticmethod(each) for name, each in {"size": size, **methods}.items()}
    mappings.register(type("Own", (Mapping,), {"name": "own", **parts}))
    return "own"


@pytest.mark.parametrize("retile", ["rows", "index", "none"])
def test_a_copy_of_a_mapping_takes_its_time(graph, retile):
    plan = NdpPlan(own(), retile=retile)
    copy, original = (
        Machine(CONFIG).layers(graph, [48, 20], replace(plan, mapping=name)) for name in ("own", "channel")
    )
    for one, other in zip(copy, original, strict=True):
        assert one.run.mapping == "own"
        assert one.time_ns == other.time_ns == one.candidates["channel"].orders_ns[other.run.host_order]
        assert one.run.energy_nj() == other.run.energy_nj()
        assert one.index_order_ns == other.index_order_ns
        assert one.baseline == other.baseline
        assert one.priors == other.priors


@pytest.mark.parametrize("retile", ["rows", "index"])
def test_nodes_are_where_the_mapping_assigns_them(graph, retile):
    blocks = replace(TOPOLOGY, node_block=7)
    plan = NdpPlan(own(owners=lambda _, nodes: owners(blocks, nodes)), retile=retile)
    found = Machine(CONFIG).layers(graph, [48], plan)[0]
    moved = Machine(replace(CONFIG, topology=blocks)).layers(graph, [48], replace(plan, mapping="channel"))[0]
    in_turn = Machine(CONFIG).layers(graph, [48], replace(plan, mapping="channel"))[0]
    assert found.time_ns == moved.time_ns != in_turn.time_ns
    assert found.run.bytes() == moved.run.bytes()
    # What it is compared with keeps its nodes.
    assert found.candidates["channel"].orders_ns == in_turn.candidates["channel"].orders_ns
    assert found.baseline == in_turn.baseline


def test_pods_of_a_size_that_grande_has_not(graph):
    name = own(size=lambda _: 4)
    traffic = Machine(CONFIG).layers(graph, [48], NdpPlan(name, retile="index"))[0].run.traffic
    owner = owners(TOPOLOGY, 600)
    source, target = graph.edge_index().numpy()
    touched = {(int(t), int(owner[s]) // 4) for s, t in zip(source, target, strict=True)}
    assert traffic.totals()["outputs_read"] == len(touched) * 48 * 4
    assert traffic.totals()["bundle_write"] == graph.num_edges * 8


def test_slices_of_any_size(graph):
    name = own(slices=lambda width, size: [0, 5, 5, 37, 37, 40, 40, 41, width])
    found = Machine(CONFIG).layers(graph, [48], NdpPlan(name, retile="none"))[0].run.traffic
    bursts = sum(-(-4 * each // 64) for each in (5, 0, 32, 0, 3, 0, 1, 7))
    assert found.totals()["feature_read"] == graph.num_edges * bursts * 64
    assert found.totals()["feature_useful"] == graph.num_edges * 48 * 4


@pytest.mark.parametrize(
    "methods",
    [
        {"size": lambda _: 4},
        {"slices": lambda width, size: [0] * size + [width]},
        {"owners": lambda topology, nodes: [nodes % topology.ranks] * nodes},
    ],
    ids=["size", "slices", "owners"],
)
def test_results_are_the_references(methods):
    graph = random_graph(90, 700, num_src=130)
    # Small integers: every sum is exact, in any order.
    x = torch.randint(-8, 9, (130, 19), generator=torch.Generator().manual_seed(0)).float()
    out, report = Machine(CONFIG).aggregate(graph, x, NdpPlan(own(**methods), retile="index"))
    assert torch.equal(out, reference.aggregate(graph.edge_index(), x, 90))
    assert report.as_dict()["mapping"] == "own"


@pytest.mark.parametrize("retile", ["rows", "index"])
def test_a_sample_of_all_windows_is_the_whole(graph, retile):
    name = own(size=lambda _: 4, owners=lambda topology, nodes: np.arange(nodes) * 5 % topology.ranks)
    plan, machine = NdpPlan(name, retile=retile), Machine(CONFIG)
    whole = machine.layers(graph, [48], plan)[0]
    sampled = machine.sampled(graph, [48], plan, Sample(100))[0]
    assert sampled.mapping == "own"
    assert sampled.time_ns.value == pytest.approx(whole.time_ns, rel=1e-12)
    assert sampled.best_prior_ns.value == pytest.approx(whole.best_prior.serial_ns, rel=1e-12)


def test_whole_models(graph):
    machine = Machine(CONFIG)
    plan = NdpPlan(own())
    found, original = (
        run_model(machine, graph, "sage", [48, 32, 7], replace(plan, mapping=name)).as_dict()
        for name in ("own", "channel")
    )
    assert found.pop("mappings") == ["own", "own"]
    assert original.pop("mappings") == ["channel", "channel"]
    assert found == original


def test_the_next_layers_vectors_lie_where_its_mapping_has_them(graph):
    last = 600 * [3]
    machine, plan = Machine(CONFIG), NdpPlan(own(owners=lambda _, nodes: last[:nodes]), retile="index")
    finals = machine.layers(graph, [48], plan)[0].run.traffic.final_bytes
    # All on rank 3, whose pod is the first channel.
    assert finals.sum() == 600 * 48 * 4
    assert not finals[:, 8:].any()


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"size": lambda _: 3}, r"pods of a number of ranks that divides the 8 of a channel, .*; got 3"),
        ({"size": lambda _: 0}, "got 0"),
        ({"size": lambda _: "all"}, "got 'all'"),
        ({"size": lambda _: 2.0}, r"got 2\.0"),
        (
            {"slices": lambda width, size: [6 * rank for rank in range(size)] + [47]},
            "from 0 to 48.*column 47, 4 bytes of every vector, are lost",
        ),
        (
            {"slices": lambda width, size: [2, *range(2, 9), width]},
            "columns 0 to 1, 8 bytes of every vector, are lost",
        ),
        ({"slices": lambda width, size: [-1, *range(1, 8), width]}, "no other columns"),
        ({"slices": lambda width, size: [0, *range(1, 8), width + 1]}, "no other columns"),
        ({"slices": lambda width, size: [0, 9, 8, *range(10, 15), width]}, "rank 1 of a pod ends before it"),
        (
            {"slices": lambda width, size: [0, width]},
            r"from 0 to 48, ascending, got \[0, 48",
        ),
        ({"slices": lambda width, size: [0, 0.5, *range(2, 8), width]}, "from 0 to 48"),
        ({"owners": lambda _, nodes: [0] * (nodes - 2)}, r"got 598: the rows of nodes 598 to 599 are lost"),
        ({"owners": lambda _, nodes: [0] * (nodes - 1)}, r"the rows of node 599 are lost"),
        ({"owners": lambda _, nodes: [0] * (nodes + 1)}, r"\[600\], integers; got \[601\]"),
        ({"owners": lambda _, nodes: [[0] * nodes]}, r"got \[1, 600\]"),
        ({"owners": lambda _, nodes: [0.5] * nodes}, "got .*float64"),
        (
            {"owners": lambda topology, nodes: [0, 16, -1] + [0] * (nodes - 3)},
            "ranks of 600 nodes, 0 to 15: the row of node 1 is lost, on rank 16, and 1 more",
        ),
    ],
)
def test_what_is_lost_is_told(graph, methods, told):
    plan = NdpPlan(own(**methods), retile="index")
    with pytest.raises(ArgumentError, match=f"mapping 'own': expected .*{told}"):
        Machine(CONFIG).layers(graph, [48], plan)
    with pytest.raises(ArgumentError, match=told):
        Machine(CONFIG).sampled(graph, [48], plan)


FILE = """
from onehop.machines.ndp import Mapping

class Whole(Mapping):
    name = "whole"

    def size(self, topology):
        return {size}

class Other:
    pass
"""


def test_a_class_of_a_file_is_a_mapping(graph, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(size="topology.ranks"))
    plan = NdpPlan(f"{path}:Whole")
    assert NdpPlan.from_json(plan.to_json()) == plan
    machine = Machine(CONFIG)
    whole, system = (machine.layers(graph, [48], each)[0] for each in (plan, NdpPlan("system")))
    assert whole.run.mapping == "whole"
    assert whole.time_ns == system.time_ns
    assert Pods.of(TOPOLOGY, "whole") == Pods.of(TOPOLOGY, f"{path}:Whole")
    # Written anew, it is the new one.
    path.write_text(FILE.format(size=1))
    assert (
        machine.layers(graph, [48], plan)[0].time_ns
        == machine.layers(graph, [48], NdpPlan("rank"))[0].time_ns
    )
    assert Pods.of(TOPOLOGY, "whole").size == 1


def test_wrong_classes_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE.format(size=1))
    for name, told in (
        ("absent.py:Whole", "there is no file 'absent.py'"),
        ("mine.py:Half", "mine.py has no class 'Half'; it has Mapping, Whole, Other"),
        ("mine.py:Other", r"expected a subclass of onehop\.machines\.ndp\.mapping\.Mapping, got mine\.Other"),
        ("bank", r"mapping: expected one of rank, .*, or FILE\.py:CLASS, got 'bank'"),
    ):
        with pytest.raises(ArgumentError, match=told):
            Pods.of(TOPOLOGY, name)
    with pytest.raises(ArgumentError, match=r"plan: mapping must be one of adaptive, rank, .*'mine:Whole'"):
        NdpPlan("mine:Whole")


def test_names_belong_to_one_class():
    class Anew(Mapping):
        name = "rank"

    with pytest.raises(ArgumentError, match="mapping: the name 'rank' is taken; choose another"):
        mappings.register(Anew)
    with pytest.raises(ArgumentError, match=r'Mapping has no name; give it one, as name = "mine"'):
        mappings.register(Mapping)

    @dataclass
    class Thawed(Mapping):
        name = "thawed"

    with pytest.raises(ArgumentError, match="Thawed cannot be hashed; a dataclass must be frozen"):
        mappings.register(Thawed)


def test_a_class_may_be_registered_again(graph):
    machine, plan = Machine(CONFIG), NdpPlan(own(), retile="index")
    assert machine.layers(graph, [48], plan)[0].run.traffic.pods.size == 8
    own(size=lambda _: 2)
    assert machine.layers(graph, [48], plan)[0].run.traffic.pods.size == 2
    assert list(mappings).count("own") == MAPPINGS.count("own") == 1
