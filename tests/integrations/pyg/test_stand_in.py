"""What PyG leaves to pyg-lib, under the patch and without pyg-lib."""

import math

import pytest
import torch
import torch_geometric.typing
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn.models import node2vec
from torch_geometric.transforms import KNNGraph, RadiusGraph
from torch_geometric.utils import dropout_path

import onehop
from onehop.integrations.pyg import stand_in
from onehop.integrations.pyg.operators import has_pyg_lib
from tests.points.naive import neighbours

pytestmark = pytest.mark.skipif(
    getattr(torch_geometric.typing, "WITH_KNN", True),
    reason="PyG has pyg-lib, or is older",
)
BATCH = torch.arange(4).repeat_interleave(10)
PTR = torch.arange(0, 41, 10)


@pytest.fixture
def x():
    return torch.randn(40, 3)


def sources_first(pairs):
    return [(source, target) for target, source in pairs]


def edges(edge_index):
    return list(map(tuple, edge_index.t().tolist()))


def test_functions(x):
    with onehop.patch():
        assert edges(gnn.knn(x, x[:20], 3, BATCH, BATCH[:20], batch_size=4)) == neighbours(
            x, x[:20], 3, PTR, PTR.clamp(max=20)
        )
        found = gnn.knn_graph(x, 3, BATCH)
        assert edges(found) == sources_first(neighbours(x, x, 3, PTR, PTR, omit_self=True))
        found = gnn.radius_graph(x, 1.0, BATCH, max_num_neighbors=2)
        assert edges(found) == sources_first(neighbours(x, x, 2, PTR, PTR, r=1.0, omit_self=True))
        found = gnn.radius(x, x, 1.0, BATCH, BATCH)
        assert edges(found) == neighbours(x, x, 32, PTR, PTR, r=1.0)
        assert gnn.nearest(x, x[::10], BATCH, torch.arange(4)).tolist() == BATCH.tolist()
        assert gnn.fps(x, BATCH, 0.1, random_start=False).tolist() == PTR[:4].tolist()
        assert edges(gnn.knn_graph(x, 3, cosine=True)) != edges(gnn.knn_graph(x, 3))


def test_voxels():
    cells = torch.tensor([[0.0, 0.0], [1.0, 0.9], [0.2, 2.9], [0.4, 2.1], [3.9, 1.5]])
    with onehop.patch():
        # From the least to the largest coordinates: 4 cells by 3.
        assert gnn.voxel_grid(cells, 1.0).tolist() == [0, 1, 8, 8, 7]
        found = gnn.voxel_grid(cells, [1.0, 1.0], torch.tensor([0, 0, 0, 1, 1]), start=0.0, end=4.0)
        assert found.tolist() == [0, 1, 10, 25 + 10, 25 + 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0.0}, r"^size: expected numbers above 0, got 0\.0 in dimension 0"),
        ({"size": [1.0, -2.0]}, r"^size: expected numbers above 0, got -2\.0 in dimension 1"),
        ({"size": math.nan}, "^size: expected numbers above 0, got nan"),
        ({"size": 1.0, "start": 3.0, "end": 0.0}, r"^start, end: .* got 3\.0 to 0\.0 in dimension 0"),
        ({"size": 1.0, "end": [9.0, -1.0]}, r"^start, end: .* got 0\.0 to -1\.0 in dimension 1"),
        ({"size": 1.0, "start": 5.0}, r"^start, end: .* got 5\.0 to 3\."),
        ({"size": 1.0, "start": -math.inf}, "^start: expected finite coordinates, got -inf"),
        ({"size": 1.0, "end": math.nan}, "^end: expected finite coordinates, got nan"),
        ({"size": 1e-30}, r"^size: the grid has 2\^63 cells or more"),
    ],
)
def test_voxels_whose_numbers_would_mean_nothing(arguments, message, dtype):
    pos = torch.tensor([[0.0, 0.0], [3.9, 1.5]], dtype=dtype)
    with onehop.patch(), pytest.raises(onehop.ArgumentError, match=message):
        gnn.voxel_grid(pos, **arguments)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_voxels_of_positions_that_are_not_finite(wrong):
    pos = torch.tensor([[0.0, 0.0], [0.0, wrong]])
    with onehop.patch(), pytest.raises(onehop.ArgumentError, match=r"^pos: expected .* in entry \[1, 1\]"):
        gnn.voxel_grid(pos, 1.0)


def test_a_voxel_without_bounds_holds_all_points():
    with onehop.patch():
        assert gnn.voxel_grid(torch.rand(4, 2), math.inf).tolist() == [0] * 4
        assert gnn.voxel_grid(torch.tensor([[2, 7], [6, 7]]), 4).tolist() == [0, 1]


