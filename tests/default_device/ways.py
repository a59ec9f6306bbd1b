"""Ways to a default device that is not the CPU, and cases that run the same under each of them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from onehop import Graph

NODES, EDGES, HEADS, WIDTH = 40, 300, 2, 4


def number(*shape: int) -> Tensor:
    """Numbers above 0, always the same of one shape, on the CPU."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)), device="cpu") + 0.1


EDGE_INDEX = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


def new_graph() -> Graph:
    """One that has nothing kept, so that all of it is made anew."""
    return Graph.from_edge_index(EDGE_INDEX, NODES)


@contextmanager
def by_context() -> Iterator[None]:
    with torch.device("meta"):
        yield


@contextmanager
def by_default() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


WAYS = {"context": by_context, "default": by_default}


def assert_same_bits(
    run: Callable[[], list[Tensor]], elsewhere: Callable[[], AbstractContextManager[None]]
) -> None:
    """What runs gives the same under the default device as without."""
    expected = run()
    with elsewhere():
        assert torch.empty(1).is_meta
        found = run()
    assert expected
    for ours, plain in zip(found, expected, strict=True):
        assert ours.is_cpu
        torch.testing.assert_close(ours, plain, rtol=0, atol=0, equal_nan=True)
