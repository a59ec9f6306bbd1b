"""The operators of pyg-lib that draw neighbours, and put together what was drawn, without pyg-lib."""

import pytest
import torch
import torch_geometric.typing

import onehop
from onehop.errors import ArgumentError, IndexRangeError
from onehop.integrations.pyg.loaders import draws

pytestmark = pytest.mark.skipif(torch_geometric.typing.WITH_PYG_LIB, reason="PyG has pyg-lib")
N = 60
# Arguments of neighbor_sample before csc, without times and weights.
NOTHING = (None, None, None, None)


@pytest.fixture(autouse=True)
def patched():
    with onehop.patch():
        yield


@pytest.fixture
def graph():
    """Rows of 0 to 11 distinct neighbours."""
    rows = [torch.randperm(N)[: node % 12].sort().values for node in range(N)]
    rowptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return rowptr, torch.cat(rows)


def pairs(*ends):
    return list(zip(*(each.tolist() for each in ends), strict=True))


def check(graph, out, fan_outs, csc, seed):
    """Every edge is one of the graph, and as many are drawn as there are, or as asked for."""
    rowptr, col = graph
    row, found, node, edge, nodes_per_hop, edges_per_hop = out
    if csc:
        row, found = found, row
    assert node[: len(seed)].tolist() == seed.tolist()
    assert len(node) == sum(nodes_per_hop)
    assert len(edge) == sum(edges_per_hop)
    assert len(node.unique()) == len(node)
    assert node[found].tolist() == col[edge].tolist()
    assert all(rowptr[n] <= e < rowptr[n + 1] for n, e in pairs(node[row], edge))
    begin = first = 0
    for fan_out, nodes, edges in zip(fan_outs, nodes_per_hop, edges_per_hop, strict=False):
        rows = row[first : first + edges]
        assert rows.tolist() == sorted(rows.tolist())
        degrees = rowptr.diff()[node[begin : begin + nodes]]
        counts = torch.bincount(rows - begin, minlength=nodes)
        assert counts.tolist() == (degrees if fan_out < 0 else degrees.clamp(max=fan_out)).tolist()
        begin, first = begin + nodes, first + edges


