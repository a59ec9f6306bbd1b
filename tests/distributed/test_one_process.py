"""The operators over a group of one process: what they refuse, and graphs of a node or two."""

import gc
import weakref
from typing import Any

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, distributed
from onehop.distributed import DistributedGraph
from onehop.distributed.exchange import Traffic
from tests.distributed.cases import NODES, hostile, random

pytestmark = pytest.mark.usefixtures("one_process")
EDGES = hostile().size(1)


def divided(edge_index: torch.Tensor, nodes: int) -> DistributedGraph:
    return DistributedGraph.from_edge_index(edge_index, nodes, method="greedy")


@pytest.fixture(scope="module")
def graph(one_process: None) -> DistributedGraph:
    return divided(hostile(), NODES)


X, HEADS = torch.ones(NODES, 4), torch.ones(NODES, 2, 3)
GOOD: dict[str, tuple[Any, ...]] = {
    "aggregate": (X,),
    "gat": (HEADS, torch.ones(NODES, 2), torch.ones(NODES, 2)),
    "gatv2": (HEADS, HEADS, torch.ones(2, 3)),
    "attention": (HEADS, HEADS, HEADS),
}
BAD = [
    ("aggregate", 0, X[1:], f"x: expected a row for each of the {NODES} nodes that rank 0 owns"),
    ("aggregate", 0, X.long(), "x: expected float32"),
    ("gat", 0, X, "x: expected"),
    ("gat", 1, torch.ones(NODES, 3), "score_src: expected torch.float32 of shape"),
    ("gat", 2, torch.ones(NODES, 3), "score_dst: expected torch.float32 of shape"),
    ("gat", 2, torch.ones(NODES, 2).double(), "score_dst: expected torch.float32 of shape"),
    ("gat", 1, torch.ones(NODES - 1, 2), "score_src: expected a row"),
    ("gatv2", 0, X, "x_src: expected"),
    ("gatv2", 1, HEADS[1:], "x_dst: expected a row"),
    ("attention", 0, HEADS[1:], "query: expected a row"),
    ("attention", 1, HEADS[1:], "key: expected a row"),
    ("attention", 2, X, "value: expected"),
    ("attention", 2, HEADS.double(), "value: expected the key's dtype torch.float32, got torch.float64"),
]


@pytest.mark.parametrize("operator", GOOD)
def test_what_the_cases_change_is_right(operator: str, graph: DistributedGraph) -> None:
    assert len(getattr(distributed, operator)(graph, *GOOD[operator])) == NODES


@pytest.mark.parametrize(("operator", "place", "value", "message"), BAD)
def test_names_what_is_wrong(
    operator: str, place: int, value: Any, message: str, graph: DistributedGraph
) -> None:
    operands = list(GOOD[operator])
    operands[place] = value
    with pytest.raises(ArgumentError, match=message):
        getattr(distributed, operator)(graph, *operands)


@pytest.mark.parametrize("operator", GOOD)
def test_a_part_is_asked_for(operator: str) -> None:
    whole = Graph.from_edge_index(hostile(), NODES)
    with pytest.raises(ArgumentError, match=r"expected an onehop\.distributed\.DistributedGraph, got Graph"):
        getattr(distributed, operator)(whole, *GOOD[operator])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduce": "median"}, "reduce: expected one of sum, mean, max, min, got 'median'"),
        ({"weight": torch.ones(EDGES - 1)}, f"weight: expected one entry for each of the {EDGES} edges"),
        (
            {"src_scale": torch.ones(NODES + 1)},
            f"src_scale: expected one entry for each of the {NODES} owned",
        ),
        ({"dst_scale": torch.ones(NODES, 1)}, f"dst_scale: expected one entry for each of the {NODES} owned"),
    ],
    ids=str,
)
def test_aggregate_names_what_is_wrong(
    settings: dict[str, Any], message: str, graph: DistributedGraph
) -> None:
    with pytest.raises(ArgumentError, match=message):
        distributed.aggregate(graph, X, **settings)


