"""Sums over windows, interpreted, against the reference."""

import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, on
from onehop.kernels.triton import blocks, blocks_aggregate
from onehop.plans import TritonPlan
from tests.kernels.triton.small_graphs import GRAPHS
from tests.kernels.triton.test_aggregate import check, inputs_for

# Windows of more than 16 columns are cut.
PLAN = TritonPlan(split_edges=1, block_edges=16, block_features=32, num_warps=1, variant="blocks")
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def through_blocks(small_tiles, use, monkeypatch):
    """The plan; what was computed another way fails, and what should be is told by ``runs``."""
    runs = []
    real = blocks_aggregate.aggregate
    monkeypatch.setattr(blocks_aggregate, "aggregate", lambda *args: (runs.append(args), real(*args))[1])
    use(PLAN)
    return runs


@pytest.mark.parametrize("names", [("x",), ("x", "weight")], ids="+".join)
@pytest.mark.parametrize("name", GRAPHS)
def test_hostile_graphs(name, names, through_blocks):
    check(name, "sum", inputs_for(name, 20, torch.bfloat16, names))
    assert len(through_blocks) == 2  # forward, and the gradient to x


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["random", "one_hub", "empty_rows"])
def test_mean(name, dtype):
    check(name, "mean", inputs_for(name, 5, dtype, ("x", "weight")))


@pytest.mark.parametrize("width", [0, 1, 16, 33, 63])
def test_widths(width):
    check("random", "sum", inputs_for("random", width, torch.float16, ("x",)))


@pytest.mark.parametrize("columns", [16, 32])
@pytest.mark.parametrize("name", ["one_hub", "bipartite_tall"])
def test_scales_and_columns_at_a_time(name, columns, use):
    use(TritonPlan(split_edges=2, block_edges=columns, num_warps=1, variant="blocks"))
    check(name, "mean", inputs_for(name, 4, torch.float16, ("x", "weight", "src_scale", "dst_scale")))


def test_weights_keep_what_16_bits_cannot_hold():
    """Weights in float32 far below what float16 can tell from zero."""
    edge_index, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x = torch.full((num_src, 3), 2.0**14, dtype=torch.float16)
    weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(0)) * 1e-7
    ours = onehop.aggregate(graph, x, weight, backend="triton")
    exact = reference.aggregate(edge_index, x.double(), num_dst, weight.double())
    torch.testing.assert_close(ours.double(), exact, rtol=1e-3, atol=0)


def test_weights_have_more_bits_than_tensor_cores_keep():
    edge_index, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    backend = TritonBackend(PLAN)
    x = torch.randn(num_src, 3, generator=torch.Generator().manual_seed(1)).half()
    weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(0))
    ours = backend.run(graph, on(graph, Aggregate, x=x, weight=weight, widen=True))
    exact = reference.aggregate(edge_index, x.double(), num_dst, weight.double())
    assert (ours - exact).abs().max() < 2**-19 * exact.abs().max()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy, which interprets
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_special_numbers_stay_with_their_edges(bad, weighted):
    edge_index, num_src, num_dst = GRAPHS["bipartite_tall"]
    inputs = inputs_for("bipartite_tall", 5, torch.float16, ("x", "weight") if weighted else ("x",))
    inputs["x"][1, 2:] = bad
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    ours = onehop.aggregate(graph, backend="triton", **inputs)
    exact = reference.aggregate(edge_index, num_dst=num_dst, **inputs)
    assert exact.isfinite().all(1).any()
    assert not exact.isfinite().all()
    torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", ["rows_apart", "columns_apart", "expanded"])
def test_features_that_are_not_contiguous(layout):
    edge_index, num_src, num_dst = GRAPHS["random"]
    base = torch.randn(num_src * 4, 60, generator=torch.Generator().manual_seed(1)).half()
    x = {
        "rows_apart": base[::4, 3:20],
        "columns_apart": base[:num_src, ::3],
        "expanded": base[:1, :20].expand(num_src, 20),
    }[layout]
    ours = onehop.aggregate(Graph.from_edge_index(edge_index, num_src), x, backend="triton")
    exact = reference.aggregate(edge_index, x.float(), num_dst)
    torch.testing.assert_close(ours.float(), exact, rtol=2e-3, atol=2e-3)


def test_edges_numbered_in_64_bits(monkeypatch):
    monkeypatch.setattr(blocks, "_NARROW_EDGES", 0)
    check("one_hub", "sum", inputs_for("one_hub", 5, torch.float16, ("x", "weight")))


def test_the_same_bits_every_time():
    edge_index, num_src, _ = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x = inputs_for("one_hub", 5, torch.bfloat16, ("x",))["x"]
    assert torch.equal(*(onehop.aggregate(graph, x, backend="triton") for _ in range(2)))


@pytest.mark.parametrize(
    ("dtype", "names"), [(torch.float32, ("x",)), (torch.float64, ("x", "weight"))], ids=str
)
def test_other_dtypes_take_the_kernels(dtype, names, through_blocks):
    check("one_hub", "sum", inputs_for("one_hub", 5, dtype, names))
    assert not through_blocks


def test_weights_of_heads_take_the_kernels(through_blocks):
    edge_index, num_src, _ = GRAPHS["random"]
    x = torch.ones(num_src, 2, 3, dtype=torch.float16)
    check("random", "sum", {"x": x, "weight": torch.ones(edge_index.size(1), 2, dtype=torch.float16)})
    assert not through_blocks
