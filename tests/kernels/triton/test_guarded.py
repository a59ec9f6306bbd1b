"""Kernels under guard: nothing beside their tensors is touched, every output written, whatever the order."""

import pytest
import torch
import triton
import triton.language as tl

import onehop
from onehop import Graph
from onehop.ops.arg_extremum import arg_extremum
from tests.kernels.triton.guarded import OutOfBoundsError, guarded


def graph():
    """A hub that is cut in either direction, rows without edges, repeated edges."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(0, 9, (2, 12), generator=generator)
    hub = torch.stack([torch.arange(14) % 9, torch.full((14,), 3)])
    return Graph.from_edge_index(torch.cat([edges, hub, hub.flip(0), edges[:, :4]], 1), 11)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


GRAPH = graph()
EDGES = GRAPH.num_edges
CALLS = {
    "sum": (lambda x, w: onehop.aggregate(GRAPH, x, w, backend="triton"), (random(11, 5), random(EDGES))),
    "mean": (lambda x: onehop.aggregate(GRAPH, x, reduce="mean", backend="triton"), (random(11, 17),)),
    "max": (lambda x: onehop.aggregate(GRAPH, x, reduce="max", backend="triton"), (random(11, 5),)),
    "min, weighted": (
        lambda x, w: onehop.aggregate(GRAPH, x, w, "min", backend="triton"),
        (random(11, 5), random(EDGES)),
    ),
    "max with one winner": (
        lambda x, w: arg_extremum(GRAPH, x, w, backend="triton")[0],
        (random(11, 2, 5), random(EDGES, 2)),
    ),
    "sddmm": (
        lambda a, b: onehop.sddmm(GRAPH, a, b, backend="triton"),
        (random(11, 2, 3), random(11, 2, 3)),
    ),
    "edge_softmax": (lambda s: onehop.edge_softmax(GRAPH, s, backend="triton"), (random(EDGES, 2),)),
    "gat": (
        lambda x, a, b: onehop.gat(GRAPH, x, a, b, backend="triton"),
        (random(11, 2, 5), random(11, 2), random(11, 2)),
    ),
    "gatv2": (
        lambda a, b, c: onehop.gatv2(GRAPH, a, b, c, backend="triton"),
        (random(11, 2, 5), random(11, 2, 5), random(2, 5)),
    ),
    "attention": (
        lambda q, k, v: onehop.attention(GRAPH, q, k, v, backend="triton"),
        (random(11, 2, 5), random(11, 2, 5), random(11, 2, 5)),
    ),
}


def results_of(name):
    call, inputs = CALLS[name]
    leaves = [each.clone().requires_grad_() for each in inputs]
    out = call(*leaves)
    return out, *torch.autograd.grad(out, leaves, torch.ones_like(out))


@pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
def test_stays_inside_writes_all_and_needs_no_order(name):
    plain = results_of(name)
    with guarded():
        found = results_of(name)
    for one, other in zip(plain, found, strict=True):
        assert not other.isnan().any()
        assert torch.equal(one, other), "the order of programs shows"


@triton.jit
def touches(x, count, size: tl.constexpr):
    tl.store(x + tl.arange(0, size), 1.0, mask=tl.arange(0, size) < count)


@triton.jit
def races(x):
    tl.store(x, tl.program_id(0))


def test_an_access_beside_the_tensor_is_found():
    x = torch.zeros(20)[:5]
    with guarded():
        touches[(1,)](x, 5, 8)
        with pytest.raises(Exception, match="beside the launch's tensors") as raised:
            touches[(1,)](x, 6, 8)
    causes = [raised.value, raised.value.__cause__]
    assert any(isinstance(each, OutOfBoundsError) for each in causes)


def test_a_race_between_programs_is_found():
    x = torch.zeros(1, dtype=torch.int32)
    seen = set()
    for seed in range(5):
        with guarded(seed):
            races[(7,)](x)
        seen.add(int(x))
    assert len(seen) > 1


def test_what_is_not_written_is_poisoned():
    with guarded():
        assert torch.empty(3).isnan().all()
        assert torch.zeros(1).new_empty(2, 2).isnan().all()
