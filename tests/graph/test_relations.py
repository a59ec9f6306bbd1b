"""Edges divided by relation, against a loop over them."""

import pytest
import torch
from hypothesis import given, strategies as st

from onehop.errors import ArgumentError
from onehop.graph.relations import divide


@given(data=st.data(), rows_of_each=st.booleans())
def test_pairs_have_the_edges_of_a_relation_and_a_destination(data, rows_of_each):
    num_src, num_dst, num_relations = (data.draw(st.integers(1, 6)) for _ in range(3))
    ends = st.tuples(
        st.integers(0, num_src - 1), st.integers(0, num_dst - 1), st.integers(0, num_relations - 1)
    )
    edges = data.draw(st.lists(ends, max_size=30))
    triples = torch.tensor(edges, dtype=torch.int64).view(-1, 3).t()
    found = divide(triples[:2], triples[2], num_relations, (num_src, num_dst), rows_of_each)
    expected: dict[tuple[int, int], list[int]] = {}
    for source, target, relation in edges:
        expected.setdefault((relation, target), []).append(
            source + relation * num_src if rows_of_each else source
        )
    assert found.pairs.num_src == (num_relations * num_src if rows_of_each else num_src)
    assert found.ends.num_dst == num_dst
    assert len(found.counts) == num_relations
    numbers = [relation for relation, count in enumerate(found.counts) for _ in range(count)]
    rowptr, col = found.pairs.rowptr.tolist(), found.pairs.col.tolist()
    got = {}
    for target in range(num_dst):
        for pair in found.ends.col[found.ends.rowptr[target] : found.ends.rowptr[target + 1]].tolist():
            got[numbers[pair], target] = col[rowptr[pair] : rowptr[pair + 1]]
    assert got == expected
    assert found.nbytes == found.pairs.nbytes + found.ends.nbytes


@pytest.mark.parametrize("what", ["source", "destination", "relation"])
@pytest.mark.parametrize("number", [-1, 2])
def test_what_is_out_of_range_is_named(what, number):
    numbers = dict.fromkeys(("source", "destination", "relation"), 0) | {what: number}
    edge_index = torch.tensor([[numbers["source"]], [numbers["destination"]]])
    with pytest.raises(ArgumentError, match=f"expected each {what} to be from 0 to 1"):
        divide(edge_index, torch.tensor([numbers["relation"]]), 2, (2, 2))
