"""PyG's sort of node numbers under the patch."""

import pytest
import torch
from torch_geometric.sampler import utils as sampler_utils
from torch_geometric.utils import index_sort

import onehop
from onehop.integrations.rows import counted


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_numbers_are_sorted_as_by_torch(bounds, dtype, stable, stride):
    bounds(sorted_edges=0)
    for count, nodes in ((1, 1), (50, 7), (40_000, 30_000)):
        given = torch.randint(nodes, (count * stride,)).to(dtype)[::stride]
        with onehop.patch(), counted() as calls:
            found = index_sort(given, nodes, stable)
        expected = given.sort(stable=True)
        assert calls["index_sort", True] == 1
        assert type(found) is type(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours, theirs)
            assert ours.dtype is theirs.dtype


def test_without_a_bound_and_in_modules_that_imported_it(bounds):
    bounds(sorted_edges=0)
    with onehop.patch(), counted() as calls:
        values, _ = sampler_utils.index_sort(torch.tensor([3, 1, 2, 1]))
    assert values.tolist() == [1, 1, 2, 3]
    assert calls["index_sort", True] == 1


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor([], dtype=torch.int64),
        torch.tensor([2, -1, 0]),
        torch.tensor([5, 900, 7]),
        torch.tensor([2.0, 1.0]),
        torch.tensor([3, 1], dtype=torch.uint8),
    ],
)
def test_the_rest_is_pygs(bounds, given):
    bounds(sorted_edges=0)
    with onehop.patch(), counted() as calls:
        found = index_sort(given)
    assert calls["index_sort", True] == 0
    assert torch.equal(found[0], given.sort().values)


@pytest.mark.usefixtures("ordinary_bounds")
def test_few_numbers_are_pygs():
    with onehop.patch(), counted() as calls:
        index_sort(torch.arange(100).flip(0))
    assert calls["index_sort", False] == 1
