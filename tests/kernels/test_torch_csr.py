import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.backends import registry
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate
from onehop.kernels import torch_csr
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


@pytest.fixture(autouse=True)
def through_torch(monkeypatch):
    """The plan, and a machine on which the backend runs; nothing here needs triton."""
    monkeypatch.setattr(availability, "refuses", lambda device: None)
    monkeypatch.setitem(registry._BACKENDS, "triton", TritonBackend(TritonPlan(variant="torch_csr")))


def features(name, *names):
    edge_index, num_src, num_dst = HOSTILE[name]
    sizes = {
        "x": (num_src, 7),
        "weight": (edge_index.size(1),),
        "src_scale": (num_src,),
        "dst_scale": (num_dst,),
    }
    generator = torch.Generator().manual_seed(0)
    return {each: torch.randn(sizes[each], generator=generator) for each in names}


@pairwise(name=HOSTILE, reduce=["sum", "mean"])
@pytest.mark.parametrize("names", [("x",), ("x", "weight"), ("x", "src_scale", "dst_scale")], ids="+".join)
def test_hostile_graphs(name, names, reduce):
    edge_index, num_src, num_dst = HOSTILE[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    # Gradients to weights and scales need products of edges, which are the kernels'.
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, backend="triton", **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **kw),
        features(name, *names),
        ["x"],
    )


def test_the_matrix_is_kept_until_what_it_was_made_from_changes():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = features("random", "x", "weight", "src_scale")

    def kept():
        onehop.aggregate(graph, backend="triton", **inputs)
        return graph.derived["torch csr", False, torch.device("cpu"), torch.float32].matrix

    first = kept()
    assert kept() is first
    inputs["weight"].mul_(2)
    second = kept()
    assert second is not first
    torch.testing.assert_close(second.values(), 2 * first.values())
    inputs["src_scale"] = inputs["src_scale"].clone()
    assert kept() is not second
    assert graph.nbytes > first.values().nbytes


def test_autocast_does_not_reach_torchs_own_products():
    """It would take them in 16 bits."""
    edge_index, num_src, _ = HOSTILE["random"]
    graph, inputs = Graph.from_edge_index(edge_index, num_src), features("random", "x")
    expected = onehop.aggregate(graph, backend="triton", **inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = onehop.aggregate(graph, backend="triton", **inputs)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("dtype", "weight", "widen", "expected"),
    [
        (torch.float32, torch.ones(3), True, True),
        (torch.float64, None, False, True),
        (torch.float32, torch.ones(3, 2), False, False),
        (torch.bfloat16, None, False, True),
        (torch.bfloat16, None, True, False),
        (torch.float16, torch.ones(3), False, False),
    ],
    ids=str,
)
def test_what_goes_this_way(dtype, weight, widen, expected):
    call = Aggregate(x=torch.ones(3, 2, dtype=dtype), weight=weight, widen=widen)
    assert torch_csr.applies(call) is expected
