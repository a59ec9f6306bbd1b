"""Attention whose keys and values are multiplied by the matrix of an edge's type, against naive ones."""

import pytest
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph.held import bytes_held
from onehop.ops.typed_attention import row_groups, typed_attention
from onehop.reference.typed import typed_product
from tests.ops.comparison import compare

# Numbers of sources of each type, and the first destination of each.
ROWS, STARTS, NODES = [3, 4, 2, 0, 5], [0, 0, 0, 0, 1], 3
EDGES = [
    torch.tensor([[0, 2], [0, 1]]),
    torch.tensor([[1], [1]]),
    torch.empty(2, 0, dtype=torch.int64),
    torch.empty(2, 0, dtype=torch.int32),
    torch.tensor([[4, 2, 2], [0, 0, 1]]),
]


def test_groups():
    found = row_groups(EDGES, ROWS, STARTS, NODES, 6)
    assert [(group.types, group.edges) for group in found.each] == [
        (slice(0, 1), slice(0, 2)), (slice(1, 4), slice(2, 3)), (slice(4, 5), slice(3, 6)),
    ]  # fmt: skip
    assert [group.graph.edge_index().tolist() for group in found.each] == [
        [[0, 2], [0, 1]], [[1], [1]], [[4, 2, 2], [1, 1, 2]],
    ]  # fmt: skip
    assert [(group.graph.num_src, group.graph.num_dst) for group in found.each] == [(3, 3), (6, 3), (5, 3)]
    assert found.graph.edge_index().tolist() == [[0, 2, 4, 13, 11, 11], [0, 1, 1, 1, 1, 2]]
    assert (found.graph.num_src, found.graph.num_dst) == (14, 3)
    graphs = [found.graph, *(group.graph for group in found.each)]
    assert sum(bytes_held(found).values()) == sum(graph.nbytes for graph in graphs)
    (alone,) = row_groups(EDGES, ROWS, STARTS, NODES, 14).each
    assert (alone.types, alone.edges) == (slice(0, 5), slice(0, 6))


@pytest.mark.parametrize("end", [0, 1])
def test_what_is_out_of_range_is_an_error(end):
    edges = [each.clone() for each in EDGES]
    edges[4][end, 0] = 5
    with pytest.raises(ArgumentError):
        row_groups(edges, ROWS, STARTS, NODES, 6)


@pytest.mark.parametrize("most", [1, 6, 14])
@pytest.mark.parametrize(
    ("kinds", "sources"), [(ROWS, [0, 1, 2, 3, 4]), ([3, 4, 0], [0, 1, 1, 2, 0])], ids=["apart", "shared"]
)
def test_results_and_gradients(kinds, sources, most):
    """Also where several types have the same sources."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    heads, width = 2, 4
    inputs = {"query": numbers(NODES, heads, width)}
    inputs |= {f"of {name}": numbers(5, heads, width, width) for name in ("keys", "values")}
    inputs |= {f"{name} {at}": numbers(n, heads * width) for name in "kv" for at, n in enumerate(kinds)}
    counts = [kinds[number] for number in sources]
    edges = [each[:, each[0] < count] for each, count in zip(EDGES, counts, strict=True)]
    groups = row_groups(edges, counts, STARTS, NODES, most)
    source, target = groups.graph.edge_index()

    def pairs(operands: dict[str, Tensor]) -> list[tuple[list[Tensor], Tensor]]:
        _, of_keys, of_values, *ends = operands.values()
        return [(ends[: len(kinds)], of_keys), (ends[len(kinds) :], of_values)]

    def ours(**operands: Tensor) -> Tensor:
        return typed_attention(groups, sources, operands["query"], *pairs(operands), 0.5)

    def naive(**operands: Tensor) -> Tensor:
        key, value = (
            typed_product([ends[at] for at in sources], matrices).view(-1, heads, width)[source]
            for ends, matrices in pairs(operands)
        )
        score = ((operands["query"][target] * key).sum(-1) * 0.5).exp()
        sums = score.new_zeros(NODES, heads).index_add(0, target, score)
        weight = (score / sums[target]).unsqueeze(2)
        return torch.zeros_like(operands["query"]).index_add(0, target, weight * value)

    compare(ours, naive, inputs, list(inputs), magnitude=10.0)
