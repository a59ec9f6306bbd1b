"""Kernels under guard: nothing beside their tensors is touched, every output written, whatever the order."""

import pytest
import torch
import triton
import triton.language as tl

from onehop import Graph
from tests.kernels.triton.guarded import OutOfBoundsError, guarded
from tests.kernels.triton.small_graphs import EVERY_KERNEL
from tests.ops.checking import On


def graph():
    """A hub that is cut in either direction, rows without edges, repeated edges."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(0, 9, (2, 12), generator=generator)
    hub = torch.stack([torch.arange(14) % 9, torch.full((14,), 3)])
    return Graph.from_edge_index(torch.cat([edges, hub, hub.flip(0), edges[:, :4]], 1), 11)


GRAPH = graph()


@pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_stays_inside_writes_all_and_needs_no_order(name):
    on = On(name, GRAPH, torch.float32, 5, backend="triton")
    plain = on.outcome()
    with guarded():
        found = on.outcome()
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