SMALL = {
    "a node alone": (torch.empty(2, 0, dtype=torch.long), 1),
    "a node and its loop": (torch.tensor([[0], [0]]), 1),
    "two nodes, one edge": (torch.tensor([[1], [0]]), 2),
    "hostile": (hostile(), NODES),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_operators_are_those_of_the_whole_graph(name: str, dtype: torch.dtype) -> None:
    edge_index, nodes = SMALL[name]
    whole, part = Graph.from_edge_index(edge_index, nodes), divided(edge_index, nodes)
    weight = random(edge_index.size(1), seed=4).to(dtype)
    rows = [random(nodes, 2, 3, seed=seed).to(dtype) for seed in range(3)]
    scores = [random(nodes, 2, seed=seed).to(dtype) for seed in range(2)]
    att, settings = random(2, 3).to(dtype), {"src_scale": scores[0][:, 0], "dst_scale": scores[1][:, 1]}
    mine = {name: each[part.owned_nodes] for name, each in settings.items()}
    pairs = {
        "gatv2": (onehop.gatv2(whole, *rows[:2], att), distributed.gatv2(part, *owned(part, rows[:2]), att)),
        "gat": (onehop.gat(whole, rows[0], *scores), distributed.gat(part, *owned(part, [rows[0], *scores]))),
        "attention": (onehop.attention(whole, *rows), distributed.attention(part, *owned(part, rows))),
    }
    for reduce in ("sum", "mean", "max", "min"):
        expected = onehop.aggregate(whole, rows[0], weight, reduce, **settings)
        found = distributed.aggregate(part, *owned(part, rows[:1]), weight[part.owned_edges], reduce, **mine)
        pairs[reduce] = (expected, found)
    for operator, (expected, found) in pairs.items():
        assert found.dtype is dtype, operator
        torch.testing.assert_close(
            found, expected[part.owned_nodes], msg=lambda text, o=operator: f"{o}: {text}"
        )


def owned(part: DistributedGraph, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [each[part.owned_nodes] for each in tensors]


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ([0] * NODES, r"owner: expected an int32 or int64 tensor \[60\]"),
        (torch.zeros(NODES), r"owner: expected an int32 or int64 tensor \[60\]"),
        (torch.zeros(NODES, dtype=torch.bool), r"owner: expected an int32 or int64 tensor \[60\]"),
        (torch.zeros(NODES + 1, dtype=torch.int64), r"owner: expected an int32 or int64 tensor \[60\]"),
        (torch.zeros(NODES, 1, dtype=torch.int32), r"owner: expected an int32 or int64 tensor \[60\]"),
        (torch.ones(NODES, dtype=torch.int64), "owner: expected ranks from 0 to 0, got 1 to 1"),
        (torch.arange(-1, NODES - 1).clamp_(max=0), "owner: expected ranks from 0 to 0, got -1 to 0"),
    ],
    ids=["list", "float", "bool", "longer", "two dimensions", "too large", "negative"],
)
def test_owners_that_are_none(owner: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DistributedGraph.from_edge_index(hostile(), NODES, owner=owner)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_owners(dtype: torch.dtype) -> None:
    part = DistributedGraph.from_edge_index(hostile(), NODES, owner=torch.zeros(NODES, dtype=dtype))
    assert torch.equal(part.owned_nodes, torch.arange(NODES))
    none = torch.zeros(0, dtype=dtype)
    assert DistributedGraph.from_edge_index(torch.empty(2, 0).long(), 0, owner=none).num_nodes == 0


def test_traffic_is_counted_from_the_last_reset() -> None:
    graph = divided(hostile(), NODES)
    distributed.aggregate(graph, X)
    counted = graph.traffic
    assert counted != Traffic()
    distributed.aggregate(graph, X)
    assert graph.traffic.exchanges == 2 * counted.exchanges
    graph.reset_traffic()
    assert graph.traffic == Traffic()


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("times", [1, 2])
def test_implied_loops_are_edges(reduce: str, times: int) -> None:
    source, target = hostile()
    plain = hostile()[:, source != target]
    loops = torch.arange(NODES).repeat(2, times)
    kept = torch.cat([(source != target).nonzero().squeeze(1), EDGES + torch.arange(NODES * times)])
    whole = Graph.from_edge_index(torch.cat([plain, loops], 1), NODES)
    part = divided(hostile(), NODES).without_self_loops()
    for _ in range(times):
        part = part.with_self_loops()
    assert part.num_edges == whole.num_edges == len(part.owned_edges)
    assert torch.equal(part.in_degrees, whole.in_degrees[part.owned_nodes])
    # A second loop has the number of the first.
    numbers = EDGES + (kept[-NODES * times :] - EDGES) % NODES
    expected = torch.cat([kept[: -NODES * times], numbers]).sort().values
    assert torch.equal(part.owned_edges.sort().values, expected)
    ends = part.owned_nodes[part.ends()]
    assert torch.equal(
        *(each[:, (each[0] * NODES + each[1]).sort().indices] for each in (ends, whole.edge_index()))
    )
    x, scale = random(NODES, 3), random(NODES, seed=8)
    weight = random(EDGES + NODES, seed=9)
    of_whole = weight[torch.cat([kept[: -NODES * times], numbers])]
    options = {"reduce": reduce, "dst_scale": scale}
    exact = onehop.aggregate(whole, x, of_whole, **options)[part.owned_nodes]
    mine, own = x[part.owned_nodes], {"reduce": reduce, "dst_scale": scale[part.owned_nodes]}
    torch.testing.assert_close(distributed.aggregate(part, mine, weight[part.owned_edges], **own), exact)
    unweighted = onehop.aggregate(whole, x, **options)[part.owned_nodes]
    torch.testing.assert_close(distributed.aggregate(part, mine, **own), unweighted)


def test_a_graph_and_those_derived_from_it_share_what_they_can() -> None:
    part = divided(hostile(), NODES)
    plain = part.without_self_loops()
    assert plain.without_self_loops().splits is plain.splits
    assert plain.with_self_loops().splits is plain.splits
    assert plain.splits is not part.splits


def test_edges_show_whose_they_are(graph: DistributedGraph) -> None:
    assert repr(graph.edge_index) == f"LocalEdges({graph})"
    assert graph.edge_index.detach() is graph.edge_index


def test_edges_are_one_tensor_for_as_long_as_somebody_has_it() -> None:
    # The cache knows a tensor of edges by its identity, and a model asks for them once a layer.
    graph = divided(hostile(), NODES)
    edges = graph.edge_index
    assert graph.edge_index is edges
    held = weakref.ref(edges)
    del edges
    gc.collect()
    assert held() is None
