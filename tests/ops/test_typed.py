"""Products of rows with the matrix of their type, and sums of them over edges, against naive ones."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph.held import bytes_held
from onehop.kernels.products import BLOCKS, ONEDNN, TO_WEIGHT, libraries
from onehop.ops.typed import consecutive, pairs_of, side_by_side, typed_edges, typed_product, typed_sum
from onehop.reference.typed import typed_product as naive_product, typed_sum as naive_sum
from onehop.tuner import products
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

INPUTS, OUTPUTS = 5, 3
# Rows of each type.
COUNTS: dict[str, tuple[int, ...]] = {
    "some": (4, 1, 7),
    "empty types": (0, 6, 0, 0, 2, 0),
    "no rows": (0, 0, 0),
    "one type": (9,),
    "a large type": (1, 300, 1),
}
# Types of the edges of a graph.
TYPES: dict[str, Callable[[int], Tensor]] = {
    "several": lambda edges: torch.arange(edges) % 4,
    "one": lambda edges: torch.zeros(edges, dtype=torch.int64),
    "some without edges": lambda edges: 1 + 3 * (torch.arange(edges) % 2),
    "one each": torch.arange,
}


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("counts", COUNTS)
def test_products_and_gradients(counts, heads, dtype):
    of_types = COUNTS[counts]
    inputs = {
        "rows": numbers(sum(of_types), heads * INPUTS, dtype=dtype),
        "matrices": numbers(len(of_types), heads, INPUTS, OUTPUTS, dtype=dtype),
    }

    def naive(rows: Tensor, matrices: Tensor) -> Tensor:
        return naive_product(rows.split(of_types), matrices)

    def of_one_tensor(rows: Tensor, matrices: Tensor) -> Tensor:
        return typed_product(rows, matrices if heads > 1 else matrices.squeeze(1), of_types)

    def of_tensors(rows: Tensor, matrices: Tensor) -> Tensor:
        return typed_product(rows.split(of_types), matrices)

    for ours in (of_one_tensor, of_tensors):
        compare(ours, naive, inputs, list(inputs))


def test_a_tensor_of_several_types():
    rows, matrices = numbers(4, INPUTS).requires_grad_(), numbers(3, INPUTS, OUTPUTS).requires_grad_()
    ours = typed_product([rows, rows, 2 * rows], matrices)
    expected = torch.cat([rows @ matrices[0], rows @ matrices[1], 2 * rows @ matrices[2]])
    torch.testing.assert_close(ours, expected)
    for each in (ours, expected):
        each.square().sum().backward(retain_graph=True)
    found = rows.grad, matrices.grad
    doubled = torch.autograd.grad(expected.square().sum(), [rows, matrices])
    for one, other in zip(found, doubled, strict=True):
        torch.testing.assert_close(one, 2 * other)


def test_rows_and_matrices_with_gaps_and_expanded_gradients():
    counts = COUNTS["some"]
    wide = numbers(sum(counts), 2 * INPUTS).requires_grad_()
    turned = numbers(len(counts), OUTPUTS, INPUTS).requires_grad_()
    rows, matrices = wide[:, ::2], turned.transpose(1, 2)
    ours = typed_product(rows, matrices, counts)
    expected = naive_product(rows.split(counts), matrices.unsqueeze(1))
    torch.testing.assert_close(ours, expected)
    found, theirs = (torch.autograd.grad(each.sum(), [wide, turned]) for each in (ours, expected))
    for one, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("heads", [1, 2])
def test_second_derivatives_of_products(heads):
    rows, matrices = numbers(12, heads * INPUTS).requires_grad_(), numbers(3, heads, INPUTS, OUTPUTS)
    matrices.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda *x: typed_product(*x, COUNTS["some"]).pow(2), (rows, matrices))


@pytest.mark.parametrize("library", [BLOCKS, ONEDNN])
def test_products_in_another_library(library, monkeypatch):
    """Also where the backward pass is recorded, which torch's own operations alone can be in."""
    if library not in libraries(TO_WEIGHT):
        pytest.skip(f"torch has no {library} here")
    taken = []

    def chosen(kind: str, *sizes: int):
        taken.append(kind)
        return libraries(kind).get(library) or next(iter(libraries(kind).values()))

    monkeypatch.setattr(products, "library", chosen)
    bounds = dataclasses.replace(thresholds.now, product_work=0, product_block_rows=4)
    monkeypatch.setattr(thresholds, "now", bounds)
    rows = numbers(12, INPUTS, dtype=torch.float32).requires_grad_()
    matrices = numbers(3, INPUTS, OUTPUTS, dtype=torch.float32).requires_grad_()
    counts = COUNTS["some"]
    found = []
    for each in (
        typed_product(rows, matrices, counts, fastest=True),
        naive_product(rows.split(counts), matrices.unsqueeze(1)),
    ):
        loss = each.pow(3).sum()
        plain = torch.autograd.grad(loss, [rows, matrices], retain_graph=True)
        first = torch.autograd.grad(loss, [rows, matrices], create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in first), [rows, matrices])
        found.append((each, *plain, *first, *second))
    assert TO_WEIGHT in taken
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("heads", "widest", "groups"), [(4, 10, 2), (4, 1, 4), (6, 20, 2), (1, 64, 1), (5, 64, 1)]
)
def test_heads_side_by_side(heads, widest, groups):
    matrices = numbers(3, heads, INPUTS, OUTPUTS).requires_grad_()
    rows = numbers(12, heads * INPUTS)
    joined = side_by_side(matrices, widest)
    assert joined.shape == (3, groups, heads // groups * INPUTS, heads // groups * OUTPUTS)
    ours, expected = (typed_product(rows, each, COUNTS["some"]) for each in (joined, matrices))
    torch.testing.assert_close(ours, expected)
    found, theirs = (torch.autograd.grad(each.pow(2).sum(), matrices)[0] for each in (ours, expected))
    torch.testing.assert_close(found, theirs)


@pairwise(
    graph=["random", "no_edges", "no_nodes", "no_destinations", "one_hub", "multi_edges", "bipartite_tall"],
    types=TYPES,
    reduce=["sum", "mean"],
    most=[None, 1, 7],
)
def test_sums_and_gradients(graph, types, reduce, most):
    edge_index, num_src, num_dst = HOSTILE[graph]
    edge_index = edge_index[:, :150]
    edge_type = TYPES[types](edge_index.size(1))
    count = int(edge_type.max()) + 1 if edge_type.numel() else 3
    inputs = {"x": numbers(num_src, INPUTS), "matrices": numbers(count, INPUTS, OUTPUTS)}
    edges = typed_edges(edge_index, edge_type, count, (num_src, num_dst), most)

    def ours(x: Tensor, matrices: Tensor) -> Tensor:
        return typed_sum(edges, x, matrices, reduce)

    def naive(x: Tensor, matrices: Tensor) -> Tensor:
        return naive_sum(x, edge_index, edge_type, matrices, num_dst, reduce)

    compare(ours, naive, inputs, list(inputs), magnitude=10.0)


@given(data=st.data())
def test_pairs_are_numbered_type_by_type(data):
    num_nodes, num_types = (data.draw(st.integers(1, 6)) for _ in range(2))
    edges = data.draw(
        st.lists(st.tuples(st.integers(0, num_types - 1), st.integers(0, num_nodes - 1)), max_size=30)
    )
    types, nodes = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    found = pairs_of("source", nodes, types, num_nodes, num_types)
    of_pairs = [number for number, count in enumerate(found.counts) for _ in range(count)]
    assert len(found.counts) == num_types
    assert list(zip(of_pairs, found.nodes.tolist(), strict=True)) == sorted(set(edges))
    assert [(of_pairs[at], int(found.nodes[at])) for at in found.of_edges] == edges
    x, matrices = numbers(num_nodes, INPUTS), numbers(num_types, INPUTS, OUTPUTS)
    expected = torch.einsum("ek,ekm->em", x[nodes], matrices[types])
    torch.testing.assert_close(found.multiplied(x, matrices)[found.of_edges], expected)


@given(data=st.data(), rows_of_each=st.booleans(), most=st.none() | st.integers(1, 6))
def test_groups_have_the_edges_of_each_type_and_destination(data, rows_of_each, most):
    num_src, num_dst, num_types = (data.draw(st.integers(1, 6)) for _ in range(3))
    ends = st.tuples(st.integers(0, num_src - 1), st.integers(0, num_dst - 1), st.integers(0, num_types - 1))
    edges = data.draw(st.lists(ends, max_size=30))
    triples = torch.tensor(edges, dtype=torch.int64).view(-1, 3).t()
    found = typed_edges(triples[:2], triples[2], num_types, (num_src, num_dst), most, rows_of_each)
    expected: dict[tuple[int, int], list[int]] = {}
    for source, target, number in edges:
        row = source + number * num_src if rows_of_each else source
        expected.setdefault((number, target), []).append(row)
    got = {}
    for group in found:
        assert group.pairs.num_src == (num_types * num_src if rows_of_each else num_src)
        assert (group.ends.num_src, group.ends.num_dst) == (sum(group.counts), num_dst)
        assert most is None or sum(group.counts) <= most or len(group.counts) == 1
        assert group.ends.edge_index().tolist() == [list(range(sum(group.counts))), group.nodes.tolist()]
        numbers = range(group.types.start, group.types.stop)
        of_pairs = [number for number, count in zip(numbers, group.counts, strict=True) for _ in range(count)]
        rowptr, col = group.pairs.rowptr.tolist(), group.pairs.col.tolist()
        for at, (number, target) in enumerate(zip(of_pairs, group.nodes.tolist(), strict=True)):
            got[number, target] = col[rowptr[at] : rowptr[at + 1]]
    assert got == expected
    assert most is not None or len(found) == 1
    assert sum(bytes_held(found).values()) == sum(
        each.nbytes for group in found for each in (group.nodes, group.pairs, group.ends)
    )


def test_groups_have_as_many_types_as_fit():
    assert list(consecutive([3, 4, 2, 0, 5], 6)) == [slice(0, 1), slice(1, 4), slice(4, 5)]
    assert list(consecutive([3, 4, 2], None)) == [slice(0, 3)]
    assert list(consecutive([9, 9], 1)) == [slice(0, 1), slice(1, 2)]


@pytest.mark.parametrize("what", ["source", "destination", "relation"])
@pytest.mark.parametrize("number", [-1, 2])
def test_what_is_out_of_range_is_named(what, number):
    given = dict.fromkeys(("source", "destination", "relation"), 0) | {what: number}
    edge_index = torch.tensor([[given["source"]], [given["destination"]]])
    with pytest.raises(ArgumentError, match=f"expected each {what} to be from 0 to 1"):
        typed_edges(edge_index, torch.tensor([given["relation"]]), 2, (2, 2))