# Each takes points and the numbers of their clouds: on both sides, or on one.
SEARCHES = {
    "fps": ("batch", lambda x, b: gnn.fps(x, b)),
    "knn_graph": ("batch", lambda x, b: gnn.knn_graph(x, 1, b)),
    "radius_graph": ("batch", lambda x, b: gnn.radius_graph(x, 5.0, b)),
    "knn, x": ("batch_x", lambda x, b: gnn.knn(x, x, 1, b, b.sort().values)),
    "knn, y": ("batch_y", lambda x, b: gnn.knn(x, x, 1, b.sort().values, b)),
    "radius, x": ("batch_x", lambda x, b: gnn.radius(x, x, 1.0, b, b.sort().values)),
    "radius, y": ("batch_y", lambda x, b: gnn.radius(x, x, 1.0, b.sort().values, b)),
    "nearest, x": ("batch_x", lambda x, b: gnn.nearest(x, x, b, b.sort().values)),
    "nearest, y": ("batch_y", lambda x, b: gnn.nearest(x, x, b.sort().values, b)),
    "DynamicEdgeConv": ("batch", lambda x, b: gnn.DynamicEdgeConv(torch.nn.Linear(6, 5), k=3)(x, b)),
    "DynamicEdgeConv, a pair": (
        r"batch\[1\]",
        lambda x, b: gnn.DynamicEdgeConv(torch.nn.Linear(6, 5), k=3)((x, x), (b.sort().values, b)),
    ),
    "GravNetConv": ("batch", lambda x, b: gnn.GravNetConv(3, 5, 2, 4, k=3)(x, b)),
    "XConv": ("batch", lambda x, b: gnn.XConv(3, 5, dim=3, kernel_size=2, hidden_channels=4)(x, x, b)),
    "knn_interpolate": ("batch_[xy]", lambda x, b: gnn.unpool.knn_interpolate(x, x, x, b, b, k=1)),
    "a model": ("batch", lambda x, b: gnn.SchNet(8, 8, 1)(torch.ones(40, dtype=torch.int64), x, b)),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_clouds_that_are_out_of_order(x, search, dtype):
    name, call = SEARCHES[search]
    expected = rf"^{name}: expected numbers of clouds that ascend, got 0 behind 3 in entry 20.*argsort"
    batch = torch.cat([BATCH[20:], BATCH[:20]]).to(dtype)
    with onehop.patch(), pytest.raises(onehop.ArgumentError, match=expected):
        call(x, batch)


@pytest.mark.parametrize("search", SEARCHES)
def test_clouds_that_do_not_fit_the_points(x, search):
    _, call = SEARCHES[search]
    with onehop.patch():
        with pytest.raises(onehop.IndexRangeError, match=r"^batch[^:]*: .* from 0 on, got -1"):
            call(x, BATCH - 1)
        with pytest.raises(onehop.ArgumentError, match=r"^batch[^:]*: .* for each of the 40 rows of"):
            call(x, BATCH[:-1])
        call(x, BATCH)
        call(x, BATCH.int())


def refused(call, *arguments, **options):
    """The sentence with which a call is refused."""
    with onehop.patch(), pytest.raises(onehop.ArgumentError) as error:
        call(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize("call", [gnn.knn, gnn.radius])
def test_clouds_of_two_sides(x, call):
    few, their_batch = x[:30], BATCH[:30]
    sentence = refused(call, x, few, 1, BATCH, their_batch)
    assert "batch_x, batch_y: expected as many clouds of x as of y, got 4 and 3. Give batch_size" in sentence
    with onehop.patch():
        assert call(x, few, 1, BATCH, their_batch, batch_size=4).size(0) == 2
    sentence = refused(call, x, few, 1, BATCH, their_batch, batch_size=3)
    assert sentence == "batch_x: expected numbers of clouds below batch_size, 3, got 3."
    for batches in ((BATCH, None), (None, BATCH)):
        assert refused(call, x, x, 1, *batches).startswith("batch_x, batch_y: expected as many clouds")


def test_errors_name_the_arguments_of_pyg(x):
    assert refused(gnn.nearest, x[:30], x, BATCH[:30], BATCH).endswith("as of y, got 3 and 4.")
    assert refused(gnn.radius, x, x, 1.0, max_num_neighbors=-1).startswith("max_num_neighbors: expected at")
    assert refused(gnn.nearest, x, torch.full((2, 3), math.nan)).startswith("y: row 0 is not finite")


def test_layers_and_transforms(x):
    with pytest.raises(ImportError, match="pyg-lib"):
        gnn.DynamicEdgeConv(torch.nn.Linear(6, 5), k=3)
    with onehop.patch():
        static = gnn.EdgeConv(torch.nn.Linear(6, 5))
        layer = gnn.DynamicEdgeConv(static.nn, k=3)
        expected = static(x, gnn.knn_graph(x, 3, BATCH, loop=True))
        torch.testing.assert_close(layer(x, BATCH), expected)
        assert gnn.GravNetConv(3, 5, 2, 4, k=3)(x, BATCH).shape == (40, 5)
        assert gnn.XConv(3, 5, dim=3, kernel_size=2, hidden_channels=4)(x, x, BATCH).shape == (40, 5)
        assert KNNGraph(2)(Data(pos=x)).edge_index.shape == (2, 80)
        assert RadiusGraph(9.0, max_num_neighbors=50)(Data(pos=x)).edge_index.shape == (2, 40 * 39)


def test_splines_and_clusters():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    with pytest.raises(ImportError, match="pyg-lib"):
        gnn.SplineConv(3, 5, dim=2, kernel_size=3)
    with onehop.patch():
        assert gnn.graclus(edge_index).tolist() == [0, 0, 2, 2]
        layer = gnn.SplineConv(3, 5, dim=2, kernel_size=3)
        with pytest.warns(UserWarning, match="SplineConv"):
            out = layer(torch.randn(4, 3), edge_index, torch.rand(4, 2))
        assert out.shape == (4, 5)
        out.sum().backward()
    assert gnn.conv.spline_conv.spline_basis is None


def test_walks():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    with onehop.patch():
        model = gnn.Node2Vec(edge_index, 4, walk_length=4, context_size=4, p=0.5, q=2.0)
        positive, negative = model.sample([0, 2])
        assert positive.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]
        model.loss(positive, negative).backward()


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_edges_of_walks_are_dropped(is_sorted, dtype):
    ring = torch.stack([torch.arange(50), (torch.arange(50) + 1) % 50]).to(dtype)
    edge_index = ring if is_sorted else ring[:, torch.randperm(50)]
    with pytest.raises(ImportError, match="pyg-lib"):
        dropout_path(edge_index, p=0.1)
    with onehop.patch():
        torch.manual_seed(1)
        for p in (0.0, 1e-9, 0.1, 1.0):
            kept, mask = dropout_path(edge_index, p, 2, 4, is_sorted=is_sorted)
            assert torch.equal(kept, edge_index[:, mask])
            assert kept.dtype is dtype
            gone = set(edge_index[0, ~mask].tolist())
            # Walks have four edges each.
            assert all(
                any({(each - i + j) % 50 for j in range(4)} <= gone for i in range(4)) for each in gone
            )
            assert bool(gone) == (p >= 0.1)
        assert dropout_path(edge_index, 1.0, training=False)[1].all()
        with pytest.raises(ValueError, match="probability"):
            dropout_path(edge_index, 1.5)


def test_flags_are_those_of_before_afterwards():
    flags = ("WITH_PYG_LIB", "WITH_SPLINE", *stand_in._OPERATORS)
    with onehop.patch():
        assert all(getattr(torch_geometric.typing, flag) for flag in flags)
        assert node2vec.WITH_PYG_LIB
        assert not has_pyg_lib()
    assert not any(getattr(torch_geometric.typing, flag) for flag in flags)
    assert node2vec.WITH_PYG_LIB is False


def test_where_pyg_lib_is_installed_it_stays(monkeypatch):
    for flag in ("WITH_PYG_LIB", "WITH_SPLINE", *stand_in._OPERATORS):
        monkeypatch.setattr(torch_geometric.typing, flag, True)
    for name in ("spline_basis", "spline_weighting"):
        monkeypatch.setattr(gnn.conv.spline_conv, name, print)
    assert stand_in.rows() == []


def test_explain_names_the_operators_that_ran(x):
    with onehop.patch():
        told = onehop.explain(gnn.DynamicEdgeConv(torch.nn.Linear(2 * x.size(1), 4), 3), x)
    assert ("pyg.knn", 1, 0) in [(each.name, each.served, each.left) for each in told.functions]
    assert "pyg.knn: 1 of 1 call fast" in str(told)


def test_compiled_programs_call_them(x):
    def call(x):
        return torch.ops.pyg.knn(x * 2, x * 2, None, None, 3) + 1

    with onehop.patch():
        expected = call(x)
        torch._dynamo.reset()
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x), expected)


def test_programs_check_the_order_of_clouds_when_they_run(x):
    def call(x, batch):
        return gnn.knn_graph(x, 3, batch, batch_size=4) + 0

    with onehop.patch():
        expected = call(x, BATCH)
        torch._dynamo.reset()
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x, BATCH), expected)
        with pytest.raises(RuntimeError, match="batch: expected numbers of clouds that ascend"):
            compiled(x, BATCH.flip(0))


def test_schemas_and_fakes(x):
    with onehop.patch():
        rowptr, col = torch.arange(41), torch.arange(40).flip(0)
        for name, arguments in {
            "knn": (x, x, PTR, PTR, 3),
            "radius": (x, x, None, None, 1.0),
            "nearest": (x, x),
            "fps": (x, PTR, 0.3, False),
            "grid_cluster": (x, torch.ones(3)),
            "graclus_cluster": (rowptr, torch.zeros(40, dtype=torch.int64)),
        }.items():
            operator = getattr(torch.ops.pyg, name).default
            torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))
        walk = torch.ops.pyg.random_walk.default
        torch.library.opcheck(walk, (rowptr, col, col, 3, 1.0, 1.0), test_utils="test_schema")