@pytest.mark.parametrize("csc", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_neighbours_of_seeds(graph, csc, dtype):
    seed = torch.tensor([11, 23, 0, 5], dtype=dtype)
    graph = tuple(each.to(dtype) for each in graph)
    for fan_outs in ([3, 4], [-1, -1, -1], [2, 0]):
        out = torch.ops.pyg.neighbor_sample(*graph, seed, fan_outs, *NOTHING, csc)
        assert all(each.dtype is dtype for each in out[:4])
        check(
            [each.long() for each in graph],
            [*(each.long() for each in out[:4]), *out[4:]],
            fan_outs,
            csc,
            seed,
        )
    without = torch.ops.pyg.neighbor_sample(*graph, seed, [3], return_edge_id=False)
    assert without[3] is None


def test_the_generator_decides(graph):
    seed = torch.arange(N)
    torch.manual_seed(1)
    first, second = (torch.ops.pyg.neighbor_sample(*graph, seed, [3])[3] for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(first, torch.ops.pyg.neighbor_sample(*graph, seed, [3])[3])
    assert not torch.equal(first, second)


def test_disjoint_and_with_replacement(graph):
    seed = torch.tensor([11, 23, 11])
    row, col, node, edge, nodes, edges = torch.ops.pyg.neighbor_sample(
        *graph, seed, [20, 2], *NOTHING, True, True, True, True
    )
    assert node[:3].tolist() == [[0, 11], [1, 23], [2, 11]]
    assert len(node.unique(dim=0)) == len(node) == sum(nodes)
    assert edges[0] == 60
    assert torch.equal(node[row, 0], node[col, 0])
    assert torch.equal(node[row, 1], graph[1][edge])


@pytest.mark.parametrize("of_edges", [False, True])
def test_times(graph, of_edges):
    rowptr, col = graph
    seed, seed_time = torch.tensor([11, 23]), torch.tensor([20, 40])
    # Neighbours are sorted, so they ascend by time.
    time = torch.arange(N)
    times = (None, time[col]) if of_edges else (time, None)
    for strategy in ("uniform", "last"):
        row, target, node, edge, _, _ = torch.ops.pyg.neighbor_sample(
            *graph, seed, [3, 2], *times, seed_time, None, True, False, True, True, strategy
        )
        assert (time[node[row, 1]] <= seed_time[node[row, 0]]).all()
        if strategy == "last":
            allowed = [e for e in range(int(rowptr[11]), int(rowptr[12])) if col[e] <= 20]
            assert edge[target == 0].tolist() == allowed[-3:]
    if not of_edges:
        out = torch.ops.pyg.neighbor_sample(*graph, seed, [3], *times, None, None, True, False, True, True)
        assert (out[2][:, 1] <= seed[out[2][:, 0]]).all()


def test_weights(graph):
    _, col = graph
    weight = (col % 2).double()
    out = torch.ops.pyg.neighbor_sample(*graph, torch.tensor([11, 23]), [1], None, None, None, weight)
    assert (out[2][2:] % 2 == 1).all()


def test_several_types(graph):
    rowptr, col = graph
    types, kinds = ["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "of", "a")]
    keys = ["__".join(kind) for kind in kinds]
    arguments = [
        types,
        kinds,
        dict.fromkeys(keys, rowptr),
        dict.fromkeys(keys, col),
        {"a": torch.tensor([11, 23])},
        {keys[0]: [2, 3], keys[1]: [-1, 1], keys[2]: [1, 0]},
        *NOTHING,
    ]
    for csc in (False, True):
        row, found, node, edge, nodes_per_hop, edges_per_hop = torch.ops.pyg.hetero_neighbor_sample(
            *arguments, csc
        )
        assert node["a"][:2].tolist() == [11, 23]
        assert nodes_per_hop["b"][0] == 0
        assert {kind: sum(each) for kind, each in nodes_per_hop.items()} == {k: len(node[k]) for k in types}
        for key, (src, _, dst) in zip(keys, kinds, strict=True):
            assert sum(edges_per_hop[key]) == len(edge[key])
            rows, neighbours = (found[key], row[key]) if csc else (row[key], found[key])
            of_rows, of_neighbours = (dst, src) if csc else (src, dst)
            assert node[of_neighbours][neighbours].tolist() == col[edge[key]].tolist()
            assert all(rowptr[n] <= e < rowptr[n + 1] for n, e in pairs(node[of_rows][rows], edge[key]))
        # In the first hop the rows of "a" alone have seeds.
        drawing = [key for key, kind in zip(keys, kinds, strict=True) if kind[2 if csc else 0] == "a"]
        assert all((edges_per_hop[key][0] > 0) == (key in drawing) for key in keys)


def test_several_types_with_times(graph):
    rowptr, col = graph
    time = {"a": torch.arange(N)}
    out = torch.ops.pyg.hetero_neighbor_sample(
        ["a"], [("a", "to", "a")], {"a__to__a": rowptr}, {"a__to__a": col}, {"a": torch.tensor([11, 23])},
        {"a__to__a": [5]}, time, None, {"a": torch.tensor([20, 40])}, None, True, False, True, True,
    )  # fmt: skip
    node = out[2]["a"]
    assert node.shape[1] == 2
    assert (node[:, 1] <= torch.tensor([20, 40])[node[:, 0]]).all()


# What several processes drew


def distributed(graph, seed, fan_outs, disjoint):
    """PyG's distributed sampler in one process: the parts own even and odd nodes."""
    nodes, trees = seed, torch.arange(len(seed))
    batch = list(pairs(trees, nodes)) if disjoint else nodes.tolist()
    drawn, of_trees, edges, counts = [], [], [], []
    for fan_out in fan_outs:
        part = nodes % 2
        order = torch.where(part == 0, (part == 0).cumsum(0), (part == 1).cumsum(0)) - 1
        outs = [torch.ops.pyg.dist_neighbor_sample(*graph, nodes[part == p], fan_out) for p in (0, 1)]
        found, edge, of_tree, count = torch.ops.pyg.merge_sampler_outputs(
            [out[0] for out in outs], [out[1] for out in outs], [out[2] for out in outs],
            part.tolist(), order.tolist(), 2, fan_out, trees, disjoint,
        )  # fmt: skip
        drawn.append(found)
        of_trees.append(of_tree)
        edges.append(edge)
        counts += count
        met = list(pairs(of_tree, found)) if disjoint else found.tolist()
        fresh = [each for each in dict.fromkeys(met) if each not in batch]
        batch += fresh
        nodes = torch.tensor([each[1] if disjoint else each for each in fresh], dtype=torch.long)
        trees = torch.tensor([each[0] for each in fresh] if disjoint else [], dtype=torch.long)
    ends = torch.ops.pyg.relabel_neighborhood(
        seed, torch.cat(drawn), counts, N, torch.cat(of_trees) if disjoint else None, True, disjoint
    )
    return *ends, torch.tensor(batch), torch.cat(edges)


@pytest.mark.parametrize("disjoint", [False, True])
def test_parts_draw_what_one_process_draws(graph, disjoint):
    seed = torch.tensor([11, 23, 7, 46])
    found = distributed(graph, seed, [-1, -1], disjoint)
    expected = torch.ops.pyg.neighbor_sample(*graph, seed, [-1, -1], *NOTHING, True, False, True, disjoint)
    assert all(map(torch.equal, found, expected[:4]))


def test_neighbours_with_duplicates(graph):
    rowptr, col = graph
    seed = torch.tensor([11, 23, 11, 0])
    node, edge, bounds = torch.ops.pyg.dist_neighbor_sample(*graph, seed, 4)
    assert node[:4].tolist() == seed.tolist()
    assert node[4:].tolist() == col[edge].tolist()
    assert bounds == [4, 8, 12, 16, 16]
    for place, of in enumerate(seed.tolist()):
        drawn = edge[bounds[place] - 4 : bounds[place + 1] - 4]
        assert ((rowptr[of] <= drawn) & (drawn < rowptr[of + 1])).all()
        assert len(drawn.unique()) == len(drawn)
    # A seed that is given twice draws twice.
    assert any(
        edges[:4].tolist() != edges[8:12].tolist()
        for edges in (torch.ops.pyg.dist_neighbor_sample(*graph, seed, 4)[1] for _ in range(10))
    )
    time = torch.arange(N)
    node, edge, bounds = torch.ops.pyg.dist_neighbor_sample(
        *graph, seed, 2, time, None, torch.tensor([20, 40, 30, 50]), None, True, False, True, True
    )
    assert (node[:, 1] <= torch.tensor([20, 40, 30, 50])[node[:, 0]])[4:].all()
    assert node[:4, 0].tolist() == [0, 1, 2, 3]


def test_nodes_of_several_types_are_numbered_hop_by_hop():
    types, kinds = ["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("b", "of", "b")]
    keys = ["__".join(kind) for kind in kinds]
    # Seeds a: 5, 6. Hop 1: 5 draws b 1 and 2, 6 draws b 2. Hop 2: b 1 draws a 6, b 2 draws a 9 and b 1.
    row, col = torch.ops.pyg.hetero_relabel_neighborhood(
        types,
        kinds,
        {"a": torch.tensor([5, 6])},
        {"a": torch.tensor([6, 9]), "b": torch.tensor([1, 2, 2, 1])},
        {keys[0]: [[2, 1], []], keys[1]: [[], [1, 1]], keys[2]: [[], [0, 1]]},
        {"a": 10, "b": 10},
    )
    assert pairs(row[keys[0]], col[keys[0]]) == [(0, 0), (0, 1), (1, 1)]
    assert pairs(row[keys[1]], col[keys[1]]) == [(0, 1), (1, 2)]
    assert pairs(row[keys[2]], col[keys[2]]) == [(1, 0)]
    disjoint = torch.ops.pyg.hetero_relabel_neighborhood(
        types,
        [kinds[0]],
        {"a": torch.tensor([5, 6])},
        {"a": torch.tensor([], dtype=torch.long), "b": torch.tensor([1, 2, 2])},
        {keys[0]: [[2, 1]]},
        {"a": 10, "b": 10},
        {"a": torch.tensor([], dtype=torch.long), "b": torch.tensor([0, 0, 1])},
        False,
        True,
    )
    assert pairs(disjoint[0][keys[0]], disjoint[1][keys[0]]) == [(0, 0), (0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("name", "changed", "sentence"),
    [
        ("neighbor_sample", {"seed": torch.tensor([N])}, "node 60"),
        ("neighbor_sample", {"seed": torch.tensor([1], dtype=torch.int32)}, "one dtype"),
        ("neighbor_sample", {"directed": False}, "directed: expected True"),
        ("neighbor_sample", {"temporal_strategy": "first"}, "temporal_strategy"),
        ("neighbor_sample", {"node_time": torch.arange(N)}, "disjoint"),
        ("neighbor_sample", {"edge_time": torch.arange(3), "disjoint": True}, "seeds need times"),
        (
            "neighbor_sample",
            {"node_time": torch.arange(N), "edge_time": torch.arange(3), "disjoint": True},
            "nodes or of edges",
        ),
        (
            "neighbor_sample",
            {"node_time": torch.arange(N), "edge_weight": torch.ones(3), "disjoint": True},
            "by weight or by time",
        ),
        ("neighbor_sample", {"edge_weight": -torch.ones(3)}, "zero or more"),
        ("dist_neighbor_sample", {"node_time": torch.arange(N), "num_neighbors": 1}, "disjoint"),
    ],
)
def test_bad_input_is_refused(graph, name, changed, sentence):
    arguments = {
        "rowptr": graph[0],
        "col": graph[1],
        "seed": torch.tensor([3]),
        "num_neighbors": [2],
    } | changed
    for key in ("edge_time", "edge_weight"):
        if key in changed:
            arguments[key] = changed[key][:1].expand(len(graph[1]))
    with pytest.raises(ArgumentError, match=sentence):
        getattr(torch.ops.pyg, name)(**arguments)


def test_lists_that_contradict_each_other_are_refused():
    one, ops = torch.tensor([1]), torch.ops.pyg
    with pytest.raises(ArgumentError, match="counts 2 nodes, and 1 were drawn"):
        ops.relabel_neighborhood(one, one, [2], 9)
    with pytest.raises(ArgumentError, match="batch: with disjoint"):
        ops.relabel_neighborhood(one, one, [1], 9, None, False, True)
    with pytest.raises(ArgumentError, match="counts 2 nodes of 'a', and 1 were drawn"):
        ops.hetero_relabel_neighborhood(
            ["a"], [("a", "to", "a")], {"a": one}, {"a": one}, {"a__to__a": [[2]]}, {"a": 9}
        )
    merge = ops.merge_sampler_outputs
    with pytest.raises(ArgumentError, match="one number each for every seed"):
        merge([one], [one], [[1, 1]], [0], [], 1, 1, None, False)
    with pytest.raises(ArgumentError, match="expected 2 of each"):
        merge([one], [one], [[1, 1]], [0], [0], 2, 1, None, False)
    with pytest.raises(ArgumentError, match="drawn for no such seed"):
        merge([one], [one], [[1, 1]], [0], [1], 1, 1, None, False)
    with pytest.raises(ArgumentError, match="number of its tree"):
        merge([one], [one], [[1, 1]], [0], [0], 1, 1, None, True)


def test_a_neighbour_out_of_range_is_refused(graph):
    rowptr, col = graph
    with pytest.raises(IndexRangeError, match="source 60 of edge"):
        torch.ops.pyg.neighbor_sample(rowptr, col + (col == col.max()) * (N - col), torch.arange(N), [-1])


def test_schemas(graph):
    opcheck = torch.library.opcheck
    opcheck(torch.ops.pyg.neighbor_sample.default, (*graph, graph[1], [2]), test_utils="test_schema")
    assert {each.name for each in draws.OPERATORS} <= set(dir(torch.ops.pyg))
