"""Edges divided by relation, against a loop over them."""

import pytest
import torch
from hypothesis import given, strategies as st

from onehop.errors import ArgumentError
from onehop.graph.relations import divide


@given(data=st.data(), rows_of_each=st.booleans(), most=st.none() | st.integers(1, 6))
def test_pairs_have_the_edges_of_a_relation_and_a_destination(data, rows_of_each, most):
    num_src, num_dst, num_relations = (data.draw(st.integers(1, 6)) for _ in range(3))
    ends = st.tuples(
        st.integers(0, num_src - 1), st.integers(0, num_dst - 1), st.integers(0, num_relations - 1)
    )
    edges = data.draw(st.lists(ends, max_size=30))
    triples = torch.tensor(edges, dtype=torch.int64).view(-1, 3).t()
    found = divide(triples[:2], triples[2], num_relations, (num_src, num_dst), most, rows_of_each)
    expected: dict[tuple[int, int], list[int]] = {}
    for source, target, relation in edges:
        expected.setdefault((relation, target), []).append(
            source + relation * num_src if rows_of_each else source
        )
    got, reached = {}, 0
    for block in found.blocks:
        assert block.pairs.num_src == (num_relations * num_src if rows_of_each else num_src)
        assert (block.first, block.ends.num_dst) == (reached, block.last - block.first)
        assert len(block.counts) == num_relations
        reached = block.last
        numbers = [relation for relation, count in enumerate(block.counts) for _ in range(count)]
        assert most is None or len(numbers) <= most or block.last == block.first + 1
        rowptr, col = block.pairs.rowptr.tolist(), block.pairs.col.tolist()
        for target in range(block.last - block.first):
            pairs = block.ends.col[block.ends.rowptr[target] : block.ends.rowptr[target + 1]].tolist()
            assert pairs == sorted(pairs)
            for pair in pairs:
                assert block.targets[pair] == target
                got[numbers[pair], block.first + target] = col[rowptr[pair] : rowptr[pair + 1]]
    assert reached == num_dst
    assert got == expected
    assert most is not None or len(found.blocks) == 1
    assert found.nbytes == sum(
        each.nbytes for block in found.blocks for each in (block.pairs, block.ends, block.targets)
    )


def test_a_block_has_as_many_destinations_as_fit():
    targets = torch.tensor([0, 0, 1, 2, 2, 2, 3])
    edges = torch.stack([torch.zeros_like(targets), targets])
    found = divide(edges, torch.tensor([0, 1, 0, 0, 1, 2, 0]), 3, (1, 6), most=3)
    assert [(block.first, block.last) for block in found.blocks] == [(0, 2), (2, 3), (3, 6)]


@pytest.mark.parametrize("what", ["source", "destination", "relation"])
@pytest.mark.parametrize("number", [-1, 2])
def test_what_is_out_of_range_is_named(what, number):
    numbers = dict.fromkeys(("source", "destination", "relation"), 0) | {what: number}
    edge_index = torch.tensor([[numbers["source"]], [numbers["destination"]]])
    with pytest.raises(ArgumentError, match=f"expected each {what} to be from 0 to 1"):
        divide(edge_index, torch.tensor([numbers["relation"]]), 2, (2, 2))
