"""Stand-ins for the data sets of PyG's examples."""

import copy
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

pytest.importorskip("torch_geometric")

from benchmarks.examples import graph_sets, graphs, node_sets, ogb_sets, point_sets, typed_sets


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(2, 60),
    density=st.floats(0.1, 4),
    classes=st.integers(1, 8),
    directed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_labelled_graphs_have_no_loops_and_both_directions(
    nodes: int, density: float, classes: int, directed: bool, seed: int
) -> None:
    edges = int(nodes * density)
    edge_index, y = graphs.labelled(nodes, edges, classes, graphs.seeded(seed), directed)
    assert y.shape == (nodes,)
    assert 0 <= int(y.min()) <= int(y.max()) < classes
    pairs = set(map(tuple, edge_index.t().tolist()))
    assert len(pairs) == edge_index.size(1) <= edges
    assert all(a != b and 0 <= a < nodes and 0 <= b < nodes for a, b in pairs)
    if not directed:
        assert pairs == {(b, a) for a, b in pairs}


@settings(max_examples=30, deadline=None)
@given(nodes=st.integers(2, 60), seed=st.integers(0, 99))
def test_molecules_are_connected_and_undirected(nodes: int, seed: int) -> None:
    edge_index = graphs.molecule(nodes, graphs.seeded(seed))
    pairs = set(map(tuple, edge_index.t().tolist()))
    assert pairs == {(b, a) for a, b in pairs}
    reached, new = {0}, {0}
    while new:
        new = {b for a, b in pairs if a in new} - reached
        reached |= new
    assert reached == set(range(nodes))


def test_data_sets_have_the_shape_of_what_they_stand_for() -> None:
    data = node_sets.Planetoid("", "Cora")
    cora = data[0]
    assert (data.num_features, data.num_classes) == (1_433, 7)
    assert (cora.num_nodes, cora.num_edges) == (2_708, 10_556)
    assert [int(cora[f"{name}_mask"].sum()) for name in ("train", "val", "test")] == [140, 500, 1_000]
    assert not (cora.train_mask & cora.val_mask).any()
    proteins = graph_sets.TUDataset("", "PROTEINS")
    assert (len(proteins), proteins.num_features, proteins.num_classes) == (1_113, 3, 2)
    molecule = graph_sets.ZINC("", split="val")[0]
    assert molecule.x.dtype == molecule.edge_attr.dtype == torch.int64
    assert 1 <= int(molecule.edge_attr.min()) <= int(molecule.edge_attr.max()) <= 3
    entities = typed_sets.Entities("", "AIFB")
    assert (entities.num_classes, entities.num_relations) == (4, 90)
    assert int(entities[0].edge_type.max()) < 90
    trust = typed_sets.BitcoinOTC("", edge_window_size=1)
    assert {int(each) for graph in trust for each in graph.edge_attr.sign()} == {-1, 1}
    solids = point_sets.ModelNet("", "10", False)
    assert (len(solids), solids.num_classes, int(solids[0].face.max()) + 1) == (91, 10, solids[0].num_nodes)
    image = point_sets.MNISTSuperpixels("", False)[0]
    assert (image.num_nodes, image.num_features, image.num_edges) == (75, 1, 1_392)
    assert image.is_undirected()
    arxiv = ogb_sets.PygNodePropPredDataset("ogbn-arxiv")
    parts = arxiv.get_idx_split()
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(arxiv[0].num_nodes))


def test_data_sets_are_the_same_each_time_and_leave_random_numbers_alone() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = (graph_sets.TUDataset("", "MUTAG", use_node_attr=True) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.edge_index, other.edge_index)


def test_a_data_set_applies_the_transforms_it_is_given() -> None:
    def marked(data: Any) -> Any:
        data.marked = True
        return data

    data = graph_sets.TUDataset(
        "", "MUTAG", transform=marked, pre_transform=copy.copy, pre_filter=lambda each: each.num_nodes < 15
    )
    assert 0 < len(data) < 188
    assert all(each.marked and each.num_nodes < 15 for each in data)


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order() -> None:
    draw = random.Random(0)
    truth = [draw.randrange(2) for _ in range(30)]
    score = [draw.randrange(5) for _ in range(30)]
    pairs = [
        (a > b) + 0.5 * (a == b)
        for a, t in zip(score, truth, strict=True)
        for b, u in zip(score, truth, strict=True)
        if t == 1 and u == 0
    ]
    found = ogb_sets.Evaluator("ogbn-proteins").eval(
        {"y_true": torch.tensor(truth)[:, None], "y_pred": torch.tensor(score)[:, None]}
    )
    assert found["rocauc"] == pytest.approx(sum(pairs) / len(pairs))
